// Every law broken at run time: the numbers of tests/compile_fail/, arriving as values, give the same name and the same violation.
// SPDX-License-Identifier: Apache-2.0
#include <doctest/doctest.h>
#include <tenon/graph/graph.hpp>
#include <tenon/graph/plan_value.hpp>
#include <tenon/model/llama.hpp>
#include <array>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

using namespace tenon;
using q = quantity;

namespace {
constexpr model::llama_shape tiny_shape{.layers = 4, .hidden = 64, .heads = 4, .kv_heads = 2, .ffn = 96, .vocab = 101};
constexpr model_config tiny = model::llama(tiny_shape);

/// Tiny, but for what `change` does to its shape.
template <class Change>
constexpr model_config tiny_but(Change change) {
    model::llama_shape s = tiny_shape;
    change(s);
    return model::llama(s);
}

struct refused {
    model_config config{};
    std::string_view plan{};
    violation expected{};
};

constexpr violation broken(law which, int stage, operand left, operand right, remedies instead = {}) { return {which, stage, left, right, instead}; }
/// The same, where the last remedy repeats KV heads.
constexpr violation repeating(violation v, int kv_heads) {
    v.kv_heads = kv_heads;
    return v;
}
constexpr violation or_gather(violation v) {
    v.gather_would_do = true;
    return v;
}
constexpr violation at_character(law which, int part, int character) { return broken(which, part, {q::character, character}, {}); }
template <class... Int>
constexpr remedies would_do_(Int... v) {
    remedies r{};
    (r.add(v), ...);
    return r;
}

constexpr model_config thirty_heads = tiny_but([](auto& s) { s.hidden = 480; s.heads = 30; s.kv_heads = 6; });
constexpr model_config twelve_heads = tiny_but([](auto& s) { s.hidden = 192; s.heads = 12; s.kv_heads = 6; });
constexpr model_config six_heads = tiny_but([](auto& s) { s.hidden = 96; s.heads = 6; s.kv_heads = 6; s.ffn = 256; });

// What a plan and a config can break. Built in a function: clang 14 takes long over a constant of thirty configs.
std::vector<refused> refused_plans() {
    return {
        {tiny_but([](auto& s) { s.vocab = 0; }), "all@0", broken(law::shape_is_positive, 0, {q::extent, 0}, {q::limit, 1})},
        {tiny_but([](auto& s) { s.layers = 300; }), "all@0", broken(law::shape_fits, 0, {q::layers, 300}, {q::limit, 256}, only(256))},
        {tiny_but([](auto& s) { s.hidden = 1 << 25; }), "all@0", broken(law::shape_fits, 0, {q::extent, 1 << 25}, {q::limit, largest_extent})},
        {tiny_but([](auto& s) { s.heads = 7; s.head_dim = 16; s.hidden = 112; }), "all@0", broken(law::heads_share_kv_heads, 0, {q::heads, 7}, {q::kv_heads, 2})},
        {tiny_but([](auto& s) { s.head_dim = 15; }), "all@0", broken(law::head_dim_is_even, 0, {q::heads, 4}, {q::head_dim, 15})},
        {tiny, "0-1@0;3-2@0", broken(law::layers_run_forward, 1, {q::first_layer, 3}, {q::last_layer, 2})},
        {tiny, "3-1@0,1", broken(law::layers_run_forward, 0, {q::first_layer, 3}, {q::last_layer, 1})},
        {tiny, "0-1@0;2-4@0", broken(law::layers_within_model, 1, {q::layers, 4}, {q::last_layer, 4}, only(3))},
        {tiny, "0-200@0,1", broken(law::layers_within_model, 0, {q::layers, 4}, {q::last_layer, 200}, only(3))},
        {tiny, "0-3@0;7-9@0", broken(law::layers_within_model, 1, {q::layers, 4}, {q::last_layer, 9})},
        {tiny, "0-1@0;2-3@5,5", broken(law::devices_are_distinct, 1, {q::devices, 2}, {q::device, 5})},
        {tiny, "0-3@0,0", broken(law::devices_are_distinct, 0, {q::devices, 2}, {q::device, 0})},
        {tiny, "0-3@cuda.7", broken(law::device_is_available, 0, {q::kind, 4}, {q::device, 7})},
        {tiny, "0-3@0,1:none", broken(law::unsharded_has_one_rank, 0, {q::layers, 4}, {q::ranks, 2}, only(1))},
        {tiny, "0-3@0,1:expert", broken(law::rule_cuts_something, 0, {q::experts, 0}, {q::ranks, 2})},
        {tiny, "0-3@0,1:tensor+expert_width.reduce", broken(law::rule_cuts_something, 0, {q::experts, 0}, {q::ranks, 2})},
        {thirty_heads, "0-1@0;2-3@0,1,2,3", repeating(broken(law::heads_divide_over_ranks, 1, {q::heads, 30}, {q::ranks, 4}, would_do_(1, 2, 3, 6, 30)), 6)},
        {tiny_but([](auto& s) { s.hidden = 448; s.heads = 28; s.kv_heads = 4; }), "all@0,1,2,3,4,5,6,7",
         repeating(broken(law::heads_divide_over_ranks, 0, {q::heads, 28}, {q::ranks, 8}, would_do_(1, 2, 4, 28)), 4)},
        {tiny_but([](auto& s) { s.hidden = 832; s.heads = 52; s.kv_heads = 0; }), "all@0,1,2",
         broken(law::heads_divide_over_ranks, 0, {q::heads, 52}, {q::ranks, 3}, would_do_(1, 2, 4, 13, 26, 52))},
        {twelve_heads, "0-1@0;2-3@0,1,2,3", repeating(broken(law::kv_heads_divide_or_repeat, 1, {q::kv_heads, 6}, {q::ranks, 4}, would_do_(1, 2, 3, 6, 12)), 6)},
        {tiny_but([](auto& s) { s.ffn = 3; }), "0-1@0;2-3@0,1,2,3", broken(law::every_rank_has_work, 1, {q::ffn, 3}, {q::ranks, 4}, would_do_(1, 2))},
        {tiny_but([](auto& s) { s.hidden = 2; s.head_dim = 2; }), "0@0;1@0,1,2,3;2-3@1", broken(law::every_rank_has_work, 1, {q::hidden, 2}, {q::ranks, 4}, would_do_(1, 2))},
        {tiny_but([](auto& s) { s.vocab = 3; }), "0-1@0,1,2,3;2-3@0", broken(law::every_rank_has_work, 0, {q::vocab, 3}, {q::ranks, 4}, would_do_(1, 2))},
        {six_heads, "0-3@0,1,2:tensor.reduce", or_gather(broken(law::reduce_divides_segments, 0, {q::segments, 2}, {q::ranks, 3}, would_do_(1, 2)))},
        {tiny, "", at_character(law::plan_is_not_empty, 0, 0)},
        {tiny, "0-3@0;", at_character(law::plan_part_is_not_empty, 1, 6)},
        {tiny, ";0-3@0", at_character(law::plan_part_is_not_empty, 0, 0)},
        {tiny, "banana", at_character(law::plan_names_layers, 0, 0)},
        {tiny, "0-3@0,", at_character(law::plan_names_devices, 0, 6)},
        {tiny, "0-1@0,1;2-03@2", at_character(law::plan_number_is_plain, 1, 10)},
        {tiny, "-1@0,1", at_character(law::plan_number_is_plain, 0, 0)},
        {tiny, "0-4294967299@0", at_character(law::plan_number_fits, 0, 11)},
        {tiny, "0-3@tpu.0", at_character(law::plan_kind_is_known, 0, 4)},
        {tiny, "0-3@cpu.0,eigen.1", broken(law::plan_kinds_agree, 0, {q::kind, 1}, {q::kind, 3})},
        {tiny, "0-3@0,1:row", at_character(law::plan_rule_is_known, 0, 8)},
        {tiny, "0-3@0,1:tensor+tensor", at_character(law::plan_rule_is_new, 0, 15)},
        {tiny, "0-3@0:none+tensor", at_character(law::plan_rules_agree, 0, 11)},
        {tiny, "0-3@0,1:expert+expert_width.reduce", at_character(law::plan_rules_agree, 0, 15)},
        {tiny, "0-3@0,1:tensor.scatter", at_character(law::plan_join_is_known, 0, 15)},
        {tiny, "0-3@0,1:none.gather", at_character(law::plan_join_is_known, 0, 13)},
        {tiny, "all@0,1;3@0,1", at_character(law::plan_part_ends, 0, 7)},
        {tiny, "0-2@0;2-3@1", broken(law::plan_layer_is_named_once, 1, {q::next_layer, 3}, {q::first_layer, 2})},
        {tiny, "0@0;3@1", broken(law::plan_layers_are_all_named, 1, {q::layers, 4}, {q::layer, 1})},
    };
}

// What only stages can break that did not come from a plan: a caller's own traits, a backend's limit, a boundary.
struct refused_stages {
    std::vector<stage_traits> stages{};
    violation expected{};
};
constexpr std::array<device_id, 9> devices{{{device_kind::cpu, 0}, {device_kind::cpu, 1}, {device_kind::cpu, 2}, {device_kind::cpu, 3}, {device_kind::cpu, 4},
                                            {device_kind::cpu, 5}, {device_kind::cpu, 6}, {device_kind::cpu, -1}, {device_kind::cuda, 7}}};
constexpr std::span<device_id const> on(std::size_t first, std::size_t count) { return std::span<device_id const>(devices).subspan(first, count); }

std::vector<refused_stages> refused_lists() {
    auto const crossing = [](int schema, dtype element) { return boundary_traits{schema, element}; };
    stage_traits const early{.first_layer = 0, .last_layer = 1, .devices = on(0, 1)}, late{.first_layer = 2, .last_layer = 3, .devices = on(0, 1)};
    auto const late_but = [&late](auto change) { stage_traits s = late; change(s); return s; };
    auto const whole_but = [](auto change) { stage_traits s{.first_layer = 0, .last_layer = 3, .devices = on(0, 1)}; change(s); return s; };
    return {
        {{}, broken(law::graph_has_stages, 0, {q::layers, 4}, {q::stages, 0}, only(1))},
        {{whole_but([](auto& s) { s.first_layer = -1; })}, broken(law::layers_within_model, 0, {q::layers, 4}, {q::first_layer, -1}, only(0))},
        {{early, late_but([](auto& s) { s.first_layer = 3; })}, broken(law::layers_follow_on, 1, {q::next_layer, 2}, {q::first_layer, 3}, only(2))},
        {{early, late_but([](auto& s) { s.first_layer = 1; s.last_layer = 1; })}, broken(law::layers_follow_on, 1, {q::next_layer, 2}, {q::first_layer, 1})},
        {{early, late_but([](auto& s) { s.last_layer = 2; })}, broken(law::layers_cover_the_model, 1, {q::layers, 4}, {q::last_layer, 2}, only(3))},
        {{whole_but([](auto& s) { s.devices = {}; })}, broken(law::stage_has_devices, 0, {q::devices, 0}, {})},
        {{whole_but([](auto& s) { s.devices = on(6, 2); })}, broken(law::device_index_is_positive, 0, {q::ranks, 2}, {q::device, -1})},
        {{whole_but([](auto& s) { s.devices = on(0, 2); s.most_ranks = 1; })}, broken(law::device_serves_ranks, 0, {q::most_ranks, 1}, {q::ranks, 2}, only(1))},
        {{whole_but([](auto& s) { s.devices = on(0, 7); s.most_ranks = 6; })}, repeating(broken(law::device_serves_ranks, 0, {q::most_ranks, 6}, {q::ranks, 7}, would_do_(1, 2, 4)), 2)},
        {{whole_but([](auto& s) { s.devices = on(8, 1); s.most_ranks = 0; })}, broken(law::device_is_available, 0, {q::kind, 4}, {q::device, 7})},
        {{early, late_but([](auto& s) { s.devices = on(8, 1); s.canonical = false; })},
         broken(law::stages_share_arithmetic, 1, {q::kind, 1}, {q::kind, 4}, only(1))},
        {{whole_but([](auto& s) { s.devices = on(0, 2); s.cuts = {.expert = true, .expert_width = true}; })}, broken(law::rules_agree, 0, {q::layers, 4}, {q::ranks, 2})},
        {{early, late_but([&](auto& s) { s.crossing = crossing(2, dtype::f32); })}, broken(law::seam_schemas_agree, 1, {q::schema, 1}, {q::schema, 2}, only(1))},
        {{early, late_but([&](auto& s) { s.crossing = crossing(1, dtype::bf16); })},
         broken(law::seam_dtypes_agree, 1, {q::bytes_per_element, 4}, {q::bytes_per_element, 2}, only(4))},
        {{whole_but([&](auto& s) { s.crossing = crossing(1, dtype::f16); })}, broken(law::boundary_keeps_bits, 0, {q::bytes_per_element, 2}, {q::bytes_per_element, 4})},
    };
}

// What only the builders of plans can break.
struct refused_builder {
    std::function<void()> build{};
    violation expected{};
};
std::vector<refused_builder> refused_builders() {
    auto const resolved = [](plan::value const& p) { dynamic_graph const g(tiny, p); };
    return {
        {[] { plan::owners({}); }, broken(law::owners_name_every_layer, 0, {q::layers, 1}, {q::owners, 0})},
        {[resolved] { resolved(plan::owners({0, 0, 0})); }, broken(law::owners_name_every_layer, 0, {q::layers, 4}, {q::owners, 3}, only(4))},
        {[resolved] { resolved(plan::owners({0, 1, 0})); }, broken(law::owners_name_every_layer, 0, {q::layers, 4}, {q::owners, 3}, only(4))},
        {[resolved] { resolved(plan::owners({0, 0, 1, 1, 1})); }, broken(law::owners_name_every_layer, 0, {q::layers, 4}, {q::owners, 5}, only(4))},
        {[] { plan::owners({0, 1, -2, 0}); }, broken(law::device_index_is_positive, 2, {q::layer, 2}, {q::device, -2})},
        {[] { plan::pipeline(1, 4); }, broken(law::pipeline_stages_fit, 0, {q::layers, 4}, {q::stages, 1})},
        {[] { plan::pipeline(5, 4); }, broken(law::pipeline_stages_fit, 0, {q::layers, 4}, {q::stages, 5})},
        {[] { plan::pipeline({1, 1}, 4); }, broken(law::pipeline_cuts_increase, 1, {q::first_layer, 1}, {q::cut, 1})},
        {[] { plan::pipeline({0}, 4); }, broken(law::pipeline_cuts_increase, 0, {q::first_layer, 0}, {q::cut, 0})},
        {[] { plan::pipeline({4}, 4); }, broken(law::pipeline_cuts_increase, 0, {q::first_layer, 0}, {q::cut, 4})},
        {[resolved] { resolved(plan::value{}); }, broken(law::plan_is_not_empty, 0, {}, {})},
        {[resolved] { resolved(plan::value{{plan::part{.last_layer = 3}}, {}, 0}); }, broken(law::stage_has_devices, 0, {q::devices, 0}, {})},
    };
}

void check_refused(violation const& expected, std::function<void()> const& act) {
    std::string const wanted = explain(expected);
    CAPTURE(wanted);
    try {
        act();
        FAIL_CHECK("accepted");
    } catch (graph_error const& e) {
        CHECK(std::string(e.what()) == wanted);
        CHECK(e.law_name() == name_of(expected.which));
        CHECK(e.why() == expected);
    }
}
}  // namespace

TEST_CASE("a plan that breaks a law is refused at run time with the name and numbers that a compiler prints") {
    for (refused const& r : refused_plans()) {
        CAPTURE(r.plan);
        check_refused(r.expected, [&r] { dynamic_graph const g(r.config, plan::parse(r.plan)); });
    }
}

TEST_CASE("stages that break a law are refused by validate, whoever made them") {
    for (refused_stages const& r : refused_lists()) check_refused(r.expected, [&r] { tenon::detail::require(validate(tiny, r.stages)); });
}

TEST_CASE("a builder of plans refuses what no graph could be made of") {
    for (refused_builder const& r : refused_builders()) check_refused(r.expected, r.build);
}

TEST_CASE("the tables of refusals leave no law out") {
    std::array<bool, static_cast<std::size_t>(law::count_)> broken_once{};
    auto const mark = [&broken_once](violation const& v) { broken_once[static_cast<std::size_t>(v.which)] = true; };
    for (refused const& r : refused_plans()) mark(r.expected);
    for (refused_stages const& r : refused_lists()) mark(r.expected);
    for (refused_builder const& r : refused_builders()) mark(r.expected);
    for (std::size_t i = 1; i < broken_once.size(); ++i) {
        CAPTURE(law_table[i].name);
        CHECK(broken_once[i]);
    }
}

TEST_CASE("a remedy is none if another law of its stage refuses it") {
    for (refused const& r : refused_plans()) {
        if (r.expected.right.what != q::ranks) continue;
        plan::value const p = plan::parse(r.plan);
        for (int i = 0; i < r.expected.instead.count; ++i) {
            int const ranks = r.expected.instead.value[static_cast<std::size_t>(i)];
            plan::part const& part = p.parts[static_cast<std::size_t>(r.expected.stage)];
            std::vector<device_id> group;
            for (int d = 0; d < ranks; ++d) group.push_back({device_kind::cpu, d});
            int const last = part.last_layer == plan::every_layer ? r.config.layers - 1 : part.last_layer;
            stage_traits const mended{.first_layer = part.first_layer, .last_layer = last, .devices = group, .cuts = part.cuts};
            CAPTURE(ranks);
            CHECK_FALSE(tenon::detail::broken_by_cuts(r.config, mended, 0, ranks));
        }
    }
}
