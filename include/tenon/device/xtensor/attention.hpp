// Causal attention over a cache of keys and values, one block of 64 absolute positions after the other. (The law, rule 7.)
// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <tenon/device/xtensor/exp.hpp>
#include <tenon/device/xtensor/row_sum.hpp>
#include <tenon/kernel/attention.hpp>

#include <cstddef>
#include <cstdint>
#include <limits>

namespace tenon::inline v0::device::specification {

/// What some positions say to the G query heads that share a KV head:   softmax(s) v = o / l,   m = max s
struct attended {
    array<1> m;  ///< (G)  the largest score
    array<1> l;  ///< (G)  sum of exp(s - m)
    array<2> o;  ///< (G, D)  sum of exp(s - m) v
};

/// a > b ? a : b, which a NaN in a never enters.
inline constexpr auto larger = [](array<1> const& a, array<1> const& b) -> array<1> { return xt::where(a > b, a, b); };

/// The J positions of one block that a query sees: slots low, low + 1, ... of the block's 64.
///
///   q  (G, D)   k  (D, J)   v  (J, D)
///
///   s[j] = (chain over d of fma(q[d], k[d][j])) scale      m = max over j of s[j]
///   e[j] = exp(s[j] - m), +0 in the slots not seen         l = sum of 64 e by rule 4
///   o[d] = (chain over j of fma(e[j], v[j][d])) + (+0), which makes skipped slots and slots of +0 alike
inline attended attend(array<2> const& q, array<2> const& k, array<2> const& v, std::size_t low, float scale) {
    std::size_t const G = q.shape(0), D = q.shape(1), J = v.shape(0), slots = kernel::kv_block;
    array<2> s = xt::zeros<float>({G, J});
    for (std::size_t d = 0; d < D; ++d) noalias(s) = fma(column(q, d), view(k, d, all()), s);
    s = rounded(s * scale);

    array<1> m({G}, -std::numeric_limits<float>::infinity());
    for (std::size_t j = 0; j < J; ++j) m = larger(view(s, all(), j), m);

    array<2> e = xt::zeros<float>({G, slots});
    noalias(view(e, all(), range(low, low + J))) = exp(array<2>(s - column(m)));

    array<2> o = xt::zeros<float>({G, D});
    for (std::size_t j = 0; j < J; ++j) noalias(o) = fma(column(e, low + j), view(v, j, all()), o);
    return {m, row_sum(e), o + 0.0f};
}

/// Blocks so far, and the next:   M = max(m, m_b)   ca = exp(m - M)   cb = exp(m_b - M)
///   l = fma(l, ca, l_b cb)   o = fma(o, ca, o_b cb)   m = M
/// Source: Milakov and Gimelshein 2018, "Online normalizer calculation for softmax", section 3.1.
inline attended merged(attended const& past, attended const& block) {
    array<1> const M = larger(past.m, block.m), ca = exp(array<1>(past.m - M)), cb = exp(array<1>(block.m - M));
    return {M, fma(past.l, ca, block.l * cb), fma(past.o, column(ca), block.o * column(cb))};
}

/// out = o / l of the blocks that a query sees, merged in ascending order. Row t stands at p = first_position + t and sees the positions
/// 0 .. p whose distance is less than the window (0: all of them).
///
///   q, out  (T, Q, D)   keys  (K, block, D, 64)   values  (K, block, 64, D)
///
/// Query head h reads KV head h K / Q: G = Q / K query heads share one.
inline array<3> attention(array<3> const& q, auto const& keys, auto const& values, std::int64_t first_position, std::int64_t window,
                          float scale) {
    std::size_t const T = q.shape(0), K = keys.shape(0), G = q.shape(1) / K;
    constexpr std::int64_t slots = kernel::kv_block;
    array<3> out(q.shape());
    for (std::size_t t = 0; t < T; ++t)
        for (std::size_t h = 0; h < K; ++h) {
            auto const group = range(h * G, (h + 1) * G);
            array<2> const queries = view(q, t, group, all());
            std::int64_t const last = first_position + static_cast<std::int64_t>(t), first = window > 0 && last >= window ? last - window + 1 : 0;
            attended seen;
            for (std::int64_t block = first / slots; block <= last / slots; ++block) {
                auto const b = static_cast<std::size_t>(block);
                auto const low = static_cast<std::size_t>(block == first / slots ? first % slots : 0);
                auto const end = static_cast<std::size_t>(block == last / slots ? last % slots + 1 : slots);
                attended const here = attend(queries, view(keys, h, b, all(), range(low, end)), view(values, h, b, range(low, end), all()), low, scale);
                seen = block == first / slots ? here : merged(seen, here);
            }
            noalias(view(out, t, group, all())) = seen.o / column(seen.l);
        }
    return out;
}

}  // namespace tenon::inline v0::device::specification
