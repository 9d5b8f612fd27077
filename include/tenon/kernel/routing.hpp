// Which experts a token goes to and with what weight, and what becomes of their outputs, in plain C++: what every backend has that brings
// nothing of its own. Knows no ranks and not the router's product; every rank that is handed the same logits reaches the same answer.
// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <tenon/core/config.hpp>
#include <tenon/core/profile.hpp>
#include <tenon/kernel/detail/number.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#if defined(__clang__)
#pragma float_control(precise, on, push)
#endif

namespace tenon::inline v0::kernel {

inline constexpr int expert_groups = numeric::canonical_1.expert_groups;  ///< leaves of the routed sum; part of the law

/// The leaf of the routed sum that expert `e` of `count` belongs to: floor(8 e / E). Not a group that experts are chosen from.
constexpr int expert_group_of(int e, int count) { return static_cast<int>(std::int64_t{expert_groups} * e / count); }

/// T rows of router logits, to be turned into the experts of every row and their gates.
struct routing_call {
    routed_experts const* how = nullptr;  ///< 1 <= k <= E <= most_experts; the groups divide E
    float* scores = nullptr;              ///< (T, E): logits that become scores
    float const* correction = nullptr;    ///< (E), where `how->correction`
    float* scratch = nullptr;             ///< E floats
    std::int32_t* experts = nullptr;      ///< (T, k): the chosen ids, ascending
    float* gates = nullptr;               ///< (T, k)
    int rows = 0;                         ///< T
};

/// n columns of one token's routed output: `expert_groups` chains over the chosen experts, ids ascending, then the tree.
struct combine_call {
    float* out = nullptr;                   ///< (n)
    float const* const* parts = nullptr;    ///< of each of the k chosen experts, n columns of its output
    float const* gates = nullptr;           ///< (k)
    std::int32_t const* experts = nullptr;  ///< (k), ascending
    int chosen = 0;                         ///< k
    int count = 0;                          ///< E
    std::size_t n = 0;
};

/// Picks the best experts for one token, best first.
///
///   values  (E)  scores, corrected where they are
///   chosen  (k)  expert ids; k <= E
///
/// Equal values go to the lower id and NaN loses to everything, so that every rank picks the same experts.
/// Source: Shazeer et al. 2017, "Outrageously Large Neural Networks", section 2.1.
constexpr void route_top_k(std::span<std::int32_t> chosen, std::span<float const> values) {
    auto const yields = [](float kept, float v) { return v == v && (kept != kept || v > kept); };  // not to an equal, whose id is higher
    std::size_t kept = 0;
    for (std::size_t e = 0; e < values.size(); ++e) {
        std::size_t place = kept;
        while (place > 0 && yields(values[static_cast<std::size_t>(chosen[place - 1])], values[e])) --place;
        if (place == chosen.size()) continue;
        if (kept < chosen.size()) ++kept;
        for (std::size_t last = kept - 1; last > place; --last) chosen[last] = chosen[last - 1];
        chosen[place] = static_cast<std::int32_t>(e);
    }
}

namespace detail {

/// The largest value of a group, or the sum of its two largest; a group of one expert is worth that one.
constexpr float worth_of(std::span<float const> group, group_worth worth) {
    std::int32_t best[2] = {};
    std::size_t const n = worth == group_worth::two_best && group.size() > 1 ? 2 : 1;
    route_top_k(std::span(best, n), group);
    float const first = group[static_cast<std::size_t>(best[0])];
    return n == 1 ? first : first + group[static_cast<std::size_t>(best[1])];
}

/// Writes minus infinity over every value outside the best groups: 0, as some have it, would win over a negative value inside.
constexpr void keep_best_groups(std::span<float> values, routed_experts const& how) {
    auto const groups = static_cast<std::size_t>(how.groups), size = values.size() / groups;
    float worth[most_experts] = {};
    std::int32_t best[most_experts] = {};
    for (std::size_t g = 0; g < groups; ++g) worth[g] = worth_of(values.subspan(g * size, size), how.worth);
    std::span const kept(best, static_cast<std::size_t>(how.chosen_groups));
    route_top_k(kept, std::span(worth, groups));
    for (std::size_t g = 0; g < groups; ++g)
        if (std::find(kept.begin(), kept.end(), static_cast<std::int32_t>(g)) == kept.end())
            std::fill_n(values.begin() + static_cast<std::ptrdiff_t>(g * size), size, -std::numeric_limits<float>::infinity());
}

}  // namespace detail

/// The experts of one token, ids ascending: the best of the best groups. Groups are ranked as values are.
///
///   values  (E)  as for route_top_k; minus infinity afterwards where a group was left out
///   chosen  (k)  expert ids
///
/// Source: DeepSeek-AI 2024, "DeepSeek-V2", section 2.2.2 (groups by their best expert), and "DeepSeek-V3" (by their two best).
constexpr void route_in_groups(std::span<std::int32_t> chosen, std::span<float> values, routed_experts const& how) {
    if (how.chosen_groups < how.groups) detail::keep_best_groups(values, how);
    route_top_k(chosen, values);
    std::sort(chosen.begin(), chosen.end());
}

namespace detail {

/// Lane i of 32 takes x[i], x[i + 32], ... from +0; then lanes 16, 8, 4, 2, 1 apart are added. (The law, rule 4.)
constexpr float sum_over_lanes(std::span<float const> x) {
    float l[32] = {};
    for (std::size_t i = 0; i < x.size(); ++i) l[i % 32] = l[i % 32] + x[i];
    for (int h = 16; h > 0; h /= 2)
        for (int i = 0; i < h; ++i) l[i] = l[i] + l[i + h];
    return l[0];
}

/// Logits become probabilities: e / sum(e), e = exp(x - max). (The law, rule 4.)
template <class Exp>
void softmax(std::span<float> x, Exp const& exp) {
    float most = -std::numeric_limits<float>::infinity();
    for (float const v : x) most = v > most ? v : most;
    for (float& v : x) v = v - most;
    exp(x.data(), x.data(), x.size());
    float const sum = sum_over_lanes(x);
    for (float& v : x) v = v / sum;
}

/// Logits become 1 / (1 + exp(0 - x)). (The law, rule 5.)
template <class Exp>
void sigmoid(std::span<float> x, Exp const& exp) {
    for (float& v : x) v = 0.0f - v;
    exp(x.data(), x.data(), x.size());
    for (float& v : x) v = 1.0f / (1.0f + v);
}

}  // namespace detail

/// Scores, choice and gates of every row; `exp(float* y, float const* x, std::size_t n)` is the backend's, and y may be x.
///
///   chosen   by score, plus the correction where there is one
///   gate     the score alone; over the sum of the chosen, ids ascending from +0, plus epsilon, where normalised; times the scale
///
/// Returns the first row that has nothing but NaN to choose by, or -1. The ids of such a row are ids all the same.
template <class Exp>
int route(routing_call const& c, Exp const& exp) {
    routed_experts const& how = *c.how;
    auto const E = static_cast<std::size_t>(how.count), k = static_cast<std::size_t>(how.chosen);
    auto const epsilon = static_cast<float>(how.sum_epsilon), scale = static_cast<float>(how.scale);
    int without_choice = -1;
    for (int t = 0; t < c.rows; ++t) {
        auto const row = static_cast<std::size_t>(t);
        std::span<float> const scores(c.scores + row * E, E), values(c.scratch, E), gates(c.gates + row * k, k);
        std::span<std::int32_t> const experts(c.experts + row * k, k);
        if (how.scoring == expert_scoring::softmax)
            detail::softmax(scores, exp);
        else
            detail::sigmoid(scores, exp);
        for (std::size_t e = 0; e < E; ++e) values[e] = how.correction ? scores[e] + c.correction[e] : scores[e];
        bool const choice = std::any_of(values.begin(), values.end(), [](float v) { return v == v; });
        if (!choice && without_choice < 0) without_choice = t;
        route_in_groups(experts, values, how);

        float sum = 0.0f;
        for (std::size_t j = 0; j < k; ++j) {
            gates[j] = scores[static_cast<std::size_t>(experts[j])];
            sum = sum + gates[j];
        }
        sum = sum + epsilon;
        for (float& gate : gates) gate = (how.normalised ? gate / sum : gate) * scale;
    }
    return without_choice;
}

/// The routed output, some columns after the others: z[g] = fma(gate[e], part[e], z[g]) from +0, then the tree over all leaves, empty ones
/// too. The plain loops that the kernels of an instruction set are faster than.
inline void combine(combine_call const& c) {
    constexpr std::size_t at_once = 64;
    for (std::size_t first = 0; first < c.n; first += at_once) {
        std::size_t const width = c.n - first < at_once ? c.n - first : at_once;
        float z[expert_groups][at_once] = {};
        for (int j = 0; j < c.chosen; ++j) {
            float const gate = c.gates[j], *const part = c.parts[j] + first;
            float* const leaf = z[expert_group_of(c.experts[j], c.count)];
            for (std::size_t i = 0; i < width; ++i) leaf[i] = detail::fused(gate, part[i], leaf[i]);
        }
        for (int left = expert_groups / 2; left > 0; left /= 2)
            for (int g = 0; g < left; ++g)
                for (std::size_t i = 0; i < width; ++i) z[g][i] = z[2 * g][i] + z[2 * g + 1][i];
        std::copy_n(z[0], width, c.out + first);
    }
}

}  // namespace tenon::inline v0::kernel
#if defined(__clang__)
#pragma float_control(pop)
#endif
