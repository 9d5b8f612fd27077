// Partial sums of a group of ranks, added in the order of the law: neighbours first.
// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <tenon/device/backend.hpp>

#include <bit>
#include <cstddef>
#include <cstring>

namespace tenon::inline v0::detail {

/// Rows of scratch that the tree of `ranks` needs.
constexpr int tree_depth(int ranks) { return static_cast<int>(std::bit_width(static_cast<unsigned>(ranks))); }

/// out = the tree over `part(p)` for p = 0, 1, ..., ranks - 1, a power of two, of `count` values each. Pairs, then pairs of pairs: level k
/// of `stack` (tree_depth(ranks) x count) holds the sum of 2^k ranks.
template <class Part>
void add_tree(device::backend const& ops, float* out, float* stack, int ranks, std::size_t count, Part part) {
    if (ranks == 1) {
        std::memcpy(out, part(0), count * sizeof(float));
        return;
    }
    std::size_t depth = 0;
    for (int p = 0; p < ranks; p += 2) {
        float* sum = stack + depth * count;
        ops.add(sum, part(p), part(p + 1), count);
        for (int done = p / 2; (done & 1) != 0; done >>= 1) {
            --depth;
            float* const lower = stack + depth * count;
            ops.add(lower, lower, sum, count);
            sum = lower;
        }
        ++depth;
    }
    std::memcpy(out, stack, count * sizeof(float));
}

}  // namespace tenon::inline v0::detail
