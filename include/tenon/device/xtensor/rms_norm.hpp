// Root mean square normalisation. (The law, rule 4.)
// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <tenon/device/xtensor/row_sum.hpp>

namespace tenon::inline v0::device::specification {

/// y = (x r) gain,   r = 1 / sqrt(sum of x^2 / H + epsilon)
///
///   x, y  (T, H)   gain  (1, H)   r  (T, 1)
///
/// Source: Zhang and Sennrich 2019, "Root mean square layer normalization", equation 4.
inline matrix rms_norm(matrix const& x, matrix const& gain, float epsilon) {
    auto const H = static_cast<float>(x.shape(1));
    matrix const r = 1.0f / xt::sqrt(sum_of_squares(x) / H + epsilon);
    return x * r * gain;
}

}  // namespace tenon::inline v0::device::specification
