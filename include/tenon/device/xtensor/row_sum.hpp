// Sums over a row that is never cut: 32 lanes, then their fold. (The law, rule 4.)
// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <tenon/device/xtensor/array.hpp>

#include <cstddef>

namespace tenon::inline v0::device::specification {

/// Lane i of 32 takes x[i], x[i + 32], ... from +0; then l[i] = l[i] + l[i + h] for h = 16, 8, 4, 2, 1.
///
///   x  (T, n)   take(x, l)  the lanes l after the elements x   result  (T)
inline array<1> over_lanes(array<2> const& x, auto take) {
    std::size_t const T = x.shape(0), n = x.shape(1), lanes = 32;
    array<2> l = xt::zeros<float>({T, lanes});
    for (std::size_t k = 0; k < n; k += lanes) {
        std::size_t const width = n - k < lanes ? n - k : lanes;
        array<2> const part = view(x, all(), range(k, k + width)), before = view(l, all(), range(0, width));
        noalias(view(l, all(), range(0, width))) = take(part, before);
    }
    for (std::size_t h = lanes / 2; h > 0; h /= 2)
        noalias(view(l, all(), range(0, h))) = view(l, all(), range(0, h)) + view(l, all(), range(h, 2 * h));
    return view(l, all(), 0);
}

/// The sum of each row.
inline array<1> row_sum(array<2> const& x) {
    return over_lanes(x, [](array<2> const& part, array<2> const& l) { return l + part; });
}

/// The sum of each row's squares, one rounding an element.
inline array<1> sum_of_squares(array<2> const& x) {
    return over_lanes(x, [](array<2> const& part, array<2> const& l) { return fma(part, part, l); });
}

}  // namespace tenon::inline v0::device::specification
