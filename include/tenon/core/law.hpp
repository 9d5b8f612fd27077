// The rules that a model, a plan or a boundary must keep: their names, their words, and what breaking one looks like
// as a value. Decides nothing itself: the rules are applied in graph/validate.hpp and graph/plan.hpp.
// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace tenon::inline v0 {

enum class law : std::uint8_t {
    none,
    // the model
    shape_is_positive,
    shape_fits,
    heads_share_kv_heads,
    head_dim_is_even,
    chosen_experts_exist,
    expert_groups_divide,
    chosen_groups_exist,
    chosen_groups_hold_enough,
    expert_group_has_two,
    // stages
    graph_has_stages,
    layers_run_forward,
    layers_within_model,
    layers_follow_on,
    layers_cover_the_model,
    // devices
    stage_has_devices,
    device_index_is_positive,
    devices_are_distinct,
    device_serves_ranks,
    device_is_available,
    stages_share_arithmetic,
    // shardings
    rules_agree,
    unsharded_has_one_rank,
    rule_cuts_something,
    heads_divide_over_ranks,
    kv_heads_divide_or_repeat,
    every_rank_has_work,
    reduce_divides_segments,
    blocks_divide_inputs,
    experts_divide_over_ranks,
    placement_names_every_expert,
    placement_rank_exists,
    placement_is_awaited,
    placement_is_given,
    placement_ranks_are_the_stages,
    placement_entry_is_the_root,
    placement_experts_are_the_models,
    placement_covers_the_layers,
    // boundaries
    seam_schemas_agree,
    seam_dtypes_agree,
    boundary_keeps_bits,
    // plans
    plan_is_not_empty,
    plan_part_is_not_empty,
    plan_names_layers,
    plan_names_devices,
    plan_number_is_plain,
    plan_number_fits,
    plan_kind_is_known,
    plan_kinds_agree,
    plan_rule_is_known,
    plan_rule_is_new,
    plan_rules_agree,
    plan_join_is_known,
    plan_part_ends,
    plan_layer_is_named_once,
    plan_layers_are_all_named,
    owners_name_every_layer,
    pipeline_stages_fit,
    pipeline_cuts_increase,
    count_
};

/// What a number counts.
enum class quantity : std::uint8_t {
    nothing,
    layer,
    next_layer,
    first_layer,
    last_layer,
    layers,
    stages,
    heads,
    kv_heads,
    head_dim,
    ffn,
    vocab,
    hidden,
    positions,
    extent,
    limit,
    devices,
    device,
    ranks,
    most_ranks,
    segments,
    schema,
    bytes_per_element,
    character,
    position,
    experts,
    owners,
    cut,
    kind,
    expert,
    chosen_experts,
    groups,
    chosen_groups,
    expert_width,
    shared_width,
    owner,
    entry_rank,
    map_ranks,
    map_experts,
    map_rows,
    inputs,
    block,
    count_
};

struct law_words {
    std::string_view name, sentence;
};

inline constexpr std::array<law_words, static_cast<std::size_t>(law::count_)> law_table{{
    {"none", "every law holds"},
    {"shape_is_positive", "every extent of a model is positive"},
    {"shape_fits", "a model's extents stay inside what the library counts with"},
    {"heads_share_kv_heads", "query heads are a multiple of KV heads"},
    {"head_dim_is_even", "a rotated head has an even width"},
    {"chosen_experts_exist", "a token chooses at least one expert, and no more than there are"},
    {"expert_groups_divide", "groups of experts are equal: their number divides that of the experts"},
    {"chosen_groups_exist", "at least one group of experts is chosen from, and no more than there are"},
    {"chosen_groups_hold_enough", "the groups chosen from hold as many experts as a token chooses"},
    {"expert_group_has_two", "a group worth its two best experts has at least two"},
    {"graph_has_stages", "a graph has at least one stage"},
    {"layers_run_forward", "a range of layers runs forward"},
    {"layers_within_model", "a range of layers lies inside the model"},
    {"layers_follow_on", "stages cover the layers once, in order"},
    {"layers_cover_the_model", "the last stage ends with the model's last layer"},
    {"stage_has_devices", "a stage names at least one device"},
    {"device_index_is_positive", "a device index is zero or more"},
    {"devices_are_distinct", "a stage names each device once"},
    {"device_serves_ranks", "the device policy limits the ranks of one stage"},
    {"device_is_available", "a plan names devices whose backend the program has"},
    {"stages_share_arithmetic", "stages of one graph share their arithmetic: canonical backends mix, any other stands alone"},
    {"rules_agree", "the rules of one stage can hold together"},
    {"unsharded_has_one_rank", "a stage of several ranks needs a rule that cuts it"},
    {"rule_cuts_something", "a rule finds something to cut in the layers of its stage"},
    {"heads_divide_over_ranks", "heads divide evenly over a stage's ranks"},
    {"kv_heads_divide_or_repeat", "KV heads divide over the ranks, or ranks over the KV heads"},
    {"every_rank_has_work", "no rank is left without work"},
    {"reduce_divides_segments",
     "join::reduce needs a rank count that divides the segments of every product it cuts; join::gather does not"},
    {"blocks_divide_inputs", "a matrix held in q8 has whole blocks of inputs"},
    {"experts_divide_over_ranks", "an exact placement gives every rank as many experts"},
    {"placement_names_every_expert", "a placement names one rank for every expert"},
    {"placement_rank_exists", "a placement names ranks of its stage"},
    {"placement_is_awaited", "a placement map needs a stage that places whole experts and waits for a map"},
    {"placement_is_given", "a stage whose experts are placed at load needs a placement map"},
    {"placement_ranks_are_the_stages", "a placement map is for as many ranks as the stages that it places experts of"},
    {"placement_entry_is_the_root", "a placement map's entry rank is the root of its stage, rank 0"},
    {"placement_experts_are_the_models", "a placement map is for as many experts as the model routes to"},
    {"placement_covers_the_layers", "a placement map has a row for every layer that it is for, and for no other"},
    {"seam_schemas_agree", "the two sides of a seam speak one boundary schema"},
    {"seam_dtypes_agree", "the two sides of a seam agree on the element type"},
    {"boundary_keeps_bits", "what crosses a seam keeps its bits: float32"},
    {"plan_is_not_empty", "a plan has text"},
    {"plan_part_is_not_empty", "every part of a plan has text"},
    {"plan_names_layers", "a part begins with `all`, a layer, or a range of layers"},
    {"plan_names_devices", "a part names its devices after `@`"},
    {"plan_number_is_plain", "a number in a plan has digits alone, without a sign or a leading zero"},
    {"plan_number_fits", "a number in a plan fits"},
    {"plan_kind_is_known", "a device kind is one of cpu, xtensor, eigen, cuda, user"},
    {"plan_kinds_agree", "the devices of one group are of one kind"},
    {"plan_rule_is_known", "a rule is one of none, tensor, expert, expert_width"},
    {"plan_rule_is_new", "a part gives each rule once"},
    {"plan_rules_agree", "`none` stands alone, and `expert` excludes `expert_width`"},
    {"plan_join_is_known", "`tensor` and `expert_width` may carry .gather or .reduce, `expert` .exact, `none` nothing"},
    {"plan_part_ends", "a part ends at `;` or at the end of the plan, and `all` is a plan of one part"},
    {"plan_layer_is_named_once", "a plan names each layer once"},
    {"plan_layers_are_all_named", "a layer may stay unnamed only where every range begins with the plan's first device"},
    {"owners_name_every_layer", "an owner list names one device for every layer"},
    {"pipeline_stages_fit", "a pipeline has at least 2 stages and no more than the model has layers"},
    {"pipeline_cuts_increase", "the cuts of a pipeline increase, inside the model, one fewer than its stages"},
}};

// clang-format off
inline constexpr std::array<std::string_view, static_cast<std::size_t>(quantity::count_)> quantity_names{
    "nothing", "layer", "next layer", "first layer", "last layer", "layers", "stages", "heads", "KV heads", "head_dim", "FFN width",
    "vocabulary", "hidden", "positions", "extent", "limit", "devices", "device", "ranks", "most ranks", "segments", "schema",
    "bytes per element", "character", "position", "experts", "owners", "cut", "kind", "expert", "chosen experts", "expert groups",
    "chosen groups", "expert width", "shared width", "owner", "entry rank", "ranks of the map", "experts of the map", "rows of the map",
    "inputs", "inputs of a block"};
// clang-format on

constexpr std::string_view name_of(law l) { return law_table[static_cast<std::size_t>(l)].name; }
constexpr std::string_view name_of(quantity q) { return quantity_names[static_cast<std::size_t>(q)]; }

/// A number and what it counts.
struct operand {
    quantity what = quantity::nothing;
    int value = 0;
    bool operator==(operand const&) const = default;
};

inline constexpr int most_remedies = 8;

/// Values that would do in place of a violation's right-hand number, ascending; the first ones when more would.
struct remedies {
    std::array<int, most_remedies> value{};
    int count = 0;
    bool operator==(remedies const&) const = default;

    constexpr void add(int v) {
        if (count < most_remedies) value[static_cast<std::size_t>(count++)] = v;
    }
};

constexpr remedies only(int v) { return {{v}, 1}; }

/// A broken law, the numbers that break it, and those that would not. Structural; empty when every law holds.
struct violation {
    law which = law::none;
    int stage = 0;  ///< position of the stage, or of the plan's part, that objects, from 0
    operand left{}, right{};
    remedies instead{};
    bool gather_would_do = false;  ///< join::gather is lawful where this join is not
    int kv_heads = 0;              ///< where a remedy has more ranks than KV heads: how many there are, each then held several times
    constexpr explicit operator bool() const { return which != law::none; }
    bool operator==(violation const&) const = default;
};

}  // namespace tenon::inline v0
