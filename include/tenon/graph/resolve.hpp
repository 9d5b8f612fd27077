// What a plan means for a model: its parts in layer order, `all` and unnamed layers made explicit, bare devices given
// the loader's kind. The result is a list of stages for validate.hpp.
// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <cstddef>
#include <span>
#include <tenon/core/config.hpp>
#include <tenon/graph/plan.hpp>
#include <tenon/graph/stage.hpp>

namespace tenon::inline v0::plan {

/// Most stages that a plan of that many parts gives: one a part, and one for every gap.
constexpr std::size_t most_stages(std::size_t parts) { return 2 * parts + 1; }

namespace detail {
constexpr bool begins_with(std::span<device_id const> devices, part const& q, device_id first) {
    return devices[static_cast<std::size_t>(q.first_device)] == first;
}

/// Indices of the parts in layer order, by insertion: plans are short, and <algorithm> is not.
constexpr void order(std::span<part const> parts, std::span<int> out) {
    for (std::size_t n = 0; n < parts.size(); ++n) {
        std::size_t i = n;
        for (; i > 0 && parts[static_cast<std::size_t>(out[i - 1])].first_layer > parts[n].first_layer; --i) out[i] = out[i - 1];
        out[i] = static_cast<int>(n);
    }
}
}  // namespace detail

/// Gives every device its kind. One kind in a group, or the law that breaks.
constexpr violation settle_devices(view p, device_kind loader, std::span<device_id> out) {
    for (std::size_t i = 0; i < p.devices.size(); ++i) {
        out[i] = p.devices[i];
        if (out[i].kind == device_kind::bare) out[i].kind = loader;
    }
    if (p.parts.empty()) return {law::plan_is_not_empty, 0, {}, {}, {}};
    int position = 0;
    for (part const& q : p.parts) {
        if (q.device_count < 1 || q.first_device < 0 ||
            static_cast<std::size_t>(q.first_device) + static_cast<std::size_t>(q.device_count) > p.devices.size())
            return {law::stage_has_devices, position, {quantity::devices, q.device_count}, {}, {}};
        device_kind const first = out[static_cast<std::size_t>(q.first_device)].kind;
        for (int i = 1; i < q.device_count; ++i) {
            device_kind const other = out[static_cast<std::size_t>(q.first_device + i)].kind;
            if (other != first)
                return {law::plan_kinds_agree,
                        position,
                        {quantity::kind, static_cast<int>(first)},
                        {quantity::kind, static_cast<int>(other)},
                        {}};
        }
        ++position;
    }
    return {};
}

/// Writes the stages of a plan in layer order; `devices` are settled and outlive the stages. `count` says how many. A stage on a
/// backend that is not `available` allows no rank.
constexpr violation resolve(view p, std::span<device_id const> devices, std::span<device::traits const> available, int layers,
                            std::span<int> scratch, std::span<stage_traits> out, std::size_t& count) {
    if (p.owners != 0 && p.owners != layers)
        return {law::owners_name_every_layer, 0, {quantity::layers, layers}, {quantity::owners, p.owners}, only(layers)};
    detail::order(p.parts, scratch);
    device_id const first = devices[0];
    bool fills_gaps = true;
    for (part const& q : p.parts) fills_gaps = fills_gaps && detail::begins_with(devices, q, first);
    int next = 0;
    count = 0;
    auto const put = [&](int from, int to, std::span<device_id const> on, rules cuts) {
        stage_traits& s = out[count++] = {from, to, on, cuts, {}, 0};
        for (device::traits const& t : available)
            if (t.kind == on[0].kind && s.most_ranks == 0) s.most_ranks = t.most_ranks, s.canonical = t.canonical;
    };
    auto const fill = [&](int before, int position) -> violation {
        if (next >= before) return {};
        if (!fills_gaps) return {law::plan_layers_are_all_named, position, {quantity::layers, layers}, {quantity::layer, next}, {}};
        put(next, before - 1, devices.subspan(0, 1), {});
        return {};
    };
    for (std::size_t i = 0; i < p.parts.size(); ++i) {
        int const position = scratch[i];
        part const& q = p.parts[static_cast<std::size_t>(position)];
        int const last = q.last_layer == every_layer ? layers - 1 : q.last_layer;
        if (last >= layers)
            return {law::layers_within_model,
                    position,
                    {quantity::layers, layers},
                    {quantity::last_layer, last},
                    q.first_layer < layers ? only(layers - 1) : remedies{}};
        if (q.first_layer < next)
            return {law::plan_layer_is_named_once, position, {quantity::next_layer, next}, {quantity::first_layer, q.first_layer}, {}};
        if (violation const v = fill(q.first_layer, position)) return v;
        put(q.first_layer, last, devices.subspan(static_cast<std::size_t>(q.first_device), static_cast<std::size_t>(q.device_count)),
            q.cuts);
        next = last + 1;
    }
    return fill(layers, static_cast<int>(p.parts.size()) - 1);
}

}  // namespace tenon::inline v0::plan
