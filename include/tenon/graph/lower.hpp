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

enum class op : std::uint8_t { embed, norm, project, attend, gate, join, add, hand_over, head, sample };
inline constexpr std::array<std::string_view, 10> op_names{"embed", "norm", "project",   "attend", "gate",
                                                           "join",  "add",  "hand_over", "head",   "sample"};
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
    final_norm,
    head
};

/// How a tensor lies over the ranks of its stage.
enum class cut : std::uint8_t {
    whole,    ///< every rank has all of it
    rows,     ///< by share_of(rows / unit)
    kv_rows,  ///< by kv_share_of(rows / unit): repeated where there are fewer KV heads than ranks
    columns,  ///< by share_of(columns / unit)
};
inline constexpr std::array<std::string_view, 4> cut_names{"whole", "rows", "kv_rows", "columns"};
constexpr std::string_view name_of(cut c) { return cut_names[static_cast<std::size_t>(c)]; }

/// A tensor of a stage: `layers` of them, alike. A vector has one column.
struct tensor {
    role what = role::none;
    int stage = 0, kind = 0, layers = 1;
    int rows = 0, columns = 1;
    int granule = 1;  ///< of the product over the columns: fixes its segments
    cut split = cut::whole;
    int unit = 1;  ///< rows or columns that stay together: one head's width
    int ranks = 1;

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
            case role::head: return true;
            default: return false;
        }
    }
    constexpr share rows_of(int rank) const {
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

/// One operation of a stage, done once for each of its `layers`. What its ranks exchange is per token and per layer.
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
        rules const cuts = effective(s.cuts, ranks_);
        cut_ = cuts.tensor && ranks_ > 1;
        join_ = cuts.tensor_join;
        bool const head = s.first_layer == 0, tail = s.last_layer + 1 == config_.layers;
        int const H = config_.hidden;
        kind_ = 0;
        layers_ = 1;
        if (head) {
            then(op::embed, weigh(role::embed, config_.vocab, H, 1, cut_ ? cut::rows : cut::whole), H);
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
        then(op::norm, weigh(role::final_norm, H, 1, 1, cut::whole), H);
        then(op::head, weigh(role::head, config_.vocab, H, granule_of(H), cut_ ? cut::rows : cut::whole), H);
        if (cut_) exchange(ranks_ - 1, config_.vocab - share_of(config_.vocab, 0, ranks_).size(), config_.vocab, join_kind::gather);
        then(op::sample, -1, config_.vocab);
    }

private:
    constexpr void block(block_kind const& b) {
        grouped_attention const& a = b.attention;
        int const H = config_.hidden, D = a.head_dim, Q = a.heads * D, K = a.kv_heads * D, F = b.ffn.width;
        cut const by_heads = cut_ ? cut::rows : cut::whole, by_kv = cut_ ? cut::kv_rows : cut::whole;
        then(op::norm, weigh(role::input_norm, H, 1, 1, cut::whole), H);
        project(role::q, role::q_bias, a.qkv_bias, Q, H, granule_of(H), by_heads, D);
        project(role::k, role::k_bias, a.qkv_bias, K, H, granule_of(H), by_kv, D);
        project(role::v, role::v_bias, a.qkv_bias, K, H, granule_of(H), by_kv, D);
        if (a.qk_norm) {
            then(op::norm, weigh(role::q_norm, D, 1, 1, cut::whole), Q);
            then(op::norm, weigh(role::k_norm, D, 1, 1, cut::whole), K);
        }
        then(op::attend, -1, Q + 2 * K);
        project_back(role::o, role::o_bias, a.output_bias, Q, D, D);
        then(op::norm, weigh(role::post_norm, H, 1, 1, cut::whole), H);
        project(role::gate, role::gate_bias, b.ffn.bias, F, H, granule_of(H), by_heads, 1);
        project(role::up, role::up_bias, b.ffn.bias, F, H, granule_of(H), by_heads, 1);
        then(op::gate, -1, 2 * F);
        project_back(role::down, role::down_bias, b.ffn.bias, F, granule_of(F), 1);
    }

    constexpr void project(role what, role bias, bool biased, int rows, int columns, int granule, cut split, int unit) {
        then(op::project, weigh(what, rows, columns, granule, split, unit), columns);
        if (biased) out_.add(tensor{bias, position_, kind_, layers_, rows, 1, 1, split, unit, ranks_});
    }

    /// A product over a cut axis, back to the width of the residual: the place of the stage's join.
    constexpr void project_back(role what, role bias, bool biased, int width, int granule, int unit) {
        int const H = config_.hidden, R = ranks_;
        if (!cut_) {
            project(what, bias, biased, H, width, granule, cut::whole, 1);
        } else if (join_ == join_kind::gather) {
            exchange(R * (R - 1), std::int64_t{R - 1} * width, width, join_);
            project(what, bias, biased, H, width, granule, cut::rows, 1);
            exchange(R * (R - 1), std::int64_t{R - 1} * H, H, join_);
        } else {
            then(op::project, weigh(what, H, width, granule, cut::columns, unit), width);
            if (biased) out_.add(tensor{bias, position_, kind_, layers_, H, 1, 1, cut::rows, 1, R});
            exchange(2 * R * (R - 1), std::int64_t{2} * (R - 1) * H, H, join_);
        }
        then(op::add, -1, H);
    }

    constexpr int weigh(role what, int rows, int columns, int granule, cut split, int unit = 1) {
        return out_.add(tensor{what, position_, kind_, layers_, rows, columns, granule, split, unit, ranks_});
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
    bool cut_ = false;
    join_kind join_ = join_kind::gather;
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
