// A product over K inputs: chains in segments, then a tree over the segments. (The law, rule 1.)
// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <tenon/device/xtensor/array.hpp>

#include <array>
#include <cstddef>
#include <span>

namespace tenon::inline v0::device::specification {

inline constexpr std::size_t most_segments = 8;

/// While more than one: p[i] = p[2i] + p[2i + 1], neighbours first.
inline array<2> tree(std::span<array<2>> p) {
    for (; p.size() > 1; p = p.first(p.size() / 2))
        for (std::size_t i = 0; i < p.size() / 2; ++i) p[i] = p[2 * i] + p[2 * i + 1];
    return p[0];
}

/// y[t][n] = tree over s of p[s],   p[s] = chain over k in segment s, ascending from +0, of fma(x[t][k], w[n][k], p[s])
///
///   x  (T, K)   w  (N, K)   y  (T, N)   segments, at most 8, divide K
///
/// A segment is what a row-parallel rank owns, at least one of them; so the tree can be cut at any of its levels.
inline array<2> linear(array<2> const& x, array<2> const& w, std::size_t segments) {
    std::size_t const T = x.shape(0), N = w.shape(0), length = w.shape(1) / segments;
    std::array<array<2>, most_segments> p;
    for (std::size_t s = 0; s < segments; ++s) {
        p[s] = xt::zeros<float>({T, N});
        for (std::size_t k = s * length; k < (s + 1) * length; ++k) noalias(p[s]) = fma(column(x, k), view(w, all(), k), p[s]);
    }
    return tree(std::span(p).first(segments));
}

}  // namespace tenon::inline v0::device::specification
