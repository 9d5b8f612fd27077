// Sums over a row that is never cut: 32 lanes, then their fold. (The law, rule 4.)
// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <tenon/device/xtensor/matrix.hpp>

#include <cstddef>

namespace tenon::inline v0::device::specification {

/// Lane i of 32 takes x[i], x[i + 32], ... from +0; then l[i] = l[i] + l[i + h] for h = 16, 8, 4, 2, 1.
///
///   x  (T, n)   l  (T, 32), at last (T, 1)   take(x, l): lanes l after elements x
inline matrix over_lanes(matrix const& x, auto take) {
    std::size_t const T = x.shape(0), n = x.shape(1), lanes = 32;
    matrix l = zeros(T, lanes);
    for (std::size_t k = 0; k < n; k += lanes) {
        std::size_t const width = n - k < lanes ? n - k : lanes;
        put(l, 0, take(columns(x, k, k + width), columns(l, 0, width)));
    }
    for (std::size_t h = lanes / 2; h > 0; h /= 2) l = columns(l, 0, h) + columns(l, h, 2 * h);
    return l;
}

/// The sum of each row.  x (T, n), result (T, 1)
inline matrix row_sum(matrix const& x) {
    return over_lanes(x, [](matrix const& part, matrix const& l) -> matrix { return l + part; });
}

/// The sum of each row's squares.
inline matrix sum_of_squares(matrix const& x) {
    return over_lanes(x, [](matrix const& part, matrix const& l) -> matrix { return fma(part, part, l); });
}

}  // namespace tenon::inline v0::device::specification
