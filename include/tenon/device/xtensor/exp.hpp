// The exponential. (The law, rule 5.)
// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <tenon/device/xtensor/matrix.hpp>

#include <bit>
#include <cmath>
#include <cstdint>
#if defined(__clang__)
#pragma float_control(precise, on, push)
#endif

namespace tenon::inline v0::device::specification {

/// exp(x) = 2^n exp(r),   n = round(x / ln 2),   r = x - n ln 2,   |r| <= ln(2) / 2,   and a polynomial of degree 6 for exp(r)
///
/// Adding 1.5 * 2^23 rounds to an integer and leaves it in the low bits of t; ln 2 comes in two parts, the first of them short; n is added
/// to the exponent field. exp(+inf) = exp(88.3762); below -87.33654 it is +0; exp(NaN) = NaN. Source: Moshier 1992, Cephes, expf.
inline float exp_of(float x) {
    if (x != x) return x;
    x = 88.3762f < x ? 88.3762f : x;
    float const t = std::fma(x, 1.44269504f, 12582912.0f), n = t - 12582912.0f;
    float r = std::fma(n, -0.693359375f, x);
    r = std::fma(n, 2.12194440e-4f, r);

    float p = 1.9875691500e-4f;
    for (float c : {1.3981999507e-3f, 8.3334519073e-3f, 4.1665795894e-2f, 1.6666665459e-1f, 5.0000001201e-1f}) p = std::fma(p, r, c);
    p = std::fma(r * r, p, r) + 1.0f;
    return x < -87.33654f ? 0.0f : std::bit_cast<float>(std::bit_cast<std::uint32_t>(p) + (std::bit_cast<std::uint32_t>(t) << 23));
}

/// exp of every element. An object, so that xt::exp is not found beside it.
inline constexpr auto exp = [](matrix const& x) { return each(exp_of, x); };

}  // namespace tenon::inline v0::device::specification
#if defined(__clang__)
#pragma float_control(pop)
#endif
