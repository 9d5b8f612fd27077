// How a rank holds a matrix for the format that a loader asks for, and what that format asks of a graph. Reads the lowered graph; what is
// held where is cost.hpp's and the runtimes' to say.
// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <cstdint>
#include <tenon/core/dtype.hpp>
#include <tenon/core/law.hpp>
#include <tenon/core/profile.hpp>
#include <tenon/graph/lower.hpp>
#include <tenon/graph/validate.hpp>

namespace tenon::inline v0 {

/// Whether a tensor takes the format that the loader asks for. Projections and an untied head do; a table that is looked up,
/// norms and biases stay as the checkpoint stores them, and no format narrows a router.
constexpr bool takes_weight_format(role what, bool tied) {
    switch (what) {
        case role::q:
        case role::k:
        case role::v:
        case role::o:
        case role::gate:
        case role::up:
        case role::down:
        case role::expert_gate:
        case role::expert_up:
        case role::expert_down:
        case role::shared_gate:
        case role::shared_up:
        case role::shared_down: return true;
        case role::head: return !tied;
        default: return false;
    }
}

/// Whether a head is multiplied from the table that its own stage looks up. Not in fixed15: a table is looked up in the numbers of the file.
constexpr bool is_its_stages_table(role what, weights format, bool tied, bool first_stage) {
    return what == role::head && tied && first_stage && format != weights::fixed15;
}

/// How a rank holds a tensor: a matrix in bf16, q8 or fixed15 where it is asked for or stored so, everything else as float32.
constexpr held_as held_format(tensor const& t, weights format, dtype stored, bool tied) {
    if (!t.is_matrix()) return held_as::f32;
    if (format == weights::fixed15 && takes_weight_format(t.what, false)) return held_as::fixed15;
    if (t.what == role::router && format == weights::f32) return held_as::f32;  // widened with the others, and never narrowed
    bool const converts = takes_weight_format(t.what, tied) && format != weights::stored && format != weights::fixed15;
    if (converts) return format == weights::q8 ? held_as::q8 : format == weights::bf16 ? held_as::bf16 : held_as::f32;
    return stored == dtype::bf16 ? held_as::bf16 : held_as::f32;
}

/// Segments of a tensor's product as it is held: none ends inside a block.
constexpr int segments_as_held(tensor const& t, weights format, bool tied) {
    int granule = t.granule;
    if (format == weights::q8 && takes_weight_format(t.what, tied))
        for (int block = numeric::canonical_1.weight_block; granule % block != 0;) granule *= 2;  // the least common multiple: 32 is 2^5
    return segments_of(t.columns, granule);
}

/// A law that a format breaks in a graph, and the tensor that breaks it with its inputs. Empty when there is none.
struct format_violation {
    violation broken{};
    role what = role::none;
    int inputs = 0;
    constexpr explicit operator bool() const { return static_cast<bool>(broken); }
    bool operator==(format_violation const&) const = default;
};

namespace detail {
constexpr bool is_cut_in_q8(tensor const& t, int stage, bool tied) {
    return t.stage == stage && t.split == cut::columns && takes_weight_format(t.what, tied);
}

/// The rank counts of a stage under which every law holds, those of q8 too.
constexpr remedies ranks_for_q8(graph_view g, int stage) {
    stage_traits const& s = g.stages[static_cast<std::size_t>(stage)];
    int fewest = most_segments;
    for (tensor const& t : g.ir.tensors)
        if (is_cut_in_q8(t, stage, g.config->tied))
            if (int const n = segments_as_held(t, weights::q8, g.config->tied); n < fewest) fewest = n;
    remedies found{};
    int const most = s.most_ranks < most_ranks_of_a_stage ? s.most_ranks : most_ranks_of_a_stage;
    for (int ranks = 1; ranks <= most; ++ranks)
        if (fewest % ranks == 0 && !broken_by_cuts(*g.config, s, stage, ranks)) found.add(ranks);
    return found;
}
}  // namespace detail

/// Returns the first law that a lawful graph breaks when its matrices are held in `format`, tensor by tensor: in q8 every row is whole
/// blocks, and the ranks of a reduce join divide the segments of whole blocks.
constexpr format_violation validate_format(graph_view g, weights format) {
    constexpr int block = numeric::canonical_1.weight_block;
    if (format != weights::q8) return {};
    for (tensor const& t : g.ir.tensors) {
        if (!takes_weight_format(t.what, g.config->tied)) continue;
        if (t.columns % block != 0)
            return {{law::blocks_divide_inputs, t.stage, {quantity::inputs, t.columns}, {quantity::block, block}, {}}, t.what, t.columns};
        if (!detail::is_cut_in_q8(t, t.stage, g.config->tied)) continue;
        int const segments = segments_as_held(t, format, g.config->tied);
        if (segments % t.ranks == 0) continue;
        stage_traits gathered = g.stages[static_cast<std::size_t>(t.stage)];
        gathered.cuts.tensor_join = gathered.cuts.width_join = join_kind::gather;
        violation v{law::reduce_divides_segments,
                    t.stage,
                    {quantity::segments, segments},
                    {quantity::ranks, t.ranks},
                    detail::ranks_for_q8(g, t.stage)};
        v.gather_would_do = !detail::broken_by_cuts(*g.config, gathered, t.stage, t.ranks);
        return {v, t.what, t.columns};
    }
    return {};
}

}  // namespace tenon::inline v0
