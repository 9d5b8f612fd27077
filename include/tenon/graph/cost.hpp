// What a graph costs, rank by rank: bytes held, arithmetic done, bytes moved. Read from the lowered graph; every
// figure is a constant expression, and each asks for one rank, device or seam, so that no evaluation grows with the model.
// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <cstdint>
#include <tenon/core/dtype.hpp>
#include <tenon/graph/lower.hpp>
#include <tenon/graph/weight_format.hpp>

namespace tenon::inline v0 {

/// A rank of a graph: numbered stage by stage, in the order that each stage names its devices.
struct rank_index {
    int value = 0;
};

/// The cost of a graph for one format of its weights. Bytes, operations and messages are signed 64-bit counts.
class cost_view {
public:
    constexpr cost_view(graph_view graph, weights format, dtype stored) : graph_(graph), format_(format), stored_(stored) {}

    constexpr weights format() const { return format_; }  ///< the format that the figures are for
    constexpr dtype stored() const { return stored_; }    ///< what the checkpoint holds

    constexpr int ranks() const {
        int n = 0;
        for (stage_traits const& s : graph_.stages) n += s.ranks();
        return n;
    }
    constexpr device_id device_of(rank_index r) const {
        place const p = find(r);
        return graph_.stages[p.stage].devices[p.member];
    }

    /// Bytes of weights that a rank holds, without padding.
    constexpr std::int64_t weight_bytes(rank_index r) const {
        place const p = find(r);
        std::int64_t sum = 0;
        for (tensor const& t : of_stage(p.stage)) {
            if (is_its_stages_table(t.what, format_, tied(), graph_.stages[p.stage].first_layer == 0)) continue;
            sum += bytes_of(held_format(t, format_, stored_, tied()), elements(t, p)) * held(t, p);
        }
        return sum;
    }
    /// Bytes of keys and values for one position of one sequence.
    constexpr std::int64_t kv_bytes_per_position(rank_index r, kv_format f = kv_format::f32) const {
        place const p = find(r);
        std::int64_t sum = 0;
        for (tensor const& t : of_stage(p.stage))
            if (t.what == role::k || t.what == role::v) sum += std::int64_t{bytes_of(f)} * t.rows_of(static_cast<int>(p.member)).size() * t.layers;
        return sum;
    }
    /// Bytes of keys and values that a state with room for `positions` holds: whole blocks of 64.
    constexpr std::int64_t kv_bytes(rank_index r, int positions, kv_format f = kv_format::f32) const {
        return kv_bytes_per_position(r, f) * ((std::int64_t{positions} + 63) / 64 * 64);
    }
    /// Bytes of the widest activations of one token: residual, normed, q, k, v, attention, gate and up, of an expert too.
    constexpr std::int64_t activation_bytes_per_token(rank_index r) const {
        place const p = find(r);
        std::int64_t widest = 0, attention = 0, ffn = 0;
        for (tensor const& t : of_stage(p.stage)) {
            std::int64_t const rows = t.rows_of(static_cast<int>(p.member)).size();
            if (t.what == role::q) attention = 2 * rows, ffn = 0;
            if (t.what == role::k || t.what == role::v) attention += rows;
            if (t.what == role::gate || t.what == role::expert_gate || t.what == role::shared_gate) ffn = 2 * rows > ffn ? 2 * rows : ffn;
            widest = widest > attention + ffn ? widest : attention + ffn;
            if (t.what == role::head && rows > widest) widest = rows;
        }
        return 4 * (widest + 2 * std::int64_t{graph_.config->hidden});
    }
    /// Floating-point operations for one token that attends to `context` positions, itself included. Experts count as if a router chose
    /// each of them as often.
    constexpr std::int64_t flops_per_token(rank_index r, int context = 1) const {
        place const p = find(r);
        std::int64_t sum = 0;
        for (tensor const& t : of_stage(p.stage)) {
            if (t.is_of_expert())
                sum += part_of(2 * elements(t, p) * held(t, p), graph_.config->kinds[static_cast<std::size_t>(t.kind)].experts.chosen,
                               t.experts);
            else if (t.is_matrix() && t.what != role::embed)
                sum += 2 * elements(t, p) * t.layers;
            if (t.what == role::q) sum += std::int64_t{4} * t.rows_of(static_cast<int>(p.member)).size() * context * t.layers;
        }
        return sum;
    }

    /// The same for a device: the sum over the ranks that it serves. An index alone is the devices of that index, whatever their kind.
    constexpr std::int64_t weight_bytes(device_id d) const { return over(d, figure::weights, 0); }
    constexpr std::int64_t kv_bytes_per_position(device_id d, kv_format f = kv_format::f32) const {
        return over(d, figure::kv_per_position, 0) / bytes_of(kv_format::f32) * bytes_of(f);
    }
    constexpr std::int64_t kv_bytes(device_id d, int positions, kv_format f = kv_format::f32) const {
        return over(d, figure::kv, positions) / bytes_of(kv_format::f32) * bytes_of(f);
    }
    constexpr std::int64_t flops_per_token(device_id d, int context = 1) const { return over(d, figure::flops, context); }
    constexpr std::int64_t weight_bytes(device_index d) const { return weight_bytes(any(d)); }
    constexpr std::int64_t kv_bytes_per_position(device_index d, kv_format f = kv_format::f32) const {
        return kv_bytes_per_position(any(d), f);
    }
    constexpr std::int64_t kv_bytes(device_index d, int positions, kv_format f = kv_format::f32) const { return kv_bytes(any(d), positions, f); }
    constexpr std::int64_t flops_per_token(device_index d, int context = 1) const { return flops_per_token(any(d), context); }

    /// What one token moves over the seam after stage `s`: every rank of the next stage that holds the residual reads the root's.
    constexpr std::int64_t seam_messages_per_token(int s) const {
        stage_traits const& next = graph_.stages[static_cast<std::size_t>(s) + 1];
        return effective(*graph_.config, next, next.ranks()).tensor ? next.ranks() : 1;
    }
    constexpr std::int64_t seam_bytes_per_token(int s) const { return seam_messages_per_token(s) * 4 * graph_.config->hidden; }
    /// What one token moves inside stage `s`, between its ranks, over all of its joins, in float32. Under fixed15_1 a `reduce` join moves sums
    /// of eight bytes, and the largest magnitude of each rank's inputs, instead.
    constexpr std::int64_t join_messages_per_token(int s) const { return over_joins(s, figure::messages); }
    constexpr std::int64_t join_bytes_per_token(int s) const { return 4 * over_joins(s, figure::elements); }
    /// Joins that stage `s` makes for one batch.
    constexpr std::int64_t joins(int s) const { return over_joins(s, figure::joins); }

private:
    struct place {
        std::size_t stage = 0, member = 0;
    };

    constexpr bool tied() const { return graph_.config->tied; }
    constexpr place find(rank_index r) const {
        place p{};
        int left = r.value;
        while (left >= graph_.stages[p.stage].ranks()) left -= graph_.stages[p.stage++].ranks();
        p.member = static_cast<std::size_t>(left);
        return p;
    }
    static constexpr std::int64_t elements(tensor const& t, place p) {
        int const member = static_cast<int>(p.member);
        return std::int64_t{t.rows_of(member).size()} * t.columns_of(member).size();
    }
    // How many of a tensor a rank holds. Experts that lie in every layer as in one are counted in one: no evaluation grows with both.
    constexpr std::int64_t held(tensor const& t, place p) const {
        stage_traits in = graph_.stages[p.stage];
        tensor counted = t;
        bool const alike = t.is_of_expert() && in.owners.size() <= static_cast<std::size_t>(t.experts);
        if (alike) {
            while (graph_.config->kind_of[static_cast<std::size_t>(in.first_layer)] != t.kind) ++in.first_layer;
            in.last_layer = in.first_layer;
            counted.layers = 1;
        }
        return (alike ? t.layers : 1) * held_count(counted, in, *graph_.config, static_cast<int>(p.member));
    }
    // floor(n k / E) for k <= E, inside 64 bits where n is.
    static constexpr std::int64_t part_of(std::int64_t n, int chosen, int experts) {
        return n / experts * chosen + n % experts * chosen / experts;
    }
    // Tensors and nodes stand stage by stage; a binary search keeps a long pipeline cheap to price. No templates here:
    // clang does not instantiate one in time for a budget that stands inside the graph's own struct.
    constexpr std::size_t first_of(bool nodes, int stage) const {
        std::size_t low = 0, high = nodes ? graph_.ir.nodes.size() : graph_.ir.tensors.size();
        while (low < high) {
            std::size_t const middle = (low + high) / 2;
            if ((nodes ? graph_.ir.nodes[middle].stage : graph_.ir.tensors[middle].stage) < stage)
                low = middle + 1;
            else
                high = middle;
        }
        return low;
    }
    constexpr std::span<tensor const> of_stage(std::size_t stage) const {
        std::size_t const begin = first_of(false, static_cast<int>(stage));
        return graph_.ir.tensors.subspan(begin, first_of(false, static_cast<int>(stage) + 1) - begin);
    }
    enum class figure : std::uint8_t { weights, kv_per_position, kv, flops, messages, elements, joins };
    constexpr std::int64_t of(rank_index r, figure f, int count) const {
        switch (f) {
            case figure::weights: return weight_bytes(r);
            case figure::kv_per_position: return kv_bytes_per_position(r);
            case figure::kv: return kv_bytes(r, count);
            default: return flops_per_token(r, count);
        }
    }
    static constexpr device_id any(device_index d) { return {device_kind::bare, d.value}; }
    constexpr std::int64_t over(device_id d, figure f, int count) const {
        std::int64_t sum = 0;
        int r = 0;
        for (stage_traits const& s : graph_.stages)
            for (device_id const& id : s.devices) {
                if (id.index == d.index && (d.kind == device_kind::bare || d.kind == id.kind)) sum += of(rank_index{r}, f, count);
                ++r;
            }
        return sum;
    }
    constexpr std::int64_t over_joins(int s, figure f) const {
        std::int64_t sum = 0;
        for (std::size_t i = first_of(true, s), end = first_of(true, s + 1); i < end; ++i) {
            node const& n = graph_.ir.nodes[i];
            if (n.what == op::join) sum += (f == figure::messages ? n.messages : f == figure::elements ? n.elements : 1) * n.layers;
        }
        return sum;
    }

    graph_view graph_;
    weights format_;
    dtype stored_;
};

}  // namespace tenon::inline v0
