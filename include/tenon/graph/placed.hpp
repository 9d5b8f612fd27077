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
#include <vector>

namespace tenon::inline v0 {

/// What a placement map says.
struct placement_view {
    int ranks = 0;       ///< of every stage that it is for
    int entry_rank = 0;  ///< the rank that routes
    int experts = 0;
    std::span<int const> layers{};  ///< counted through the model, ascending
    std::span<int const> owners{};  ///< (layers, experts): a rank for each
};

namespace detail {
/// Whether a map is for this stage: it places whole experts on several ranks, and nothing else says where.
constexpr bool takes_map(model_config const& c, stage_traits const& s) {
    return s.placement != placing::settled && s.ranks() > 1 && !s.cuts.exact && effective(c, s, s.ranks()).expert;
}

constexpr bool names_layer(placement_view map, int layer) {
    for (int const l : map.layers)
        if (l == layer) return true;
    return false;
}

/// The laws of a map and one stage that takes it.
constexpr violation broken_by_map(model_config const& c, stage_traits const& s, int position, placement_view map) {
    if (map.ranks != s.ranks())
        return {law::placement_ranks_are_the_stages, position, {quantity::ranks, s.ranks()}, {quantity::ranks, map.ranks}, only(s.ranks())};
    for (int l = s.first_layer; l <= s.last_layer; ++l) {
        int const experts = c.layer(l).experts.count;
        if (experts == 0) continue;
        if (experts != map.experts)
            return {law::placement_experts_are_the_models, position, {quantity::experts, experts}, {quantity::experts, map.experts}, only(experts)};
        if (!names_layer(map, l)) return {law::placement_covers_the_layers, position, {quantity::layers, c.layers}, {quantity::layer, l}, {}};
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

/// Returns the first law that a map breaks, of lawful stages that it is to place the experts of; empty when it fits. That its rows name
/// ranks that exist, and leave none without an expert, is `validate`'s to say, once the owners are in the stages.
constexpr violation validate_placement(model_config const& config, std::span<stage_traits const> stages, placement_view map) {
    bool taken = false;
    int position = 0;
    for (stage_traits const& s : stages) {
        if (detail::takes_map(config, s)) {
            taken = true;
            if (violation const v = detail::broken_by_map(config, s, position, map)) return v;
        }
        ++position;
    }
    if (!taken) return {law::placement_is_awaited, 0, {quantity::stages, position}, {quantity::ranks, map.ranks}, {}};
    if (map.entry_rank != 0)
        return {law::placement_entry_is_the_root, 0, {quantity::ranks, map.ranks}, {quantity::entry_rank, map.entry_rank}, only(0)};
    for (int const layer : map.layers)
        if (layer < 0 || layer >= config.layers || detail::stage_placed(config, stages, layer) < 0)
            return {law::placement_covers_the_layers, 0, {quantity::layers, config.layers}, {quantity::layer, layer}, {}};
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
    explicit basic_placed_graph(graph_view graph) : graph_(graph) {
        int position = 0;
        for (stage_traits const& s : graph.stages) {
            if (s.placement == placing::awaited && detail::takes_map(*graph.config, s))
                detail::require({law::placement_is_given, position, {quantity::ranks, s.ranks()}, {}, {}});
            ++position;
        }
    }
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

}  // namespace tenon::inline v0
