// What one attention call reads and writes, and the layout of the KV cache: blocks of 64 absolute positions. (The law, rule 7.)
// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <tenon/core/profile.hpp>

#include <cstddef>
#include <cstdint>

namespace tenon::inline v0::kernel {

inline constexpr int kv_block = numeric::canonical_1.kv_block;  ///< positions of one block; part of the law

/// Causal attention of T query rows of one sequence over its KV cache.
///
///   q, out         (T, Q, D)  row t, query head h at t * stride + h * D
///   keys           [K][block][D][64]
///   values         [K][block][64][D]
///
/// Query head h reads KV head h * K / Q. Row t stands at first_position + t and sees the keys at 0 .. that position whose distance is
/// less than `window` (0: all of them); they have been stored before the call. Nothing else of the cache is used, whatever it holds.
struct attention_call {
    float const* q = nullptr;
    std::ptrdiff_t q_stride = 0;
    float* out = nullptr;
    std::ptrdiff_t out_stride = 0;
    float const* keys = nullptr;
    float const* values = nullptr;
    std::ptrdiff_t kv_head_stride = 0;  ///< floats between KV heads, the same for keys and values
    int rows = 0;                       ///< T
    int heads = 0;                      ///< Q
    int kv_heads = 0;                   ///< K, divides Q
    int head_dim = 0;                   ///< D
    std::int64_t first_position = 0;
    std::int64_t window = 0;  ///< 0: none
    float scale = 1.0f;
    float* scratch = nullptr;  ///< attention_scratch_floats(head_dim)
};

namespace detail {
inline constexpr int attention_group = 24;  // query rows that share one pass over the cache
}

/// Independent parts of a call: the query rows of one KV head in groups, KV heads slowest.
constexpr int attention_items(attention_call const& c) {
    int const rows = c.rows * (c.heads / c.kv_heads);
    return c.kv_heads * ((rows + detail::attention_group - 1) / detail::attention_group);
}

constexpr std::size_t attention_scratch_floats(int head_dim) {
    return static_cast<std::size_t>(detail::attention_group) * static_cast<std::size_t>(head_dim);
}

/// Writes the keys and values of `rows` new tokens at positions position0, position0 + 1, ... of the cache.
///
///   k, v  (T, K, D)  row t, KV head h at t * stride + h * D
inline void store_kv(float* keys, float* values, std::ptrdiff_t kv_head_stride, int kv_heads, int head_dim, std::int64_t position0,
                     int rows, float const* k, float const* v, std::ptrdiff_t stride) {
    std::ptrdiff_t const width = head_dim;
    for (std::ptrdiff_t h = 0; h < kv_heads; ++h)
        for (std::ptrdiff_t t = 0; t < rows;) {
            std::ptrdiff_t const block = (position0 + t) / kv_block, slot = (position0 + t) % kv_block;
            std::ptrdiff_t const n = rows - t < kv_block - slot ? rows - t : kv_block - slot;
            std::ptrdiff_t const base = h * kv_head_stride + block * kv_block * width, from = t * stride + h * width;
            for (std::ptrdiff_t d = 0; d < width; ++d)
                for (std::ptrdiff_t i = 0; i < n; ++i) keys[base + d * kv_block + slot + i] = k[from + i * stride + d];
            for (std::ptrdiff_t i = 0; i < n; ++i)
                for (std::ptrdiff_t d = 0; d < width; ++d) values[base + (slot + i) * width + d] = v[from + i * stride + d];
            t += n;
        }
}

/// The inverse: reads the keys and values of `rows` positions back.
inline void load_kv(float* k, float* v, std::ptrdiff_t stride, float const* keys, float const* values, std::ptrdiff_t kv_head_stride,
                    int kv_heads, int head_dim, std::int64_t position0, int rows) {
    std::ptrdiff_t const width = head_dim;
    for (std::ptrdiff_t h = 0; h < kv_heads; ++h)
        for (std::ptrdiff_t t = 0; t < rows;) {
            std::ptrdiff_t const block = (position0 + t) / kv_block, slot = (position0 + t) % kv_block;
            std::ptrdiff_t const n = rows - t < kv_block - slot ? rows - t : kv_block - slot;
            std::ptrdiff_t const base = h * kv_head_stride + block * kv_block * width, to = t * stride + h * width;
            for (std::ptrdiff_t d = 0; d < width; ++d)
                for (std::ptrdiff_t i = 0; i < n; ++i) k[to + i * stride + d] = keys[base + d * kv_block + slot + i];
            for (std::ptrdiff_t i = 0; i < n; ++i)
                for (std::ptrdiff_t d = 0; d < width; ++d) v[to + i * stride + d] = values[base + (slot + i) * width + d];
            t += n;
        }
}

}  // namespace tenon::inline v0::kernel
