// Rotary position embedding. (The law, rule 6; its tables are kernel/rope_frequencies.hpp's.)
// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <tenon/device/xtensor/matrix.hpp>

#include <cstddef>

namespace tenon::inline v0::device::specification {

/// The halves (a, b) of one head turn by the angles of their row:   a' = fma(a, c, 0 - b s)   b' = fma(b, c, a s)
///
///   x, y  (T, D)   cosines c, sines s  (T, D / 2)
///
/// Source: Su et al. 2021, "RoFormer", section 3.4.2, with halves in place of neighbours.
inline matrix rope(matrix const& x, matrix const& c, matrix const& s) {
    std::size_t const half = c.shape(1);
    matrix const a = columns(x, 0, half), b = columns(x, half, 2 * half);
    matrix y = x;
    put(y, 0, fma(a, c, 0.0f - rounded(b * s)));
    put(y, half, fma(b, c, a * s));
    return y;
}

}  // namespace tenon::inline v0::device::specification
