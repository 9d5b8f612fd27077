// Stored elements as float32: exact widening, and rounding back to 16 bits. Knows bit patterns, no tensors and no devices.
// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <bit>
#include <cstddef>
#include <cstdint>

namespace tenon::inline v0 {

/// bfloat16 to float32: exact, every bit pattern kept, NaN payloads too.
constexpr float widen_bf16(std::uint16_t bits) noexcept { return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16U); }

namespace detail {
constexpr std::uint32_t widen_f16_bits(std::uint16_t bits) noexcept {
    std::uint32_t const sign = (bits & 0x8000U) << 16U, exponent = (bits >> 10U) & 31U, fraction = bits & 0x3FFU;
    if (exponent == 31) return sign | 0x7F800000U | fraction << 13U;
    if (exponent != 0) return sign | (exponent + 112) << 23U | fraction << 13U;
    if (fraction == 0) return sign;
    // A subnormal, fraction * 2^-24, is a normal float32: shift its first set bit out of the fraction.
    auto const shift = static_cast<std::uint32_t>(std::countl_zero(fraction)) - 21U;
    return sign | (113 - shift) << 23U | ((fraction << shift) & 0x3FFU) << 13U;
}
}  // namespace detail

/// IEEE half to float32: exact; subnormals become normals, signed zeros, infinities and NaN payloads are kept.
constexpr float widen_f16(std::uint16_t bits) noexcept { return std::bit_cast<float>(detail::widen_f16_bits(bits)); }

/// Eight bits, 1-4-3 with bias 7, to float32: exact. This kind has no infinity: 0x7F and 0xFF are NaN, 448 is the largest number.
/// Source: Micikevicius et al. 2022, "FP8 formats for deep learning", section 3.
constexpr float widen_f8_e4m3(std::uint8_t bits) noexcept {
    std::uint32_t const sign = (bits & 0x80U) << 24U, exponent = (bits >> 3U) & 15U, fraction = bits & 7U;
    if ((bits & 0x7FU) == 0x7FU) return std::bit_cast<float>(sign | 0x7FC00000U);
    if (exponent != 0) return std::bit_cast<float>(sign | (exponent + 120U) << 23U | fraction << 20U);
    float const size = static_cast<float>(fraction) * 0x1p-9F;
    return sign != 0 ? -size : size;
}

/// float32 to bfloat16, to nearest, ties to even. NaN stays NaN: made quiet, sign and upper payload kept.
constexpr std::uint16_t narrow_bf16(float value) noexcept {
    auto const bits = std::bit_cast<std::uint32_t>(value);
    if ((bits & 0x7FFFFFFFU) > 0x7F800000U) return static_cast<std::uint16_t>(bits >> 16U | 0x40U);
    return static_cast<std::uint16_t>((bits + 0x7FFFU + ((bits >> 16U) & 1U)) >> 16U);
}

/// float32 to IEEE half, to nearest, ties to even; beyond 65504 (from 65520 on) to infinity. NaN stays NaN, made quiet.
constexpr std::uint16_t narrow_f16(float value) noexcept {
    auto const bits = std::bit_cast<std::uint32_t>(value);
    std::uint32_t const sign = (bits >> 16U) & 0x8000U, size = bits & 0x7FFFFFFFU;
    std::uint32_t result = 0;
    if (size > 0x7F800000U) {
        result = 0x7E00U | ((size >> 13U) & 0x3FFU);
    } else if (size >= 0x47800000U) {  // 2^16
        result = 0x7C00U;
    } else if (size >= 0x38800000U) {  // 2^-14, the least normal; a carry out of the fraction moves the exponent, up to infinity
        result = (size - 0x38000000U + 0xFFFU + ((size >> 13U) & 1U)) >> 13U;
    } else if (size > 0x33000000U) {  // above 2^-25, half of the least subnormal
        std::uint32_t const shift = 126U - (size >> 23U), whole = (size & 0x7FFFFFU) | 0x800000U;
        result = (whole + (1U << (shift - 1U)) - 1U + ((whole >> shift) & 1U)) >> shift;
    }
    return static_cast<std::uint16_t>(sign | result);
}

namespace detail {
// Byte by byte: little-endian on every machine, and aligned to nothing. Compilers make one load of it.
constexpr std::uint16_t load_16(std::byte const* from) noexcept {
    return static_cast<std::uint16_t>(std::to_integer<unsigned>(from[0]) | std::to_integer<unsigned>(from[1]) << 8U);
}
constexpr std::uint32_t load_32(std::byte const* from) noexcept {
    return static_cast<std::uint32_t>(load_16(from)) | static_cast<std::uint32_t>(load_16(from + 2)) << 16U;
}
}  // namespace detail

/// One little-endian element at `from`, which need not be aligned.
constexpr float load_f16(std::byte const* from) noexcept { return widen_f16(detail::load_16(from)); }
constexpr float load_bf16(std::byte const* from) noexcept { return widen_bf16(detail::load_16(from)); }
constexpr float load_f32(std::byte const* from) noexcept { return std::bit_cast<float>(detail::load_32(from)); }

/// `count` elements at `from`, little-endian and unaligned, to `to`.
constexpr void widen_f16(float* to, std::byte const* from, std::size_t count) noexcept {
    for (std::size_t i = 0; i < count; ++i) to[i] = load_f16(from + 2 * i);
}
constexpr void widen_bf16(float* to, std::byte const* from, std::size_t count) noexcept {
    for (std::size_t i = 0; i < count; ++i) to[i] = load_bf16(from + 2 * i);
}
constexpr void copy_f32(float* to, std::byte const* from, std::size_t count) noexcept {
    for (std::size_t i = 0; i < count; ++i) to[i] = load_f32(from + 4 * i);
}

static_assert(widen_f8_e4m3(0x7E) == 448.0F && widen_f8_e4m3(0x81) == -0x1p-9F && widen_f8_e4m3(0x08) == 0x1p-6F);
static_assert(widen_f16(0x0001) == 0x1p-24F && widen_f16(0x03FF) == 1023 * 0x1p-24F && widen_f16(0x0400) == 0x1p-14F &&
              widen_f16(0xC000) == -2.0F);
static_assert(narrow_bf16(0x1.01p0F) == 0x3F80 && narrow_bf16(0x1.03p0F) == 0x3F82 && narrow_f16(65519.0F) == 0x7BFF &&
              narrow_f16(65520.0F) == 0x7C00);

}  // namespace tenon::inline v0
