// Routing and the routed sum by hand: ties, what is not a number, groups, gates, signed zeros, and what nothing may depend on.
// SPDX-License-Identifier: Apache-2.0
#include "reference.hpp"

#include <doctest/doctest.h>

#include <array>
#include <numeric>
#include <span>

using namespace reference;
using tenon::expert_scoring;
using tenon::group_worth;
using tenon::routed_experts;
using tenon::kernel::combine_call;
using ids = std::vector<std::int32_t>;

namespace {
float const inf = std::numeric_limits<float>::infinity(), no_number = std::nanf("");
float const above_one = std::nextafter(1.0f, 2.0f);

ids top(int k, floats const& values) {
    ids chosen(at(k), -7);
    tenon::kernel::route_top_k(chosen, values);
    return chosen;
}

ids in_groups(routed_experts const& how, floats values) {
    ids chosen(at(how.chosen), -7);
    tenon::kernel::route_in_groups(chosen, values, how);
    return chosen;
}

void exp_row(float* y, float const* x, std::size_t n) {
    for (std::size_t i = 0; i < n; ++i) y[i] = reference::exp(x[i]);
}

struct answer {
    ids experts;
    floats scores, gates;
    int without_choice = 0;
};

answer route(routed_experts const& how, floats const& logits, floats const& correction = {}) {
    std::size_t const rows = logits.size() / at(how.count), slots = rows * at(how.chosen);
    answer a{ids(slots, -7), logits, floats(slots, 5.0f)};
    floats scratch(at(how.count));
    a.without_choice = tenon::kernel::route(
        {&how, a.scores.data(), correction.data(), scratch.data(), a.experts.data(), a.gates.data(), static_cast<int>(rows)}, exp_row);
    return a;
}

routed_experts best_of(int count, int chosen, expert_scoring scoring = expert_scoring::softmax) {
    routed_experts how;
    how.count = count;
    how.chosen = chosen;
    how.scoring = scoring;
    return how;
}

routed_experts grouped(int count, int groups, int chosen_groups, int chosen, group_worth worth) {
    routed_experts how = best_of(count, chosen, expert_scoring::sigmoid);
    how.groups = groups;
    how.chosen_groups = chosen_groups;
    how.worth = worth;
    return how;
}

/// One column of the routed output of `chosen` experts of E, by every implementation that there is; they agree.
float combined(int E, ids const& chosen, floats const& gates, floats const& outputs) {
    std::vector<float const*> parts;
    for (float const& y : outputs) parts.push_back(&y);
    float out = 5.0f;
    combine_call const call{&out, parts.data(), gates.data(), chosen.data(), static_cast<int>(chosen.size()), E, 1};
    tenon::kernel::combine(call);
    float const inherited = out;
    for (isa i : all_supported()) {
        out = 5.0f;
        tenon::kernel::table_of(i).combine(call);
        CHECK(bits(out) == bits(inherited));
    }
    return inherited;
}

ids first_ids(int n, int step = 1) {
    ids r(at(n));
    for (std::size_t i = 0; i < r.size(); ++i) r[i] = static_cast<std::int32_t>(i) * step;
    return r;
}
}  // namespace

TEST_CASE("the larger value wins, be it by one unit in the last place, and among equals the lower id") {
    CHECK(top(2, {1, 2, 2, 2, 0}) == ids{1, 2});
    CHECK(top(3, {5, 1, 7, 1, 7, 1}) == ids{2, 4, 0});
    CHECK(top(4, {5, 1, 7, 1, 7, 1}) == ids{2, 4, 0, 1});
    CHECK(top(1, {1, above_one}) == ids{1});
    CHECK(top(1, {above_one, 1}) == ids{0});
    CHECK(top(2, {1, 1, 1, above_one}) == ids{3, 0});
    CHECK(top(1, {-above_one, -1}) == ids{1});
    CHECK(top(1, {0, 1e-45f}) == ids{1});
}

TEST_CASE("zeros of either sign are equal") {
    CHECK(top(1, {-0.0f, 0.0f}) == ids{0});
    CHECK(top(2, {-1, -0.0f, 0.0f, -0.0f}) == ids{1, 2});
}

TEST_CASE("what is not a number loses to everything, minus infinity too, and keeps the order of the ids") {
    CHECK(top(2, {no_number, -inf, no_number, -3}) == ids{3, 1});
    CHECK(top(4, {no_number, -inf, no_number, -3}) == ids{3, 1, 0, 2});
    CHECK(top(3, {no_number, -no_number, no_number, no_number}) == ids{0, 1, 2});
    CHECK(top(3, {inf, no_number, -inf, 3e38f}) == ids{0, 3, 2});
}

TEST_CASE("as many as there are come in their order, and one of one is that one") {
    CHECK(top(4, {-1, 4, 0, 4}) == ids{1, 3, 2, 0});
    CHECK(top(1, {no_number}) == ids{0});
    CHECK(top(0, {1, 2}).empty());
}

TEST_CASE("experts are chosen at compile time as at run time") {
    constexpr auto chosen = [] {
        routed_experts how;
        how.count = 6;
        how.chosen = 2;
        how.groups = 3;
        how.chosen_groups = 1;
        float values[]{5, 0, 3, 3, 2, 3};
        std::array<std::int32_t, 2> best{};
        tenon::kernel::route_in_groups(best, values, how);
        return best;
    }();
    static_assert(chosen == std::array<std::int32_t, 2>{2, 3});
}

TEST_CASE("a group is worth its best or its two best, and of equal groups the first is chosen") {
    floats const values{10, 0, 6, 6, 6, 6};
    CHECK(in_groups(grouped(6, 3, 1, 2, group_worth::best), values) == ids{0, 1});
    CHECK(in_groups(grouped(6, 3, 1, 2, group_worth::two_best), values) == ids{2, 3});
    CHECK(in_groups(grouped(6, 3, 2, 3, group_worth::two_best), values) == ids{2, 3, 4});
    CHECK(in_groups(grouped(6, 3, 3, 3, group_worth::two_best), values) == ids{0, 2, 3});
    CHECK(in_groups(grouped(3, 3, 1, 1, group_worth::two_best), {1, 3, 2}) == ids{1});  // groups of one
}

TEST_CASE("a negative value in a chosen group beats every group that was left out") {
    CHECK(in_groups(grouped(6, 3, 1, 2, group_worth::two_best), {-2, -2, -1, -1, -2, -2}) == ids{2, 3});
    CHECK(in_groups(grouped(6, 3, 1, 2, group_worth::best), {-3e38f, -2, -1, -3e38f, -2, -2}) == ids{2, 3});
}

TEST_CASE("groups that are not numbers lose, and what is left out is minus infinity, which beats no number but NaN") {
    CHECK(in_groups(grouped(4, 2, 1, 2, group_worth::two_best), {9, no_number, 1, 1}) == ids{2, 3});  // 9 + NaN
    CHECK(in_groups(grouped(4, 2, 1, 2, group_worth::best), {9, no_number, 1, 1}) == ids{0, 2});      // NaN after minus infinity
    CHECK(in_groups(grouped(4, 2, 1, 2, group_worth::two_best), {inf, -inf, -1, -1}) == ids{2, 3});
    CHECK(in_groups(grouped(4, 2, 1, 2, group_worth::best), {no_number, no_number, no_number, no_number}) == ids{2, 3});
}

TEST_CASE("a correction moves the choice and not the gate") {
    routed_experts how = best_of(3, 1, expert_scoring::sigmoid);
    floats const logits{0, 1, 2};
    CHECK(route(how, logits).experts == ids{2});
    how.correction = true;
    answer const a = route(how, logits, {5, 0, 0});
    CHECK(a.experts == ids{0});
    CHECK(a.gates == floats{0.5f});
    CHECK(route(how, logits, {0, -no_number, -inf}).experts == ids{0});
}

TEST_CASE("a gate is the score, over the sum and epsilon, and then times the scale") {
    floats const equal(4, -3.0f);  // scores of a quarter
    routed_experts how = best_of(4, 2);
    CHECK(route(how, equal).gates == floats{0.25f, 0.25f});
    how.sum_epsilon = 0.5;  // of no use where nothing is normalised
    how.scale = 4;
    CHECK(route(how, equal).gates == floats{1, 1});
    how.scale = 8;
    how.normalised = true;
    CHECK(route(how, equal).gates == floats{2, 2});  // 0.25 / (0.5 + 0.5) * 8

    how = best_of(4, 3);
    how.normalised = true;
    how.scale = 2.5;
    floats const divided_first = route(how, equal).gates;
    CHECK(bits(divided_first[0]) == 0x3f555556);
    CHECK(bits(0.25f * 2.5f / 0.75f) == 0x3f555555);
}

TEST_CASE("the best of one, normalised, has a gate of exactly 1") {
    random_numbers random;
    for (expert_scoring scoring : {expert_scoring::softmax, expert_scoring::sigmoid})
        for (int E = 1; E < 70; ++E) {
            routed_experts how = best_of(E, 1, scoring);
            how.normalised = true;
            for (float gate : route(how, random.row(at(7 * E), 30.0f)).gates) CHECK(gate == 1.0f);
        }
    routed_experts how = best_of(2, 1, expert_scoring::sigmoid);
    how.normalised = true;
    CHECK(route(how, {-200, -inf}).gates == floats{1});  // scores that are denormal
}

TEST_CASE("the chosen scores are summed by id, not by value") {
    random_numbers random;
    routed_experts how = best_of(40, 8);
    how.normalised = true;
    answer const a = route(how, random.row(40 * 50, 4.0f));
    int other_order = 0;
    for (std::size_t t = 0; t < 50; ++t) {
        floats chosen;
        for (std::size_t j = 0; j < 8; ++j) chosen.push_back(a.scores[t * 40 + at(a.experts[t * 8 + j])]);
        floats sorted = chosen;
        std::sort(sorted.rbegin(), sorted.rend());
        float const sum = std::accumulate(chosen.begin(), chosen.end(), 0.0f);
        other_order += sum != std::accumulate(sorted.begin(), sorted.end(), 0.0f);
        for (std::size_t j = 0; j < 8; ++j) CHECK(bits(a.gates[t * 8 + j]) == bits(chosen[j] / sum));
    }
    CHECK(other_order > 0);
}

TEST_CASE("scores are the law's softmax and sigmoid, for every number of experts up to 97") {
    random_numbers random;
    for (int E = 1; E <= 97; ++E) {
        floats const logits = random.row(at(E), 6.0f);
        floats sigmoid;
        for (float x : logits) sigmoid.push_back(1.0f / (1.0f + reference::exp(0.0f - x)));
        CHECK(difference(route(best_of(E, 1), logits).scores, softmax(logits)) == "");
        CHECK(difference(route(best_of(E, 1, expert_scoring::sigmoid), logits).scores, sigmoid) == "");
    }
}

TEST_CASE("the first row without a number to choose by is told, and its ids are ids") {
    routed_experts const how = best_of(3, 2), by_sigmoid = best_of(3, 2, expert_scoring::sigmoid);
    floats const rows{1, 2, 3, no_number, no_number, no_number, 3, 2, 1, no_number, no_number, no_number};
    for (routed_experts const& each : {how, by_sigmoid}) {
        answer const a = route(each, rows);
        CHECK(a.without_choice == 1);
        CHECK(a.experts == ids{1, 2, 0, 1, 0, 1, 0, 1});
    }
    CHECK(route(by_sigmoid, {1, no_number, 3, no_number, no_number, 0}).without_choice == -1);
    CHECK(route(how, {1, no_number, 3}).without_choice == 0);  // softmax's sum
    CHECK(route(how, {1, inf, 3}).without_choice == 0);
    CHECK(route(how, {-inf, -inf, -inf}).without_choice == 0);
    CHECK(route(by_sigmoid, {-inf, inf, -inf}).experts == ids{0, 1});
    CHECK(route(how, {}).without_choice == -1);

    routed_experts corrected = by_sigmoid;
    corrected.correction = true;
    CHECK(route(corrected, {1, 2, 3}, {no_number, no_number, no_number}).without_choice == 0);
    routed_experts in_one_group = grouped(4, 2, 1, 2, group_worth::best);  // what is left out is no choice
    CHECK(route(in_one_group, floats(4, no_number)).without_choice == 0);
}

TEST_CASE("a row is routed as if it were alone, to different experts, ids ascending") {
    random_numbers random;
    float const odd[]{no_number, inf, -inf, 0.0f, -0.0f, 1.5f, 90.0f, -90.0f, 1e-42f};
    for (int round = 0; round < 60; ++round) {
        group_worth const worth = round % 3 == 0 ? group_worth::best : group_worth::two_best;
        routed_experts how = grouped(24, round % 2 == 0 ? 4 : 1, 1, round % 6 + 1, worth);
        how.scoring = round % 4 < 2 ? expert_scoring::softmax : expert_scoring::sigmoid;
        how.correction = how.normalised = round % 5 < 3;
        floats const correction = random.row(24);
        floats logits = random.row(9 * 24, 4.0f);
        for (float& x : logits)
            if (random.next() % 30 == 0) x = odd[random.next() % std::size(odd)];

        answer const all = route(how, logits, correction);
        auto const k = how.chosen;
        int bad = -1;
        for (int t = 8; t >= 0; --t) {
            answer const alone = route(how, floats(logits.begin() + t * 24, logits.begin() + (t + 1) * 24), correction);
            if (alone.without_choice == 0) bad = t;
            CHECK(alone.experts == ids(all.experts.begin() + t * k, all.experts.begin() + (t + 1) * k));
            CHECK(difference(alone.gates, floats(all.gates.begin() + t * k, all.gates.begin() + (t + 1) * k)) == "");
            CHECK(std::adjacent_find(alone.experts.begin(), alone.experts.end(), std::greater_equal<>{}) == alone.experts.end());
            CHECK(alone.experts.front() >= 0);
            CHECK(alone.experts.back() < 24);
        }
        CHECK(all.without_choice == bad);
    }
}

TEST_CASE("an expert's group of the sum is floor(8 e / E)") {
    using tenon::kernel::expert_group_of;
    for (int e = 0; e < 8; ++e) CHECK(expert_group_of(e, 8) == e);
    CHECK(expert_group_of(0, 1) == 0);
    CHECK(expert_group_of(1, 3) == 2);
    CHECK(expert_group_of(2, 3) == 5);
    CHECK(expert_group_of(7, 60) == 0);
    CHECK(expert_group_of(8, 60) == 1);
    CHECK(expert_group_of(127, 1024) == 0);
    CHECK(expert_group_of(128, 1024) == 1);
    CHECK(expert_group_of(1023, 1024) == 7);
}

TEST_CASE("the routed sum is a chain within a group and a tree over groups, and a term is rounded once") {
    CHECK(combined(8, {0, 1, 2, 3}, {1, 1, 1, 1}, {1, 1e8f, -1e8f, 1}) == 0.0f);   // (1 + 1e8) + (-1e8 + 1)
    CHECK(combined(32, {0, 1, 2, 3}, {1, 1, 1, 1}, {1, 1e8f, -1e8f, 1}) == 1.0f);  // ((1 + 1e8) - 1e8) + 1
    CHECK(combined(8, {0, 2, 5, 7}, {1, 1, 1, 1}, {1, 1e8f, -1e8f, 1}) == 0.0f);   // (1 + 1e8) + (-1e8 + 1), beside empty leaves
    CHECK(combined(8, {0, 4, 5, 6}, {1, 1, 1, 1}, {1, 1e8f, -1e8f, 1}) == 2.0f);   // 1 + ((1e8 - 1e8) + 1)
    float const gate = 1.0f + 0x1p-12f;
    CHECK(combined(16, {0, 1}, {1, gate}, {-1, gate}) == 0x1p-11f + 0x1p-24f);
    CHECK(combined(16, {0, 2}, {1, gate}, {-1, gate}) == 0x1p-11f);
}

TEST_CASE("a chain starts at +0, and an empty group is +0 and added like the others") {
    float const tiny = 1e-30f;  // tiny tiny is too small to be a number, but not nothing
    CHECK(bits(combined(8, first_ids(8), floats(8, tiny), floats(8, -tiny))) == 0x80000000);
    CHECK(bits(combined(16, first_ids(8, 2), floats(8, tiny), floats(8, -tiny))) == 0x80000000);
    for (int left_out = 0; left_out < 8; ++left_out) {
        ids seven = first_ids(8);
        seven.erase(seven.begin() + left_out);
        CHECK(bits(combined(8, seven, floats(7, tiny), floats(7, -tiny))) == 0);
    }
    CHECK(bits(combined(8, {3}, {tiny}, {-tiny})) == 0);
    CHECK(bits(combined(8, first_ids(8), floats(8, 1.0f), floats(8, -0.0f))) == 0);
    CHECK(bits(combined(8, {}, {}, {})) == 0);
    CHECK(combined(8, {3}, {0.0f}, {inf}) != 0.0f);
}

TEST_CASE("a column of the routed sum is the same wherever its experts ran, whoever adds it up, and beside any columns") {
    random_numbers random;
    int const E = 40;
    std::size_t const n = 203;
    for (int round = 0; round < 40; ++round) {
        ids chosen;
        for (int e = 0; e < E; ++e)
            if (random.next() % 4 == 0) chosen.push_back(e);
        floats const gates = random.row(chosen.size());
        std::vector<floats> outputs;  // each where its rank keeps it
        std::vector<float const*> parts;
        for (std::size_t j = 0; j < chosen.size(); ++j) {
            outputs.push_back(random.row(n + j, 3.0f));
            parts.push_back(outputs.back().data() + j);
        }
        floats law;
        for (std::size_t i = 0; i < n; ++i) {
            floats z(8);
            for (std::size_t j = 0; j < chosen.size(); ++j) {
                float& leaf = z[at(8 * chosen[j] / E)];
                leaf = std::fmaf(gates[j], parts[j][i], leaf);
            }
            law.push_back(tree(z));
        }
        auto const in_pieces = [&](auto const& combine, std::size_t width) {
            floats out(n + 1, 5.0f);
            for (std::size_t first = 0; first < n; first += width) {
                std::vector<float const*> own;
                for (float const* part : parts) own.push_back(part + first);
                combine(combine_call{out.data() + first, own.data(), gates.data(), chosen.data(), static_cast<int>(chosen.size()), E,
                                     std::min(width, n - first)});
            }
            CHECK(out.back() == 5.0f);
            out.pop_back();
            return out;
        };
        for (std::size_t width : {n, std::size_t{1}, std::size_t{17}, std::size_t{64}, std::size_t{100}}) {
            CHECK(difference(in_pieces(tenon::kernel::combine, width), law) == "");
            for (isa i : all_supported()) CHECK(difference(in_pieces(tenon::kernel::table_of(i).combine, width), law) == "");
        }
    }
}
