// validate() against a checker written from DESIGN.md alone, over random configs and stage lists. The checker collects the
// laws of the first thing that is wrong by brute force; it shares no code with graph/validate.hpp but the law names.
// SPDX-License-Identifier: Apache-2.0
#include <doctest/doctest.h>
#include <tenon/graph/validate.hpp>
#include <tenon/model/llama.hpp>
#include <array>
#include <random>
#include <set>
#include <string>
#include <vector>

using namespace tenon;

namespace {
/// How many of `n` items rank `r` of `ranks` has: item i is on rank floor(i R / n). Counted, not computed.
bool all_have_work(int n, int ranks) {
    std::set<int> busy;
    for (int i = 0; i < n; ++i) busy.insert(static_cast<int>(1LL * i * ranks / n));
    return static_cast<int>(busy.size()) == ranks;
}

/// Segments of NUMERICS rule 1, by trying.
int segments(int units) {
    int best = 1;
    for (int s = 1; s <= 8; s *= 2)
        if (units / s * s == units) best = s;
    return best;
}

law first_of_cuts(model_config const& c, stage_traits const& s, int ranks) {
    rules r = s.cuts;
    if (r.by_default) r = {.tensor = ranks > 1};
    if (r.expert && r.expert_width) return law::rules_agree;
    if (r.expert || r.expert_width) return law::rule_cuts_something;
    if (ranks > 1 && !r.tensor) return law::unsharded_has_one_rank;
    if (!r.tensor) return law::none;
    block_kind const& b = c.kinds[0];
    int const heads = b.attention.heads, kv = b.attention.kv_heads;
    if (heads / ranks * ranks != heads) return law::heads_divide_over_ranks;
    if (kv / ranks * ranks != kv && ranks / kv * kv != ranks) return law::kv_heads_divide_or_repeat;
    if (!all_have_work(b.ffn.width, ranks) || !all_have_work(c.hidden, ranks)) return law::every_rank_has_work;
    if (r.tensor_join == join_kind::reduce) {
        int const f = b.ffn.width;
        int const of_ffn = f % 32 == 0 ? segments(f / 32) : segments(f), of_heads = segments(heads);
        if (of_ffn % ranks != 0 || of_heads % ranks != 0) return law::reduce_divides_segments;
    }
    bool const vocabulary = s.first_layer == 0 || s.last_layer == c.layers - 1;
    return vocabulary && !all_have_work(c.vocab, ranks) ? law::every_rank_has_work : law::none;
}

law first_broken(model_config const& c, std::vector<stage_traits> const& stages) {
    grouped_attention const& a = c.kinds[0].attention;
    for (int e : {c.layers, c.hidden, c.vocab, c.max_positions, a.heads, a.kv_heads, a.head_dim, c.kinds[0].ffn.width})
        if (e < 1) return law::shape_is_positive;
    if (a.heads / a.kv_heads * a.kv_heads != a.heads) return law::heads_share_kv_heads;
    if (a.head_dim & 1) return law::head_dim_is_even;
    if (stages.empty()) return law::graph_has_stages;
    std::vector<int> owners(static_cast<std::size_t>(c.layers), 0);
    int next = 0;
    for (std::size_t i = 0; i < stages.size(); ++i) {
        stage_traits const& s = stages[i];
        if (s.first_layer > s.last_layer) return law::layers_run_forward;
        for (int l = s.first_layer; l <= s.last_layer; ++l)
            if (l < 0 || l >= c.layers) return law::layers_within_model;
        if (s.first_layer != next) return law::layers_follow_on;
        for (int l = s.first_layer; l <= s.last_layer; ++l) ++owners[static_cast<std::size_t>(l)];
        next = s.last_layer + 1;
        if (s.devices.empty()) return law::stage_has_devices;
        if (s.most_ranks == 0) return law::device_is_available;
        std::set<int> seen;
        for (device_id const& d : s.devices) {
            if (d.index < 0) return law::device_index_is_positive;
            if (!seen.insert(d.index).second) return law::devices_are_distinct;
        }
        if (s.ranks() > s.most_ranks) return law::device_serves_ranks;
        if (law const broken = first_of_cuts(c, s, s.ranks()); broken != law::none) return broken;
        if (s.crossing.schema != 1) return law::seam_schemas_agree;
        if (i > 0 && s.crossing.element != stages[i - 1].crossing.element) return law::seam_dtypes_agree;
        if (s.crossing.element != dtype::f32) return law::boundary_keeps_bits;
    }
    for (int const count : owners)
        if (count != 1) return law::layers_cover_the_model;
    return law::none;
}
}  // namespace

TEST_CASE("validate finds the law that an independent checker finds, and its remedies are lawful") {
    std::mt19937 random(7);
    auto const below = [&random](int n) { return static_cast<int>(random() % static_cast<unsigned>(n)); };
    auto const rarely = [&below](int n) { return below(n) == 0; };
    std::array<int, static_cast<std::size_t>(law::count_)> met{};
    for (int round = 0; round < 20000; ++round) {
        int const kv = 1 + below(6), heads = rarely(20) ? 1 + below(12) : kv * (1 + below(4));
        model_config const c = model::llama({.layers = rarely(60) ? 0 : 1 + below(6), .hidden = rarely(60) ? -below(2) : 1 + below(40), .heads = heads, .kv_heads = kv,
                                             .head_dim = rarely(40) ? 3 : 2, .ffn = rarely(8) ? 1 + below(4) : 8 * (1 + below(40)), .vocab = 1 + below(40)});
        std::vector<std::vector<device_id>> groups;
        std::vector<stage_traits> stages;
        groups.reserve(8);
        for (int first = 0; first < c.layers && !rarely(40);) {
            int const last = first + below(c.layers - first), ranks = rarely(60) ? 0 : 1 + below(rarely(3) ? 8 : 2);
            groups.emplace_back();
            for (int r = 0; r < ranks; ++r) groups.back().push_back({device_kind::cpu, rarely(150) ? 0 : rarely(150) ? -1 : r});
            stage_traits s{.first_layer = rarely(40) ? first + below(5) - 2 : first, .last_layer = rarely(40) ? last + below(5) - 2 : last, .devices = groups.back()};
            int const rule = below(8);
            if (rule == 0) s.cuts = {};
            if (rule > 4) s.cuts = {.tensor = true, .tensor_join = rule == 5 ? join_kind::gather : join_kind::reduce};
            if (rarely(60)) s.cuts = {.expert = true, .expert_width = rarely(2)};
            if (rarely(60)) s.most_ranks = below(3);
            if (rarely(60)) s.crossing.schema = 2;
            if (rarely(60)) s.crossing.element = dtype::bf16;
            stages.push_back(s);
            first = last + 1;
        }
        violation const v = validate(c, stages);
        law const expected = first_broken(c, stages);
        ++met[static_cast<std::size_t>(expected)];
        CAPTURE(round);
        REQUIRE(std::string(name_of(v.which)) == std::string(name_of(expected)));
        if (v.right.what != quantity::ranks) continue;
        std::vector<int> would_do;
        stage_traits const& s = stages[static_cast<std::size_t>(v.stage)];
        for (int ranks = 1; ranks <= s.most_ranks && would_do.size() < most_remedies; ++ranks)
            if (first_of_cuts(c, s, ranks) == law::none) would_do.push_back(ranks);
        std::vector<int> const offered(v.instead.value.begin(), v.instead.value.begin() + v.instead.count);
        REQUIRE(offered == (v.which == law::unsharded_has_one_rank ? std::vector{1} : would_do));
    }
    // The sample reaches every law of a model, a stage and a boundary, and enough lawful graphs.
    CHECK(met[0] > 1000);
    for (law l = law::shape_is_positive; l <= law::boundary_keeps_bits; l = static_cast<law>(static_cast<int>(l) + 1)) {
        CAPTURE(name_of(l));
        if (l != law::shape_fits) CHECK(met[static_cast<std::size_t>(l)] > 0);
    }
}
