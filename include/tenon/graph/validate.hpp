// Every law of a model and its stages, as one constexpr function over plain values. A graph type calls it while it
// compiles, a loader when a plan arrives.
// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <array>
#include <cstddef>
#include <span>
#include <tenon/core/config.hpp>
#include <tenon/core/law.hpp>
#include <tenon/core/share.hpp>
#include <tenon/graph/stage.hpp>

namespace tenon::inline v0 {

inline constexpr int largest_extent = 1 << 24;  ///< widths, vocabulary, positions: costs of 256 layers stay inside 64 bits

namespace detail {
constexpr violation broken_by_extent(int value, int smallest = 1) {
    if (value < smallest) return {law::shape_is_positive, 0, {quantity::extent, value}, {quantity::limit, smallest}, {}};
    if (value > largest_extent) return {law::shape_fits, 0, {quantity::extent, value}, {quantity::limit, largest_extent}, {}};
    return {};
}

/// The laws of a routed FFN alone. What it holds in all its experts stays inside one extent, so that its costs do too.
constexpr violation broken_by_routing(routed_experts const& e) {
    for (int const extent : {e.count, e.shared_width})
        if (violation const v = broken_by_extent(extent, 0)) return v;
    if (!e) return {};
    if (e.count > most_experts)
        return {law::shape_fits, 0, {quantity::experts, e.count}, {quantity::limit, most_experts}, only(most_experts)};
    if (e.width > largest_extent / e.count)
        return {law::shape_fits, 0, {quantity::experts, e.count}, {quantity::expert_width, e.width}, only(largest_extent / e.count)};
    if (e.chosen < 1 || e.chosen > e.count)
        return {law::chosen_experts_exist, 0, {quantity::experts, e.count}, {quantity::chosen_experts, e.chosen}, {}};
    if (e.groups < 1 || e.count % e.groups != 0)
        return {law::expert_groups_divide, 0, {quantity::experts, e.count}, {quantity::groups, e.groups}, {}};
    if (e.chosen_groups < 1 || e.chosen_groups > e.groups)
        return {law::chosen_groups_exist, 0, {quantity::groups, e.groups}, {quantity::chosen_groups, e.chosen_groups}, {}};
    int const in_group = e.count / e.groups;
    if (e.groups > 1 && e.worth == group_worth::two_best && in_group < 2)
        return {law::expert_group_has_two, 0, {quantity::experts, e.count}, {quantity::groups, e.groups}, {}};
    if (e.chosen > e.chosen_groups * in_group)
        return {
            law::chosen_groups_hold_enough, 0, {quantity::experts, e.chosen_groups * in_group}, {quantity::chosen_experts, e.chosen}, {}};
    return {};
}

/// As above, with the numbers that break none of these laws: of groups all, of what is chosen the nearest.
constexpr violation refused_routing(routed_experts const& e) {
    violation v = broken_by_routing(e);
    auto const lawful = [&e](int routed_experts::*number, int value) {
        routed_experts mended = e;
        mended.*number = value;
        return !broken_by_routing(mended);
    };
    auto const nearest = [&](int routed_experts::*number, int most) {
        int const found = e.*number, step = found < 1 ? 1 : -1;
        for (int value = found < 1 ? 1 : found < most ? found : most; value >= 1 && value <= most; value += step)
            if (lawful(number, value)) return only(value);
        return remedies{};
    };
    if (v.which == law::shape_fits && v.instead.count > 0)
        if (!lawful(v.right.what == quantity::limit ? &routed_experts::count : &routed_experts::width, v.instead.value[0])) v.instead = {};
    if (v.right.what == quantity::chosen_experts) v.instead = nearest(&routed_experts::chosen, e.count);
    if (v.right.what == quantity::chosen_groups) v.instead = nearest(&routed_experts::chosen_groups, e.groups);
    if (v.right.what == quantity::groups)
        for (int groups = 1; groups <= e.count; ++groups)
            if (lawful(&routed_experts::groups, groups)) v.instead.add(groups);
    return v;
}

/// The laws of a model alone.
constexpr violation broken_by_shape(model_config const& c) {
    for (int const extent : {c.layers, c.hidden, c.vocab, c.max_positions})
        if (violation const v = broken_by_extent(extent)) return v;
    if (c.layers > most_layers)
        return {law::shape_fits, 0, {quantity::layers, c.layers}, {quantity::limit, most_layers}, only(most_layers)};
    if (c.kind_count < 1) return {law::shape_is_positive, 0, {quantity::extent, c.kind_count}, {quantity::limit, 1}, {}};
    if (c.kind_count > most_kinds) return {law::shape_fits, 0, {quantity::extent, c.kind_count}, {quantity::limit, most_kinds}, {}};
    for (int l = 0; l < c.layers; ++l)
        if (int const k = c.kind_of[static_cast<std::size_t>(l)]; k >= c.kind_count)
            return {law::shape_fits, 0, {quantity::extent, k}, {quantity::limit, c.kind_count - 1}, {}};
    for (int k = 0; k < c.kind_count; ++k) {
        block_kind const& b = c.kinds[static_cast<std::size_t>(k)];
        for (int const extent : {b.attention.heads, b.attention.kv_heads, b.attention.head_dim, b.experts ? b.experts.width : b.ffn.width})
            if (violation const v = broken_by_extent(extent)) return v;
        if (violation const v = refused_routing(b.experts)) return v;
        if (violation const v = broken_by_extent(b.attention.window, 0)) return v;
        if (b.attention.heads > largest_extent / b.attention.head_dim)
            return {law::shape_fits, 0, {quantity::heads, b.attention.heads}, {quantity::head_dim, b.attention.head_dim}, {}};
        if (b.attention.heads % b.attention.kv_heads != 0)
            return {law::heads_share_kv_heads, 0, {quantity::heads, b.attention.heads}, {quantity::kv_heads, b.attention.kv_heads}, {}};
        if (b.attention.head_dim % 2 != 0)
            return {law::head_dim_is_even, 0, {quantity::heads, b.attention.heads}, {quantity::head_dim, b.attention.head_dim}, {}};
    }
    return {};
}

/// A law that some number of a stage breaks on so many ranks.
struct breaks {
    int position = 0, ranks = 1;
    constexpr violation operator()(law which, quantity what, int value) const {
        return {which, position, {what, value}, {quantity::ranks, ranks}, {}};
    }
};

/// The laws of one kind of layer cut by `tensor` over `ranks`. Experts are not its to cut, but the shared one is.
constexpr violation broken_by_tensor(block_kind const& b, int hidden, join_kind join, breaks broken) {
    int const ranks = broken.ranks;
    grouped_attention const& a = b.attention;
    int const ffn = b.experts ? 0 : b.ffn.width, shared = b.experts ? b.experts.shared_width : 0;
    if (a.heads % ranks != 0) return broken(law::heads_divide_over_ranks, quantity::heads, a.heads);
    if (a.kv_heads % ranks != 0 && ranks % a.kv_heads != 0) return broken(law::kv_heads_divide_or_repeat, quantity::kv_heads, a.kv_heads);
    if (!b.experts && ffn < ranks) return broken(law::every_rank_has_work, quantity::ffn, ffn);
    if (shared > 0 && shared < ranks) return broken(law::every_rank_has_work, quantity::shared_width, shared);
    if (hidden < ranks) return broken(law::every_rank_has_work, quantity::hidden, hidden);
    if (join == join_kind::reduce) {
        int fewest = segments_of(a.heads * a.head_dim, a.head_dim);
        for (int const width : {ffn, shared})
            if (width > 0)
                if (int const n = segments_of(width, granule_of(width)); n < fewest) fewest = n;
        if (fewest % ranks != 0) return broken(law::reduce_divides_segments, quantity::segments, fewest);
    }
    return {};
}

/// The laws of a routed FFN cut by every expert's width.
constexpr violation broken_by_expert_width(routed_experts const& e, int hidden, join_kind join, breaks broken) {
    if (e.width < broken.ranks) return broken(law::every_rank_has_work, quantity::expert_width, e.width);
    if (hidden < broken.ranks) return broken(law::every_rank_has_work, quantity::hidden, hidden);
    int const segments = segments_of(e.width, granule_of(e.width));
    if (join == join_kind::reduce && segments % broken.ranks != 0)
        return broken(law::reduce_divides_segments, quantity::segments, segments);
    return {};
}

/// One row of a placement: every expert has a rank of the stage, every rank an expert. There are as many experts as ranks, or more.
constexpr violation broken_by_owners(std::span<int const> owners, breaks broken) {
    std::array<bool, most_experts> has_work{};
    for (int const owner : owners) {
        if (owner < 0 || owner >= broken.ranks) return broken(law::placement_rank_exists, quantity::owner, owner);
        has_work[static_cast<std::size_t>(owner)] = true;
    }
    for (int r = 0; r < broken.ranks; ++r)
        if (!has_work[static_cast<std::size_t>(r)])
            return {law::every_rank_has_work, broken.position, {quantity::owner, r}, {quantity::experts, 0}, {}};
    return {};
}

/// The number of experts of the stage's routed layers, where one list of owners is for all; 0 where they differ.
constexpr int experts_of_each(model_config const& c, stage_traits const& s) {
    int found = 0;
    for (int l = s.first_layer; l <= s.last_layer; ++l)
        if (int const n = c.layer(l).experts.count; n > 0) {
            if (found > 0 && n != found) return 0;
            found = n;
        }
    return found;
}

/// The laws of whole experts on ranks.
constexpr violation broken_by_experts(model_config const& c, stage_traits const& s, routed_experts const& e, breaks broken) {
    if (e.count < broken.ranks) return broken(law::every_rank_has_work, quantity::experts, e.count);
    if (s.cuts.exact && e.count % broken.ranks != 0) return broken(law::experts_divide_over_ranks, quantity::experts, e.count);
    if (s.owners.empty()) return {};
    std::size_t const count = static_cast<std::size_t>(e.count), rows = static_cast<std::size_t>(s.layer_count());
    bool const alike = experts_of_each(c, s) == e.count;
    if (s.owners.size() != count && !(alike && s.owners.size() == count * rows))
        return {law::placement_names_every_expert,
                broken.position,
                {quantity::experts, e.count},
                {quantity::owners, static_cast<int>(s.owners.size())},
                alike ? only(e.count) : remedies{}};
    if (s.owners.size() == count) return broken_by_owners(s.owners, broken);
    for (std::size_t row = 0; row < rows; ++row)
        if (c.layer(s.first_layer + static_cast<int>(row)).experts)
            if (violation const v = broken_by_owners(s.owners.subspan(row * count, count), broken)) return v;
    return {};
}

constexpr bool has_kind(model_config const& c, stage_traits const& s, int kind) {
    for (int l = s.first_layer; l <= s.last_layer; ++l)
        if (c.kind_of[static_cast<std::size_t>(l)] == kind) return true;
    return false;
}

/// The laws of a stage's sharding over `ranks`: every kind of layer once, never every layer.
constexpr violation broken_by_cuts(model_config const& c, stage_traits const& s, int position, int ranks) {
    rules const cuts = effective(c, s, ranks);
    breaks const broken{position, ranks};
    if (cuts.expert && cuts.expert_width) return broken(law::rules_agree, quantity::layers, s.layer_count());
    if ((cuts.expert || cuts.expert_width) && !routes_experts(c, s)) return broken(law::rule_cuts_something, quantity::experts, 0);
    if (ranks > 1 && !cuts.any())
        return {law::unsharded_has_one_rank, position, {quantity::layers, s.layer_count()}, {quantity::ranks, ranks}, only(1)};
    for (int k = 0; k < c.kind_count; ++k) {
        if (c.kind_count > 1 && !has_kind(c, s, k)) continue;
        block_kind const& b = c.kinds[static_cast<std::size_t>(k)];
        if (cuts.tensor)
            if (violation const v = broken_by_tensor(b, c.hidden, cuts.tensor_join, broken)) return v;
        if (cuts.expert && b.experts)
            if (violation const v = broken_by_experts(c, s, b.experts, broken)) return v;
        if (cuts.expert_width && b.experts)
            if (violation const v = broken_by_expert_width(b.experts, c.hidden, cuts.width_join, broken)) return v;
    }
    bool const holds_vocabulary = s.first_layer == 0 || s.last_layer + 1 == c.layers;
    if (cuts.tensor && holds_vocabulary && c.vocab < ranks) return broken(law::every_rank_has_work, quantity::vocab, c.vocab);
    return {};
}

constexpr int fewest_kv_heads(model_config const& c, stage_traits const& s) {
    int fewest = largest_extent;
    for (int l = s.first_layer; l <= s.last_layer; ++l)
        if (int const n = c.layer(l).attention.kv_heads; n < fewest) fewest = n;
    return fewest;
}

/// As above, with the rank counts that break none of these laws: a remedy that another law refuses is none.
constexpr violation refused_cuts(model_config const& c, stage_traits const& s, int position) {
    int const most = s.most_ranks < most_ranks_of_a_stage ? s.most_ranks : most_ranks_of_a_stage;
    violation v = s.ranks() > most
                      ? violation{law::device_serves_ranks, position, {quantity::most_ranks, most}, {quantity::ranks, s.ranks()}, {}}
                      : broken_by_cuts(c, s, position, s.ranks());
    if (v && v.right.what == quantity::ranks && v.instead.count == 0)
        for (int ranks = 1; ranks <= most; ++ranks)
            if (!broken_by_cuts(c, s, position, ranks)) v.instead.add(ranks);
    if (v.which == law::reduce_divides_segments) {
        stage_traits gathered = s;
        gathered.cuts.tensor_join = gathered.cuts.width_join = join_kind::gather;
        v.gather_would_do = !broken_by_cuts(c, gathered, position, s.ranks());
    }
    if (v && v.right.what == quantity::ranks && v.instead.count > 0 && effective(c, s, s.ranks()).tensor) {
        int const fewest = fewest_kv_heads(c, s);
        if (v.instead.value[static_cast<std::size_t>(v.instead.count - 1)] > fewest) v.kv_heads = fewest;
    }
    return v;
}

/// Whether a placement map is for this stage: it places whole experts on several ranks, and nothing else says where.
constexpr bool takes_map(model_config const& c, stage_traits const& s) {
    return s.placement != placing::settled && s.ranks() > 1 && !s.cuts.exact && effective(c, s, s.ranks()).expert;
}

/// The stages that wait for a map wait for the same one: it has the ranks and the experts of the first of them.
constexpr violation broken_by_waiting(model_config const& c, std::span<stage_traits const> stages, int position) {
    auto const waits = [&c](stage_traits const& s) { return s.placement == placing::awaited && takes_map(c, s); };
    stage_traits const& s = stages[static_cast<std::size_t>(position)];
    if (!waits(s)) return {};
    std::size_t first = 0;
    while (!waits(stages[first])) ++first;
    if (int const ranks = stages[first].ranks(); s.ranks() != ranks)
        return {law::placement_ranks_are_the_stages, position, {quantity::ranks, s.ranks()}, {quantity::map_ranks, ranks}, {}};
    int experts = 0;
    for (int l = stages[first].first_layer; l <= s.last_layer; ++l) {
        int const own = c.layer(l).experts.count;
        if (experts == 0) experts = own;
        if (l >= s.first_layer && own != 0 && own != experts)
            return {law::placement_experts_are_the_models, position, {quantity::experts, own}, {quantity::map_experts, experts}, {}};
    }
    return {};
}

constexpr violation broken_by_devices(stage_traits const& s, int position) {
    if (s.devices.empty()) return {law::stage_has_devices, position, {quantity::devices, 0}, {}, {}};
    if (s.most_ranks == 0)
        return {law::device_is_available,
                position,
                {quantity::kind, static_cast<int>(s.devices[0].kind)},
                {quantity::device, s.devices[0].index},
                {}};
    for (std::size_t i = 0; i < s.devices.size(); ++i) {
        if (s.devices[i].index < 0)
            return {law::device_index_is_positive, position, {quantity::ranks, s.ranks()}, {quantity::device, s.devices[i].index}, {}};
        for (std::size_t j = 0; j < i; ++j)
            if (s.devices[i].index == s.devices[j].index)
                return {law::devices_are_distinct, position, {quantity::devices, s.ranks()}, {quantity::device, s.devices[i].index}, {}};
    }
    return {};
}

/// Where a backend has an arithmetic of its own, moving a cut between it and another would change bits.
constexpr violation broken_by_arithmetic(stage_traits const& first, stage_traits const& s, int position) {
    device_kind const a = first.devices[0].kind, b = s.devices[0].kind;
    if (a == b || (first.canonical && s.canonical)) return {};
    return {law::stages_share_arithmetic,
            position,
            {quantity::kind, static_cast<int>(a)},
            {quantity::kind, static_cast<int>(b)},
            s.ranks() <= first.most_ranks ? only(static_cast<int>(a)) : remedies{}};
}

/// A seam's two sides agree when both speak this library's schema.
constexpr violation broken_by_schema(stage_traits const& s, int position) {
    if (s.crossing.schema == boundary_schema) return {};
    return {law::seam_schemas_agree,
            position,
            {quantity::schema, boundary_schema},
            {quantity::schema, s.crossing.schema},
            only(boundary_schema)};
}

constexpr violation broken_by_seam(stage_traits const& before, stage_traits const& after, int position) {
    boundary_traits const a = before.crossing, b = after.crossing;
    if (a.element != b.element)
        return {law::seam_dtypes_agree,
                position,
                {quantity::bytes_per_element, bytes_of(a.element)},
                {quantity::bytes_per_element, bytes_of(b.element)},
                only(bytes_of(a.element))};
    return {};
}

constexpr violation broken_by_range(model_config const& c, stage_traits const& s, int position, int next) {
    if (s.last_layer < s.first_layer)
        return {law::layers_run_forward, position, {quantity::first_layer, s.first_layer}, {quantity::last_layer, s.last_layer}, {}};
    remedies const from_next = next <= s.last_layer && s.last_layer < c.layers ? only(next) : remedies{};
    remedies const to_end = s.first_layer == next && next < c.layers ? only(c.layers - 1) : remedies{};
    if (s.first_layer < 0)
        return {law::layers_within_model, position, {quantity::layers, c.layers}, {quantity::first_layer, s.first_layer}, from_next};
    if (s.last_layer >= c.layers)
        return {law::layers_within_model, position, {quantity::layers, c.layers}, {quantity::last_layer, s.last_layer}, to_end};
    if (s.first_layer != next)
        return {law::layers_follow_on, position, {quantity::next_layer, next}, {quantity::first_layer, s.first_layer}, from_next};
    return {};
}
}  // namespace detail

/// Returns the first broken law of a model cut into these stages, reading the stages in order; empty when every law holds.
constexpr violation validate(model_config const& config, std::span<stage_traits const> stages) {
    if (violation const v = detail::broken_by_shape(config)) return v;
    if (stages.empty()) return {law::graph_has_stages, 0, {quantity::layers, config.layers}, {quantity::stages, 0}, only(1)};
    int next = 0, position = 0;
    for (stage_traits const& s : stages) {
        if (violation const v = detail::broken_by_range(config, s, position, next)) return v;
        if (violation const v = detail::broken_by_devices(s, position)) return v;
        if (violation const v = detail::broken_by_arithmetic(stages[0], s, position)) return v;
        if (violation const v = detail::refused_cuts(config, s, position)) return v;
        if (violation const v = detail::broken_by_waiting(config, stages, position)) return v;
        if (violation const v = detail::broken_by_schema(s, position)) return v;
        if (position > 0)
            if (violation const v = detail::broken_by_seam(stages[static_cast<std::size_t>(position - 1)], s, position)) return v;
        if (s.crossing.element != dtype::f32)
            return {law::boundary_keeps_bits,
                    position,
                    {quantity::bytes_per_element, bytes_of(s.crossing.element)},
                    {quantity::bytes_per_element, 4},
                    {}};
        next = s.last_layer + 1;
        ++position;
    }
    if (next != config.layers)
        return {law::layers_cover_the_model,
                position - 1,
                {quantity::layers, config.layers},
                {quantity::last_layer, next - 1},
                only(config.layers - 1)};
    return {};
}

}  // namespace tenon::inline v0
