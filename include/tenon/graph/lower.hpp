// The graph as plain values: what every stage computes, which tensors it holds and how they are cut, what its ranks
// exchange. Nodes and tensors are per stage and per kind of layer, never per layer. Validation comes first: a lowered
// graph is a lawful one.
// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <tenon/core/config.hpp>
#include <tenon/core/share.hpp>
#include <tenon/graph/stage.hpp>

namespace tenon::inline v0 {

enum class op : std::uint8_t { embed, norm, project, attend, gate, route, experts, combine, join, add, hand_over, head, sample };
inline constexpr std::array<std::string_view, 13> op_names{"embed",   "norm", "project", "attend",    "gate", "route", "experts",
                                                           "combine", "join", "add",     "hand_over", "head", "sample"};
constexpr std::string_view name_of(op o) { return op_names[static_cast<std::size_t>(o)]; }

/// The tensors of a checkpoint, by what they do.
enum class role : std::uint8_t {
    none,
    embed,
    input_norm,
    q,
    k,
    v,
    o,
    q_bias,
    k_bias,
    v_bias,
    o_bias,
    q_norm,
    k_norm,
    post_norm,
    gate,
    up,
    down,
    gate_bias,
    up_bias,
    down_bias,
    router,
    correction,  ///< added to the scores for the choice of experts
    expert_gate,
    expert_up,
    expert_down,
    shared_gate,
    shared_up,
    shared_down,
    final_norm,
    head
};

inline constexpr std::array<std::string_view, 30> role_names{
    "",       "embed",      "input_norm",  "q",         "k",           "v",           "o",         "q_bias",      "k_bias",     "v_bias",
    "o_bias", "q_norm",     "k_norm",      "post_norm", "gate",        "up",          "down",      "gate_bias",   "up_bias",    "down_bias",
    "router", "correction", "expert_gate", "expert_up", "expert_down", "shared_gate", "shared_up", "shared_down", "final_norm", "head"};
constexpr std::string_view name_of(role r) { return role_names[static_cast<std::size_t>(r)]; }

/// Whether a role is one of every layer's; the others are the model's ends.
constexpr bool is_of_layer(role r) { return r != role::none && r != role::embed && r != role::final_norm && r != role::head; }

/// How a tensor lies over the ranks of its stage.
enum class cut : std::uint8_t {
    whole,    ///< every rank has all of it
    root,     ///< the first rank has all of it, the others nothing
    owned,    ///< of experts: each is whole on the rank that owns it
    rows,     ///< by share_of(rows / unit)
    kv_rows,  ///< by kv_share_of(rows / unit): repeated where there are fewer KV heads than ranks
    columns,  ///< by share_of(columns / unit)
};
inline constexpr std::array<std::string_view, 6> cut_names{"whole", "root", "owned", "rows", "kv_rows", "columns"};
constexpr std::string_view name_of(cut c) { return cut_names[static_cast<std::size_t>(c)]; }

/// A tensor of a stage: `layers` of them, alike, and as many times `experts`. A vector has one column.
struct tensor {
    role what = role::none;
    int stage = 0, kind = 0, layers = 1;
    int rows = 0, columns = 1;
    int granule = 1;  ///< of the product over the columns: fixes its segments
    cut split = cut::whole;
    int unit = 1;  ///< rows or columns that stay together: one head's width
    int ranks = 1;
    int experts = 1;  ///< how many a layer has of it

    /// By what it does, not by its extents: a width of 1 is legal, and its matrices still have two axes.
    constexpr bool is_matrix() const {
        switch (what) {
            case role::embed:
            case role::q:
            case role::k:
            case role::v:
            case role::o:
            case role::gate:
            case role::up:
            case role::down:
            case role::router:
            case role::expert_gate:
            case role::expert_up:
            case role::expert_down:
            case role::shared_gate:
            case role::shared_up:
            case role::shared_down:
            case role::head: return true;
            default: return false;
        }
    }
    constexpr bool is_of_expert() const { return what == role::expert_gate || what == role::expert_up || what == role::expert_down; }
    constexpr share rows_of(int rank) const {
        if (split == cut::root && rank > 0) return {};
        if (split == cut::rows) return scaled(share_of(rows / unit, rank, ranks));
        if (split == cut::kv_rows) return scaled(kv_share_of(rows / unit, rank, ranks));
        return {0, rows};
    }
    constexpr share columns_of(int rank) const {
        return split == cut::columns ? scaled(share_of(columns / unit, rank, ranks)) : share{0, columns};
    }

private:
    constexpr share scaled(share s) const { return {s.begin * unit, s.end * unit}; }
};

/// Whether rank `rank` of its stage holds expert `e` of a tensor of the stage's layer `layer`.
constexpr bool holds_expert(tensor const& t, stage_traits const& s, int layer, int e, int rank) {
    if (t.split == cut::root) return rank == 0;
    return t.split != cut::owned || owner_of(s, layer, e, t.experts) == rank;
}

/// How many of a tensor a rank holds, over all layers of its stage. Where a placement is awaited, the most that one can bring.
constexpr std::int64_t held_count(tensor const& t, stage_traits const& s, model_config const& c, int rank) {
    if (!t.is_of_expert()) return t.layers;
    if (t.split == cut::owned && s.placement == placing::awaited) return std::int64_t{t.layers} * (t.experts - t.ranks + 1);
    if (t.split == cut::owned && s.owners.empty()) return std::int64_t{t.layers} * share_of(t.experts, rank, t.ranks).size();
    std::int64_t count = 0;
    for (int l = s.first_layer; l <= s.last_layer; ++l)
        if (c.kind_of[static_cast<std::size_t>(l)] == t.kind)
            for (int e = 0; e < t.experts; ++e) count += holds_expert(t, s, l - s.first_layer, e, rank);
    return count;
}

/// Calls `visit(layer)` for the layers of a stage that have a tensor, counted through the model; once, with 0, for one of the ends.
template <class Visit>
constexpr void each_layer_of(tensor const& t, stage_traits const& s, model_config const& c, Visit visit) {
    if (!is_of_layer(t.what)) return visit(0);
    for (int l = s.first_layer; l <= s.last_layer; ++l)
        if (c.kind_of[static_cast<std::size_t>(l)] == t.kind) visit(l);
}

/// Calls `visit(layer, expert)` for every one of a tensor that a rank holds; the expert is 0 where there is one of a layer.
template <class Visit>
constexpr void each_held(tensor const& t, stage_traits const& s, model_config const& c, int rank, Visit visit) {
    if (t.split == cut::root && rank > 0) return;
    each_layer_of(t, s, c, [&](int layer) {
        for (int e = 0; e < t.experts; ++e)
            if (!t.is_of_expert() || holds_expert(t, s, layer - s.first_layer, e, rank)) visit(layer, e);
    });
}

/// One operation of a stage, done once for each of its `layers`. What its ranks exchange is per token and per layer; where experts are on
/// several ranks it depends on the token's choice, and the figures are as if all that it chose were elsewhere.
struct node {
    op what = op::embed;
    int stage = 0, kind = 0, layers = 1;
    int tensor = -1;  ///< the weights, or -1
    join_kind join = join_kind::gather;
    int messages = 0;           ///< reads of one rank's memory by another
    std::int64_t elements = 0;  ///< float32 values that those messages carry
};

/// Data flows from one node to the next; `width` elements a token.
struct edge {
    int from = 0, to = 0, width = 0;
};

/// A lowered graph that lives elsewhere.
struct ir_view {
    std::span<node const> nodes{};
    std::span<tensor const> tensors{};
    std::span<edge const> edges{};
};

namespace detail {
/// A sink that only counts, so that the real one has the exact size.
struct ir_size {
    int nodes = 0, tensors = 0, edges = 0;
    constexpr int add(tensor const&) { return tensors++; }
    constexpr int add(node const&) { return nodes++; }
    constexpr void add(edge const&) { ++edges; }
};

template <int Nodes, int Tensors, int Edges>
struct ir {
    std::array<node, static_cast<std::size_t>(Nodes)> nodes{};
    std::array<tensor, static_cast<std::size_t>(Tensors)> tensors{};
    std::array<edge, static_cast<std::size_t>(Edges)> edges{};
    ir_size used{};
    constexpr int add(tensor const& x) {
        tensors[static_cast<std::size_t>(used.tensors)] = x;
        return used.tensors++;
    }
    constexpr int add(node const& x) {
        nodes[static_cast<std::size_t>(used.nodes)] = x;
        return used.nodes++;
    }
    constexpr void add(edge const& x) { edges[static_cast<std::size_t>(used.edges++)] = x; }
    constexpr operator ir_view() const { return {nodes, tensors, edges}; }
};

/// Lowers one stage at a time into a sink.
template <class Sink>
class lowering {
public:
    constexpr lowering(model_config const& config, Sink& out) : config_(config), out_(out) {}

    constexpr void stage(stage_traits const& s, int position) {
        position_ = position;
        ranks_ = s.ranks();
        cuts_ = effective(config_, s, ranks_);
        cut_ = cuts_.tensor && ranks_ > 1;
        whole_ = cut_ || ranks_ == 1 ? cut::whole : cut::root;
        bool const head = s.first_layer == 0, tail = s.last_layer + 1 == config_.layers;
        int const H = config_.hidden;
        kind_ = 0;
        layers_ = 1;
        if (head) {
            then(op::embed, weigh(role::embed, config_.vocab, H, 1, over_ranks(cut::rows)), H);
            if (cut_) exchange(ranks_ - 1, std::int64_t{ranks_ - 1} * H, H, join_kind::gather);
        }
        for (int kind = 0; kind < config_.kind_count; ++kind) {
            layers_ = 0;
            for (int l = s.first_layer; l <= s.last_layer; ++l) layers_ += config_.kind_of[static_cast<std::size_t>(l)] == kind;
            kind_ = kind;
            if (layers_ > 0) block(config_.kinds[static_cast<std::size_t>(kind)]);
        }
        kind_ = 0;
        layers_ = 1;
        if (!tail) {
            then(op::hand_over, -1, H);
            return;
        }
        then(op::norm, weigh(role::final_norm, H, 1, 1, whole_), H);
        then(op::head, weigh(role::head, config_.vocab, H, granule_of(H), over_ranks(cut::rows)), H);
        if (cut_) exchange(ranks_ - 1, config_.vocab - share_of(config_.vocab, 0, ranks_).size(), config_.vocab, join_kind::gather);
        then(op::sample, -1, config_.vocab);
    }

private:
    constexpr cut over_ranks(cut c) const { return cut_ ? c : whole_; }

    constexpr void block(block_kind const& b) {
        grouped_attention const& a = b.attention;
        int const H = config_.hidden, D = a.head_dim, Q = a.heads * D, K = a.kv_heads * D;
        cut const by_heads = over_ranks(cut::rows), by_kv = over_ranks(cut::kv_rows);
        then(op::norm, weigh(role::input_norm, H, 1, 1, whole_), H);
        project(role::q, role::q_bias, a.qkv_bias, Q, H, granule_of(H), by_heads, D);
        project(role::k, role::k_bias, a.qkv_bias, K, H, granule_of(H), by_kv, D);
        project(role::v, role::v_bias, a.qkv_bias, K, H, granule_of(H), by_kv, D);
        if (a.qk_norm) {
            then(op::norm, weigh(role::q_norm, D, 1, 1, whole_), Q);
            then(op::norm, weigh(role::k_norm, D, 1, 1, whole_), K);
        }
        then(op::attend, -1, Q + 2 * K);
        project_back(role::o, role::o_bias, a.output_bias, Q, D, D);
        then(op::add, -1, H);
        then(op::norm, weigh(role::post_norm, H, 1, 1, whole_), H);
        if (b.experts)
            routed(b.experts);
        else
            gated(role::gate, role::gate_bias, b.ffn.bias, b.ffn.width);
        then(op::add, -1, H);
    }

    /// A gated FFN whole or cut by `tensor`; its roles are `gate` and the two after it.
    constexpr void gated(role gate, role gate_bias, bool biased, int width) {
        auto const next = [](role r, int by) { return static_cast<role>(static_cast<int>(r) + by); };
        int const H = config_.hidden;
        project(gate, gate_bias, biased, width, H, granule_of(H), over_ranks(cut::rows), 1);
        project(next(gate, 1), next(gate_bias, 1), biased, width, H, granule_of(H), over_ranks(cut::rows), 1);
        then(op::gate, -1, 2 * width);
        project_back(next(gate, 2), next(gate_bias, 2), biased, width, granule_of(width), 1);
    }

    /// Router, experts, the combination of what they give, and the shared expert.
    constexpr void routed(routed_experts const& e) {
        int const H = config_.hidden, R = ranks_, J = e.width, k = e.chosen;
        then(op::route, weigh(role::router, e.count, H, granule_of(H), whole_), H);
        if (e.correction) weigh(role::correction, e.count, 1, 1, whole_);
        bool const widths = cuts_.expert_width && R > 1, owners = cuts_.expert && R > 1, reduces = cuts_.width_join == join_kind::reduce;
        cut const inner = widths ? cut::rows : owners ? cut::owned : R == 1 ? cut::whole : cut::root;
        if (R > 1 && !cut_ && (widths || owners)) {  // the root hands rows out
            int const most = widths || k > R - 1 ? R - 1 : k;
            exchange(most, std::int64_t{most} * H, H, join_kind::gather);
        }
        int const gate = weigh(role::expert_gate, J, H, granule_of(H), inner, 1, e.count);
        weigh(role::expert_up, J, H, granule_of(H), inner, 1, e.count);
        weigh(role::expert_down, H, J, granule_of(J), widths && reduces ? cut::columns : inner, 1, e.count);
        then(op::experts, gate, H);
        std::int64_t const slots = k;
        if (widths && !reduces) {
            exchange(R * (R - 1), slots * (R - 1) * J, J, join_kind::gather);
            if (!cut_) exchange(R - 1, slots * (H - share_of(H, 0, R).size()), H, join_kind::gather);
        } else if (widths) {
            exchange(cut_ ? R * (R - 1) : R - 1, slots * (R - 1) * H, H, join_kind::reduce);
        } else if (cut_) {
            // Every rank but the owner takes its columns: at most all but the narrowest rank's, or what the root with all experts leaves.
            int const own = owners ? H / R : share_of(H, 0, R).size();
            exchange(k * (R - 1), slots * (H - own), H, join_kind::gather);
        } else if (owners) {
            exchange(k, slots * H, H, join_kind::gather);
        }
        then(op::combine, -1, H);
        if (e.shared_width > 0)
            gated(role::shared_gate, role::none, false, e.shared_width);
        else if (cut_)
            exchange(R * (R - 1), std::int64_t{R - 1} * H, H, join_kind::gather);
    }

    constexpr void project(role what, role bias, bool biased, int rows, int columns, int granule, cut split, int unit) {
        then(op::project, weigh(what, rows, columns, granule, split, unit), columns);
        if (biased) out_.add(tensor{bias, position_, kind_, layers_, rows, 1, 1, split, unit, ranks_});
    }

    /// A product over a cut axis, back to the width of the residual: the place of the stage's join.
    constexpr void project_back(role what, role bias, bool biased, int width, int granule, int unit) {
        int const H = config_.hidden, R = ranks_;
        if (!cut_) {
            project(what, bias, biased, H, width, granule, whole_, 1);
        } else if (cuts_.tensor_join == join_kind::gather) {
            exchange(R * (R - 1), std::int64_t{R - 1} * width, width, join_kind::gather);
            project(what, bias, biased, H, width, granule, cut::rows, 1);
            exchange(R * (R - 1), std::int64_t{R - 1} * H, H, join_kind::gather);
        } else {
            then(op::project, weigh(what, H, width, granule, cut::columns, unit), width);
            if (biased) out_.add(tensor{bias, position_, kind_, layers_, H, 1, 1, cut::rows, 1, R});
            exchange(2 * R * (R - 1), std::int64_t{2} * (R - 1) * H, H, join_kind::reduce);
        }
    }

    constexpr int weigh(role what, int rows, int columns, int granule, cut split, int unit = 1, int experts = 1) {
        return out_.add(tensor{what, position_, kind_, layers_, rows, columns, granule, split, unit, ranks_, experts});
    }
    constexpr void exchange(int messages, std::int64_t elements, int width, join_kind join) {
        put({op::join, position_, kind_, layers_, -1, join, messages, elements}, width);
    }
    constexpr void then(op what, int tensor, int width) {
        bool const crosses = what == op::hand_over;
        put({what, position_, kind_, layers_, tensor, join_kind::gather, crosses ? 1 : 0, crosses ? width : 0}, width);
    }
    constexpr void put(node const& n, int width) {
        int const id = out_.add(n);
        if (last_ >= 0) out_.add(edge{last_, id, width});
        last_ = id;
    }

    model_config const& config_;
    Sink& out_;
    int position_ = 0, ranks_ = 1, kind_ = 0, layers_ = 1, last_ = -1;
    rules cuts_{};
    bool cut_ = false;        ///< by `tensor`
    cut whole_ = cut::whole;  ///< what no rule cuts: on every rank under `tensor`, else on the root
};
}  // namespace detail

/// Lowers lawful stages into a sink with `add(tensor)`, `add(node)` and `add(edge)`; the first two return their index.
template <class Sink>
constexpr void lower(model_config const& config, std::span<stage_traits const> stages, Sink& out) {
    detail::lowering<Sink> l(config, out);
    int position = 0;
    for (stage_traits const& s : stages) l.stage(s, position++);
}

/// What a reader of a graph needs: values only, whoever made them.
struct graph_view {
    model_config const* config = nullptr;
    std::span<stage_traits const> stages{};
    ir_view ir{};
};

}  // namespace tenon::inline v0
