// What happens to a graph and a checkpoint before a rank runs: formats are agreed on, bytes are counted; and the way back, every tensor
// whole again from the ranks that hold it. Reads no weights itself: ranks do.
// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <tenon/checkpoint/inventory.hpp>
#include <tenon/checkpoint/tensor_source.hpp>
#include <tenon/core/error.hpp>
#include <tenon/core/explain.hpp>
#include <tenon/detail/deferred.hpp>
#include <tenon/detail/sort.hpp>
#include <tenon/device/backend.hpp>
#include <tenon/graph/cost.hpp>
#include <tenon/graph/lower.hpp>
#include <tenon/graph/weight_format.hpp>
#include <tenon/runtime/options.hpp>
#include <tenon/runtime/rank_weights.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

namespace tenon::inline v0::detail {

/// Bytes that a rank will hold of a tensor, over all layers and experts of its stage: the file's element type decides, tensor by tensor.
template <class = void>
std::int64_t bytes_to_hold(graph_view graph, tensor const& t, int member, checkpoint::tensor_source const& source, weights format) {
    std::int64_t sum = 0;
    each_held(t, graph.stages[static_cast<std::size_t>(t.stage)], *graph.config, member, [&](int layer, int expert) {
        sum += bytes_of(held_format(t, format, source.type_of(t, layer, expert), graph.config->tied),
                        std::int64_t{t.rows_of(member).size()} * t.columns_of(member).size());
    });
    return sum;
}

/// Bytes that all ranks will hold, or those of stage `only`. A tied table that serves look-up and head of one stage is held once.
template <class = void>
std::int64_t bytes_to_load(graph_view graph, checkpoint::tensor_source const& source, weights format, int only = -1) {
    std::int64_t sum = 0;
    for (tensor const& t : graph.ir.tensors)
        for (int m = only < 0 || t.stage == only ? 0 : t.ranks; m < t.ranks; ++m)
            if (!is_its_stages_table(t.what, format, graph.config->tied, t.stage == 0)) sum += bytes_to_hold(graph, t, m, source, format);
    return sum;
}

/// Refuses, before a weight is read, a format that the graph cannot be held in, and a matrix in one that the backend of its stage cannot
/// hold. A table is looked up, not multiplied; a tied one is the head's too. With `only`, of that stage.
template <class BackendOf>
void require_formats(graph_view graph, checkpoint::tensor_source const& source, weights format, BackendOf backend_of, int only = -1) {
    if (format_violation const v = validate_format(graph, format))
        for (tensor const& t : graph.ir.tensors)
            if (t.what == v.what && t.stage == v.broken.stage && t.columns == v.inputs)
                each_layer_of(t, graph.stages[static_cast<std::size_t>(t.stage)], *graph.config, [&](int layer) {
                    require(v.broken, "tensor " + source.name_of(t, layer) + " of " + std::to_string(t.columns) + " inputs, in blocks of " +
                                          std::to_string(kernel::q8_block));
                });
    for (tensor const& t : graph.ir.tensors) {
        if (!t.is_matrix() || t.what == role::embed || (only >= 0 && t.stage != only)) continue;
        device::backend const& on = backend_of(t.stage);
        each_layer_of(t, graph.stages[static_cast<std::size_t>(t.stage)], *graph.config, [&](int layer) {
            for (int e = 0; e < t.experts; ++e) {
                held_as const as = held_format(t, format, source.type_of(t, layer, e), graph.config->tied);
                if (on.holds(panel_format_of(as))) continue;
                refuse("device_holds_format", std::string(on.name()) + " does not hold " + source.name_of(t, layer, e) + " in " +
                                                  std::string(name_of(as)) + "; " +
                                                  (takes_weight_format(t.what, graph.config->tied) ? "weights::" : "a checkpoint in ") +
                                                  (as == held_as::f32 ? "bf16 would do" : "f32 would do"));
            }
        });
    }
}

/// Refuses numbers of threads that mean nothing, and several for a backend that would not use them. With `only`, of that stage.
template <class BackendOf>
void require_threads(graph_view graph, int threads, BackendOf backend_of, int only = -1) {
    constexpr int most = 1024;
    if (threads < 1 || threads > most)
        refuse("threads_are_available", std::to_string(threads) + " threads; 1 to " + std::to_string(most) + " would do");
    for (int s = 0; threads > 1 && s < static_cast<int>(graph.stages.size()); ++s)
        if (device::backend const& on = backend_of(s); (only < 0 || s == only) && !on.has_threads())
            refuse("device_has_threads", std::string(on.name()) + " works with one thread; " + std::to_string(threads) +
                                             " are asked for; 1, or device::cpu, would do");
}

/// Refuses a format of keys and values that a stage's backend does not read. With `only`, of that stage.
template <class BackendOf>
void require_kv_format(graph_view graph, kv_format format, BackendOf backend_of, int only = -1) {
    for (int s = 0; s < static_cast<int>(graph.stages.size()); ++s)
        if (device::backend const& on = backend_of(s); (only < 0 || s == only) && !on.reads(format))
            refuse("device_reads_kv_format",
                   std::string(on.name()) + " does not read keys and values in " + std::string(name_of(format)) + "; f32 would do");
}

/// One slice that a rank holds, row-major in the elements or blocks that it is held in; codes of fixed15 as the floats that they stand for.
struct held_piece {
    role what = role::none;
    int layer = 0, expert = 0;
    share rows{}, columns{};
    held_as format = held_as::f32;
    std::span<std::byte const> data{};
};

/// Told of every slice that ranks hold, one by one; the bytes are gone after the call.
struct piece_visitor {
    virtual void piece(held_piece const& p) = 0;

protected:
    ~piece_visitor() = default;
};

/// Tells of everything that a rank holds. `room` is reused.
template <class Rank>
void visit_pieces(Rank const& rank, piece_visitor& visitor, std::vector<std::byte>& room) {
    for (held_tensor const& h : rank.weights().held()) {
        held_as const given_as = h.format == held_as::fixed15 ? held_as::f32 : h.format;
        auto const stride = static_cast<std::ptrdiff_t>(bytes_of(given_as, h.columns.size()));
        room.resize(static_cast<std::size_t>(stride * h.rows.size()));
        if (h.matrix.data != nullptr)
            rank.ops().unpack(room.data(), stride, h.matrix, 0, h.matrix.rows);
        else
            std::memcpy(room.data(), h.vector, room.size());
        visitor.piece({h.of->what, h.layer, h.expert, h.rows, h.columns, given_as, room});
    }
}

template <class = void>
class basic_parameter_gatherer;
using parameter_gatherer = basic_parameter_gatherer<>;  // lazy: instantiated by who uses it

/// Every tensor of a model under its checkpoint name, put together from slices that come in any order.
template <class Lazy>
class basic_parameter_gatherer final : public piece_visitor {
public:
    basic_parameter_gatherer(model_config const& config, checkpoint::expert_layout layout) {
        for (checkpoint::wanted_tensor const& w : checkpoint::inventory_of(config, layout)) {
            for (checkpoint::tensor_part const& part : w.parts)
                places_.push_back({std::tuple(w.layer, part.what, part.expert), all_.size(), part.first_row});
            all_.push_back({w.name, dtype::f32, w.shape, {}, held_as::f32});
        }
        tenon::v0::detail::sort(places_, [](place const& a, place const& b) { return a.key < b.key; });
    }

    void piece(held_piece const& p) override {
        std::tuple const key(p.layer, p.what, p.expert);
        auto const at = std::lower_bound(places_.begin(), places_.end(), key, [](place const& a, auto const& k) { return a.key < k; });
        if (at == places_.end() || at->key != key) return;  // a tied head away from the table is the table's
        parameter& whole = all_[at->tensor];
        std::int64_t elements = 1;
        for (std::int64_t const extent : whole.shape) elements *= extent;
        std::int64_t const row = bytes_of(p.format, whole.shape.size() > 1 ? whole.shape.back() : 1);
        whole.format = p.format;
        whole.type = p.format == held_as::f32 ? dtype::f32 : p.format == held_as::bf16 ? dtype::bf16 : dtype::u8;
        whole.data.resize(static_cast<std::size_t>(bytes_of(p.format, elements)));
        auto const bytes = static_cast<std::size_t>(bytes_of(p.format, p.columns.size()));
        for (std::int64_t r = 0; r < p.rows.size(); ++r)
            std::memcpy(whole.data.data() + (at->first_row + p.rows.begin + r) * row + bytes_of(p.format, p.columns.begin),
                        p.data.data() + static_cast<std::size_t>(r) * bytes, bytes);
    }

    std::vector<parameter> take() { return std::move(all_); }

private:
    struct place {
        std::tuple<int, role, int> key;  ///< layer, role, expert
        std::size_t tensor = 0;
        std::int64_t first_row = 0;
    };
    deferred<Lazy, std::vector<place>> places_;
    deferred<Lazy, std::vector<parameter>> all_;
};

}  // namespace tenon::inline v0::detail
