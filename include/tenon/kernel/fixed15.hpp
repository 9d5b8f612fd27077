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

/// The largest magnitude seen, as bits without a sign: subnormals count as zero, and NaN not at all.
constexpr std::uint32_t larger_magnitude(std::uint32_t seen, float x) {
    std::uint32_t const bits = std::bit_cast<std::uint32_t>(x) & 0x7fffffffU;
    bool const counts = bits >= 0x00800000U && bits <= 0x7f800000U;
    return counts && bits > seen ? bits : seen;
}
/// floor(log2 m) - 13 of that, so that m 2^-e is in [8192, 16384); 0 for a row of zeros. Infinity counts as 2^128.
constexpr int exponent_of(std::uint32_t magnitude) {
    return magnitude == 0 ? 0 : static_cast<int>(magnitude >> 23U) - 127 - 13;
}
/// clamp(round(x 2^-e)), ties to even. NaN is 0; where 2^-e is infinite every number but zero is as large as a code can be.
constexpr std::int16_t code_of(float x, int e) {
    constexpr float largest = largest_code, magic = 12582912.0f;  // adding it rounds to an integer
    float const scaled = flushed(flushed(x) * power_of_two(-e));
    if (scaled != scaled) return 0;
    if (scaled >= largest) return largest_code;
    if (scaled <= -largest) return -largest_code;
    return static_cast<std::int16_t>((scaled + magic) - magic);
}
/// The product of two rows whose codes have the sum of products `s` and whose exponents add up to `e`: one rounding, of the sum.
constexpr float finished(std::int64_t s, int e) { return flushed(static_cast<float>(s) * power_of_two(e)); }

/// Exponent of K numbers.
constexpr int row_exponent(float const* x, int columns) {
    std::uint32_t most = 0;
    for (int k = 0; k < columns; ++k) most = larger_magnitude(most, x[k]);
    return exponent_of(most);
}
/// Codes of K numbers, and their exponent.
constexpr int quantize(std::int16_t* codes, float const* x, int columns) {
    int const e = row_exponent(x, columns);
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
constexpr std::size_t packed_bytes(int rows, int columns) { return static_cast<std::size_t>((rows + outputs - 1) / outputs) * panel_bytes(columns); }

/// Refuses a contraction whose partial sums may not fit.
inline void require_exact(int columns) {
    if (columns > most_columns)
        v0::detail::refuse("product_is_exact", "fixed15_1 multiplies rows of " + std::to_string(most_columns) + " inputs at most, and not of " +
                                                   std::to_string(columns) + "; canonical_1 would do");
}

/// Writes row `row` of a packed matrix, whose memory was zero: outputs after the last are multiplied too.  x (K)
inline void pack_row(std::byte* packed, int row, int columns, float const* x) {
    std::byte* const panel = packed + static_cast<std::size_t>(row / outputs) * panel_bytes(columns);
    int const in_panel = row % outputs, e = row_exponent(x, columns);
    std::memcpy(panel + in_panel * 4, &e, 4);
    for (int k = 0; k < columns + columns % 2; ++k) {
        std::int16_t const code = k < columns ? code_of(x[k], e) : std::int16_t{0};
        std::memcpy(panel + outputs * 4 + ((k / 2 * outputs + in_panel) * 2 + k % 2) * 2, &code, 2);
    }
}
/// Exponent and codes (K) of a row.
inline int unpack_row(std::int16_t* codes, std::byte const* packed, int row, int columns) {
    std::byte const* const panel = packed + static_cast<std::size_t>(row / outputs) * panel_bytes(columns);
    int const in_panel = row % outputs;
    int e = 0;
    std::memcpy(&e, panel + in_panel * 4, 4);
    for (int k = 0; k < columns; ++k) std::memcpy(codes + k, panel + outputs * 4 + ((k / 2 * outputs + in_panel) * 2 + k % 2) * 2, 2);
    return e;
}

/// 32-bit words of a row of prepared activations: the exponent, then the codes, two a word.
constexpr std::size_t prepared_words(int columns) { return 1 + static_cast<std::size_t>((columns + 1) / 2); }

/// Lays out rows `first` .. `end` - 1.  x (rows, K)
inline void prepare(void* to, float const* x, std::ptrdiff_t x_stride, int columns, int first, int end) {
    for (int m = first; m < end; ++m) {
        auto* const word = static_cast<std::uint32_t*>(to) + static_cast<std::size_t>(m) * prepared_words(columns);
        float const* const row = x + m * x_stride;
        int const e = row_exponent(row, columns);
        word[0] = static_cast<std::uint32_t>(e);
        for (int k = 0; k < columns; k += 2) {
            auto const low = static_cast<std::uint16_t>(code_of(row[k], e));
            auto const high = static_cast<std::uint16_t>(k + 1 < columns ? code_of(row[k + 1], e) : 0);
            word[1 + k / 2] = low | static_cast<std::uint32_t>(high) << 16U;
        }
    }
}

/// Adds the products of `pairs` pairs of inputs to 32 sums of high and of low planes of the activation: a = 128 high + low, and both sums
/// of 512 pairs fit 32 bits.
inline void add_pairs(std::int32_t* high, std::int32_t* low, std::int16_t const* codes, std::uint32_t const* activations, int pairs) {
    for (int p = 0; p < pairs; ++p, codes += 2 * outputs) {
        auto const a0 = static_cast<std::int16_t>(activations[p] & 0xffffU), a1 = static_cast<std::int16_t>(activations[p] >> 16U);
        std::int32_t const h0 = a0 >> 7, h1 = a1 >> 7, l0 = a0 & 127, l1 = a1 & 127;
        for (int n = 0; n < outputs; ++n) {
            high[n] += h0 * codes[2 * n] + h1 * codes[2 * n + 1];
            low[n] += l0 * codes[2 * n] + l1 * codes[2 * n + 1];
        }
    }
}
inline constexpr int pairs_at_once = 512;

/// y[m][n] for the outputs of panels [first_panel, first_panel + panel_count) of a matrix of N rows; `add` is add_pairs or as good.
template <class Add>
void multiply(float* y, std::ptrdiff_t y_stride, std::byte const* packed, int N, int columns, void const* prepared, int rows,
              int first_panel, int panel_count, Add add) {
    int const pairs = (columns + 1) / 2;
    for (int panel = first_panel; panel < first_panel + panel_count; ++panel) {
        std::byte const* const at = packed + static_cast<std::size_t>(panel) * panel_bytes(columns);
        auto const* const codes = reinterpret_cast<std::int16_t const*>(at + outputs * 4);
        for (int m = 0; m < rows; ++m) {
            auto const* const words = static_cast<std::uint32_t const*>(prepared) + static_cast<std::size_t>(m) * prepared_words(columns);
            std::int64_t sums[outputs] = {};
            for (int p = 0; p < pairs; p += pairs_at_once) {
                std::int32_t high[outputs] = {}, low[outputs] = {};
                add(high, low, codes + std::ptrdiff_t{p} * 2 * outputs, words + 1 + p, pairs - p < pairs_at_once ? pairs - p : pairs_at_once);
                for (int n = 0; n < outputs; ++n) sums[n] += std::int64_t{high[n]} * 128 + low[n];
            }
            for (int n = 0; n < outputs && panel * outputs + n < N; ++n) {
                int e = 0;
                std::memcpy(&e, at + n * 4, 4);
                y[m * y_stride + panel * outputs + n] = finished(sums[n], e + static_cast<int>(words[0]));
            }
        }
    }
}

}  // namespace tenon::inline v0::kernel::fixed15
