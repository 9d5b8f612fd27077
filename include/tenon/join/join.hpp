// How column-parallel parts or row-parallel partial sums become whole again. Both give the bits of the unsplit product.
// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <concepts>
#include <cstdint>

namespace tenon::inline v0 {

enum class join_kind : std::uint8_t { gather, reduce };

namespace join {
template <class J> concept policy = requires {
    { J::kind } -> std::convertible_to<join_kind>;
};

/// Column-parallel over a gathered input: every output is one full-length product, so only whole values move.
struct gather {
    static constexpr join_kind kind = join_kind::gather;
};

/// Row-parallel: partial sums over whole segments, added in the canonical tree (NUMERICS: neighbours first).
struct reduce {
    static constexpr join_kind kind = join_kind::reduce;
};

static_assert(policy<gather> && policy<reduce>);
}  // namespace join

}  // namespace tenon::inline v0
