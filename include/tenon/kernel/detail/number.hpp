// Single numbers: their bits and the fused multiply-add, rounded once on any machine.
// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <tenon/core/convert.hpp>
#include <tenon/kernel/float_environment.hpp>

#include <bit>
#include <cstdint>
#if defined(__clang__)
#pragma float_control(precise, on, push)
#endif

namespace tenon::inline v0::kernel::detail {

constexpr float float_of(std::uint32_t bits) { return std::bit_cast<float>(bits); }
constexpr std::uint32_t bits_of(float x) { return std::bit_cast<std::uint32_t>(x); }

/// An activation as an operand of a product over pairs: bf16, to nearest even; a denormal one is zero.
constexpr std::uint16_t pair_operand(float x) {
    std::uint16_t const bits = narrow_bf16(x);
    return (bits & 0x7F80U) != 0 ? bits : static_cast<std::uint16_t>(bits & 0x8000U);
}

/// a * b + c rounded once, without hardware for it: the product of two floats is exact in binary64, and the sum is rounded to odd, so that
/// only the last rounding counts (53 >= 24 + 2). Source: Boldo and Melquiond 2008, "Emulation of a FMA and correctly rounded sums".
constexpr float soft_fma(float a, float b, float c) {
    double const product = static_cast<double>(a) * static_cast<double>(b), addend = static_cast<double>(c);
    double const sum = product + addend;
    double const t = sum - product;
    double const error = (product - (sum - t)) + (addend - t);  // TwoSum: sum + error is exact; NaN where the sum is not finite
    std::uint64_t u = std::bit_cast<std::uint64_t>(sum);
    std::uint64_t const inexact = static_cast<std::uint64_t>(error > 0.0) | static_cast<std::uint64_t>(error < 0.0);
    std::uint64_t const toward = (error > 0.0) == (sum > 0.0) ? 1 : ~std::uint64_t{0};
    u += ((u & 1) ^ 1) & inexact ? toward : 0;  // a select, not a branch
    return static_cast<float>(std::bit_cast<double>(u));
}

/// a * b + c rounded once.
inline float fused(float a, float b, float c) {
#if defined(__FMA__) || defined(__aarch64__) || defined(__FP_FAST_FMAF)
    return __builtin_fmaf(a, b, c);
#else
    return soft_fma(a, b, c);
#endif
}

}  // namespace tenon::inline v0::kernel::detail
#if defined(__clang__)
#pragma float_control(pop)
#endif
