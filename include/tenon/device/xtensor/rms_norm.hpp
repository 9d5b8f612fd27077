// Root mean square normalisation. (The law, rule 4.)
// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <tenon/device/xtensor/row_sum.hpp>

#include <cstddef>

namespace tenon::inline v0::device::specification {

/// y = (x r) gain,   r = 1 / sqrt(sum of x^2 / H + epsilon)
///
///   x, y  (T, H)   gain  (H)   r  (T)
///
/// Source: Zhang and Sennrich 2019, "Root mean square layer normalization", equation 4.
inline array<2> rms_norm(array<2> const& x, array<1> const& gain, float epsilon) {
    auto const H = static_cast<float>(x.shape(1));
    array<1> const r = 1.0f / xt::sqrt(sum_of_squares(x) / H + epsilon);
    return x * column(r) * gain;
}

}  // namespace tenon::inline v0::device::specification
