// What happens to a graph and a checkpoint before a rank runs: formats are agreed on, bytes are counted; and the way back, every tensor
// whole again from the ranks that hold it. Reads no weights itself: ranks do.
// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <tenon/checkpoint/inventory.hpp>
#include <tenon/checkpoint/tensor_source.hpp>
#include <tenon/core/error.hpp>
#include <tenon/detail/deferred.hpp>
#include <tenon/device/backend.hpp>
#include <tenon/graph/cost.hpp>
#include <tenon/graph/lower.hpp>
#include <tenon/runtime/options.hpp>
#include <tenon/runtime/rank_weights.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <tuple>
#include <vector>

namespace tenon::inline v0::detail {

/// Bytes that a rank will hold of a tensor, over all layers and experts of its stage: the file's element type decides, tensor by tensor.
template <class = void>
std::int64_t bytes_to_hold(graph_view graph, tensor const& t, int member, checkpoint::tensor_source const& source, weights format) {
    std::int64_t sum = 0;
    each_held(t, graph.stages[static_cast<std::size_t>(t.stage)], *graph.config, member, [&](int layer, int expert) {
        sum += std::int64_t{t.rows_of(member).size()} * t.columns_of(member).size() *
               held_bytes(t, format, source.type_of(t, layer, expert), graph.config->tied);
    });
    return sum;
}

/// Bytes that all ranks will hold. A tied table that serves look-up and head of one stage is held once.
template <class = void>
std::int64_t bytes_to_load(graph_view graph, checkpoint::tensor_source const& source, weights format) {
    std::int64_t sum = 0;
    for (tensor const& t : graph.ir.tensors)
        for (int m = 0; m < t.ranks; ++m)
            if (!(t.what == role::head && graph.config->tied && t.stage == 0)) sum += bytes_to_hold(graph, t, m, source, format);
    return sum;
}

/// Refuses, before a weight is read, a matrix in a format that the backend of its stage cannot hold. A table is looked up, not multiplied;
/// a tied one is the head's too.
template <class BackendOf>
void require_formats(graph_view graph, checkpoint::tensor_source const& source, weights format, BackendOf backend_of) {
    for (tensor const& t : graph.ir.tensors) {
        if (!t.is_matrix() || t.what == role::embed) continue;
        device::backend const& on = backend_of(t.stage);
        each_layer_of(t, graph.stages[static_cast<std::size_t>(t.stage)], *graph.config, [&](int layer) {
            for (int e = 0; e < t.experts; ++e) {
                bool const narrow = held_bytes(t, format, source.type_of(t, layer, e), graph.config->tied) == 2;
                if (on.holds(narrow ? kernel::panel_format::bf16 : kernel::panel_format::f32)) continue;
                refuse("device_holds_format", std::string(on.name()) + " does not hold " + source.name_of(t, layer, e) + " in " +
                                                  (narrow ? "bf16; " : "f32; ") +
                                                  (takes_weight_format(t.what, graph.config->tied) ? "weights::" : "a checkpoint in ") +
                                                  (narrow ? "f32 would do" : "bf16 would do"));
            }
        });
    }
}

/// Writes a slice into its tensor; `first_row` is where its role begins there.
inline void put_back(parameter& p, held_tensor const& h, std::int64_t first_row, device::backend const& ops) {
    std::int64_t elements = 1;
    for (std::int64_t const extent : p.shape) elements *= extent;
    int const size = bytes_of(h.type);
    p.type = h.type;
    p.data.resize(static_cast<std::size_t>(elements * size));
    std::int64_t const columns = h.matrix.data != nullptr ? p.shape.back() : 1;
    std::byte* const to = p.data.data() + ((first_row + h.rows.begin) * columns + h.columns.begin) * size;
    if (h.matrix.data != nullptr)
        ops.unpack(to, static_cast<std::ptrdiff_t>(columns * size), h.matrix, 0, h.matrix.rows);
    else
        std::memcpy(to, h.vector, static_cast<std::size_t>(h.rows.size()) * sizeof(float));
}

/// Every tensor of a model under its checkpoint name, gathered from the ranks.
template <class Ranks>
std::vector<parameter> gather_parameters(model_config const& config, checkpoint::expert_layout layout, Ranks const& ranks) {
    struct piece {
        held_tensor const* slice = nullptr;
        device::backend const* on = nullptr;
        auto key() const { return std::tuple(slice->layer, slice->of->what, slice->expert); }
    };
    deferred<Ranks, std::vector<piece>> pieces;
    for (auto const& r : ranks)
        for (held_tensor const& h : r->weights().held()) pieces.push_back({&h, &r->ops()});
    std::sort(pieces.begin(), pieces.end(), [](piece const& a, piece const& b) { return a.key() < b.key(); });
    deferred<Ranks, std::vector<parameter>> all;
    for (checkpoint::wanted_tensor const& w : checkpoint::inventory_of(config, layout)) {
        deferred<Ranks, parameter> p{w.name, dtype::f32, w.shape, {}};
        for (checkpoint::tensor_part const& part : w.parts) {
            std::tuple const key(w.layer, part.what, part.expert);
            auto at = std::lower_bound(pieces.begin(), pieces.end(), key, [](piece const& a, auto const& k) { return a.key() < k; });
            for (; at != pieces.end() && at->key() == key; ++at) put_back(p, *at->slice, part.first_row, *at->on);
        }
        all.push_back(std::move(p));
    }
    return all;
}

}  // namespace tenon::inline v0::detail
