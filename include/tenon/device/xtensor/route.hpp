// Which experts a token goes to, and with what weight. (docs/numerics.md, "Experts".)
// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <tenon/core/config.hpp>
#include <tenon/device/xtensor/exp.hpp>
#include <tenon/device/xtensor/row_sum.hpp>
#include <tenon/device/xtensor/rows.hpp>
#include <tenon/kernel/routing.hpp>

#include <cstddef>
#include <cstdint>
#include <limits>
#if defined(__clang__)
#pragma float_control(precise, on, push)
#endif

namespace tenon::inline v0::device::specification {

/// softmax(x) = a / sum of a,   a = exp(x - m),   m = max over e of x[e]
///
///   x, a  (T, E)   m  (T, 1)
inline matrix softmax(matrix const& x) {
    matrix m({x.shape(0), 1}, -std::numeric_limits<float>::infinity());
    for (std::size_t e = 0; e < x.shape(1); ++e) m = larger(column(x, e), m);
    matrix const a = exp(x - m);
    return a / row_sum(a);
}

/// sigmoid(x) = 1 / (1 + exp(0 - x))
inline matrix sigmoid(matrix const& x) { return 1.0f / (1.0f + exp(0.0f - x)); }

/// The total order of choice. Value v of expert i goes before value w of expert j: a number before NaN, then the larger, then the lower id.
inline bool goes_before(float v, float i, float w, float j) {
    bool const v_is_number = v == v, w_is_number = w == w;
    if (v_is_number != w_is_number) return v_is_number;
    return v_is_number && v != w ? v > w : i < j;
}

/// A value's place is how many of its row go before it: 0 is the best.   v, place  (T, n)
inline matrix places(matrix const& v) {
    std::size_t const n = v.shape(1);
    matrix const id = xt::view(xt::arange<float>(static_cast<float>(n)), xt::newaxis(), xt::all());
    matrix place = zeros(v.shape(0), n);
    auto const count = [](float w, float j, float own, float own_id, float p) { return goes_before(w, j, own, own_id) ? p + 1.0f : p; };
    for (std::size_t j = 0; j < n; ++j) place = each(count, column(v, j), column(id, j), v, id, place);
    return place;
}

/// The value of each row that has that place.   v (T, n), result (T, 1)
inline matrix value_in_place(matrix const& v, float wanted) {
    matrix const place = places(v);
    matrix found = zeros(v.shape(0), 1);
    auto const pick = [wanted](float p, float value, float other) { return p == wanted ? value : other; };
    for (std::size_t i = 0; i < v.shape(1); ++i) found = each(pick, column(place, i), column(v, i), found);
    return found;
}

/// What a group is worth: its best value, or the sum of its two best where it has two.   v (T, n), result (T, 1)
inline matrix worth_of(matrix const& v, group_worth worth) {
    if (worth == group_worth::best || v.shape(1) == 1) return value_in_place(v, 0.0f);
    return value_in_place(v, 0.0f) + value_in_place(v, 1.0f);
}

/// The values, minus infinity in all but the best groups, which are in the order that values are.
///
///   v, result  (T, E), G groups of E / G   worth, place  (T, G)
///
/// Sources: DeepSeek-AI 2024, "DeepSeek-V2", section 2.2.2, and "DeepSeek-V3 Technical Report", section 2.1.2.
inline matrix in_best_groups(matrix const& v, routed_experts const& how) {
    auto const G = static_cast<std::size_t>(how.groups), width = v.shape(1) / G;
    matrix worth = zeros(v.shape(0), G);
    for (std::size_t g = 0; g < G; ++g) put(worth, g, worth_of(columns(v, g * width, (g + 1) * width), how.worth));

    matrix const place = places(worth);
    matrix left = v;
    auto const keep = [kept = static_cast<float>(how.chosen_groups)](float p, float value) {
        return p < kept ? value : -std::numeric_limits<float>::infinity();
    };
    for (std::size_t g = 0; g < G; ++g) put(left, g * width, each(keep, column(place, g), columns(v, g * width, (g + 1) * width)));
    return left;
}

/// gate = score;   score / (sum + epsilon) where normalised;   times the scale
///
///   scores, place  (T, E)   sum  (T, 1): the chain over the chosen e, those in places below k, ascending from +0, of sum + score[e]
inline matrix gates_of(matrix const& scores, matrix const& place, routed_experts const& how) {
    auto const k = static_cast<float>(how.chosen), epsilon = static_cast<float>(how.sum_epsilon), scale = static_cast<float>(how.scale);
    if (!how.normalised) return scores * scale;
    matrix sum = zeros(scores.shape(0), 1);
    auto const add_chosen = [k](float p, float score, float so_far) { return p < k ? so_far + score : so_far; };
    for (std::size_t e = 0; e < scores.shape(1); ++e) sum = each(add_chosen, column(place, e), column(scores, e), sum);
    return scores / (sum + epsilon) * scale;
}

/// Scores, choice and gates of T tokens. A correction has a part in the choice alone. Returns the first row that has nothing but NaN to
/// choose by, or -1.
inline int route(kernel::routing_call const& c) {
    routed_experts const& how = *c.how;
    int const E = how.count;
    matrix const logits = read(c.scores, E, c.rows, E), scores = how.scoring == expert_scoring::softmax ? softmax(logits) : sigmoid(logits);
    matrix const values = how.correction ? matrix(scores + read(c.correction, 0, 1, E)) : scores, best = value_in_place(values, 0.0f);
    matrix const place = places(in_best_groups(values, how)), gates = gates_of(scores, place, how);
    write(c.scores, E, scores);

    int without_choice = -1;
    std::int32_t* id = c.experts;
    float* gate = c.gates;
    for (std::size_t t = 0; t < scores.shape(0); ++t) {
        if (best(t, 0) != best(t, 0) && without_choice < 0) without_choice = static_cast<int>(t);
        for (std::size_t e = 0; e < scores.shape(1); ++e)
            if (place(t, e) < static_cast<float>(how.chosen)) {
                *id++ = static_cast<std::int32_t>(e);
                *gate++ = gates(t, e);
            }
    }
    return without_choice;
}

}  // namespace tenon::inline v0::device::specification
#if defined(__clang__)
#pragma float_control(pop)
#endif
