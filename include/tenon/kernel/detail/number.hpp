// Single numbers: their bits, their conversions, and the fused multiply-add, each exact or rounded once on any machine.
// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <tenon/kernel/float_environment.hpp>

#include <bit>
#include <cstdint>
#if defined(__clang__)
#pragma float_control(precise, on, push)
#endif

namespace tenon::inline v0::kernel::detail {

constexpr float float_of(std::uint32_t bits) { return std::bit_cast<float>(bits); }
constexpr std::uint32_t bits_of(float x) { return std::bit_cast<std::uint32_t>(x); }

/// Exact.
constexpr float widen_bf16(std::uint16_t b) { return float_of(static_cast<std::uint32_t>(b) << 16); }

/// Exact.
constexpr float widen_f16(std::uint16_t h) {
    std::uint32_t const sign = (h & 0x8000u) << 16, exponent = (h >> 10) & 31u, mantissa = h & 1023u;
    if (exponent == 31) return float_of(sign | 0x7f800000u | (mantissa << 13));
    if (exponent != 0) return float_of(sign | ((exponent + 112) << 23) | (mantissa << 13));
    return float_of(sign | bits_of(static_cast<float>(mantissa) * 5.9604644775390625e-8f));  // times 2^-24
}

/// Rounds to nearest even; a NaN stays one.
constexpr std::uint16_t narrow_bf16(float x) {
    std::uint32_t const u = bits_of(x);
    if ((u & 0x7fffffffu) > 0x7f800000u) return static_cast<std::uint16_t>((u >> 16) | 0x40u);
    return static_cast<std::uint16_t>((u + 0x7fffu + ((u >> 16) & 1u)) >> 16);
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
