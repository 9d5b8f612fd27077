// A product of numbers in eight bits: exact sums of codes in blocks of 32, then chains and a tree as of any product. (The law, rule 1.)
// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <tenon/device/xtensor/linear.hpp>
#include <tenon/device/xtensor/matrix.hpp>
#include <tenon/kernel/packed_matrix.hpp>

#include <array>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#if defined(__clang__)
#pragma float_control(precise, on, push)
#endif

namespace tenon::inline v0::device::specification {

inline constexpr std::size_t block = 32;

/// The low eight bits of a number, signed.
inline float low_byte(float x) { return static_cast<float>(static_cast<std::int8_t>(std::bit_cast<std::uint32_t>(x) & 0xffU)); }

/// Codes and scales of numbers.
struct quantized {
    matrix codes, scales;  ///< whole numbers of -127 to 127; one scale for each block
};

/// Of every block: m = max |x|, as bits;  d = m / 127;  i = m > 0 ? 127 / m : 0, and 0 where that is infinite;
/// q = low byte of fma(x, i, 12582912).
///
///   x, codes  (T, K)   scales d  (T, K / 32)
inline quantized quantize(matrix const& x) {
    auto const larger_as_bits = [](float a, float b) {
        std::uint32_t const p = std::bit_cast<std::uint32_t>(a), q = std::bit_cast<std::uint32_t>(b) & 0x7fffffffU;
        return std::bit_cast<float>(p > q ? p : q);
    };
    auto const inverse_of = [](float m) {
        float const i = m > 0.0f ? 127.0f / m : 0.0f;
        return i == std::numeric_limits<float>::infinity() ? 0.0f : i;
    };
    std::size_t const T = x.shape(0), blocks = x.shape(1) / block;
    quantized q{zeros(T, x.shape(1)), zeros(T, blocks)};
    for (std::size_t b = 0; b < blocks; ++b) {
        matrix m = zeros(T, 1);
        for (std::size_t k = b * block; k < (b + 1) * block; ++k) m = each(larger_as_bits, m, column(x, k));
        matrix const i = each(inverse_of, m), all = columns(x, b * block, (b + 1) * block);
        put(q.scales, b, m / 127.0f);
        put(q.codes, b * block, each([](float v, float by) { return low_byte(std::fma(v, by, 12582912.0f)); }, all, i));
    }
    return q;
}

/// A matrix as it is held, N rows of blocks, turned.  codes (K, N), scales (K / 32, N)
inline quantized held_in_q8(kernel::packed_matrix const& w) {
    auto const N = static_cast<std::size_t>(w.rows), blocks = static_cast<std::size_t>(w.columns) / block;
    quantized q{zeros(blocks * block, N), zeros(blocks, N)};
    auto const* at = static_cast<std::byte const*>(w.data);
    for (std::size_t n = 0; n < N; ++n)
        for (std::size_t b = 0; b < blocks; ++b) {
            q.scales(b, n) = load_f16(at);
            at += 2;
            for (std::size_t k = 0; k < block; ++k) q.codes(b * block + k, n) = static_cast<float>(static_cast<std::int8_t>(*at++));
        }
    return q;
}

/// y = tree over s of p[s],   p[s] = chain over blocks b of segment s, ascending from +0, of fma(dot[b], dw[b, :] * dx[:, b], p[s])
///
///   x  (T, K)   w  (K, N)   y, p[s], dot[b]  (T, N)   S segments of whole blocks
///
/// dot[b] is the sum of 32 products of codes. It is below 2^24, so that float32 holds it and every sum on the way to it.
inline matrix linear_q8(matrix const& x, quantized const& w, int segments) {
    quantized const q = quantize(x);
    auto const S = static_cast<std::size_t>(segments);
    std::size_t const T = x.shape(0), N = w.codes.shape(1), length = q.scales.shape(1) / S;
    std::array<matrix, most_segments> p;
    for (std::size_t s = 0; s < S; ++s) {
        p[s] = zeros(T, N);
        for (std::size_t b = s * length; b < (s + 1) * length; ++b) {
            matrix dot = zeros(T, N);
            for (std::size_t k = b * block; k < (b + 1) * block; ++k) dot = fma(column(q.codes, k), row(w.codes, k), dot);
            p[s] = fma(dot, rounded(column(q.scales, b) * row(w.scales, b)), p[s]);
        }
    }
    return tree(std::span(p).first(S));
}

}  // namespace tenon::inline v0::device::specification
#if defined(__clang__)
#pragma float_control(pop)
#endif
