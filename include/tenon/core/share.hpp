// Which part of an axis a rank owns. One rule for widths, output rows, vocabulary and experts.
// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <tenon/core/profile.hpp>

namespace tenon::inline v0 {

/// A half-open range of indices.
struct share {
    int begin = 0, end = 0;
    constexpr int size() const { return end - begin; }
    bool operator==(share const&) const = default;
};

/// The indices of rank `rank` of `ranks`: index i of n is on rank floor(i R / n), so counts differ by at most one.
constexpr share share_of(int n, int rank, int ranks) {
    auto const first = [n, ranks](long long r) { return static_cast<int>((r * n + ranks - 1) / ranks); };
    return {first(rank), first(rank + 1)};
}
static_assert(share_of(30, 3, 8) == share{12, 15} && share_of(30, 4, 8) == share{15, 19});

/// The key/value heads of a rank. With fewer heads than ranks each head is repeated on ranks / kv_heads neighbours.
constexpr share kv_share_of(int kv_heads, int rank, int ranks) {
    if (kv_heads >= ranks) return share_of(kv_heads, rank, ranks);
    int const head = static_cast<int>(static_cast<long long>(rank) * kv_heads / ranks);
    return {head, head + 1};
}

inline constexpr int most_segments = numeric::canonical_1.segments;

/// Segments of a product over `width` inputs whose sharding unit is `granule`: the largest power of two <= 8 that divides
/// width / granule. A property of the model, never of the plan.
constexpr int segments_of(int width, int granule) {
    int const units = width / granule;
    int segments = most_segments;
    while (units % segments != 0) segments /= 2;
    return segments;
}

/// The granule of a width that is no row of heads: 32 where 32 divides it, else 1.
constexpr int granule_of(int width) { return width % numeric::canonical_1.granule == 0 ? numeric::canonical_1.granule : 1; }
static_assert(segments_of(96, granule_of(96)) == 1 && segments_of(56, granule_of(56)) == 8);

}  // namespace tenon::inline v0
