// Which law a model and its stages break first: a checker written from the documentation alone, by brute force. It shares no code with
// graph/validate.hpp but the names of the laws.
// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <tenon/core/config.hpp>
#include <tenon/core/law.hpp>
#include <tenon/graph/stage.hpp>

#include <set>
#include <vector>

namespace support {

using namespace tenon;

/// How many of `n` items rank `r` of `ranks` has: item i is on rank floor(i R / n). Counted, not computed.
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

inline law first_of_cuts(model_config const& c, stage_traits const& s, int ranks) {
    rules r = s.cuts;
    if (r.by_default) r = {.tensor = ranks > 1};
    if (r.expert && r.expert_width) return law::rules_agree;
    if (r.expert || r.expert_width) return law::rule_cuts_something;
    if (ranks > 1 && !r.tensor) return law::unsharded_has_one_rank;
    if (!r.tensor) return law::none;
    for (int kind = 0; kind < c.kind_count; ++kind) {
        bool here = false;
        for (int l = s.first_layer; l <= s.last_layer; ++l) here = here || c.kind_of[static_cast<std::size_t>(l)] == kind;
        if (!here) continue;
        block_kind const& b = c.kinds[static_cast<std::size_t>(kind)];
        int const heads = b.attention.heads, kv = b.attention.kv_heads;
        if (heads / ranks * ranks != heads) return law::heads_divide_over_ranks;
        if (kv / ranks * ranks != kv && ranks / kv * kv != ranks) return law::kv_heads_divide_or_repeat;
        if (!all_have_work(b.ffn.width, ranks) || !all_have_work(c.hidden, ranks)) return law::every_rank_has_work;
        if (r.tensor_join == join_kind::reduce) {
            int const f = b.ffn.width;
            int const of_ffn = f % 32 == 0 ? segments(f / 32) : segments(f), of_heads = segments(heads);
            if (of_ffn % ranks != 0 || of_heads % ranks != 0) return law::reduce_divides_segments;
        }
    }
    bool const vocabulary = s.first_layer == 0 || s.last_layer == c.layers - 1;
    return vocabulary && !all_have_work(c.vocab, ranks) ? law::every_rank_has_work : law::none;
}

inline law first_broken(model_config const& c, std::vector<stage_traits> const& stages) {
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
        for (stage_traits const& other : stages)
            if (&other < &s && other.devices[0].kind != s.devices[0].kind && !(other.canonical && s.canonical)) return law::stages_share_arithmetic;
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

}  // namespace support
