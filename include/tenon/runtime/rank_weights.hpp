// The weights of one rank: it reads the rows, columns and experts that it owns, straight from the mapped file, into its backend's layout.
// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <tenon/checkpoint/tensor_source.hpp>
#include <tenon/core/convert.hpp>
#include <tenon/core/dtype.hpp>
#include <tenon/detail/deferred.hpp>
#include <tenon/device/backend.hpp>
#include <tenon/graph/lower.hpp>
#include <tenon/graph/weight_format.hpp>
#include <tenon/runtime/buffer.hpp>
#include <tenon/runtime/fault.hpp>
#include <tenon/runtime/profile.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
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

/// What a rank loads from, and how.
struct load_context {
    checkpoint::tensor_source const& source;
    weights format = weights::stored;   ///< what projections, experts and an untied head are converted to
    load_observer* observer = nullptr;
    testing::fault fault = testing::fault::none;
    numeric_profile profile = numeric::canonical_1;  ///< by which projections, experts and the head are multiplied
};

/// One tensor slice as a rank holds it.
struct held_tensor {
    tensor const* of = nullptr;  ///< what it is a slice of
    int layer = 0, expert = 0;
    share rows{}, columns{};
    held_as format = held_as::f32;
    kernel::packed_matrix matrix{};  ///< when it is one; else
    float const* vector = nullptr;
};

constexpr kernel::panel_format panel_format_of(held_as h) {
    using enum kernel::panel_format;
    constexpr std::array<kernel::panel_format, 4> formats{f32, bf16, q8, fixed15};
    return formats[static_cast<std::size_t>(h)];
}

/// The three matrices of one expert; without data on a rank that does not hold it.
struct expert_weights {
    kernel::packed_matrix gate{}, up{}, down{};
};

/// Where a layer's slices are, by role, and its experts by their number.
struct layer_weights {
    std::array<kernel::packed_matrix, role_count> matrices{};
    std::array<float const*, role_count> vectors{};
    std::vector<expert_weights> experts{};
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
    /// Slices of stage `stage` for its member `member`; threads share the rows of a matrix.
    void load(graph_view graph, int stage, int member, device::backend const& backend, load_context const& how, device::crew& threads) {
        stage_traits const& s = graph.stages[static_cast<std::size_t>(stage)];
        config_ = graph.config;
        backend_ = &backend;
        threads_ = &threads;
        first_layer_ = s.first_layer;
        member_ = member;
        read_from_ = how.fault == testing::fault::swapped_ranges ? neighbours_layers(graph, stage) - s.first_layer : 0;
        layers_.resize(static_cast<std::size_t>(s.layer_count()));
        for (tensor const& t : graph.ir.tensors) {
            if (t.stage != stage || (t.split == cut::root && member > 0)) continue;
            if (is_its_stages_table(t.what, how.format, config_->tied, s.first_layer == 0)) {
                kernel::packed_matrix& head = ends_.matrices[static_cast<std::size_t>(role::head)] = ends_.matrix(role::embed);
                head.segments = segments_of(t.columns, t.granule);
                head.format = multiplied_as(how.profile, role::head, head.format);
                continue;
            }
            each_held(t, s, *config_, member, [&](int layer, int expert) {
                take(t, layer, expert, is_of_layer(t.what) ? layers_[static_cast<std::size_t>(layer - s.first_layer)] : ends_, how);
            });
        }
        break_experts(s, how.fault);
    }

    layer_weights const& layer(int index) const { return layers_[static_cast<std::size_t>(index - first_layer_)]; }
    layer_weights const& ends() const { return ends_; }  ///< embedding, final norm, head
    std::span<held_tensor const> held() const { return held_; }

    /// Bytes of the elements held, without padding.
    std::int64_t bytes() const {
        std::int64_t sum = 0;
        for (held_tensor const& h : held_) sum += held_bytes(h);
        return sum;
    }

private:
    static std::int64_t held_bytes(held_tensor const& h) {
        return bytes_of(h.format, std::int64_t{h.rows.size()} * h.columns.size());
    }

    /// The first layer of the stage that `stage` changes places with: its own where there is none of as many layers.
    static int neighbours_layers(graph_view graph, int stage) {
        auto const at = static_cast<std::size_t>(stage), other = at ^ 1U;
        bool const alike = other < graph.stages.size() && graph.stages[other].layer_count() == graph.stages[at].layer_count();
        return graph.stages[alike ? other : at].first_layer;
    }
    void take(tensor const& t, int layer, int expert, layer_weights& into, load_context const& how) {
        checkpoint::tensor_source const& source = how.source;
        bool const is_end = &into == &ends_;
        int const from_layer = is_end ? layer : layer + read_from_;
        share rows = t.rows_of(member_);
        share const columns = t.columns_of(member_);
        if (how.fault == testing::fault::shifted_kv_heads && t.split == cut::kv_rows) {
            int const shifted = (rows.begin + t.unit) % t.rows;
            rows = shifted + rows.size() <= t.rows ? share{shifted, shifted + rows.size()} : share{0, rows.size()};
        }
        if (how.fault == testing::fault::swapped_widths && t.split == cut::rows) rows = cut_as_the_other(t, rows);
        int const from_expert = how.fault == testing::fault::shifted_owner ? (expert + 1) % t.experts : expert;
        held_tensor h{&t, layer, expert, rows, columns, held_as::f32, {}, nullptr};
        if (t.is_matrix()) {
            h.format = held_format(t, how.format, source.type_of(t, from_layer, from_expert), config_->tied);
            int const segments = segments_as_held(t, how.format, config_->tied);
            kernel::packed_matrix m{.rows = rows.size(),
                                    .columns = columns.size(),
                                    .segments = segments / (t.split == cut::columns ? t.ranks : 1),
                                    .format = panel_format_of(h.format),
                                    .first_row = rows.begin};
            void* const to = memory_.take(backend_->packed_bytes(m), *threads_);
            share const read = h.format == held_as::fixed15 ? share{0, t.columns} : columns;  // exponents are of whole rows
            source.read(t, from_layer, from_expert, rows, read,
                        [&](int first, int count, std::byte const* from, std::ptrdiff_t stride, dtype type) {
                            share_panels(first, count, [&](int row, int some) {
                                std::byte const* const part = from + (row - first) * stride;
                                for (int r = 0; r < some; ++r) {
                                    if (is_end) require_finite(source, t, rows.begin + row + r, part + r * stride, read.size(), type);
                                    if (h.format == held_as::q8)
                                        require_scales(source, t, from_layer, from_expert, rows.begin + row + r, columns.begin,
                                                       part + r * stride, columns.size(), type);
                                }
                                bool const exact = h.format == held_as::fixed15;
                                if (exact) backend_->exact()->pack_exponents(to, m, row, some, part, stride, type, t.columns);
                                std::byte const* const own = exact ? part + std::ptrdiff_t{columns.begin} * bytes_of(type) : part;
                                backend_->pack(to, m, row, some, own, stride, type);
                            });
                        });
            m.data = to;
            m.format = multiplied_as(how.profile, t.what, m.format);  // the same bytes
            h.matrix = slot_of(t, h.expert, into) = m;
        } else {
            auto* const to = static_cast<float*>(memory_.take(static_cast<std::size_t>(rows.size()) * sizeof(float), *threads_));
            source.read(t, from_layer, from_expert, rows, columns, [&](int first, int count, std::byte const* from, std::ptrdiff_t, dtype type) {
                if (is_end) require_finite(source, t, -1, from, count, type);
                widen(to + first, from, count, type);
            });
            into.vectors[static_cast<std::size_t>(t.what)] = h.vector = to;
        }
        held_.push_back(h);
        if (how.observer != nullptr)
            how.observer->loaded(source.name_of(t, layer, expert), held_bytes(h), 0);
    }

    /// Calls `part(first row, rows)` for whole panels, so that no two threads write one.
    template <class Part>
    void share_panels(int first, int count, Part part) const {
        std::ptrdiff_t const begin = first / kernel::panel_rows, end = kernel::panels(first + count);
        threads_->share(end - begin, 2, [&](std::ptrdiff_t panel, std::ptrdiff_t panel_end) {
            int const row = (std::max)(first, static_cast<int>(begin + panel) * kernel::panel_rows);
            part(row, (std::min)(first + count, static_cast<int>(begin + panel_end) * kernel::panel_rows) - row);
        });
    }

    /// As many rows of a routed or shared expert, from where a rank's part of the other one's width begins.
    share cut_as_the_other(tensor const& t, share rows) const {
        routed_experts const& e = config_->kinds[static_cast<std::size_t>(t.kind)].experts;
        bool const shared = t.what == role::shared_gate || t.what == role::shared_up;
        int const other = shared ? e.width : t.what == role::expert_gate || t.what == role::expert_up ? e.shared_width : 0;
        if (other == 0) return rows;
        int const begin = (std::min)(share_of(other, member_, t.ranks).begin, t.rows - rows.size());
        return {begin, begin + rows.size()};
    }

    static kernel::packed_matrix& slot_of(tensor const& t, int expert, layer_weights& into) {
        if (!t.is_of_expert()) return into.matrices[static_cast<std::size_t>(t.what)];
        into.experts.resize(static_cast<std::size_t>(t.experts));
        expert_weights& w = into.experts[static_cast<std::size_t>(expert)];
        return t.what == role::expert_gate ? w.gate : t.what == role::expert_up ? w.up : w.down;
    }

    /// What every token passes through, embedding, final norm and head, holds numbers alone.
    static void require_finite(checkpoint::tensor_source const& source, tensor const& t, int row, std::byte const* from, int count,
                               dtype type) {
        unsigned const exponent = type == dtype::f16 ? 0x7C00U : 0x7F80U;
        std::ptrdiff_t const size = bytes_of(type), upper = size - 2;  // a float32's upper half has its exponent
        bool finite = true;
        for (std::ptrdiff_t i = 0; i < count; ++i) finite &= (load_16(from + i * size + upper) & exponent) != exponent;
        if (!finite)
            refuse("weights_are_finite", "tensor " + source.name_of(t, 0) + " has an infinity or a NaN" +
                                             (row < 0 ? std::string() : " in row " + std::to_string(row)));
    }

    /// In q8 a scale, a 127th of the largest weight of its block, is a number in half precision.
    static void require_scales(checkpoint::tensor_source const& source, tensor const& t, int layer, int expert, int row, int first_column,
                               std::byte const* from, int count, dtype type) {
        int const k = kernel::beyond_q8(from, type, count);
        if (k < 0) return;
        refuse("q8_holds_weights", "tensor " + source.name_of(t, layer, expert) + ", row " + std::to_string(row) + ", block " +
                                       std::to_string((first_column + k) / kernel::q8_block) + ": input " + std::to_string(first_column + k) +
                                       " is too large for a half-precision scale, or no number; f32 or bf16 would do");
    }

    /// The red arms of whole experts: what a rank holds is in the wrong place.
    void break_experts(stage_traits const& s, testing::fault fault) {
        for (layer_weights& l : layers_) {
            if (fault == testing::fault::swapped_gate_up && member_ == s.ranks() - 1)
                for (expert_weights& w : l.experts) std::swap(w.gate, w.up);
            if (fault != testing::fault::reversed_experts || member_ != 0) continue;
            std::vector<expert_weights*> here;
            for (expert_weights& w : l.experts)
                if (w.gate.data != nullptr) here.push_back(&w);
            for (std::size_t i = 0; i < here.size() / 2; ++i) std::swap(*here[i], *here[here.size() - 1 - i]);
        }
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
    device::backend const* backend_ = nullptr;
    device::crew* threads_ = nullptr;
    int first_layer_ = 0, member_ = 0, read_from_ = 0;
    deferred<Lazy, std::vector<layer_weights>> layers_;
    layer_weights ends_;
    deferred<Lazy, std::vector<held_tensor>> held_;
    basic_pool<Lazy> memory_;
};

}  // namespace detail
}  // namespace tenon::inline v0
