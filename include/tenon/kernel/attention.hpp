// What one attention call reads and writes, and the layout of the KV cache: blocks of 64 absolute positions. (The law, rule 7.)
// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <tenon/core/convert.hpp>
#include <tenon/core/dtype.hpp>
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
    /// A cache in bf16, of the same layout and strides in elements; `keys` and `values` are then not looked at.
    std::uint16_t const* narrow_keys = nullptr;
    std::uint16_t const* narrow_values = nullptr;
    /// Scores are exact products of integer codes, one exponent for each query row and each key: for the kernels of fixed15_table.hpp.
    bool fixed15 = false;
};

/// Where the keys and values of one layer of one sequence lie, in the layout of attention_call.
struct kv_place {
    void* keys = nullptr;  ///< elements of `format`
    void* values = nullptr;
    std::ptrdiff_t head_stride = 0;  ///< elements between KV heads
    kv_format format = kv_format::f32;
};

/// Makes a call read a cache.
inline void read_from(attention_call& call, kv_place const& kv) {
    call.kv_head_stride = kv.head_stride;
    if (kv.format == kv_format::f32) {
        call.keys = static_cast<float const*>(kv.keys);
        call.values = static_cast<float const*>(kv.values);
    } else {
        call.narrow_keys = static_cast<std::uint16_t const*>(kv.keys);
        call.narrow_values = static_cast<std::uint16_t const*>(kv.values);
    }
}

namespace detail {
inline constexpr int attention_group = 24;  // query rows that share one pass over the cache
}

/// Independent parts of a call: the query rows of one KV head in groups, KV heads slowest.
constexpr int attention_items(attention_call const& c) {
    int const rows = c.rows * (c.heads / c.kv_heads);
    return c.kv_heads * ((rows + detail::attention_group - 1) / detail::attention_group);
}

/// An item: query rows of one KV head, its query heads fastest, and the blocks that they see.
struct attention_item {
    int kv_head = 0;
    int first_row = 0, rows = 0;               ///< of T * Q / K, query heads fastest
    std::int64_t first_block = 0, blocks = 0;  ///< of kv_block positions, absolute
};
constexpr attention_item attention_item_of(attention_call const& c, int number) {
    int const shared = c.heads / c.kv_heads, groups = attention_items(c) / c.kv_heads;
    attention_item item;
    item.kv_head = number / groups;
    item.first_row = number % groups * detail::attention_group;
    int const left = c.rows * shared - item.first_row;
    item.rows = left < detail::attention_group ? left : detail::attention_group;
    std::int64_t const first = c.first_position + item.first_row / shared;
    std::int64_t const last = c.first_position + (item.first_row + item.rows - 1) / shared;
    item.first_block = (c.window > 0 && first >= c.window ? first - c.window + 1 : 0) / kv_block;
    item.blocks = last / kv_block + 1 - item.first_block;
    return item;
}

/// Floats of scratch for whole items: outputs [row][D], and for exact scores exponents and codes of a block's keys and of the query rows.
constexpr std::size_t attention_scratch_floats(int head_dim) {
    auto const group = static_cast<std::size_t>(detail::attention_group), width = static_cast<std::size_t>(head_dim);
    std::size_t const codes = (group + static_cast<std::size_t>(kv_block)) * (1 + (width + 1) / 2);
    return (group * width + codes + 15) / 16 * 16;  // whole lines, so that the pieces of threads are aligned
}

/// What blocks leave of so many query rows until they are merged with others: sums of values [row][D], maxima [row] and sums of weights
/// [row]; whole lines of 64 bytes.
constexpr std::size_t attention_left_floats(int rows, int head_dim) {
    return (static_cast<std::size_t>(rows) * (static_cast<std::size_t>(head_dim) + 2) + 15) / 16 * 16;
}

namespace detail {
/// Calls move(cache element, row element) for `rows` positions of KV heads [first_head, first_head + kv_heads), for keys and for values.
template <class Move>
void each_kv(std::ptrdiff_t head_stride, int first_head, int kv_heads, int head_dim, std::int64_t position0, int rows,
             std::ptrdiff_t stride, Move move) {
    std::ptrdiff_t const width = head_dim;
    for (std::ptrdiff_t h = first_head; h < first_head + kv_heads; ++h)
        for (std::ptrdiff_t t = 0; t < rows;) {
            std::ptrdiff_t const block = (position0 + t) / kv_block, slot = (position0 + t) % kv_block;
            std::ptrdiff_t const n = rows - t < kv_block - slot ? rows - t : kv_block - slot;
            std::ptrdiff_t const base = h * head_stride + block * kv_block * width, from = t * stride + h * width;
            move(base + slot, base + slot * width, from, n);
            t += n;
        }
}
inline void put(float& to, float x) { to = x; }
inline void put(std::uint16_t& to, float x) { to = narrow_bf16(x); }
inline float got(float x) { return x; }
inline float got(std::uint16_t x) { return widen_bf16(x); }
}  // namespace detail

/// Writes the keys and values of `rows` new tokens at positions position0, position0 + 1, ... of the cache, of `kv_heads` heads from
/// `first_head` on.
///
///   k, v  (T, K, D)  row t, KV head h at t * stride + h * D
template <class Stored>
void store_kv(Stored* keys, Stored* values, std::ptrdiff_t head_stride, int first_head, int kv_heads, int head_dim, std::int64_t position0,
              int rows, float const* k, float const* v, std::ptrdiff_t stride) {
    std::ptrdiff_t const width = head_dim;
    detail::each_kv(head_stride, first_head, kv_heads, head_dim, position0, rows, stride,
                    [&](std::ptrdiff_t key, std::ptrdiff_t value, std::ptrdiff_t from, std::ptrdiff_t n) {
                        for (std::ptrdiff_t d = 0; d < width; ++d)
                            for (std::ptrdiff_t i = 0; i < n; ++i) detail::put(keys[key + d * kv_block + i], k[from + i * stride + d]);
                        for (std::ptrdiff_t i = 0; i < n; ++i)
                            for (std::ptrdiff_t d = 0; d < width; ++d) detail::put(values[value + i * width + d], v[from + i * stride + d]);
                    });
}
inline void store_kv(kv_place const& kv, int first_head, int kv_heads, int head_dim, std::int64_t position0, int rows, float const* k,
                     float const* v, std::ptrdiff_t stride) {
    if (kv.format == kv_format::f32)
        store_kv(static_cast<float*>(kv.keys), static_cast<float*>(kv.values), kv.head_stride, first_head, kv_heads, head_dim, position0, rows,
                 k, v, stride);
    else
        store_kv(static_cast<std::uint16_t*>(kv.keys), static_cast<std::uint16_t*>(kv.values), kv.head_stride, first_head, kv_heads,
                 head_dim, position0, rows, k, v, stride);
}

/// The inverse: reads the keys and values of `rows` positions back, widened exactly.
template <class Stored>
void load_kv(float* k, float* v, std::ptrdiff_t stride, Stored const* keys, Stored const* values, std::ptrdiff_t head_stride, int kv_heads,
             int head_dim, std::int64_t position0, int rows) {
    std::ptrdiff_t const width = head_dim;
    detail::each_kv(head_stride, 0, kv_heads, head_dim, position0, rows, stride,
                    [&](std::ptrdiff_t key, std::ptrdiff_t value, std::ptrdiff_t to, std::ptrdiff_t n) {
                        for (std::ptrdiff_t i = 0; i < n; ++i)
                            for (std::ptrdiff_t d = 0; d < width; ++d) {
                                k[to + i * stride + d] = detail::got(keys[key + d * kv_block + i]);
                                v[to + i * stride + d] = detail::got(values[value + i * width + d]);
                            }
                    });
}
inline void load_kv(float* k, float* v, std::ptrdiff_t stride, kv_place const& kv, int kv_heads, int head_dim, std::int64_t position0, int rows) {
    if (kv.format == kv_format::f32)
        load_kv(k, v, stride, static_cast<float const*>(kv.keys), static_cast<float const*>(kv.values), kv.head_stride, kv_heads, head_dim,
                position0, rows);
    else
        load_kv(k, v, stride, static_cast<std::uint16_t const*>(kv.keys), static_cast<std::uint16_t const*>(kv.values), kv.head_stride,
                kv_heads, head_dim, position0, rows);
}

}  // namespace tenon::inline v0::kernel
