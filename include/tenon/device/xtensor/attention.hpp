// Causal attention over a cache of keys and values, one block of 64 absolute positions after the other. (The law, rule 7.)
// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <tenon/device/xtensor/exp.hpp>
#include <tenon/device/xtensor/row_sum.hpp>
#include <tenon/device/xtensor/rows.hpp>
#include <tenon/kernel/attention.hpp>

#include <cstddef>
#include <cstdint>
#include <limits>

namespace tenon::inline v0::device::specification {

/// What some positions say to the G query heads that share a KV head:   softmax(s) v = o / l
struct attended {
    matrix m;  ///< (G, 1)  the largest score s
    matrix l;  ///< (G, 1)  sum of exp(s - m)
    matrix o;  ///< (G, D)  sum of exp(s - m) v
};

/// The J positions of one block that a query sees: slots low, low + 1, ... of its 64.
///
///   s[j] = (chain over d of fma(q[d], k[d][j])) scale    m = max over j of s[j]
///   e[j] = exp(s[j] - m), +0 in the slots not seen       l = the sum of 64 e, by rule 4
///   o = (chain over j of fma(e[j], v[j])) + (+0): slots of +0 may as well be multiplied
///
///   q  (G, D)   k  (D, J)   v  (J, D)   s  (G, J)   e  (G, 64)
inline attended attend(matrix const& q, matrix const& k, matrix const& v, std::size_t low, float scale) {
    std::size_t const G = q.shape(0), D = q.shape(1), J = v.shape(0);
    matrix s = zeros(G, J);
    for (std::size_t d = 0; d < D; ++d) s = fma(column(q, d), row(k, d), s);
    s = rounded(s * scale);

    matrix m({G, 1}, -std::numeric_limits<float>::infinity());
    for (std::size_t j = 0; j < J; ++j) m = larger(column(s, j), m);

    matrix e = zeros(G, kernel::kv_block), o = zeros(G, D);
    put(e, low, exp(s - m));
    for (std::size_t j = 0; j < J; ++j) o = fma(column(e, low + j), row(v, j), o);
    return {m, row_sum(e), o + 0.0f};
}

/// The blocks so far and the next:   M = max(m, m_b)   ca = exp(m - M)   cb = exp(m_b - M)
///
///   l = fma(l, ca, l_b cb)   o = fma(o, ca, o_b cb)   m = M
///
/// Source: Milakov and Gimelshein 2018, "Online normalizer calculation for softmax", section 3.1.
inline attended merged(attended const& past, attended const& block) {
    matrix const M = larger(past.m, block.m), ca = exp(past.m - M), cb = exp(block.m - M);
    return {M, fma(past.l, ca, block.l * cb), fma(past.o, ca, block.o * cb)};
}

/// out = o / l, merged in ascending order over the blocks in which row t sees a position. It stands at first_position + t and sees that
/// position and those before it whose distance is less than the window (0: all). Query head h reads KV head h K / Q.
inline void attention(kernel::attention_call const& c) {
    constexpr std::int64_t slots = kernel::kv_block;
    int const D = c.head_dim, G = c.heads / c.kv_heads;
    for (int t = 0; t < c.rows; ++t)
        for (int h = 0; h < c.kv_heads; ++h) {
            std::ptrdiff_t const group = std::ptrdiff_t{h} * G * D;
            matrix const q = read(c.q + t * c.q_stride + group, D, G, D);
            std::int64_t const last = c.first_position + t, first = c.window > 0 && last >= c.window ? last - c.window + 1 : 0;
            attended seen;
            for (std::int64_t b = first / slots; b <= last / slots; ++b) {
                std::int64_t const low = b == first / slots ? first % slots : 0, end = b == last / slots ? last % slots + 1 : slots;
                auto const J = static_cast<int>(end - low);
                std::ptrdiff_t const block = h * c.kv_head_stride + b * slots * D;
                bool const narrow = c.narrow_keys != nullptr;
                matrix const k = narrow ? read(c.narrow_keys + block + low, slots, D, J) : read(c.keys + block + low, slots, D, J);
                matrix const v = narrow ? read(c.narrow_values + block + low * D, D, J, D) : read(c.values + block + low * D, D, J, D);
                attended const here = attend(q, k, v, static_cast<std::size_t>(low), c.scale);
                seen = b == first / slots ? here : merged(seen, here);
            }
            write(c.out + t * c.out_stride + group, D, seen.o / seen.l);
        }
}

}  // namespace tenon::inline v0::device::specification
