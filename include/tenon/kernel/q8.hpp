// Numbers in eight bits: 32 of them under one scale. Knows one block, how it is made and how it is stored in a row; panels and products are elsewhere.
// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <tenon/core/convert.hpp>
#include <tenon/core/dtype.hpp>
#include <tenon/core/profile.hpp>

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#if defined(__clang__)
#pragma float_control(precise, on, push)
#endif

namespace tenon::inline v0::kernel {

inline constexpr int q8_block = numeric::canonical_1.weight_block;  ///< inputs under one scale; part of the law
inline constexpr int q8_block_bytes = 2 + q8_block;                 ///< of a block in a row: the scale in half precision, then the codes, both little-endian

/// How a block is divided, from the largest magnitude m in it: codes are x * inverse, rounded to even; a code is worth `scale`.
struct q8_step {
    float scale = 0.0f;    ///< m / 127
    float inverse = 0.0f;  ///< 127 / m; 0 where m is 0, NaN, or so small that it would be infinite
};

/// `largest`: the bits of m. As bits a NaN is larger than infinity, and infinity than any number, so that both reach the scale.
constexpr q8_step q8_step_of(std::uint32_t largest) noexcept {
    float const m = std::bit_cast<float>(largest);
    float const inverse = m > 0.0f ? 127.0f / m : 0.0f;
    return {m / 127.0f, std::bit_cast<std::uint32_t>(inverse) == 0x7f800000U ? 0.0f : inverse};
}

/// The low eight bits, signed, of fma(x, inverse, 12582912). The product of two floats is exact in binary64, and so one addition rounds it to
/// the same integer, ties to even, on machines without that instruction too.
constexpr std::int8_t q8_code(float x, float inverse) noexcept {
    double const product = static_cast<double>(x) * static_cast<double>(inverse);
    return static_cast<std::int8_t>(std::bit_cast<std::uint64_t>(product + 0x1.8p52) & 0xffU);
}

/// The largest magnitude of 32 numbers, as bits.
constexpr std::uint32_t q8_largest(float const* x) noexcept {
    std::uint32_t m = 0;
    for (int k = 0; k < q8_block; ++k) {
        std::uint32_t const size = std::bit_cast<std::uint32_t>(x[k]) & 0x7fffffffU;
        m = size > m ? size : m;
    }
    return m;
}

/// The least magnitude whose block has no scale in half precision: m / 127 would round to infinity. Infinities and NaN are beyond it too.
inline constexpr float q8_limit = 127.0f * 65520.0f;

/// A weight's block: 32 codes, and the scale rounded to half.
inline std::uint16_t quantize_q8(std::int8_t* codes, float const* x) noexcept {
    q8_step const step = q8_step_of(q8_largest(x));
    for (int k = 0; k < q8_block; ++k) codes[k] = q8_code(x[k], step.inverse);
    return narrow_f16(step.scale);
}

/// `count` stored elements (f32, bf16, f16; need not be aligned) as floats.
inline void widen_elements(float* to, std::byte const* from, dtype type, std::size_t count) noexcept {
    if (type == dtype::f32)
        copy_f32(to, from, count);
    else if (type == dtype::bf16)
        widen_bf16(to, from, count);
    else
        widen_f16(to, from, count);
}

/// The first of K stored elements that no block of a weight can hold, or -1.
inline int beyond_q8(std::byte const* from, dtype type, int columns) noexcept {
    float x[q8_block];
    for (int k = 0; k < columns; k += q8_block) {
        widen_elements(x, from + static_cast<std::ptrdiff_t>(k) * bytes_of(type), type, q8_block);
        if (q8_largest(x) < std::bit_cast<std::uint32_t>(q8_limit)) continue;
        for (int i = 0; i < q8_block; ++i)
            if ((std::bit_cast<std::uint32_t>(x[i]) & 0x7fffffffU) >= std::bit_cast<std::uint32_t>(q8_limit)) return k + i;
    }
    return -1;
}

/// Block `b` of a row held as blocks side by side.
inline void store_q8(std::byte* row, int b, std::uint16_t scale, std::int8_t const* codes) noexcept {
    std::byte* const to = row + static_cast<std::ptrdiff_t>(b) * q8_block_bytes;
    std::memcpy(to, &scale, sizeof scale);
    std::memcpy(to + sizeof scale, codes, q8_block);
}

static_assert(narrow_f16(q8_step_of(std::bit_cast<std::uint32_t>(q8_limit)).scale) == 0x7c00U &&
              narrow_f16(q8_step_of(std::bit_cast<std::uint32_t>(q8_limit) - 1).scale) == 0x7bffU);
static_assert(q8_code(2.5f, 1.0f) == 2 && q8_code(-3.5f, 1.0f) == -4 && q8_code(-127.0f, 1.0f) == -127);

}  // namespace tenon::inline v0::kernel
#if defined(__clang__)
#pragma float_control(pop)
#endif
