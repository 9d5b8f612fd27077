// Exact products of integers of fifteen bits: codes and an exponent for each row along the contraction, a sum in 64 bits, one rounding. Knows
// the layout of such a matrix and its arithmetic, in plain C++; an instruction set adds nothing but speed.
// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <tenon/core/error.hpp>

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <string>

namespace tenon::inline v0::kernel::fixed15 {

inline constexpr int most_columns = 65536;  ///< inputs of a product whose partial sums are exact; more are refused (`product_is_exact`)
inline constexpr int largest_code = 16383;

/// Subnormal to zero of the same sign.
constexpr float flushed(float x) {
    auto const bits = std::bit_cast<std::uint32_t>(x);
    return (bits & 0x7f800000U) == 0 ? std::bit_cast<float>(bits & 0x80000000U) : x;
}
/// 2^e where that is a normal number, infinity above, +0 below.
constexpr float power_of_two(int e) {
    if (e > 127) return std::numeric_limits<float>::infinity();
    return e < -126 ? 0.0f : std::bit_cast<float>(static_cast<std::uint32_t>(e + 127) << 23U);
}

/// The largest magnitude seen, as bits without a sign. NaN does not count.
constexpr std::uint32_t larger_magnitude(std::uint32_t seen, float x) {
    std::uint32_t const bits = std::bit_cast<std::uint32_t>(x) & 0x7fffffffU;
    std::uint32_t const counts = bits <= 0x7f800000U ? bits : 0;
    return counts > seen ? counts : seen;
}
/// floor(log2 m) - 13 of that, so that m 2^-e is in [8192, 16384); 0 for a row of zeros, and subnormals are zeros. Infinity counts as 2^128.
constexpr int exponent_of(std::uint32_t magnitude) {
    return magnitude < 0x00800000U ? 0 : static_cast<int>(magnitude >> 23U) - 127 - 13;
}
/// clamp(round(x 2^-e)), ties to even, with `scale` = power_of_two(-e). NaN is 0; where the scale is infinite every number but zero is as large
/// as a code can be. What is subnormal after scaling rounds to 0 by itself.
constexpr std::int16_t scaled_code(float x, float scale) {
    constexpr float largest = largest_code, magic = 12582912.0f;  // adding it rounds to an integer
    float scaled = flushed(x) * scale;
    scaled = scaled >= largest ? largest : scaled;
    scaled = scaled <= -largest ? -largest : scaled;
    return scaled == scaled ? static_cast<std::int16_t>((scaled + magic) - magic) : std::int16_t{0};
}
constexpr std::int16_t code_of(float x, int e) { return scaled_code(x, power_of_two(-e)); }

/// The number that a code stands for, exactly; infinity beyond the largest float.
constexpr float value_of(std::int16_t code, int e) {
    return static_cast<float>(code * std::bit_cast<double>(static_cast<std::uint64_t>(e + 1023) << 52U));
}
/// The product of two rows whose codes have the sum of products `s` and whose exponents add up to `e`: one rounding, of the sum.
constexpr float finished(std::int64_t s, int e) { return flushed(static_cast<float>(s) * power_of_two(e)); }

/// The largest magnitude of n numbers. Of a row that is cut: the largest of its parts'.
constexpr std::uint32_t row_magnitude(float const* x, int n) {
    std::uint32_t most = 0;
    for (int k = 0; k < n; ++k) most = larger_magnitude(most, x[k]);
    return most;
}
/// Codes of K numbers, and their exponent.
constexpr int quantize(std::int16_t* codes, float const* x, int columns) {
    int const e = exponent_of(row_magnitude(x, columns));
    for (int k = 0; k < columns; ++k) codes[k] = code_of(x[k], e);
    return e;
}

/// The exact sum of products of codes.
constexpr std::int64_t sum_of_products(std::int16_t const* a, std::int16_t const* b, int columns) {
    std::int64_t s = 0;
    for (int k = 0; k < columns; ++k) s += std::int32_t{a[k]} * b[k];
    return s;
}

// A matrix: panels of 32 outputs, each its exponents and then its codes, two inputs of one output side by side; an odd K is padded with 0.

inline constexpr int outputs = 32;  ///< of a panel

constexpr std::size_t panel_bytes(int columns) { return outputs * 4 + static_cast<std::size_t>((columns + 1) / 2) * outputs * 4; }
constexpr std::size_t packed_bytes(int rows, int columns) {
    return static_cast<std::size_t>((rows + outputs - 1) / outputs) * panel_bytes(columns);
}

/// Refuses a contraction whose partial sums may not fit.
inline void require_exact(int columns) {
    if (columns > most_columns)
        v0::detail::refuse("product_is_exact", "fixed15_1 multiplies rows of " + std::to_string(most_columns) + " inputs at most, and not of " +
                                                   std::to_string(columns) + "; canonical_1 would do");
}

/// Where the exponent of a row lies, counted in int32, and its code k, counted in int16.
constexpr std::size_t exponent_index(int row, int columns) {
    return static_cast<std::size_t>(row / outputs) * (panel_bytes(columns) / 4) + static_cast<std::size_t>(row % outputs);
}
constexpr std::size_t code_index(int row, int k, int columns) {
    auto const pair = static_cast<std::size_t>(k / 2 + 1) * outputs + static_cast<std::size_t>(row % outputs);
    return (static_cast<std::size_t>(row / outputs) * (panel_bytes(columns) / 4) + pair) * 2 + static_cast<std::size_t>(k % 2);
}

/// Exponent and codes (K) of a row of a matrix whose memory is aligned.
inline int unpack_row(std::int16_t* codes, void const* packed, int row, int columns) {
    for (int k = 0; k < columns; ++k) codes[k] = static_cast<std::int16_t const*>(packed)[code_index(row, k, columns)];
    return static_cast<std::int32_t const*>(packed)[exponent_index(row, columns)];
}

}  // namespace tenon::inline v0::kernel::fixed15
