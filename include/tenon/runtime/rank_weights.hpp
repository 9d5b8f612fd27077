// The weights of one rank: it reads the rows and columns that it owns, straight from the mapped file, into packed panels.
// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <tenon/checkpoint/tensor_source.hpp>
#include <tenon/core/convert.hpp>
#include <tenon/core/dtype.hpp>
#include <tenon/detail/deferred.hpp>
#include <tenon/device/backend.hpp>
#include <tenon/graph/cost.hpp>
#include <tenon/graph/lower.hpp>
#include <tenon/runtime/buffer.hpp>
#include <tenon/runtime/fault.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace tenon::inline v0 {

/// Told of every tensor slice that a rank has loaded; may be called by several workers, one at a time.
struct load_observer {
    virtual void loaded(std::string_view tensor, std::int64_t bytes_done, std::int64_t bytes_total) = 0;

protected:
    ~load_observer() = default;
};

namespace detail {

inline constexpr std::size_t role_count = static_cast<std::size_t>(role::head) + 1;

/// One tensor slice as a rank holds it.
struct held_tensor {
    tensor const* of = nullptr;  ///< what it is a slice of
    int layer = 0;
    share rows{}, columns{};
    dtype type = dtype::f32;         ///< of the elements held
    kernel::packed_matrix matrix{};  ///< when it is one; else
    float const* vector = nullptr;
};

/// Where a layer's slices are, by role.
struct layer_weights {
    std::array<kernel::packed_matrix, role_count> matrices{};
    std::array<float const*, role_count> vectors{};
    kernel::packed_matrix const& matrix(role r) const { return matrices[static_cast<std::size_t>(r)]; }
    float const* vector(role r) const { return vectors[static_cast<std::size_t>(r)]; }
};

// A template with nothing to choose: a program that includes this without loading a model does not pay for instantiating it.
template <class = void>
class basic_rank_weights;
using rank_weights = basic_rank_weights<>;

template <class Lazy>
class basic_rank_weights {
public:
    /// Slices of stage `stage` for its member `member`. `format` is what projections and an untied head are converted to.
    void load(graph_view graph, int stage, int member, checkpoint::tensor_source const& source, device::backend const& backend,
              weights format, load_observer* observer, testing::fault fault) {
        stage_traits const& s = graph.stages[static_cast<std::size_t>(stage)];
        config_ = graph.config;
        first_layer_ = s.first_layer;
        read_from_ = fault == testing::fault::swapped_ranges ? neighbours_layers(graph, stage) - s.first_layer : 0;
        layers_.resize(static_cast<std::size_t>(s.layer_count()));
        for (tensor const& t : graph.ir.tensors) {
            if (t.stage != stage) continue;
            bool const of_layers = t.what != role::embed && t.what != role::final_norm && t.what != role::head;
            if (t.what == role::head && config_->tied && s.first_layer == 0) {  // the table is here already
                ends_.matrices[static_cast<std::size_t>(role::head)] = ends_.matrix(role::embed);
                ends_.matrices[static_cast<std::size_t>(role::head)].segments = segments_of(t.columns, t.granule);
                continue;
            }
            for (int l = of_layers ? s.first_layer : 0; l <= (of_layers ? s.last_layer : 0); ++l)
                if (!of_layers || config_->kind_of[static_cast<std::size_t>(l)] == t.kind)
                    take(t, l, of_layers ? layers_[static_cast<std::size_t>(l - s.first_layer)] : ends_, member, source, backend, format,
                         observer, fault);
        }
    }

    layer_weights const& layer(int index) const { return layers_[static_cast<std::size_t>(index - first_layer_)]; }
    layer_weights const& ends() const { return ends_; }  ///< embedding, final norm, head
    std::span<held_tensor const> held() const { return held_; }

    /// Bytes of the elements held, without padding.
    std::int64_t bytes() const {
        std::int64_t sum = 0;
        for (held_tensor const& h : held_) sum += std::int64_t{h.rows.size()} * h.columns.size() * bytes_of(h.type);
        return sum;
    }

private:
    /// The first layer of the stage that `stage` changes places with: its own where there is none of as many layers.
    static int neighbours_layers(graph_view graph, int stage) {
        auto const at = static_cast<std::size_t>(stage), other = at ^ 1U;
        bool const alike = other < graph.stages.size() && graph.stages[other].layer_count() == graph.stages[at].layer_count();
        return graph.stages[alike ? other : at].first_layer;
    }
    void take(tensor const& t, int layer, layer_weights& into, int member, checkpoint::tensor_source const& source,
              device::backend const& backend, weights format, load_observer* observer, testing::fault fault) {
        share rows = t.rows_of(member);
        share const columns = t.columns_of(member);
        if (fault == testing::fault::shifted_kv_heads && t.split == cut::kv_rows) {
            int const shifted = (rows.begin + t.unit) % t.rows;
            rows = shifted + rows.size() <= t.rows ? share{shifted, shifted + rows.size()} : share{0, rows.size()};
        }
        held_tensor h{&t, layer, rows, columns, dtype::f32, {}, nullptr};
        auto const slot = static_cast<std::size_t>(t.what);
        if (t.is_matrix()) {
            bool const narrow = held_bytes(t, format, source.type_of(t, layer), config_->tied) == 2;
            h.type = narrow ? dtype::bf16 : dtype::f32;
            kernel::packed_matrix m{.rows = rows.size(),
                                    .columns = columns.size(),
                                    .segments = segments_of(t.columns, t.granule) / (t.split == cut::columns ? t.ranks : 1),
                                    .format = narrow ? kernel::panel_format::bf16 : kernel::panel_format::f32,
                                    .first_row = rows.begin};
            memory_.emplace_back(backend.packed_bytes(m));
            void* const to = memory_.back().data();
            source.read(t, layer + read_from_, rows, columns,
                        [&](int first, int count, std::byte const* from, std::ptrdiff_t stride, dtype type) {
                            if (&into == &ends_)
                                for (int r = 0; r < count; ++r)
                                    require_finite(source, t, rows.begin + first + r, from + r * stride, columns.size(), type);
                            backend.pack(to, m, first, count, from, stride, type);
                        });
            m.data = to;
            into.matrices[slot] = h.matrix = m;
        } else {
            memory_.emplace_back(static_cast<std::size_t>(rows.size()) * sizeof(float));
            float* const to = memory_.back().floats();
            source.read(t, layer, rows, columns, [&](int first, int count, std::byte const* from, std::ptrdiff_t, dtype type) {
                if (&into == &ends_) require_finite(source, t, rows.begin + first, from, count, type);
                widen(to + first, from, count, type);
            });
            into.vectors[slot] = h.vector = to;
        }
        held_.push_back(h);
        if (observer != nullptr)
            observer->loaded(source.name_of(t, layer), std::int64_t{h.rows.size()} * h.columns.size() * bytes_of(h.type), 0);
    }

    /// What every token passes through, embedding, final norm and head, holds numbers alone.
    static void require_finite(checkpoint::tensor_source const& source, tensor const& t, int row, std::byte const* from, int count,
                               dtype type) {
        unsigned const exponent = type == dtype::f16 ? 0x7C00U : 0x7F80U;
        std::ptrdiff_t const size = bytes_of(type), upper = size - 2;  // a float32's upper half has its exponent
        bool finite = true;
        for (std::ptrdiff_t i = 0; i < count; ++i) finite &= (load_16(from + i * size + upper) & exponent) != exponent;
        if (!finite)
            refuse("weights_are_finite", "tensor " + source.name_of(t, 0) + " has an infinity or a NaN in row " + std::to_string(row));
    }

    static void widen(float* to, std::byte const* from, int count, dtype type) {
        auto const n = static_cast<std::size_t>(count);
        if (type == dtype::f32)
            copy_f32(to, from, n);
        else if (type == dtype::bf16)
            widen_bf16(to, from, n);
        else
            widen_f16(to, from, n);
    }

    model_config const* config_ = nullptr;
    int first_layer_ = 0, read_from_ = 0;
    deferred<Lazy, std::vector<layer_weights>> layers_;
    layer_weights ends_;
    deferred<Lazy, std::vector<held_tensor>> held_;
    deferred<Lazy, std::vector<buffer>> memory_;
};

}  // namespace detail
}  // namespace tenon::inline v0
