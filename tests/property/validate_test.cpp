// validate() and validate_placement() against the brute-force checker of these tests, over random configs, stage lists and placement maps.
// SPDX-License-Identifier: Apache-2.0
#include "support/checker.hpp"

#include <doctest/doctest.h>
#include <algorithm>
#include <array>
#include <random>
#include <set>
#include <string>
#include <tenon/graph/placed.hpp>
#include <tenon/graph/validate.hpp>
#include <tenon/model/kinds.hpp>
#include <tenon/model/llama.hpp>
#include <vector>

using namespace tenon;
using support::first_broken;
using support::first_of_cuts;
using support::first_of_map;
using support::first_of_routing;

namespace {

class dice {
public:
    explicit dice(unsigned seed) : random_(seed) {}
    int below(int n) { return static_cast<int>(random_() % static_cast<unsigned>(n)); }
    bool rarely(int n) { return below(n) == 0; }
    template <class T>
    T one_of(std::initializer_list<T> list) {
        return list.begin()[below(static_cast<int>(list.size()))];
    }

private:
    std::mt19937 random_;
};

/// Some experts, seldom unlawful, of any width and in groups or not.
routed_experts random_experts(dice& d) {
    int const count = d.rarely(60) ? 1020 + d.below(10) : 1 + d.below(16);
    routed_experts e{.count = d.rarely(80) ? -d.below(3) : count,
                     .chosen = 1 + d.below(count),
                     .width = d.rarely(4) ? 1 + d.below(6) : 8 * (1 + d.below(40))};
    if (d.rarely(3)) e.shared_width = d.rarely(2) ? 1 + d.below(6) : 32 * (1 + d.below(8));
    if (d.rarely(3)) e.groups = d.rarely(4) ? 1 + d.below(6) : d.one_of({2, 4, count}), e.chosen_groups = 1 + d.below(e.groups);
    e.worth = d.one_of({group_worth::best, group_worth::two_best});
    if (d.rarely(50)) e.chosen = d.one_of({0, -1, count + 1, count + 40});
    if (d.rarely(60)) e.groups = d.one_of({0, -2, count + 1});
    if (d.rarely(60)) e.chosen_groups = d.one_of({0, e.groups + 1});
    if (d.rarely(80)) e.shared_width = -1;
    if (d.rarely(80)) e.width = 0;
    if (d.rarely(60)) e.width = (1 << 24) / count + 1;
    return e;
}

/// Dense, routed in some layers or in all, or of two sorts of experts.
model_config random_config(dice& d) {
    int const kv = 1 + d.below(6), heads = d.rarely(20) ? 1 + d.below(12) : kv * (1 + d.below(4));
    model_config c = model::llama({.layers = d.rarely(60) ? 0 : 1 + d.below(6),
                                   .hidden = d.rarely(60) ? -d.below(2) : 1 + d.below(40),
                                   .heads = heads,
                                   .kv_heads = kv,
                                   .head_dim = d.rarely(40) ? 3 : 2,
                                   .ffn = d.rarely(8) ? 1 + d.below(4) : 8 * (1 + d.below(40)),
                                   .vocab = 1 + d.below(40)});
    for (int sorts = d.below(3); sorts > 0; --sorts) {
        int const step = 1 + d.below(2), first = d.below(2);
        c = model::with_experts(c, random_experts(d), [=](int layer) { return layer >= first && layer % step == 0; });
    }
    return c;
}

/// The most experts that a routed layer of a stage has, or 0.
int experts_of(model_config const& c, stage_traits const& s) {
    int most = 0;
    for (int l = std::max(s.first_layer, 0); l <= s.last_layer && l < c.layers; ++l) most = std::max(most, c.layer(l).experts.count);
    return most;
}

/// A row of owners: as good as always a rank for every expert and an expert for every rank; else with a hole, an owner too many, a rank
/// that is idle or one owner too few.
std::vector<int> random_owners(dice& d, int experts, int ranks) {
    std::vector<int> owners;
    for (int e = 0; e < experts; ++e) owners.push_back(e < ranks ? e : d.below(ranks));
    for (int e = experts - 1; e > 0; --e) std::swap(owners[static_cast<std::size_t>(e)], owners[static_cast<std::size_t>(d.below(e + 1))]);
    if (owners.empty()) return owners;
    if (d.rarely(8)) owners[static_cast<std::size_t>(d.below(experts))] = -1;
    if (d.rarely(8)) owners[static_cast<std::size_t>(d.below(experts))] = ranks + d.below(2);
    if (d.rarely(8)) std::replace(owners.begin(), owners.end(), ranks - 1, 0);
    if (d.rarely(12)) owners.pop_back();
    return owners;
}

/// Stages over a model, and what they refer to.
struct random_stages {
    std::vector<std::vector<device_id>> groups{};
    std::vector<std::vector<int>> owners{};
    std::vector<stage_traits> list{};

    random_stages(dice& d, model_config const& c) {
        groups.reserve(8);
        owners.reserve(8);
        for (int first = 0; first < c.layers && !d.rarely(40);) {
            int const last = first + d.below(c.layers - first), ranks = d.rarely(60) ? 0 : 1 + d.below(d.rarely(3) ? 8 : 2);
            groups.emplace_back();
            for (int r = 0; r < ranks; ++r) groups.back().push_back({device_kind::cpu, d.rarely(150) ? 0 : d.rarely(150) ? -1 : r});
            stage_traits s{.first_layer = d.rarely(40) ? first + d.below(5) - 2 : first,
                           .last_layer = d.rarely(40) ? last + d.below(5) - 2 : last,
                           .devices = groups.back()};
            choose_rules(d, s);
            if (s.cuts.expert && d.rarely(3)) s.owners = owners.emplace_back(list_of_owners(d, c, s));
            if (s.owners.empty() && !d.rarely(8)) s.placement = placing::awaited;
            if (d.rarely(60)) s.most_ranks = d.below(3);
            if (d.rarely(60))
                for (device_id& id : groups.back()) id.kind = device_kind::eigen, s.canonical = false;
            if (d.rarely(60)) s.crossing.schema = 2;
            if (d.rarely(60)) s.crossing.element = dtype::bf16;
            list.push_back(s);
            first = last + 1;
        }
    }

private:
    static void choose_rules(dice& d, stage_traits& s) {
        join_kind const join = d.one_of({join_kind::gather, join_kind::reduce}), other = d.one_of({join_kind::gather, join_kind::reduce});
        switch (d.below(12)) {
            case 0: s.cuts = {}; break;
            case 1:
            case 2: s.cuts = {.tensor = true, .tensor_join = join}; break;
            case 3:
            case 4: s.cuts = {.expert = true, .exact = d.rarely(3)}; break;
            case 5: s.cuts = {.tensor = true, .expert = true, .exact = d.rarely(3), .tensor_join = join}; break;
            case 6: s.cuts = {.expert_width = true, .width_join = join}; break;
            case 7: s.cuts = {.tensor = true, .expert_width = true, .tensor_join = join, .width_join = other}; break;
            default: break;
        }
        if (d.rarely(60)) s.cuts = {.expert = true, .expert_width = true};
    }
    /// One row for all layers of the stage, or a row for each.
    static std::vector<int> list_of_owners(dice& d, model_config const& c, stage_traits const& s) {
        int const experts = experts_of(c, s), ranks = std::max(s.ranks(), 1);
        std::vector<int> all;
        for (int rows = d.rarely(2) ? 1 : std::max(s.last_layer - s.first_layer + 1, 1); rows > 0; --rows)
            for (int const owner : random_owners(d, experts, ranks)) all.push_back(owner);
        return all;
    }
};

using law_counts = std::array<int, static_cast<std::size_t>(law::count_)>;

std::vector<int> offered(violation const& v) { return {v.instead.value.begin(), v.instead.value.begin() + v.instead.count}; }

/// What would do in place of a rank count is every count of ranks that breaks no law of the stage, and no other.
void check_ranks_offered(model_config const& c, stage_traits const& s, violation const& v) {
    std::vector<int> would_do;
    for (int ranks = 1; ranks <= std::min(s.most_ranks, 64) && would_do.size() < most_remedies; ++ranks)
        if (first_of_cuts(c, s, ranks) == law::none) would_do.push_back(ranks);
    REQUIRE(offered(v) == (v.which == law::unsharded_has_one_rank ? std::vector{1} : would_do));
    if (v.which != law::reduce_divides_segments) return;
    stage_traits gathered = s;
    gathered.cuts.tensor_join = gathered.cuts.width_join = join_kind::gather;
    REQUIRE(v.gather_would_do == (first_of_cuts(c, gathered, s.ranks()) == law::none));
}

/// What would do in place of a number of a routed FFN makes it lawful, and something is offered where something would.
void check_routing_offered(model_config const& c, violation const& v, int routed_experts::*number, int least, int most) {
    for (int k = 0; k < c.kind_count; ++k) {
        routed_experts e = c.kinds[static_cast<std::size_t>(k)].experts;
        if (first_of_routing(e) != v.which) continue;
        std::vector<int> would_do;
        for (e.*number = least; e.*number <= most; ++(e.*number))
            if (first_of_routing(e) == law::none) would_do.push_back(e.*number);
        REQUIRE(offered(v).empty() == would_do.empty());
        for (int const value : offered(v)) REQUIRE(std::count(would_do.begin(), would_do.end(), value) == 1);
        return;
    }
}

void check_remedies(model_config const& c, std::vector<stage_traits> const& stages, violation const& v) {
    if (v.right.what == quantity::ranks) check_ranks_offered(c, stages[static_cast<std::size_t>(v.stage)], v);
    if (v.right.what == quantity::chosen_experts) check_routing_offered(c, v, &routed_experts::chosen, 1, 1100);
    if (v.right.what == quantity::groups) check_routing_offered(c, v, &routed_experts::groups, 1, 1100);
    if (v.right.what == quantity::chosen_groups) check_routing_offered(c, v, &routed_experts::chosen_groups, 1, 1100);
    if (v.which != law::shape_fits) return;
    int const widest = (1 << 24) / v.left.value;  // the sample has no model too large but in its experts
    if (v.right.what == quantity::limit) check_routing_offered(c, v, &routed_experts::count, 1024, 1024);
    if (v.right.what == quantity::expert_width) check_routing_offered(c, v, &routed_experts::width, widest, widest);
}

}  // namespace

TEST_CASE("validate finds the law that an independent checker finds, and its remedies are lawful") {
    dice d(7);
    law_counts met{};
    for (int round = 0; round < 60000; ++round) {
        model_config const c = random_config(d);
        random_stages const stages(d, c);
        violation const v = validate(c, stages.list);
        law const expected = first_broken(c, stages.list);
        ++met[static_cast<std::size_t>(expected)];
        CAPTURE(round);
        REQUIRE(std::string(name_of(v.which)) == std::string(name_of(expected)));
        check_remedies(c, stages.list, v);
    }
    // The sample reaches every law of a model, a stage and a boundary that stages can break before there is a map or a format of weights, and
    // enough lawful graphs.
    CHECK(met[0] > 1000);
    constexpr std::array of_others{law::placement_is_awaited, law::placement_is_given, law::placement_entry_is_the_root,
                                   law::placement_covers_the_layers, law::blocks_divide_inputs};
    for (law l = law::shape_is_positive; l <= law::boundary_keeps_bits; l = static_cast<law>(static_cast<int>(l) + 1)) {
        CAPTURE(name_of(l));
        if (std::find(of_others.begin(), of_others.end(), l) == of_others.end()) CHECK(met[static_cast<std::size_t>(l)] >= 20);
    }
}

namespace {

/// A map for the stages that take one; seldom for others, for other ranks, experts or layers, with rows that are wrong.
struct random_map {
    std::vector<int> layers{}, owners{};
    placement_view view{};

    random_map(dice& d, model_config const& c, std::vector<stage_traits> const& stages) {
        view.ranks = 2;
        for (stage_traits const& s : stages) {
            bool const takes = support::leaves_it_to_a_map(c, s);
            if (takes) view.ranks = s.ranks(), view.experts = experts_of(c, s);
            for (int l = s.first_layer; l <= s.last_layer; ++l)
                if ((takes && c.layer(l).experts && !d.rarely(40)) || d.rarely(60)) layers.push_back(l);
        }
        if (d.rarely(12)) ++view.ranks;
        if (d.rarely(12)) ++view.experts;
        if (d.rarely(12)) view.entry_rank = 1;
        if (d.rarely(30) && !layers.empty()) layers.push_back(layers[0]);
        if (d.rarely(3)) std::reverse(layers.begin(), layers.end());
        if (d.rarely(60)) layers.push_back(c.layers);
        bool const sound = !d.rarely(3);
        for (std::size_t row = 0; row < layers.size(); ++row)
            for (int e = 0; e < view.experts; ++e) owners.push_back(e % view.ranks);
        if (!sound && !owners.empty())
            owners[static_cast<std::size_t>(d.below(static_cast<int>(owners.size())))] = d.one_of({-1, 0, 1, view.ranks});
        if (d.rarely(8)) std::replace(owners.begin(), owners.end(), 1, 0);
        if (d.rarely(30) && !owners.empty()) owners.pop_back();
        view.layers = layers;
        view.owners = owners;
    }
};

/// In place of a map's ranks or experts does what every stage that takes it has, and nothing where they differ.
void check_map_remedies(model_config const& c, std::vector<stage_traits> const& stages, placement_view const& map) {
    std::set<int> ranks, experts;
    for (stage_traits const& s : stages) {
        if (!support::leaves_it_to_a_map(c, s)) continue;
        ranks.insert(s.ranks());
        for (int const layer : support::routed_layers(c, s)) experts.insert(c.layer(s.first_layer + layer).experts.count);
    }
    violation const v = validate_placement(c, stages, map);
    if (v.which != law::placement_ranks_are_the_stages && v.which != law::placement_experts_are_the_models) return;
    std::set<int> const& had = v.which == law::placement_ranks_are_the_stages ? ranks : experts;
    REQUIRE(offered(v) == (had.size() == 1 ? std::vector(had.begin(), had.end()) : std::vector<int>{}));
}

law law_of_placing(graph_view g, placement_view const* map) {
    try {
        if (map == nullptr)
            placed_graph const placed(g);
        else
            placed_graph const placed(g, *map);
    } catch (graph_error const& e) { return e.why().which; }
    return law::none;
}

}  // namespace

TEST_CASE("a placement map is refused by the law that an independent checker finds, and what is not refused is a lawful graph") {
    dice d(11);
    law_counts met{};
    int placed = 0;
    for (int round = 0; round < 60000; ++round) {
        model_config const c = random_config(d);
        random_stages stages(d, c);
        if (validate(c, stages.list)) continue;
        for (stage_traits& s : stages.list)
            if (s.owners.empty()) s.placement = d.one_of({placing::settled, placing::open, placing::open, placing::awaited});
        random_map const made(d, c, stages.list);
        placement_view const* const map = d.rarely(5) ? nullptr : &made.view;
        law const expected = first_of_map(c, stages.list, map);
        ++met[static_cast<std::size_t>(expected)];
        placed += expected == law::none && map != nullptr;
        CAPTURE(round);
        REQUIRE(std::string(name_of(law_of_placing({&c, stages.list, {}}, map))) == std::string(name_of(expected)));
        if (map == nullptr) REQUIRE(validate_placement(c, stages.list).which == expected);
        if (map != nullptr) check_map_remedies(c, stages.list, *map);
    }
    CHECK(placed > 200);
    CHECK(met[static_cast<std::size_t>(law::placement_rank_exists)] >= 20);
    CHECK(met[static_cast<std::size_t>(law::placement_names_every_expert)] >= 20);
    CHECK(met[static_cast<std::size_t>(law::every_rank_has_work)] >= 20);
    for (law l = law::placement_is_awaited; l <= law::placement_covers_the_layers; l = static_cast<law>(static_cast<int>(l) + 1)) {
        CAPTURE(name_of(l));
        CHECK(met[static_cast<std::size_t>(l)] >= 20);
    }
}
