// A placement map met by a model and its stages: the laws of that meeting, and the graph with the map's owners in it. Reads no files: what
// a map says comes as values.
// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <cstddef>
#include <span>
#include <tenon/core/explain.hpp>
#include <tenon/detail/deferred.hpp>
#include <tenon/graph/lower.hpp>
#include <tenon/graph/validate.hpp>
#include <tenon/shard/placement_map.hpp>
#include <vector>

namespace tenon::inline v0 {

/// What a placement map says.
struct placement_view {
    int ranks = 0;       ///< of every stage that it is for
    int entry_rank = 0;  ///< the rank that routes
    int experts = 0;
    std::span<int const> layers{};  ///< counted through the model, each once
    std::span<int const> owners{};  ///< (layers, experts): a rank for each
};

namespace detail {
/// The rows that a map has for a layer.
constexpr int rows_of(placement_view map, int layer) {
    int rows = 0;
    for (int const l : map.layers) rows += l == layer;
    return rows;
}

/// A layer for which a map has other rows than the `wanted` one or none.
constexpr violation broken_by_rows(int position, int layer, int rows, int wanted) {
    return {law::placement_covers_the_layers, position, {quantity::layer, layer}, {quantity::map_rows, rows}, only(wanted)};
}

/// The one number that the stages which take a map agree on, as `number(stage)` counts it; none where they differ.
template <class Number>
constexpr remedies agreed(model_config const& c, std::span<stage_traits const> stages, Number number) {
    remedies found{};
    for (stage_traits const& s : stages) {
        if (!takes_map(c, s)) continue;
        int const n = number(s);
        if (n == 0 || (found.count > 0 && found.value[0] != n)) return {};
        found = only(n);
    }
    return found;
}

/// The laws of a map and one stage that takes it.
constexpr violation broken_by_map(model_config const& c, std::span<stage_traits const> stages, int position, placement_view map) {
    stage_traits const& s = stages[static_cast<std::size_t>(position)];
    if (map.ranks != s.ranks())
        return {law::placement_ranks_are_the_stages,
                position,
                {quantity::ranks, s.ranks()},
                {quantity::map_ranks, map.ranks},
                agreed(c, stages, [](stage_traits const& one) { return one.ranks(); })};
    for (int l = s.first_layer; l <= s.last_layer; ++l) {
        int const experts = c.layer(l).experts.count;
        if (experts == 0) continue;
        if (experts != map.experts)
            return {law::placement_experts_are_the_models,
                    position,
                    {quantity::experts, experts},
                    {quantity::map_experts, map.experts},
                    agreed(c, stages, [&c](stage_traits const& one) { return experts_of_each(c, one); })};
        if (rows_of(map, l) == 0) return broken_by_rows(position, l, 0, 1);
    }
    return {};
}

/// The first stage that a layer is placed in, or -1.
constexpr int stage_placed(model_config const& c, std::span<stage_traits const> stages, int layer) {
    int position = 0;
    for (stage_traits const& s : stages) {
        if (layer >= s.first_layer && layer <= s.last_layer && takes_map(c, s) && c.layer(layer).experts) return position;
        ++position;
    }
    return -1;
}
}  // namespace detail

/// Returns the law that lawful stages break where no map is brought: one that awaits a map needs it; empty when none does.
constexpr violation validate_placement(model_config const& config, std::span<stage_traits const> stages) {
    int position = 0;
    for (stage_traits const& s : stages) {
        if (s.placement == placing::awaited && detail::takes_map(config, s))
            return {law::placement_is_given, position, {quantity::ranks, s.ranks()}, {}, {}};
        ++position;
    }
    return {};
}

/// Returns the first law that a map breaks, of lawful stages that it is to place the experts of; empty when it fits. That its rows name
/// ranks that exist, and leave none without an expert, is `validate`'s to say, once the owners are in the stages.
constexpr violation validate_placement(model_config const& config, std::span<stage_traits const> stages, placement_view map) {
    bool taken = false;
    int position = 0;
    for (stage_traits const& s : stages) {
        if (detail::takes_map(config, s)) {
            taken = true;
            if (violation const v = detail::broken_by_map(config, stages, position, map)) return v;
        }
        ++position;
    }
    if (!taken) return {law::placement_is_awaited, 0, {quantity::stages, position}, {quantity::map_ranks, map.ranks}, {}};
    if (map.entry_rank != 0)
        return {law::placement_entry_is_the_root, 0, {quantity::map_ranks, map.ranks}, {quantity::entry_rank, map.entry_rank}, only(0)};
    for (int const layer : map.layers) {
        int const stage = detail::stage_placed(config, stages, layer), wanted = stage < 0 ? 0 : 1;
        if (int const rows = detail::rows_of(map, layer); rows != wanted)
            return detail::broken_by_rows(stage < 0 ? 0 : stage, layer, rows, wanted);
    }
    std::size_t const named = map.layers.size() * static_cast<std::size_t>(map.experts);
    if (map.owners.size() != named)
        return {law::placement_names_every_expert,
                0,
                {quantity::experts, static_cast<int>(named)},
                {quantity::owners, static_cast<int>(map.owners.size())},
                only(static_cast<int>(named))};
    return {};
}

template <class = void>
class basic_placed_graph;
using placed_graph = basic_placed_graph<>;  // lazy: instantiated by who uses it

/// A graph whose experts lie as a map says, or as its own stages say. Refers to the graph; immovable.
template <class Lazy>
class basic_placed_graph {
public:
    /// Throws graph_error where a stage awaits a map and there is none.
    explicit basic_placed_graph(graph_view graph) : graph_(graph) { detail::require(validate_placement(*graph.config, graph.stages)); }
    /// Throws graph_error where the map does not fit.
    basic_placed_graph(graph_view graph, placement_view map) : graph_(graph) {
        detail::require(validate_placement(*graph.config, graph.stages, map));
        auto const E = static_cast<std::size_t>(map.experts);
        stages_.assign(graph.stages.begin(), graph.stages.end());
        owners_.resize(stages_.size());
        for (std::size_t i = 0; i < stages_.size(); ++i) {
            stage_traits& s = stages_[i];
            if (!detail::takes_map(*graph.config, s)) continue;
            owners_[i].resize(static_cast<std::size_t>(s.layer_count()) * E);
            for (std::size_t row = 0; row < map.layers.size(); ++row)
                if (int const l = map.layers[row]; l >= s.first_layer && l <= s.last_layer)
                    for (std::size_t e = 0; e < E; ++e)
                        owners_[i][static_cast<std::size_t>(l - s.first_layer) * E + e] = map.owners[row * E + e];
            s.owners = owners_[i];
            s.placement = placing::settled;
        }
        detail::require(validate(*graph.config, stages_));
        graph_.stages = stages_;
    }
    basic_placed_graph(basic_placed_graph const&) = delete;
    basic_placed_graph& operator=(basic_placed_graph const&) = delete;

    graph_view view() const { return graph_; }

private:
    graph_view graph_;
    detail::deferred<Lazy, std::vector<stage_traits>> stages_;
    detail::deferred<Lazy, std::vector<std::vector<int>>> owners_;  ///< by stage: (its layers, experts)
};

/// The graph with its experts where a map says, or where its own stages say when there is none. Throws graph_error where they disagree.
template <class Lazy = void>
placed_graph place_experts(graph_view graph, placement_map const* map) {
    if (map == nullptr) return placed_graph(graph);
    detail::deferred<Lazy, std::vector<int>> layers, owners;
    for (layer_placement const& row : map->layers) {
        if (row.owners.size() != static_cast<std::size_t>(map->experts))
            detail::require({law::placement_names_every_expert,
                             0,
                             {quantity::experts, map->experts},
                             {quantity::owners, static_cast<int>(row.owners.size())},
                             only(map->experts)});
        layers.push_back(row.layer);
        owners.insert(owners.end(), row.owners.begin(), row.owners.end());
    }
    return placed_graph(graph, placement_view{map->ranks, map->entry_rank, map->experts, layers, owners});
}

}  // namespace tenon::inline v0
