// A graph for people and for other programs: a table, JSON, a picture. Reads the lowered graph and its costs, decides
// nothing, and knows neither files nor terminals.
// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <tenon/core/profile.hpp>
#include <tenon/graph/cost.hpp>
#include <tenon/graph/lower.hpp>
#include <tenon/graph/spell.hpp>

namespace tenon::inline v0 {

namespace detail {
/// Of a stage: "head" owns the embedding, "tail" the final norm and LM head, "full" both, "middle" neither.
constexpr std::string_view role_name(graph_view g, stage_traits const& s) {
    bool const head = s.first_layer == 0, tail = s.last_layer + 1 == g.config->layers;
    return head && tail ? "full" : head ? "head" : tail ? "tail" : "middle";
}

/// "project q x22": an operation, the weights that it applies where its name does not say, the layers that do it.
inline std::string operation_name(graph_view g, node const& n) {
    std::string text(name_of(n.what));
    if (n.what == op::project || n.what == op::norm) (text += ' ') += v0::name_of(g.ir.tensors[static_cast<std::size_t>(n.tensor)].what);
    return n.layers > 1 ? text + " x" + std::to_string(n.layers) : text;
}

inline std::string device_name(device_id d) { return std::string(name_of(d.kind)) + "." + std::to_string(d.index); }

inline std::string layer_range(stage_traits const& s) {
    return std::to_string(s.first_layer) + (s.last_layer == s.first_layer ? "" : "-" + std::to_string(s.last_layer));
}

/// Calls `visit` with every rule of a stage and its join, as a plan spells them: "tensor.gather"; "none" when nothing is cut.
template <class Visit>
void each_rule(graph_view g, stage_traits const& s, Visit visit) {
    rules const cuts = effective(*g.config, s, s.ranks());
    auto const joined = [](std::string_view rule, join_kind join) {
        return std::string(rule) + (join == join_kind::reduce ? ".reduce" : ".gather");
    };
    if (cuts.tensor) visit(joined("tensor", cuts.tensor_join));
    if (cuts.expert) visit(std::string(cuts.exact ? "expert.exact" : "expert"));
    if (cuts.expert_width) visit(joined("expert_width", cuts.width_join));
    if (!cuts.any()) visit(std::string("none"));
}

inline std::string rule_names(graph_view g, stage_traits const& s) {
    std::string text;
    each_rule(g, s, [&text](std::string const& rule) { text += (text.empty() ? "" : "+") + rule; });
    return text;
}

inline std::string plan_text(graph_view g) {
    struct sink {
        std::string text;
        void put(char c) { text += c; }
    } out{};
    spell_plan(g.stages, device_kind::cpu, out);
    return out.text;
}

/// Calls `visit(stage, position, device, rank)` for every rank of the graph, in order.
template <class Visit>
void each_rank(graph_view g, Visit visit) {
    int position = 0, rank = 0;
    for (stage_traits const& s : g.stages) {
        for (device_id const& d : s.devices) visit(s, position, d, rank_index{rank++});
        ++position;
    }
}

/// Calls `visit(device, rank)` for every distinct device, at the first rank that it serves.
template <class Visit>
void each_device(graph_view g, Visit visit) {
    each_rank(g, [&](stage_traits const&, int, device_id d, rank_index r) {
        bool seen = false;
        each_rank(g, [&](stage_traits const&, int, device_id other, rank_index before) {
            seen = seen || (before.value < r.value && other == d);
        });
        if (!seen) visit(d);
    });
}

inline std::string ranks_of_device(graph_view g, device_id d) {
    std::string text;
    each_rank(g, [&](stage_traits const&, int, device_id other, rank_index r) {
        if (other == d) text += (text.empty() ? "" : ",") + std::to_string(r.value);
    });
    return text;
}

/// Rows of cells, as wide as the widest: filled twice, once to measure and once to write. Words lean left, numbers right.
template <std::size_t Columns>
class table {
public:
    using row = std::array<std::string, Columns>;

    explicit table(std::array<bool, Columns> numbers) : numbers_(numbers) {}

    template <class Fill>
    std::string of(Fill fill) {
        fill([this](row const& r) {
            for (std::size_t i = 0; i < Columns; ++i)
                if (r[i].size() > width_[i]) width_[i] = r[i].size();
        });
        std::string text;
        fill([this, &text](row const& r) { write(text, r); });
        return text;
    }

private:
    void write(std::string& text, row const& r) const {
        std::string line;
        for (std::size_t i = 0; i < Columns; ++i) {
            std::string const space(width_[i] - r[i].size(), ' ');
            line += (i == 0 ? "" : "  ") + (numbers_[i] ? space + r[i] : r[i] + space);
        }
        while (!line.empty() && line.back() == ' ') line.pop_back();
        text += line + '\n';
    }

    std::array<bool, Columns> numbers_{};
    std::array<std::size_t, Columns> width_{};
};

/// A JSON string, by RFC 8259.
inline std::string quoted(std::string_view text) {
    std::string out = "\"";
    for (char const c : text) {
        unsigned const code = static_cast<unsigned char>(c);
        if (c == '"' || c == '\\')
            (out += '\\') += c;
        else if (code < 0x20)
            ((out += "\\u00") += "0123456789abcdef"[code >> 4]) += "0123456789abcdef"[code & 15];
        else
            out += c;
    }
    return out + '"';
}

/// JSON written front to back: a comma goes before every item but the first of its object or list.
class json_text {
public:
    json_text& open(char bracket) { return item(), text_ += bracket, first_ = true, *this; }
    json_text& close(char bracket) { return text_ += bracket, first_ = false, *this; }
    json_text& key(std::string_view name) { return item(), (text_ += quoted(name)) += ':', first_ = true, *this; }
    json_text& value(std::string_view s) { return item(), text_ += quoted(s), *this; }
    json_text& value(std::int64_t n) { return item(), text_ += std::to_string(n), *this; }
    std::string const& text() const { return text_; }

private:
    void item() {
        if (!first_) text_ += ',';
        first_ = false;
    }
    std::string text_;
    bool first_ = true;
};
}  // namespace detail

/// A table of ranks, then of devices, of joins and of seams. Bytes and operations are for the formats that the first lines name.
inline std::string to_text(graph_view g, cost_view const& cost, numeric_profile const& profile = numeric::canonical_1,
                           kv_format kv = kv_format::f32) {
    auto const n = [](std::int64_t value) { return std::to_string(value); };
    std::string text = "plan     " + detail::plan_text(g) + "\nweights  " + std::string(name_of(cost.format())) + ", checkpoint " +
                       std::string(name_of(cost.stored())) + "\nprofile  " + std::string(profile.name) +
                       "\nKV       " + std::string(name_of(kv)) + "\n\n";
    text += detail::table<9>({true, false, false, false, true, false, true, true, true}).of([&](auto put) {
        put({"stage", "layers", "role", "rules", "rank", "device", "weight bytes", "KV bytes/position", "flops/token"});
        detail::each_rank(g, [&](stage_traits const& s, int position, device_id d, rank_index r) {
            put({n(position), detail::layer_range(s), std::string(detail::role_name(g, s)), detail::rule_names(g, s), n(r.value),
                 detail::device_name(d), n(cost.weight_bytes(r)), n(cost.kv_bytes_per_position(r, kv)), n(cost.flops_per_token(r))});
        });
    });
    text += '\n' + detail::table<5>({false, false, true, true, true}).of([&](auto put) {
        put({"device", "ranks", "weight bytes", "KV bytes/position", "flops/token"});
        detail::each_device(g, [&](device_id d) {
            put({detail::device_name(d), detail::ranks_of_device(g, d), n(cost.weight_bytes(d)), n(cost.kv_bytes_per_position(d, kv)),
                 n(cost.flops_per_token(d))});
        });
    });
    int const stages = static_cast<int>(g.stages.size());
    text += '\n' + detail::table<4>({false, true, true, true}).of([&](auto put) {
        put({"moved", "joins", "messages/token", "bytes/token"});
        for (int s = 0; s < stages; ++s) {
            put({"inside stage " + n(s), n(cost.joins(s)), n(cost.join_messages_per_token(s)), n(cost.join_bytes_per_token(s))});
            if (s + 1 < stages)
                put({"seam " + n(s) + " to " + n(s + 1), "", n(cost.seam_messages_per_token(s)), n(cost.seam_bytes_per_token(s))});
        }
    });
    return text;
}

/// The same facts as JSON, on one line.
inline std::string to_json(graph_view g, cost_view const& cost, numeric_profile const& profile = numeric::canonical_1,
                           kv_format kv = kv_format::f32) {
    detail::json_text out;
    auto const figures = [&out, &cost, kv](auto where) {
        out.key("weight_bytes").value(cost.weight_bytes(where)).key("kv_bytes_per_position").value(cost.kv_bytes_per_position(where, kv));
        out.key("flops_per_token").value(cost.flops_per_token(where));
    };
    out.open('{')
        .key("plan")
        .value(detail::plan_text(g))
        .key("weights")
        .value(name_of(cost.format()))
        .key("stored")
        .value(name_of(cost.stored()))
        .key("profile")
        .value(profile.name)
        .key("kv")
        .value(name_of(kv));
    out.key("layers").value(g.config->layers).key("stages").open('[');
    int rank = 0;
    for (int i = 0; i < static_cast<int>(g.stages.size()); ++i) {
        stage_traits const& s = g.stages[static_cast<std::size_t>(i)];
        out.open('{').key("stage").value(i).key("first_layer").value(s.first_layer).key("last_layer").value(s.last_layer);
        out.key("role").value(detail::role_name(g, s)).key("rules").open('[');
        detail::each_rule(g, s, [&out](std::string const& rule) { out.value(rule); });
        out.close(']').key("joins").value(cost.joins(i)).key("join_messages_per_token").value(cost.join_messages_per_token(i));
        out.key("join_bytes_per_token").value(cost.join_bytes_per_token(i)).key("ranks").open('[');
        for (device_id const& d : s.devices) {
            out.open('{').key("rank").value(rank).key("device").value(detail::device_name(d));
            figures(rank_index{rank++});
            out.close('}');
        }
        out.close(']').close('}');
    }
    out.close(']').key("devices").open('[');
    detail::each_device(g, [&](device_id d) {
        out.open('{').key("device").value(detail::device_name(d)).key("ranks").open('[');
        detail::each_rank(g, [&](stage_traits const&, int, device_id other, rank_index r) {
            if (other == d) out.value(r.value);
        });
        out.close(']');
        figures(d);
        out.close('}');
    });
    out.close(']').key("seams").open('[');
    for (int i = 0; i + 1 < static_cast<int>(g.stages.size()); ++i) {
        out.open('{').key("after_stage").value(i).key("next_layer").value(g.stages[static_cast<std::size_t>(i) + 1].first_layer);
        out.key("messages_per_token")
            .value(cost.seam_messages_per_token(i))
            .key("bytes_per_token")
            .value(cost.seam_bytes_per_token(i))
            .close('}');
    }
    out.close(']').close('}');
    return out.text();
}

/// A picture in Graphviz's language: a cluster a stage, a box an operation with the number of layers that do it. An edge
/// between boxes carries its width; where ranks exchange values on the way, the joins; between stages, the seam.
inline std::string to_dot(graph_view g, cost_view const& cost) {
    auto const n = [](std::int64_t value) { return std::to_string(value); };
    std::span<node const> const nodes = g.ir.nodes;
    std::string text = "digraph tenon {\n  rankdir=TB;\n  node [shape=box];\n  label=" + detail::quoted(detail::plan_text(g)) + ";\n";
    std::size_t i = 0;
    for (int position = 0; position < static_cast<int>(g.stages.size()); ++position) {
        stage_traits const& s = g.stages[static_cast<std::size_t>(position)];
        std::string devices;
        for (device_id const& d : s.devices) devices += (devices.empty() ? "" : " ") + detail::device_name(d);
        text += "  subgraph cluster_" + n(position) + " {\n    label=" +
                detail::quoted("stage " + n(position) + ", layers " + detail::layer_range(s) + ", " + detail::rule_names(g, s) + " on " +
                               devices) +
                ";\n";
        for (; i < nodes.size() && nodes[i].stage == position; ++i)
            if (nodes[i].what != op::join)
                text +=
                    "    n" + n(static_cast<std::int64_t>(i)) + " [label=" + detail::quoted(detail::operation_name(g, nodes[i])) + "];\n";
        text += "  }\n";
    }
    // A join is drawn as the label of the edge that it stands on. The lowered graph is in order, so one pass carries it along.
    std::string joins;
    int source = -1;
    for (edge const& e : g.ir.edges) {
        node const& from = nodes[static_cast<std::size_t>(e.from)];
        node const& to = nodes[static_cast<std::size_t>(e.to)];
        if (from.what != op::join) source = e.from, joins.clear();
        if (to.what == op::join) {
            joins +=
                (joins.empty() ? "" : ", ") + std::string(to.join == join_kind::reduce ? "reduce " : "gather ") + n(4 * to.elements) + " B";
            continue;
        }
        std::string label = joins.empty() ? n(e.width) : joins;
        if (from.what == op::hand_over)
            label = "seam, " + n(cost.seam_messages_per_token(from.stage)) + " x " + n(4 * std::int64_t{e.width}) +
                    " B = " + n(cost.seam_bytes_per_token(from.stage)) + " B";
        text += "  n" + n(source) + " -> n" + n(e.to) + " [label=" + detail::quoted(label) + "];\n";
    }
    return text + "}\n";
}

}  // namespace tenon::inline v0
