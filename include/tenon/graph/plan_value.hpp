// A plan that owns its parts, for run time: read from text, from an owner list, or from a count of pipeline stages; and
// the graph that it means for a model, lowered. The constexpr twins are in graph/plan.hpp and graph/graph.hpp.
// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <initializer_list>
#include <span>
#include <string>
#include <string_view>
#include <tenon/core/explain.hpp>
#include <tenon/detail/deferred.hpp>
#include <tenon/graph/cost.hpp>
#include <tenon/graph/lower.hpp>
#include <tenon/graph/plan.hpp>
#include <tenon/graph/plan_builders.hpp>
#include <tenon/graph/resolve.hpp>
#include <tenon/graph/spell.hpp>
#include <tenon/graph/validate.hpp>
#include <vector>

namespace tenon::inline v0 {

namespace plan {
struct value {
    std::vector<part> parts;
    std::vector<device_id> devices;
    int owners = 0;  ///< as in `view`
    operator view() const { return {parts, devices, owners}; }
};

/// Reads a plan. Throws graph_error with the character where it breaks.
template <class Lazy = void>
value parse(std::string_view text) {
    extent const room = measure(text);
    tenon::v0::detail::deferred<Lazy, value> v{std::vector<part>(room.parts), std::vector<device_id>(room.devices), 0};
    tenon::v0::detail::require(read(text, v.parts, v.devices));
    return v;
}

namespace detail {
template <class Lazy = void>
struct value_sink {
    tenon::v0::detail::deferred<Lazy, value> plan;
    void add(part p, device_id d) {
        p.first_device = static_cast<int>(plan.devices.size());
        p.device_count = 1;
        plan.parts.push_back(p);
        plan.devices.push_back(d);
    }
    part& last() { return plan.parts.back(); }
};
}  // namespace detail

/// One device for every layer, in layer order; neighbours on one device are one stage. A device may come again later.
/// Throws graph_error for an empty list and a negative index; that the count is the model's is checked when it is resolved.
template <class = void>
value owners(std::span<int const> list) {
    detail::value_sink<> out;
    tenon::v0::detail::require(build_owners(list, out));
    out.plan.owners = static_cast<int>(list.size());
    return out.plan;
}
template <class = void>
value owners(std::initializer_list<int> list) {
    return owners(std::span<int const>(list.begin(), list.size()));
}

/// A pipeline cut where the caller says: `cuts` are the first layers of the second and later stages. One device a stage.
template <class = void>
value pipeline(std::span<int const> cuts, int layers) {
    detail::value_sink<> out;
    tenon::v0::detail::require(build_pipeline(cuts, layers, out));
    return out.plan;
}
template <class = void>
value pipeline(std::initializer_list<int> cuts, int layers) {
    return pipeline(std::span<int const>(cuts.begin(), cuts.size()), layers);
}

/// An even pipeline: stage s begins at layer floor(s layers / stages).
template <class = void>
value pipeline(int stages, int layers) {
    detail::value_sink<> out;
    tenon::v0::detail::require(build_pipeline(stages, layers, out));
    return out.plan;
}
}  // namespace plan

/// Throws graph_error where the matrices of a graph cannot be held in a format, by the first tensor that cannot.
inline void require_format(graph_view graph, weights format) {
    if (format_violation const v = validate_format(graph, format))
        detail::require(v.broken, "tensor " + std::string(name_of(v.what)) + " in " + std::string(name_of(format)));
}

template <class = void>
class basic_dynamic_graph;
using dynamic_graph = basic_dynamic_graph<>;  // lazy: instantiated by who uses it

/// A graph made at run time: what a graph type's constants are, in memory of its own. Immovable, because its parts refer to each other.
template <class Lazy>
class basic_dynamic_graph {
public:
    /// Checks the plan against the model and lowers it. Throws graph_error, before anything is read or built.
    /// `available` are the backends that the plan may name, the first being the one of devices without a kind; `format` is what the matrices
    /// will be held in, so that a plan which would cut one of its blocks is refused by the tensor.
    basic_dynamic_graph(model_config const& config, plan::view p,
                        std::span<device::traits const> available = device::backends<device::cpu>::available,
                        weights format = weights::stored)
        : config_(config), devices_(p.devices.size()) {
        detail::require(plan::settle_devices(p, available[0].kind, devices_));
        detail::deferred<Lazy, std::vector<int>> scratch(p.parts.size());
        stages_.resize(plan::most_stages(p.parts.size()));
        std::size_t count = 0;
        detail::require(plan::resolve(p, devices_, available, config_.layers, scratch, stages_, count));
        stages_.resize(count);
        for (stage_traits& s : stages_) s.placement = placing::open;
        violation const v = validate(config_, stages_);
        if (v.which == law::reduce_divides_segments && format == weights::q8) require_blocks(v.stage, format);
        detail::require(v);
        lower(config_, stages_, *this);
    }
    basic_dynamic_graph(basic_dynamic_graph const&) = delete;
    basic_dynamic_graph& operator=(basic_dynamic_graph const&) = delete;

    graph_view view() const { return {&config_, stages_, ir()}; }
    ir_view ir() const { return {nodes_, tensors_, edges_}; }
    /// Throws graph_error for a format that the graph cannot be held in.
    cost_view cost(weights format, dtype stored = dtype::f32) const {
        require_format(view(), format);
        return {view(), format, stored};
    }
    std::string plan() const { return spelled(device_kind::cpu); }
    std::string spelled(device_kind loader) const {
        struct sink {
            std::string text;
            void put(char c) { text += c; }
        } out;
        detail::spell_plan(stages_, loader, out);
        return out.text;
    }

    int add(tensor const& x) {
        tensors_.push_back(x);
        return static_cast<int>(tensors_.size()) - 1;
    }
    int add(node const& x) {
        nodes_.push_back(x);
        return static_cast<int>(nodes_.size()) - 1;
    }
    void add(edge const& x) { edges_.push_back(x); }

private:
    /// Where a reduce join of a stage would cut blocks of the format: refuses them by their tensor. A plan that has broken no other law so
    /// far can be lowered up to there.
    void require_blocks(int stage, weights format) {
        stages_.resize(static_cast<std::size_t>(stage) + 1);
        lower(config_, stages_, *this);
        format_violation const v = validate_format(view(), format);
        detail::require(v.broken, "tensor " + std::string(name_of(v.what)) + " of " + std::to_string(v.inputs) + " inputs, in blocks of " +
                                      std::to_string(numeric::canonical_1.weight_block));
    }

    model_config config_;
    detail::deferred<Lazy, std::vector<device_id>> devices_;
    detail::deferred<Lazy, std::vector<stage_traits>> stages_;
    detail::deferred<Lazy, std::vector<node>> nodes_;
    detail::deferred<Lazy, std::vector<tensor>> tensors_;
    detail::deferred<Lazy, std::vector<edge>> edges_;
};

}  // namespace tenon::inline v0
