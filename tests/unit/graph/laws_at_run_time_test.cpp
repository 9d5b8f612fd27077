// Every law broken at run time: the numbers of tests/compile_fail/, arriving as values, give the same name and the same violation.
// SPDX-License-Identifier: Apache-2.0
#include <doctest/doctest.h>
#include <tenon/graph/graph.hpp>
#include <tenon/graph/placed.hpp>
#include <tenon/graph/plan_value.hpp>
#include <tenon/model/kinds.hpp>
#include <tenon/model/llama.hpp>
#include <tenon/model/mixtral.hpp>
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
/// Eight experts in every layer, two of them of a token.
constexpr model::mixtral_shape mixture_shape{.layers = 4, .hidden = 64, .heads = 4, .kv_heads = 2, .experts = 8, .experts_per_token = 2, .expert_width = 96, .vocab = 101};
constexpr model_config mixture = model::mixtral(mixture_shape);
template <class Change>
constexpr model_config mixture_but(Change change) {
    model::mixtral_shape s = mixture_shape;
    change(s);
    return model::mixtral(s);
}
/// Tiny with these experts, as wide as its FFN, in all layers but the first.
constexpr model_config routed(routed_experts experts) {
    experts.width = 96;
    return model::with_experts(tiny, experts, {1, 2, 3});
}
constexpr model_config few_experts = mixture_but([](auto& s) { s.experts = 3; s.expert_width = 3; });
constexpr model_config narrow_shared = model::with_experts(tiny, {.count = 8, .chosen = 2, .width = 96, .shared_width = 3}, {2, 3});

/// Tiny, with four experts and a shared one in its last two layers.
constexpr model_config with_widths(int width, int shared) {
    return model::with_experts(tiny, {.count = 4, .chosen = 2, .width = width, .shared_width = shared}, {2, 3});
}

/// A graph that is lawful, and cannot be held in q8.
struct refused_format {
    model_config config{};
    std::string_view plan{}, tensor{};
    violation expected{};
};
std::vector<refused_format> refused_formats() {
    return {
        // the rows of one matrix are not whole blocks: wherever it is cut, and in which layer it is
        {tiny_but([](auto& s) { s.ffn = 176; }), "all@0", "down", broken(law::blocks_divide_inputs, 0, {q::inputs, 176}, {q::block, 32})},
        {tiny_but([](auto& s) { s.hidden = 80; s.head_dim = 16; }), "0-1@0;2-3@1,2", "q", broken(law::blocks_divide_inputs, 0, {q::inputs, 80}, {q::block, 32})},
        {with_widths(64, 176), "0-1@0;2-3@0,1:expert", "shared_down", broken(law::blocks_divide_inputs, 1, {q::inputs, 176}, {q::block, 32})},
        {with_widths(80, 64), "all@0,1:tensor+expert_width", "expert_down", broken(law::blocks_divide_inputs, 0, {q::inputs, 80}, {q::block, 32})},
        // a block would lie on two ranks: two heads of 16 share one
        {tiny_but([](auto& s) { s.hidden = 128; s.heads = 8; s.kv_heads = 8; s.head_dim = 16; s.ffn = 18432; }), "all@0,1,2,3,4,5,6,7:tensor.reduce", "o",
         or_gather(broken(law::reduce_divides_segments, 0, {q::segments, 4}, {q::ranks, 8}, would_do_(1, 2, 4)))},
        {tiny_but([](auto& s) { s.heads = 8; s.head_dim = 24; s.ffn = 256; }), "0-1@0;2-3@3,4,5,6:tensor.reduce", "o",
         or_gather(broken(law::reduce_divides_segments, 1, {q::segments, 2}, {q::ranks, 4}, would_do_(1, 2)))},
    };
}

/// Sixteen heads of 32, their own KV heads: no product of attention is cut too finely before 16 ranks.
constexpr model_config wide_heads(int ffn) {
    return tiny_but([ffn](auto& s) { s.hidden = 512; s.heads = 16; s.kv_heads = 16; s.head_dim = 32; s.ffn = ffn; });
}
constexpr model_config wide_heads(int width, int shared) {
    return model::with_experts(wide_heads(96), {.count = 4, .chosen = 2, .width = width, .shared_width = shared}, {2, 3});
}

/// A plan whose reduce join would cut a block of q8, and which is therefore no graph's in any format.
struct refused_cut {
    model_config config{};
    std::string_view plan{}, tensor{};
    int inputs = 0;
    violation expected{};
};
std::vector<refused_cut> refused_cuts() {
    return {
        // experts of 320 inputs, ten blocks: a quarter of them is two and a half
        {with_widths(320, 64), "0-1@0;2-3@0,1,2,3:expert_width.reduce", "expert_down", 320,
         or_gather(broken(law::reduce_divides_segments, 1, {q::segments, 2}, {q::ranks, 4}, would_do_(1, 2)))},
        {with_widths(320, 64), "0-1@0;2-3@0,1,2,3,4,5,6,7:expert_width.reduce", "expert_down", 320,
         or_gather(broken(law::reduce_divides_segments, 1, {q::segments, 2}, {q::ranks, 8}, would_do_(1, 2)))},
        // the shared expert alone: eleven blocks over four ranks, beside routed experts that are whole, or that divide
        {wide_heads(64, 352), "0-1@0;2-3@0,1,2,3:tensor.reduce+expert", "shared_down", 352,
         or_gather(broken(law::reduce_divides_segments, 1, {q::segments, 1}, {q::ranks, 4}, would_do_(1)))},
        {wide_heads(256, 352), "0-1@0;2-3@0,1,2,3:tensor.reduce+expert_width.reduce", "shared_down", 352,
         or_gather(broken(law::reduce_divides_segments, 1, {q::segments, 1}, {q::ranks, 4}, would_do_(1)))},
        // 18432 inputs, 576 blocks: a thirty-second of them is 18, and no rank has fewer than an eighth
        {with_widths(18432, 64), "0-1@0;2-3@0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17,18,19,20,21,22,23,24,25,26,27,28,29,30,31:expert_width.reduce", "expert_down",
         18432, or_gather(broken(law::reduce_divides_segments, 1, {q::segments, 8}, {q::ranks, 32}, would_do_(1, 2, 4, 8)))},
        {wide_heads(18432), "all@0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15:tensor.reduce", "o", 512,
         or_gather(broken(law::reduce_divides_segments, 0, {q::segments, 8}, {q::ranks, 16}, would_do_(1, 2, 4, 8)))},
        // four ranks would do in another format, and in q8 four heads of 8 share a block
        {tiny_but([](auto& s) { s.heads = 8; s.kv_heads = 8; s.head_dim = 8; s.ffn = 128; }), "all@0,1,2,3,4,5,6,7:tensor.reduce", "o", 64,
         or_gather(broken(law::reduce_divides_segments, 0, {q::segments, 2}, {q::ranks, 8}, would_do_(1, 2)))},
        // no number of ranks makes a row of 76 whole blocks
        {with_widths(76, 64), "0-1@0;2-3@0,1,2,3,4,5,6,7:expert_width.reduce", "expert_down", 76,
         broken(law::blocks_divide_inputs, 1, {q::inputs, 76}, {q::block, 32})},
    };
}

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
        {mixture_but([](auto& s) { s.experts_per_token = 9; }), "all@0", broken(law::chosen_experts_exist, 0, {q::experts, 8}, {q::chosen_experts, 9}, only(8))},
        {mixture_but([](auto& s) { s.experts_per_token = 0; }), "all@0", broken(law::chosen_experts_exist, 0, {q::experts, 8}, {q::chosen_experts, 0}, only(1))},
        {mixture_but([](auto& s) { s.experts = 1025; }), "all@0", broken(law::shape_fits, 0, {q::experts, 1025}, {q::limit, 1024}, only(1024))},
        {mixture_but([](auto& s) { s.experts = 1000; s.expert_width = 16778; }), "all@0", broken(law::shape_fits, 0, {q::experts, 1000}, {q::expert_width, 16778}, only(16777))},
        {mixture_but([](auto& s) { s.expert_width = 0; }), "all@0", broken(law::shape_is_positive, 0, {q::extent, 0}, {q::limit, 1})},
        {routed({.count = -1, .chosen = 2}), "all@0", broken(law::shape_is_positive, 0, {q::extent, 0}, {q::limit, 1})},
        {routed({.count = 8, .chosen = 2, .shared_width = -1}), "all@0", broken(law::shape_is_positive, 0, {q::extent, -1}, {q::limit, 0})},
        {routed({.count = 8, .chosen = 2, .groups = 3}), "all@0", broken(law::expert_groups_divide, 0, {q::experts, 8}, {q::groups, 3}, would_do_(1, 2, 4))},
        {routed({.count = 8, .chosen = 2, .groups = 4, .chosen_groups = 5}), "all@0", broken(law::chosen_groups_exist, 0, {q::groups, 4}, {q::chosen_groups, 5}, only(4))},
        {routed({.count = 8, .chosen = 5, .groups = 4, .chosen_groups = 0}), "all@0", broken(law::chosen_groups_exist, 0, {q::groups, 4}, {q::chosen_groups, 0}, only(3))},
        {routed({.count = 16, .chosen = 8, .groups = 8, .chosen_groups = 3}), "all@0", broken(law::chosen_groups_hold_enough, 0, {q::experts, 6}, {q::chosen_experts, 8}, only(6))},
        {routed({.count = 16, .chosen = 17, .groups = 8, .chosen_groups = 3}), "all@0", broken(law::chosen_experts_exist, 0, {q::experts, 16}, {q::chosen_experts, 17}, only(6))},
        {routed({.count = 8, .chosen = 2, .groups = 8, .chosen_groups = 4}), "all@0", broken(law::expert_group_has_two, 0, {q::experts, 8}, {q::groups, 8}, only(4))},
        {mixture, "0@0;1-3@0,1,2:expert.exact", broken(law::experts_divide_over_ranks, 1, {q::experts, 8}, {q::ranks, 3}, would_do_(1, 2, 4, 8))},
        {mixture, "all@0,1,2,3,4,5,6,7,8:expert", broken(law::every_rank_has_work, 0, {q::experts, 8}, {q::ranks, 9}, would_do_(1, 2, 3, 4, 5, 6, 7, 8))},
        {few_experts, "all@0,1,2,3", broken(law::every_rank_has_work, 0, {q::experts, 3}, {q::ranks, 4}, would_do_(1, 2))},
        {few_experts, "all@0,1,2,3:expert_width", broken(law::every_rank_has_work, 0, {q::expert_width, 3}, {q::ranks, 4}, would_do_(1, 2, 3))},
        {narrow_shared, "0-1@0,1,2,3:tensor;2-3@0,1,2,3:tensor", broken(law::every_rank_has_work, 1, {q::shared_width, 3}, {q::ranks, 4}, would_do_(1, 2))},
        {narrow_shared, "0-1@0,1:expert;2-3@0", broken(law::rule_cuts_something, 0, {q::experts, 0}, {q::ranks, 2})},
        {mixture, "all@0,1:expert_width.reduce", or_gather(broken(law::reduce_divides_segments, 0, {q::segments, 1}, {q::ranks, 2}, only(1)))},
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
        {mixture, "0-3@0,1:expert.even", at_character(law::plan_join_is_known, 0, 15)},
        {mixture, "0-3@0,1:expert_width.exact", at_character(law::plan_join_is_known, 0, 21)},
        {tiny, "all@0,1;3@0,1", at_character(law::plan_part_ends, 0, 7)},
        {tiny, "0-2@0;2-3@1", broken(law::plan_layer_is_named_once, 1, {q::next_layer, 3}, {q::first_layer, 2})},
        {tiny, "0@0;3@1", broken(law::plan_layers_are_all_named, 1, {q::layers, 4}, {q::layer, 1})},
    };
}

// What only stages can break that did not come from a plan: a caller's own traits, a backend's limit, a boundary.
struct refused_stages {
    std::vector<stage_traits> stages{};
    violation expected{};
    model_config config = tiny;
};
constexpr std::array<device_id, 9> devices{{{device_kind::cpu, 0}, {device_kind::cpu, 1}, {device_kind::cpu, 2}, {device_kind::cpu, 3}, {device_kind::cpu, 4},
                                            {device_kind::cpu, 5}, {device_kind::cpu, 6}, {device_kind::cpu, -1}, {device_kind::cuda, 7}}};
constexpr std::span<device_id const> on(std::size_t first, std::size_t count) { return std::span<device_id const>(devices).subspan(first, count); }

std::vector<refused_stages> refused_lists() {
    auto const crossing = [](int schema, dtype element) { return boundary_traits{schema, element}; };
    stage_traits const early{.first_layer = 0, .last_layer = 1, .devices = on(0, 1)}, late{.first_layer = 2, .last_layer = 3, .devices = on(0, 1)};
    auto const late_but = [&late](auto change) { stage_traits s = late; change(s); return s; };
    auto const whole_but = [](auto change) { stage_traits s{.first_layer = 0, .last_layer = 3, .devices = on(0, 1)}; change(s); return s; };
    static constexpr std::array short_table{0, 0, 1, 1, 2, 2, 0};
    static constexpr std::array fourth_rank{0, 1, 2, 0, 1, 2, 0, 3}, below_zero{0, 1, 0, 1, 0, 1, 0, -1}, idle_rank{0, 0, 0, 0, 2, 2, 2, 2};
    static constexpr std::array by_layer{0, 1, 0, 1, 0, 1, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0};  // of two layers; the second leaves rank 1 idle
    auto const placed = [](std::span<int const> owners, int first, std::size_t ranks) {
        return stage_traits{.first_layer = first, .last_layer = 3, .devices = on(0, ranks), .cuts = {.expert = true}, .owners = owners};
    };
    static constexpr model_config eight_and_four = model::with_experts(mixture, {.count = 4, .chosen = 1, .width = 96}, {3});
    return {
        {{placed(short_table, 0, 3)}, broken(law::placement_names_every_expert, 0, {q::experts, 8}, {q::owners, 7}, only(8)), mixture},
        {{early, placed(by_layer, 2, 2)}, broken(law::every_rank_has_work, 1, {q::owner, 1}, {q::experts, 0}), mixture},
        {{early, placed(fourth_rank, 2, 3)}, broken(law::placement_rank_exists, 1, {q::owner, 3}, {q::ranks, 3}, only(4)), mixture},
        {{placed(below_zero, 0, 2)}, broken(law::placement_rank_exists, 0, {q::owner, -1}, {q::ranks, 2}), mixture},
        {{placed(idle_rank, 0, 3)}, broken(law::every_rank_has_work, 0, {q::owner, 1}, {q::experts, 0}), mixture},
        // Two counts of experts: no one list of owners is for both, and a list of eight is not four for each of two layers.
        {{early, placed(std::span(by_layer).first(8), 2, 2)}, broken(law::placement_names_every_expert, 1, {q::experts, 4}, {q::owners, 8}), eight_and_four},
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

// What a placement map and the stages that wait for it can break.
struct refused_map {
    std::string_view plan{};
    placement_view map{};
    violation expected{};
};
constexpr std::array map_layers{0, 1, 2, 3};
constexpr std::array<int, 32> map_owners{0, 0, 0, 0, 1, 1, 1, 1, 0, 1, 0, 1, 0, 1, 0, 1, 1, 1, 1, 1, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1};
constexpr std::array<int, 32> idle_owners{0, 0, 0, 0, 1, 1, 1, 1, 0, 1, 0, 1, 0, 1, 0, 1, 1, 1, 1, 1, 1, 1, 1, 1, 0, 1, 1, 1, 1, 1, 1, 1};
constexpr std::array<int, 32> foreign_owners{0, 0, 0, 0, 1, 1, 1, 1, 0, 1, 0, 1, 0, 1, 0, 2, 1, 1, 1, 1, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1};
constexpr std::array layer_twice{0, 1, 1, 2};

std::vector<refused_map> refused_maps() {
    std::span<int const> const all = map_layers, owners = map_owners;
    auto const late = [&](int ranks, int entry, int experts) {
        return placement_view{ranks, entry, experts, all.subspan(1), owners.subspan(8, 3 * static_cast<std::size_t>(experts))};
    };
    constexpr std::string_view split = "0@0;1-3@0,1:expert";
    return {
        {"0@0;1-3@0,1:tensor", late(2, 0, 8), broken(law::placement_is_awaited, 0, {q::stages, 2}, {q::map_ranks, 2})},
        {"0@0;1-3@0,1:expert.exact", late(2, 0, 8), broken(law::placement_is_awaited, 0, {q::stages, 2}, {q::map_ranks, 2})},
        {split, late(3, 0, 8), broken(law::placement_ranks_are_the_stages, 1, {q::ranks, 2}, {q::map_ranks, 3}, only(2))},
        {"0@0,1:expert;1-3@0,1,2:expert", late(3, 0, 8), broken(law::placement_ranks_are_the_stages, 0, {q::ranks, 2}, {q::map_ranks, 3})},
        {split, late(2, 1, 8), broken(law::placement_entry_is_the_root, 0, {q::map_ranks, 2}, {q::entry_rank, 1}, only(0))},
        {split, late(2, 0, 6), broken(law::placement_experts_are_the_models, 1, {q::experts, 8}, {q::map_experts, 6}, only(8))},
        {split, {2, 0, 8, all.subspan(1, 2), owners.subspan(8, 16)}, broken(law::placement_covers_the_layers, 1, {q::layer, 3}, {q::map_rows, 0}, only(1))},
        {split, {2, 0, 8, all, owners}, broken(law::placement_covers_the_layers, 0, {q::layer, 0}, {q::map_rows, 1}, only(0))},
        {"0-2@0,1:expert;3@0", {2, 0, 8, layer_twice, owners}, broken(law::placement_covers_the_layers, 0, {q::layer, 1}, {q::map_rows, 2}, only(1))},
        {split, {2, 0, 8, all.subspan(1), owners.subspan(8, 23)}, broken(law::placement_names_every_expert, 0, {q::experts, 24}, {q::owners, 23}, only(24))},
        {"all@0,1:expert", {2, 0, 8, all, foreign_owners}, broken(law::placement_rank_exists, 0, {q::owner, 2}, {q::ranks, 2})},
        {"all@0,1", {2, 0, 8, all, idle_owners}, broken(law::every_rank_has_work, 0, {q::owner, 0}, {q::experts, 0})},
    };
}

struct mixture_model {
    static constexpr model_config config = mixture;
};
struct awaiting : graph<mixture_model, stage<layers<0, 0>>, stage<layers<1, 3>, device::cpu<0, 1>, shard::expert<placement::at_load>>> {};
constexpr violation no_map = broken(law::placement_is_given, 1, {q::ranks, 2}, {});
static_assert(validate_placement(mixture, awaiting::view().stages) == no_map);

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
    for (refused_stages const& r : refused_lists()) check_refused(r.expected, [&r] { tenon::detail::require(validate(r.config, r.stages)); });
}

TEST_CASE("a placement map that does not fit its graph is refused, and a graph that waits for one without it") {
    for (refused_map const& r : refused_maps()) {
        CAPTURE(r.plan);
        dynamic_graph const g(mixture, plan::parse(r.plan));
        check_refused(r.expected, [&] { placed_graph const placed(g.view(), r.map); });
    }
    check_refused(no_map, [] { placed_graph const placed(awaiting::view()); });
}

TEST_CASE("a placement map that fits puts every expert where its row says, and a graph that needs none does without") {
    dynamic_graph const g(mixture, plan::parse("0@0;1-3@0,1"));
    placed_graph const placed(g.view(), {2, 0, 8, std::span(map_layers).subspan(1), std::span(map_owners).subspan(8)});
    stage_traits const& stage = placed.view().stages[1];
    for (int layer = 1; layer < 4; ++layer)
        for (int e = 0; e < 8; ++e) CHECK(owner_of(stage, layer - 1, e, 8) == map_owners[static_cast<std::size_t>(8 * layer + e)]);
    placed_graph const evenly(g.view());
    for (int e = 0; e < 8; ++e) CHECK(owner_of(evenly.view().stages[1], 0, e, 8) == e / 4);
    placed_graph const met(awaiting::view(), {2, 0, 8, std::span(map_layers).subspan(1), std::span(map_owners).subspan(8)});
    CHECK(met.view().stages[1].owners.size() == 24);
}

TEST_CASE("a format that a lawful graph cannot be held in is refused with the tensor, its width and the block, or the ranks that would do") {
    for (refused_format const& r : refused_formats()) {
        CAPTURE(r.plan);
        CAPTURE(r.tensor);
        dynamic_graph const g(r.config, plan::parse(r.plan));
        format_violation const found = validate_format(g.view(), weights::q8);
        CHECK(found.broken == r.expected);
        CHECK(name_of(found.what) == r.tensor);
        if (found.broken.left.what == q::inputs) CHECK(found.inputs == found.broken.left.value);
        for (weights const w : {weights::stored, weights::f32, weights::bf16}) CHECK_FALSE(validate_format(g.view(), w));
        std::string wanted = explain(r.expected);
        wanted.insert(name_of(r.expected.which).size() + 2, "tensor " + std::string(r.tensor) + " in q8: ");
        CHECK_THROWS_WITH_AS(g.cost(weights::q8), wanted.c_str(), graph_error);
        for (int i = 0; i < r.expected.instead.count; ++i) {  // what would do does
            std::string text(r.plan.substr(0, r.plan.rfind('@') + 1));
            for (int rank = 0; rank < r.expected.instead.value[static_cast<std::size_t>(i)]; ++rank) text += (rank > 0 ? "," : "") + std::to_string(rank);
            dynamic_graph const mended(r.config, plan::parse(text + std::string(r.plan.substr(r.plan.rfind(':')))));
            CHECK_FALSE(validate_format(mended.view(), weights::q8));
        }
        if (r.expected.gather_would_do) {
            std::string const text(r.plan.substr(0, r.plan.rfind(".reduce")));
            CHECK_FALSE(validate_format(dynamic_graph(r.config, plan::parse(text)).view(), weights::q8));
        }
    }
    model_config const routes = model::with_experts(tiny_but([](auto& s) { s.head_dim = 32; s.kv_heads = 4; }),
                                                    {.count = 4, .chosen = 2, .width = 320, .shared_width = 64}, {2, 3});
    for (std::string_view const plan : {"0-1@0;2-3@0,1:expert_width.reduce", "0-1@0;2-3@0,1:tensor.reduce+expert_width.reduce", "0-1@0;2-3@0,1,2,3:tensor+expert_width"})
        CHECK_FALSE(validate_format(dynamic_graph(routes, plan::parse(plan)).view(), weights::q8));
}

TEST_CASE("a plan whose join would cut a block is refused in every format, and where the format is known by the tensor, its width and the block") {
    auto const made_for = [](model_config const& config, std::string_view plan, weights format) {
        dynamic_graph const g(config, plan::parse(plan), device::backends<device::cpu>::available, format);
        require_format(g.view(), format);
    };
    for (refused_cut const& r : refused_cuts()) {
        CAPTURE(r.plan);
        CAPTURE(r.inputs);
        std::string wanted = explain(r.expected);
        wanted.insert(name_of(r.expected.which).size() + 2, "tensor " + std::string(r.tensor) + " of " + std::to_string(r.inputs) + " inputs, in blocks of 32: ");
        CHECK_THROWS_WITH_AS(made_for(r.config, r.plan, weights::q8), wanted.c_str(), graph_error);
        for (weights const w : {weights::stored, weights::f32, weights::bf16})
            CHECK_THROWS_WITH_AS(made_for(r.config, r.plan, w), doctest::Contains("reduce_divides_segments: join::reduce needs a rank count"), graph_error);
        std::size_t const at = r.plan.rfind('@') + 1, rule = r.plan.rfind(':');
        for (int i = 0; i < r.expected.instead.count; ++i) {  // what would do does
            std::string text(r.plan.substr(0, at));
            for (int rank = 0; rank < r.expected.instead.value[static_cast<std::size_t>(i)]; ++rank) text += (rank > 0 ? "," : "") + std::to_string(rank);
            CHECK_NOTHROW(made_for(r.config, text + std::string(r.plan.substr(rule)), weights::q8));
        }
        if (!r.expected.gather_would_do) continue;
        std::string gathered(r.plan);
        for (std::size_t found; (found = gathered.find(".reduce")) != std::string::npos;) gathered.erase(found, 7);
        CHECK_NOTHROW(made_for(r.config, gathered, weights::q8));
    }
    // of the stages after the one that objects nothing is asked
    CHECK_THROWS_WITH_AS(made_for(with_widths(320, 64), "0-2@0,1,2,3:expert_width.reduce;3@0,1,2:tensor", weights::q8), doctest::Contains("tensor expert_down of 320"), graph_error);
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
    for (refused_map const& r : refused_maps()) mark(r.expected);
    mark(no_map);
    for (refused_format const& r : refused_formats()) mark(r.expected);
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
