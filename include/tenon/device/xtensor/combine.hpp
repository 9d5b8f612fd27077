// What becomes of the outputs of a token's experts. (docs/numerics.md, "Experts".)
// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <tenon/device/xtensor/linear.hpp>
#include <tenon/device/xtensor/rows.hpp>
#include <tenon/kernel/routing.hpp>

#include <array>
#include <cstddef>
#include <span>

namespace tenon::inline v0::device::specification {

inline constexpr int expert_groups = 8;

/// out = tree over g of z[g],   z[g] = chain over the chosen e of group g, ascending from +0, of fma(gate[e], y[e], z[g])
///
///   y[e], z[g], out  (1, n)   gate[e]  (1, 1)   8 groups: expert e of E is in group floor(8 e / E)
///
/// A group that no chosen expert is in stays +0, and is added like the others.
inline void combine(kernel::combine_call const& c) {
    std::array<matrix, expert_groups> z;
    z.fill(zeros(1, c.n));
    for (int j = 0; j < c.chosen; ++j) {
        auto const g = static_cast<std::size_t>(expert_groups * c.experts[j] / c.count);
        z[g] = fma(read(c.gates + j, 1), read(c.parts[j], c.n), z[g]);
    }
    write(c.out, tree(std::span(z)));
}

}  // namespace tenon::inline v0::device::specification
