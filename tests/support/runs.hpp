// Ways to run a model over the same tokens, and the comparison that says where bits differ. Knows no test framework.
// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <tenon/runtime/language_model.hpp>

#include <bit>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <span>
#include <string>
#include <vector>

namespace support {

using ids = std::vector<tenon::token_id>;
using floats = std::vector<float>;

inline void append(floats& to, std::span<float const> more) { to.insert(to.end(), more.begin(), more.end()); }

/// Feeds all tokens to a new state, `chunk` a call (0: all). Returns the logits of every position: (tokens, V).
inline floats rows_of(tenon::language_model& model, ids const& tokens, std::size_t chunk = 0) {
    tenon::state s = model.make_state();
    floats rows;
    if (chunk == 0) chunk = tokens.size();
    for (std::size_t at = 0; at < tokens.size(); at += chunk) {
        tenon::feed const one{&s, std::span<tenon::token_id const>(tokens).subspan(at, std::min(chunk, tokens.size() - at))};
        append(rows, model.forward({&one, 1}, tenon::rows_wanted::all));
    }
    return rows;
}

/// Feeds many sequences in ragged calls: each call gives sequence i its own number of new tokens, none at all among them, so
/// that lengths and positions differ within a batch. Returns the rows of every sequence.
inline std::vector<floats> ragged_rows_of(tenon::language_model& model, std::span<ids const> sequences) {
    std::vector<tenon::state> states;
    for (std::size_t i = 0; i < sequences.size(); ++i) states.push_back(model.make_state(static_cast<std::int64_t>(i)));
    std::vector<floats> rows(sequences.size());
    auto const V = static_cast<std::size_t>(model.config().vocab);
    for (std::size_t call = 0, busy = sequences.size(); busy > 0; ++call) {
        std::vector<tenon::feed> feeds;
        std::vector<std::size_t> who;
        busy = 0;
        for (std::size_t i = 0; i < sequences.size(); ++i) {
            std::size_t const fed = static_cast<std::size_t>(states[i].length()), left = sequences[i].size() - fed;
            busy += left > 0;
            std::size_t const n = std::min(left, (i * 5 + call * 3 + 1) % 8);
            if (n == 0) continue;
            feeds.push_back({&states[i], std::span<tenon::token_id const>(sequences[i]).subspan(fed, n)});
            who.push_back(i);
        }
        if (feeds.empty()) continue;
        std::span<float const> logits = model.forward(feeds, tenon::rows_wanted::all);
        for (std::size_t f = 0; f < feeds.size(); ++f) {
            std::size_t const n = feeds[f].tokens.size() * V;
            append(rows[who[f]], logits.first(n));
            logits = logits.subspan(n);
        }
    }
    return rows;
}

/// Bits of a number, every NaN being one.
inline std::uint32_t canonical_bits(float x) { return x != x ? 0x7fc00000U : std::bit_cast<std::uint32_t>(x); }

/// Empty when all bits are equal; else the first index that differs, both values and their bits.
inline std::string first_difference(std::span<float const> expected, std::span<float const> got) {
    if (expected.size() != got.size())
        return std::to_string(expected.size()) + " numbers expected, " + std::to_string(got.size()) + " given";
    std::size_t first = expected.size(), count = 0;
    for (std::size_t i = 0; i < expected.size(); ++i)
        if (canonical_bits(expected[i]) != canonical_bits(got[i]) && count++ == 0) first = i;
    if (count == 0) return {};
    char text[160];
    std::snprintf(text, sizeof text, "%zu of %zu differ, first at %zu: expected %.9g (%08x), got %.9g (%08x)", count, expected.size(),
                  first, static_cast<double>(expected[first]), canonical_bits(expected[first]), static_cast<double>(got[first]),
                  canonical_bits(got[first]));
    return text;
}

/// The largest distance to a reference; infinity where sizes differ or a number is NaN.
inline double largest_distance(std::span<double const> reference, std::span<float const> got) {
    if (reference.size() != got.size()) return INFINITY;
    double most = 0.0;
    for (std::size_t i = 0; i < got.size(); ++i) {
        double const d = std::fabs(reference[i] - static_cast<double>(got[i]));
        if (!(d <= most)) most = d == d ? d : INFINITY;
    }
    return most;
}

/// "law_name" of what a call throws; "nothing is refused" without.
template <class Call>
std::string law_of(Call&& call) {
    try {
        call();
    } catch (tenon::refusal const& r) { return r.law_name(); }
    return "nothing is refused";
}

}  // namespace support
