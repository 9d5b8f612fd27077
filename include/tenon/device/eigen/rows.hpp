// Elementwise operations, norms and attention as Eigen arrays of fixed extent. Rows are copied into blocks padded with zeros, because
// Eigen computes an unaligned head and a short tail by other code than the middle.
// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <tenon/device/eigen/core.hpp>
#include <tenon/kernel/attention.hpp>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>

namespace tenon::inline v0::device::detail {

template <int N>
using block = Eigen::Array<float, N, 1>;
using row = Eigen::Map<Eigen::ArrayXf>;
using const_row = Eigen::Map<Eigen::ArrayXf const>;

/// The first min(n, N) numbers of `x`, then zeros.
template <int N>
block<N> load(float const* x, std::ptrdiff_t n) {
    if (n >= N) return Eigen::Map<block<N> const>(x);
    block<N> b = block<N>::Zero();
    b.head(n) = const_row(x, n);
    return b;
}
template <int N>
void store(float* y, std::ptrdiff_t n, block<N> const& b) {
    if (n >= N)
        Eigen::Map<block<N>>{y} = b;
    else
        row(y, n) = b.head(n);
}

// Where a compiler may contract a product and a sum, it must do so alike for every element: one body, never inlined.

[[gnu::noinline]] inline void add_squares(block<32>& sum, block<32> const& x) { sum += x * x; }
[[gnu::noinline]] inline void rotate(block<32>& a, block<32>& b, block<32> const& c, block<32> const& s) {
    block<32> const turned = a * c - b * s;
    b = b * c + a * s;
    a = turned;
}
/// exp, with 0 below the normal numbers and the law's largest value above 88.3762.
[[gnu::noinline]] inline void exponentiate(block<64>& x) {
    block<64> const e = (x.min)(88.3762f).exp();  // inside of select it would be scalar: 163 ns instead of 36 with AVX-512
    x = (x < -87.33654f).select(0.0f, e);
}

/// Rule 4: lane i and lane i + h, for h = 16, 8, 4, 2, 1.
inline float fold(block<32> l) {
    block<16> const l16 = l.head<16>() + l.tail<16>();
    block<8> const l8 = l16.head<8>() + l16.tail<8>();
    block<4> const l4 = l8.head<4>() + l8.tail<4>();
    return (l4[0] + l4[2]) + (l4[1] + l4[3]);
}

inline void rms_norm(float* y, float const* x, float const* gain, int n, float epsilon) {
    block<32> squares = block<32>::Zero();
    for (int k = 0; k < n; k += 32) add_squares(squares, load<32>(x + k, n - k));
    float const r = 1.0f / std::sqrt(fold(squares) / static_cast<float>(n) + epsilon);
    row(y, n) = const_row(x, n) * r * const_row(gain, n);
}

/// One head: x (D), its halves against each other.
inline void rope(float* x, int half, float const* cosines, float const* sines) {
    for (int k = 0; k < half; k += 32) {
        block<32> a = load<32>(x + k, half - k), b = load<32>(x + half + k, half - k);
        rotate(a, b, load<32>(cosines + k, half - k), load<32>(sines + k, half - k));
        store(x + k, half - k, a);
        store(x + half + k, half - k, b);
    }
}

inline void exp(float* y, float const* x, std::ptrdiff_t n) {
    for (std::ptrdiff_t i = 0; i < n; i += 64) {
        block<64> e = load<64>(x + i, n - i);
        exponentiate(e);
        store(y + i, n - i, e);
    }
}

inline void swiglu(float* y, float const* gate, float const* up, std::ptrdiff_t n) {
    for (std::ptrdiff_t i = 0; i < n; i += 64) {
        block<64> const g = load<64>(gate + i, n - i);
        block<64> e = 0.0f - g;
        exponentiate(e);
        store<64>(y + i, n - i, g / (1.0f + e) * load<64>(up + i, n - i));
    }
}

/// Query rows of one KV head that pass over a block of the cache together.
inline constexpr int attention_rows = 16;

/// Softmax so far: the largest score and the sum of exponentials; the weighted values lie in scratch.
struct attention_state {
    float largest = 0.0f, sum = 0.0f;
};

/// One query row against one block: what it sees of it is [first, first + count). Rule 7.
inline void attend(attention_state& state, float* output, float* block_output, bool is_first, float const* q, float const* keys,
                   float const* values, int head_dim, int first, int count, float scale) {
    constexpr float lowest = -std::numeric_limits<float>::infinity();
    block<64> e;
    e.matrix().noalias() =
        Eigen::Map<Eigen::Matrix<float, 64, Eigen::Dynamic> const>(keys, 64, head_dim) * Eigen::Map<Eigen::VectorXf const>(q, head_dim);
    e *= scale;
    e.head(first).setConstant(lowest);
    e.tail(64 - first - count).setConstant(lowest);
    float const largest = e.maxCoeff();
    e -= largest;
    exponentiate(e);
    e.head(first).setZero();
    e.tail(64 - first - count).setZero();
    float const sum = fold(e.head<32>() + e.tail<32>());
    Eigen::Map<Eigen::VectorXf>(is_first ? output : block_output, head_dim).noalias() =
        Eigen::Map<Eigen::MatrixXf const>(values, head_dim, 64).middleCols(first, count) * e.matrix().segment(first, count);
    if (is_first) {
        state = {largest, sum};
        return;
    }
    float const both = largest > state.largest ? largest : state.largest;
    block<64> parts = block<64>::Zero();
    parts[0] = state.largest - both;
    parts[1] = largest - both;
    exponentiate(parts);
    state = {both, std::fma(state.sum, parts[0], sum * parts[1])};
    row(output, head_dim) *= parts[0];  // three statements: in one, a head or a tail could be contracted in another way than the middle
    row(block_output, head_dim) *= parts[1];
    row(output, head_dim) += row(block_output, head_dim);
}

inline void attention(kernel::attention_call const& c) {
    int const D = c.head_dim, heads_per_kv_head = c.heads / c.kv_heads, all = c.rows * heads_per_kv_head;
    float* const block_output = c.scratch + std::ptrdiff_t{attention_rows} * D;
    for (int kv = 0; kv < c.kv_heads; ++kv)
        for (int begin = 0; begin < all; begin += attention_rows) {
            int const count = all - begin < attention_rows ? all - begin : attention_rows;
            attention_state states[attention_rows];
            auto const position = [&](int i) { return c.first_position + (begin + i) / heads_per_kv_head; };
            auto const seen_from = [&](int i) {
                return c.window > 0 && position(i) >= c.window ? position(i) - c.window + 1 : std::int64_t{0};
            };
            auto const place = [&](int i, std::ptrdiff_t stride) {
                int const at = begin + i;
                return at / heads_per_kv_head * stride + std::ptrdiff_t{kv * heads_per_kv_head + at % heads_per_kv_head} * D;
            };
            for (std::int64_t b = seen_from(0) / 64; b <= position(count - 1) / 64; ++b)
                for (int i = 0; i < count; ++i) {
                    std::int64_t const first = seen_from(i) - b * 64, end = position(i) - b * 64 + 1;
                    if (first >= 64 || end <= 0) continue;
                    int const from = first > 0 ? static_cast<int>(first) : 0, to = end < 64 ? static_cast<int>(end) : 64;
                    std::ptrdiff_t const at = kv * c.kv_head_stride + b * 64 * D;
                    attend(states[i], c.scratch + std::ptrdiff_t{i} * D, block_output, first >= 0, c.q + place(i, c.q_stride), c.keys + at,
                           c.values + at, D, from, to - from, c.scale);
                }
            for (int i = 0; i < count; ++i)
                row(c.out + place(i, c.out_stride), D) = row(c.scratch + std::ptrdiff_t{i} * D, D) / states[i].sum;
        }
}

}  // namespace tenon::inline v0::device::detail
