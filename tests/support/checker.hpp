// Which law a model, its stages and a placement map break first: a checker written from the documentation alone, by brute force. It counts
// where the validator computes, and of graph/ it uses the values that describe a stage and a map, never a function that decides.
// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <tenon/core/config.hpp>
#include <tenon/core/law.hpp>
#include <tenon/graph/placed.hpp>
#include <tenon/graph/stage.hpp>

#include <algorithm>
#include <cstddef>
#include <set>
#include <vector>

namespace support {

using namespace tenon;

/// Whether each of `ranks` ranks has one of `n` items, item i being on rank floor(i R / n). Counted, not computed.
inline bool all_have_work(int n, int ranks) {
    std::set<int> busy;
    for (int i = 0; i < n; ++i) busy.insert(static_cast<int>(1LL * i * ranks / n));
    return static_cast<int>(busy.size()) == ranks;
}

/// Segments of NUMERICS rule 1, by trying.
inline int segments(int units) {
    int best = 1;
    for (int s = 1; s <= 8; s *= 2)
        if (units / s * s == units) best = s;
    return best;
}
/// Of a product over the width of an FFN or an expert: blocks of 32 stay together where there are whole ones.
inline int segments_of_width(int width) { return width % 32 == 0 ? segments(width / 32) : segments(width); }

/// The law that a routed FFN breaks, its experts dealt out to the groups one by one.
inline law first_of_routing(routed_experts const& e) {
    if (e.count < 0 || e.shared_width < 0) return law::shape_is_positive;
    if (e.count == 0) return law::none;
    if (e.count > 1024 || 1LL * e.count * e.width > 1 << 24) return law::shape_fits;
    if (e.chosen < 1 || e.chosen > e.count) return law::chosen_experts_exist;
    if (e.groups < 1 || e.groups > e.count) return law::expert_groups_divide;
    std::vector<int> group(static_cast<std::size_t>(e.groups), 0);
    for (int i = 0; i < e.count; ++i) ++group[static_cast<std::size_t>(i * e.groups / e.count)];
    for (int const size : group)
        if (size != group[0]) return law::expert_groups_divide;
    if (e.chosen_groups < 1 || e.chosen_groups > e.groups) return law::chosen_groups_exist;
    if (e.groups > 1 && e.worth == group_worth::two_best && group[0] == 1) return law::expert_group_has_two;
    int open = 0;
    for (int g = 0; g < e.chosen_groups; ++g) open += group[static_cast<std::size_t>(g)];
    return open < e.chosen ? law::chosen_groups_hold_enough : law::none;
}

inline law first_of_shape(model_config const& c) {
    for (int const extent : {c.layers, c.hidden, c.vocab, c.max_positions})
        if (extent < 1) return law::shape_is_positive;
    for (int k = 0; k < c.kind_count; ++k) {
        block_kind const& b = c.kinds[static_cast<std::size_t>(k)];
        grouped_attention const& a = b.attention;
        for (int const extent : {a.heads, a.kv_heads, a.head_dim, b.experts.count > 0 ? b.experts.width : b.ffn.width})
            if (extent < 1) return law::shape_is_positive;
        if (law const broken = first_of_routing(b.experts); broken != law::none) return broken;
        if (a.heads / a.kv_heads * a.kv_heads != a.heads) return law::heads_share_kv_heads;
        if (a.head_dim & 1) return law::head_dim_is_even;
    }
    return law::none;
}

/// The layers of a stage that route experts, counted from its first.
inline std::vector<int> routed_layers(model_config const& c, stage_traits const& s) {
    std::vector<int> found;
    for (int l = s.first_layer; l <= s.last_layer; ++l)
        if (c.layer(l).experts.count > 0) found.push_back(l - s.first_layer);
    return found;
}

/// The rules of a stage; where it names none: all whole on one rank, on several `tensor`, and `expert` if a layer routes.
inline rules rules_of(model_config const& c, stage_traits const& s, int ranks) {
    if (!s.cuts.by_default) return s.cuts;
    rules r{};
    r.tensor = ranks > 1;
    r.expert = ranks > 1 && !routed_layers(c, s).empty();
    return r;
}

/// `tensor`: heads, the width of a dense FFN or of the shared expert, output rows. Routed experts are not its to cut.
inline law first_of_tensor(model_config const& c, block_kind const& b, int ranks, bool reduces) {
    int const heads = b.attention.heads, kv = b.attention.kv_heads;
    if (heads / ranks * ranks != heads) return law::heads_divide_over_ranks;
    if (kv / ranks * ranks != kv && ranks / kv * kv != ranks) return law::kv_heads_divide_or_repeat;
    std::vector<int> widths;
    if (b.experts.count == 0) widths.push_back(b.ffn.width);
    if (b.experts.count > 0 && b.experts.shared_width > 0) widths.push_back(b.experts.shared_width);
    for (int const width : widths)
        if (!all_have_work(width, ranks)) return law::every_rank_has_work;
    if (!all_have_work(c.hidden, ranks)) return law::every_rank_has_work;
    if (!reduces) return law::none;
    if (segments(heads) % ranks != 0) return law::reduce_divides_segments;
    for (int const width : widths)
        if (segments_of_width(width) % ranks != 0) return law::reduce_divides_segments;
    return law::none;
}

/// `expert`: every rank owns an expert of every layer, as the even placement or a list of owners deals them out. A list is one row for all
/// layers of the stage, or a row for each, and then all that route have as many experts.
inline law first_of_experts(model_config const& c, stage_traits const& s, int experts, int ranks) {
    if (!all_have_work(experts, ranks)) return law::every_rank_has_work;
    if (s.cuts.exact && experts / ranks * ranks != experts) return law::experts_divide_over_ranks;
    if (s.owners.empty()) return law::none;
    std::size_t const E = static_cast<std::size_t>(experts);
    std::vector<std::vector<int>> rows;
    if (s.owners.size() == E) {
        rows.emplace_back(s.owners.begin(), s.owners.end());
    } else {
        if (s.owners.size() != E * static_cast<std::size_t>(s.last_layer - s.first_layer + 1)) return law::placement_names_every_expert;
        for (int const layer : routed_layers(c, s)) {
            if (c.layer(s.first_layer + layer).experts.count != experts) return law::placement_names_every_expert;
            auto const row = s.owners.subspan(static_cast<std::size_t>(layer) * E, E);
            rows.emplace_back(row.begin(), row.end());
        }
    }
    for (std::vector<int> const& row : rows) {
        std::set<int> const busy(row.begin(), row.end());
        if (*busy.begin() < 0 || *busy.rbegin() >= ranks) return law::placement_rank_exists;
        if (static_cast<int>(busy.size()) != ranks) return law::every_rank_has_work;
    }
    return law::none;
}

/// `expert_width`: the width of every expert, and the output rows of down where they are gathered.
inline law first_of_expert_width(model_config const& c, routed_experts const& e, int ranks, bool reduces) {
    if (!all_have_work(e.width, ranks) || !all_have_work(c.hidden, ranks)) return law::every_rank_has_work;
    return reduces && segments_of_width(e.width) % ranks != 0 ? law::reduce_divides_segments : law::none;
}

inline law first_of_cuts(model_config const& c, stage_traits const& s, int ranks) {
    rules const r = rules_of(c, s, ranks);
    if (r.expert && r.expert_width) return law::rules_agree;
    if ((r.expert || r.expert_width) && routed_layers(c, s).empty()) return law::rule_cuts_something;
    if (ranks > 1 && !r.tensor && !r.expert && !r.expert_width) return law::unsharded_has_one_rank;
    for (int kind = 0; kind < c.kind_count; ++kind) {
        bool here = false;
        for (int l = s.first_layer; l <= s.last_layer; ++l) here = here || c.kind_of[static_cast<std::size_t>(l)] == kind;
        if (!here) continue;
        block_kind const& b = c.kinds[static_cast<std::size_t>(kind)];
        law broken = r.tensor ? first_of_tensor(c, b, ranks, r.tensor_join == join_kind::reduce) : law::none;
        if (broken == law::none && r.expert && b.experts.count > 0) broken = first_of_experts(c, s, b.experts.count, ranks);
        if (broken == law::none && r.expert_width && b.experts.count > 0)
            broken = first_of_expert_width(c, b.experts, ranks, r.width_join == join_kind::reduce);
        if (broken != law::none) return broken;
    }
    bool const vocabulary = s.first_layer == 0 || s.last_layer == c.layers - 1;
    return r.tensor && vocabulary && !all_have_work(c.vocab, ranks) ? law::every_rank_has_work : law::none;
}

/// Whether a stage leaves it to a placement map where its whole experts are.
inline bool leaves_it_to_a_map(model_config const& c, stage_traits const& s) {
    rules const r = rules_of(c, s, s.ranks());
    return r.expert && !r.exact && s.ranks() > 1 && s.placement != placing::settled;
}

/// Stages that wait for a map wait for one of so many ranks and so many experts. The last of these stages is the one in question.
inline law first_of_waiting(model_config const& c, std::vector<stage_traits> const& stages) {
    std::set<int> ranks, experts;
    for (stage_traits const& s : stages) {
        if (s.placement != placing::awaited || !leaves_it_to_a_map(c, s)) continue;
        ranks.insert(s.ranks());
        for (int const layer : routed_layers(c, s)) experts.insert(c.layer(s.first_layer + layer).experts.count);
    }
    if (ranks.size() > 1) return law::placement_ranks_are_the_stages;
    return experts.size() > 1 ? law::placement_experts_are_the_models : law::none;
}

inline law first_broken(model_config const& c, std::vector<stage_traits> const& stages) {
    if (law const broken = first_of_shape(c); broken != law::none) return broken;
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
        for (stage_traits const& other : stages)
            if (&other < &s && other.devices[0].kind != s.devices[0].kind && !(other.canonical && s.canonical))
                return law::stages_share_arithmetic;
        if (s.ranks() > s.most_ranks || s.ranks() > 64) return law::device_serves_ranks;
        if (law const broken = first_of_cuts(c, s, s.ranks()); broken != law::none) return broken;
        if (law const broken = first_of_waiting(c, std::vector(stages.begin(), stages.begin() + static_cast<std::ptrdiff_t>(i) + 1)); broken != law::none)
            return broken;
        if (s.crossing.schema != 1) return law::seam_schemas_agree;
        if (i > 0 && s.crossing.element != stages[i - 1].crossing.element) return law::seam_dtypes_agree;
        if (s.crossing.element != dtype::f32) return law::boundary_keeps_bits;
    }
    for (int const count : owners)
        if (count != 1) return law::layers_cover_the_model;
    return law::none;
}

/// The law that lawful stages and a map break; without one, the law that they break for its want. With it, the map's rows are put into the
/// stages, and these must be lawful still.
inline law first_of_map(model_config const& c, std::vector<stage_traits> stages, placement_view const* map) {
    std::set<int> placed;
    bool waits = false;
    std::vector<std::vector<int>> rows;
    rows.reserve(stages.size());
    for (stage_traits& s : stages) {
        if (!leaves_it_to_a_map(c, s)) continue;
        if (map == nullptr && s.placement == placing::awaited) return law::placement_is_given;
        if (map == nullptr) continue;
        waits = true;
        if (s.ranks() != map->ranks) return law::placement_ranks_are_the_stages;
        for (int const layer : routed_layers(c, s)) {
            int const l = s.first_layer + layer;
            if (c.layer(l).experts.count != map->experts) return law::placement_experts_are_the_models;
            if (std::count(map->layers.begin(), map->layers.end(), l) == 0) return law::placement_covers_the_layers;
            placed.insert(l);
        }
    }
    if (map == nullptr) return law::none;
    if (!waits) return law::placement_is_awaited;
    if (map->entry_rank != 0) return law::placement_entry_is_the_root;
    std::vector<int> named(map->layers.begin(), map->layers.end());
    std::sort(named.begin(), named.end());
    if (named != std::vector<int>(placed.begin(), placed.end())) return law::placement_covers_the_layers;
    std::size_t const E = static_cast<std::size_t>(map->experts);
    if (map->owners.size() != placed.size() * E) return law::placement_names_every_expert;
    for (stage_traits& s : stages) {
        if (!leaves_it_to_a_map(c, s)) continue;
        std::vector<int>& all = rows.emplace_back(E * static_cast<std::size_t>(s.last_layer - s.first_layer + 1), 0);
        for (int const layer : routed_layers(c, s)) {
            auto const row =
                static_cast<std::size_t>(std::find(map->layers.begin(), map->layers.end(), s.first_layer + layer) - map->layers.begin());
            std::copy_n(map->owners.begin() + static_cast<std::ptrdiff_t>(row * E), E,
                        all.begin() + static_cast<std::ptrdiff_t>(E) * layer);
        }
        s.owners = all;
    }
    return first_broken(c, stages);
}

}  // namespace support
