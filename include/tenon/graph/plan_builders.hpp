// Plans that are computed instead of spelled: from one owner for every layer, and pipelines. Written once, into any sink, for
// both moments: graph/graph.hpp calls them while it compiles, graph/plan_value.hpp when a list arrives.
// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <array>
#include <cstddef>
#include <span>
#include <tenon/core/law.hpp>
#include <tenon/graph/plan.hpp>

namespace tenon::inline v0::plan {

/// One device for every layer, in layer order; neighbours on one device are one part. A device may come again later.
/// That the count is the model's is checked when the plan is resolved. The sink has `add(part, device_id)`, which sets where the
/// device is, and `last()`, the part added last.
template <class Sink>
constexpr violation build_owners(std::span<int const> list, Sink& out) {
    if (list.empty()) return {law::owners_name_every_layer, 0, {quantity::layers, 1}, {quantity::owners, 0}, {}};
    for (std::size_t layer = 0; layer < list.size(); ++layer) {
        int const l = static_cast<int>(layer), device = list[layer];
        if (device < 0) return {law::device_index_is_positive, l, {quantity::layer, l}, {quantity::device, device}, {}};
        if (layer > 0 && device == list[layer - 1])
            out.last().last_layer = l;
        else
            out.add(part{l, l}, device_id{device_kind::bare, device});
    }
    return {};
}

/// A pipeline cut where the caller says: `cuts` are the first layers of the second and later stages. One device a stage.
template <class Sink>
constexpr violation build_pipeline(std::span<int const> cuts, int layers, Sink& out) {
    int const stages = static_cast<int>(cuts.size()) + 1;
    if (stages < 2 || stages > layers) return {law::pipeline_stages_fit, 0, {quantity::layers, layers}, {quantity::stages, stages}, {}};
    int first = 0;
    for (int s = 0; s < stages; ++s) {
        bool const last = s + 1 == stages;
        int const next = last ? layers : cuts[static_cast<std::size_t>(s)];
        if (next <= first || (!last && next >= layers))
            return {law::pipeline_cuts_increase, s, {quantity::first_layer, first}, {quantity::cut, next}, {}};
        out.add(part{first, next - 1}, device_id{device_kind::bare, s});
        first = next;
    }
    return {};
}

/// An even pipeline: stage s begins at layer floor(s layers / stages).
template <class Sink>
constexpr violation build_pipeline(int stages, int layers, Sink& out) {
    if (stages < 2 || stages > layers) return {law::pipeline_stages_fit, 0, {quantity::layers, layers}, {quantity::stages, stages}, {}};
    auto const first = [layers, stages](int s) { return static_cast<int>(static_cast<long long>(s) * layers / stages); };
    for (int s = 0; s < stages; ++s) out.add(part{first(s), first(s + 1) - 1}, device_id{device_kind::bare, s});
    return {};
}

namespace detail {
/// Counts parts, so that `fixed_sink` has the exact size.
struct part_count {
    std::size_t used = 0;
    part scratch{};
    constexpr void add(part, device_id) { ++used; }
    constexpr part& last() { return scratch; }
};

template <std::size_t N>
struct fixed_sink {
    fixed<N, N> plan{};
    std::size_t used = 0;
    constexpr void add(part p, device_id d) {
        p.first_device = static_cast<int>(used);
        p.device_count = 1;
        plan.devices[used] = d;
        plan.parts[used++] = p;
    }
    constexpr part& last() { return plan.parts[used - 1]; }
};
}  // namespace detail

}  // namespace tenon::inline v0::plan
