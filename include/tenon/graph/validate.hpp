// Every law of a model and its stages, as one constexpr function over plain values. A graph type calls it while it
// compiles, a loader when a plan arrives.
// SPDX-License-Identifier: Apache-2.0
#pragma once
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
        for (int const extent : {b.attention.heads, b.attention.kv_heads, b.attention.head_dim, b.ffn.width})
            if (violation const v = broken_by_extent(extent)) return v;
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

/// The laws of one kind of layer cut by `tensor` over `ranks`.
constexpr violation broken_by_tensor(block_kind const& b, int hidden, join_kind join, int position, int ranks) {
    auto const broken = [position, ranks](law which, quantity what, int value) {
        return violation{which, position, {what, value}, {quantity::ranks, ranks}, {}};
    };
    grouped_attention const& a = b.attention;
    if (a.heads % ranks != 0) return broken(law::heads_divide_over_ranks, quantity::heads, a.heads);
    if (a.kv_heads % ranks != 0 && ranks % a.kv_heads != 0) return broken(law::kv_heads_divide_or_repeat, quantity::kv_heads, a.kv_heads);
    if (b.ffn.width < ranks) return broken(law::every_rank_has_work, quantity::ffn, b.ffn.width);
    if (hidden < ranks) return broken(law::every_rank_has_work, quantity::hidden, hidden);
    if (join == join_kind::reduce) {
        int const attention = segments_of(a.heads * a.head_dim, a.head_dim), ffn = segments_of(b.ffn.width, granule_of(b.ffn.width));
        int const fewest = attention < ffn ? attention : ffn;
        if (fewest % ranks != 0) return broken(law::reduce_divides_segments, quantity::segments, fewest);
    }
    return {};
}

constexpr bool has_kind(model_config const& c, stage_traits const& s, int kind) {
    for (int l = s.first_layer; l <= s.last_layer; ++l)
        if (c.kind_of[static_cast<std::size_t>(l)] == kind) return true;
    return false;
}

/// The laws of a stage's sharding over `ranks`: every kind of layer once, never every layer.
constexpr violation broken_by_cuts(model_config const& c, stage_traits const& s, int position, int ranks) {
    rules const cuts = effective(s.cuts, ranks);
    if (cuts.expert && cuts.expert_width)
        return {law::rules_agree, position, {quantity::layers, s.layer_count()}, {quantity::ranks, ranks}, {}};
    if (cuts.expert || cuts.expert_width) return {law::rule_cuts_something, position, {quantity::experts, 0}, {quantity::ranks, ranks}, {}};
    if (ranks > 1 && !cuts.any())
        return {law::unsharded_has_one_rank, position, {quantity::layers, s.layer_count()}, {quantity::ranks, ranks}, only(1)};
    if (!cuts.tensor) return {};
    for (int k = 0; k < c.kind_count; ++k)
        if (c.kind_count == 1 || has_kind(c, s, k))
            if (violation const v = broken_by_tensor(c.kinds[static_cast<std::size_t>(k)], c.hidden, cuts.tensor_join, position, ranks))
                return v;
    bool const holds_vocabulary = s.first_layer == 0 || s.last_layer + 1 == c.layers;
    if (holds_vocabulary && c.vocab < ranks)
        return {law::every_rank_has_work, position, {quantity::vocab, c.vocab}, {quantity::ranks, ranks}, {}};
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
    violation v =
        s.ranks() > s.most_ranks
            ? violation{law::device_serves_ranks, position, {quantity::most_ranks, s.most_ranks}, {quantity::ranks, s.ranks()}, {}}
            : broken_by_cuts(c, s, position, s.ranks());
    if (v && v.right.what == quantity::ranks && v.instead.count == 0)
        for (int ranks = 1; ranks <= s.most_ranks; ++ranks)
            if (!broken_by_cuts(c, s, position, ranks)) v.instead.add(ranks);
    if (v.which == law::reduce_divides_segments) {
        stage_traits gathered = s;
        gathered.cuts.tensor_join = join_kind::gather;
        v.gather_would_do = !broken_by_cuts(c, gathered, position, s.ranks());
    }
    if (v && v.right.what == quantity::ranks && v.instead.count > 0 && effective(s.cuts, s.ranks()).tensor) {
        int const fewest = fewest_kv_heads(c, s);
        if (v.instead.value[static_cast<std::size_t>(v.instead.count - 1)] > fewest) v.kv_heads = fewest;
    }
    return v;
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
