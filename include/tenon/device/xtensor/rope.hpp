// Rotary position embedding. (The law, rule 6; its tables are kernel/rope_frequencies.hpp's.)
// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <tenon/device/xtensor/array.hpp>

#include <cstddef>

namespace tenon::inline v0::device::specification {

/// Every head's halves (a, b) turn by the angles of their row:   a' = fma(a, c, 0 - b s)   b' = fma(b, c, a s)
///
///   x, y  (T, Q, D)   cosines c, sines s  (T, D / 2)
///
/// Source: Su et al. 2021, "RoFormer", section 3.4.2, in the half-split layout.
inline array<3> rope(array<3> const& x, array<2> const& cosines, array<2> const& sines) {
    std::size_t const half = cosines.shape(1);
    auto const low = range(0, half), high = range(half, 2 * half);
    auto const a = view(x, all(), all(), low), b = view(x, all(), all(), high);
    auto const c = view(cosines, all(), newaxis(), all()), s = view(sines, all(), newaxis(), all());

    array<3> y = x;
    noalias(view(y, all(), all(), low)) = fma(a, c, 0.0f - rounded(b * s));
    noalias(view(y, all(), all(), high)) = fma(b, c, a * s);
    return y;
}

}  // namespace tenon::inline v0::device::specification
