// One stage of a graph: a range of layers, a device group, a sharding and a boundary, as a type and as values.
// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <cstddef>
#include <cstdint>
#include <span>
#include <tenon/boundary/boundary.hpp>
#include <tenon/core/config.hpp>
#include <tenon/device/concept.hpp>
#include <tenon/shard/shard.hpp>
#include <type_traits>

namespace tenon::inline v0 {

/// A contiguous inclusive range of layers.
template <int First, int Last>
struct layers {
    static constexpr int first_layer = First, last_layer = Last;
};

/// Whether a placement map may say which rank owns which expert: never, where one is brought, or always.
enum class placing : std::uint8_t { settled, open, awaited };

/// What the validator reads of a stage; every stage type publishes one as `traits`.
struct stage_traits {
    int first_layer = 0, last_layer = 0;   ///< inclusive
    std::span<device_id const> devices{};  ///< one rank each; the first is the root's
    rules cuts{.by_default = true};
    boundary_traits crossing{};
    int most_ranks = most_ranks_of_a_stage;  ///< what the backend allows; 0: the program has no such backend
    bool canonical = true;                   ///< the backend follows the canonical arithmetic to the bit
    std::span<int const> owners{};           ///< of whole experts: one of each, or of each in every layer of the stage; empty: evenly
    placing placement = placing::settled;    ///< of whole experts: whether the owners may come from a map, when the model is loaded

    constexpr int ranks() const { return static_cast<int>(devices.size()); }
    constexpr int layer_count() const { return last_layer - first_layer + 1; }
};

/// Whether a stage has a layer that routes experts.
constexpr bool routes_experts(model_config const& c, stage_traits const& s) {
    for (int l = s.first_layer; l <= s.last_layer; ++l)
        if (c.layer(l).experts) return true;
    return false;
}

/// The rules of a stage on `ranks` ranks: what it names, or by default `tensor` on several, with `expert` where experts are routed.
constexpr rules effective(model_config const& c, stage_traits const& s, int ranks) {
    if (!s.cuts.by_default) return s.cuts;
    return {.tensor = ranks > 1, .expert = ranks > 1 && routes_experts(c, s)};
}

/// The rank of a stage that owns expert `e` of `count` in the stage's layer `layer`, where whole experts are placed.
constexpr int owner_of(stage_traits const& s, int layer, int e, int count) {
    if (s.owners.empty()) return static_cast<int>(std::int64_t{s.ranks()} * e / count);
    std::size_t const row = s.owners.size() == static_cast<std::size_t>(count) ? 0 : static_cast<std::size_t>(layer);
    return s.owners[row * static_cast<std::size_t>(count) + static_cast<std::size_t>(e)];
}

namespace detail {
template <class P>
inline constexpr bool is_layers = requires {
    P::first_layer;
    P::last_layer;
};
template <class P>
inline constexpr bool is_policy = device::policy<P> || shard::policy<P> || boundary::policy<P>;

// The one policy of its sort, or the plain one: a fold over an overloaded operator, not a recursion over the pack.
template <class P>
struct tagged {
    using type = P;
};
template <class P, class Q>
constexpr std::type_identity<P> operator|(std::type_identity<P>, std::type_identity<Q>) {
    return {};
}
template <class Q>
constexpr std::type_identity<Q> operator|(std::type_identity<void>, std::type_identity<Q>) {
    return {};
}
template <template <class> class Is, class Default, class... P>
constexpr auto pick() {
    if constexpr ((Is<P>::value || ...))
        return (... | std::type_identity<std::conditional_t<Is<P>::value, tagged<P>, void>>{});
    else
        return std::type_identity<tagged<Default>>{};
}

template <class P>
struct is_device : std::bool_constant<device::policy<P>> {};
template <class P>
struct is_shard : std::bool_constant<shard::policy<P>> {};
template <class P>
struct is_boundary : std::bool_constant<boundary::policy<P>> {};
// Apart from the stage, whose constants stay usable: clang drops a class with a failed assertion and reports every use of it.
template <class Layers, class... Policies>
struct stage_is_well_formed {
    static_assert(is_layers<Layers>, "a stage begins with its layers: stage<layers<First, Last>, ...>");
    static_assert((is_policy<Policies> && ...), "after its layers a stage takes a device, a shard and a boundary policy, nothing else");
    static_assert((0 + ... + device::policy<Policies>) <= 1, "a stage has one device policy, which may name several devices");
    static_assert((0 + ... + shard::policy<Policies>) <= 1, "a stage has one shard policy; compose several with shard::both<>");
    static_assert((0 + ... + boundary::policy<Policies>) <= 1, "a stage has one boundary policy");
};
}  // namespace detail

/// A stage: its layers, then a device policy, a sharding policy and a boundary policy in any order. A policy left out is
/// the plain one: device 0 of the CPU backend, whole on one rank or `tensor` (with `expert` where experts are routed) on several, the
/// residual stream in float32.
template <class Layers, class... Policies>
struct stage {
    static_assert(sizeof(detail::stage_is_well_formed<Layers, Policies...>) != 0);

    using device_policy = typename decltype(detail::pick<detail::is_device, device::cpu<0>, Policies...>())::type::type;
    using shard_policy = typename decltype(detail::pick<detail::is_shard, shard::by_default, Policies...>())::type::type;
    using boundary_policy = typename decltype(detail::pick<detail::is_boundary, boundary::residual<>, Policies...>())::type::type;

    static constexpr placement::traits places = shard::placement_of<shard_policy>();
    static constexpr stage_traits traits{Layers::first_layer,
                                         Layers::last_layer,
                                         device_policy::devices,
                                         shard_policy::cuts,
                                         boundary_policy::crossing,
                                         device_policy::most_ranks,
                                         device_policy::canonical,
                                         places.owners,
                                         places.awaited ? placing::awaited : placing::settled};
};

template <class S> concept stage_type = requires {
    { S::traits } -> std::convertible_to<stage_traits>;
};

}  // namespace tenon::inline v0
