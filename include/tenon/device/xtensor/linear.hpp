// A product over K inputs: chains in segments, then a tree over the segments. (The law, rule 1.)
// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <tenon/device/xtensor/matrix.hpp>

#include <array>
#include <cstddef>
#include <span>

namespace tenon::inline v0::device::specification {

inline constexpr std::size_t most_segments = 8;

/// While more than one: p[i] = p[2i] + p[2i + 1], neighbours first.
inline matrix tree(std::span<matrix> p) {
    for (; p.size() > 1; p = p.first(p.size() / 2))
        for (std::size_t i = 0; i < p.size() / 2; ++i) p[i] = p[2 * i] + p[2 * i + 1];
    return p[0];
}

/// y = tree over s of p[s],   p[s] = chain over k in segment s, ascending from +0, of fma(x[:, k], w[k, :], p[s])
///
///   x  (T, K)   w  (K, N)   y, p[s]  (T, N)   S segments: they divide K; at most 8
///
/// A segment is the least that a row-parallel rank owns: the tree of the ranks is the upper part of this one.
inline matrix linear(matrix const& x, matrix const& w, int segments) {
    auto const S = static_cast<std::size_t>(segments);
    std::size_t const T = x.shape(0), N = w.shape(1), length = x.shape(1) / S;
    std::array<matrix, most_segments> p;
    for (std::size_t s = 0; s < S; ++s) {
        p[s] = zeros(T, N);
        for (std::size_t k = s * length; k < (s + 1) * length; ++k) p[s] = fma(column(x, k), row(w, k), p[s]);
    }
    return tree(std::span(p).first(S));
}

}  // namespace tenon::inline v0::device::specification
