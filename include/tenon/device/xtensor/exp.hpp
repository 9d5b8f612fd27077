// The exponential. (The law, rule 5.)
// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <tenon/device/xtensor/array.hpp>

#include <bit>
#include <cstdint>

namespace tenon::inline v0::device::specification {

/// exp(x) = 2^n exp(r) with n = round(x / ln 2), r = x - n ln 2, |r| <= ln(2) / 2, and a polynomial of degree 6 for exp(r).
///
/// Adding 1.5 * 2^23 rounds to an integer and leaves it in the low bits of t; ln 2 is two numbers, of which the first has few bits.
/// exp(NaN) = NaN, exp(+inf) = exp(88.3762), and what is below -87.33654 gives +0. An object, so that xt::exp is not found beside it.
/// Source: Moshier 1992, Cephes, expf.
inline constexpr auto exp = []<std::size_t Rank>(array<Rank> const& x) -> array<Rank> {
    constexpr float magic = 12582912.0f;
    array<Rank> const capped = xt::where(88.3762f < x, 88.3762f, x);
    array<Rank> const t = fma(capped, 1.44269504f, magic);
    array<Rank> const n = t - magic;
    array<Rank> r = fma(n, -0.693359375f, capped);
    r = fma(n, 2.12194440e-4f, r);

    array<Rank> p(x.shape(), 1.9875691500e-4f);
    for (float c : {1.3981999507e-3f, 8.3334519073e-3f, 4.1665795894e-2f, 1.6666665459e-1f, 5.0000001201e-1f}) p = fma(p, r, c);
    p = fma(r * r, p, r) + 1.0f;

    auto const add_exponent = [](float significand, float exponent) {
        return std::bit_cast<float>(std::bit_cast<std::uint32_t>(significand) + (std::bit_cast<std::uint32_t>(exponent) << 23));
    };
    p = xt::make_lambda_xfunction(add_exponent, p, t);
    return xt::where(xt::isnan(x), x, xt::where(capped < -87.33654f, 0.0f, p));
};

}  // namespace tenon::inline v0::device::specification
