// How a stage is cut over its ranks: a set of axis rules, as values, and the policies that name them in a type.
// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <tenon/join/join.hpp>
#include <tenon/shard/placement.hpp>

namespace tenon::inline v0 {

/// The rules of one stage. `by_default` stands for a stage that names none: whole on one rank, `tensor` on several, with
/// `expert` where its layers route experts.
struct rules {
    bool by_default = false;
    bool tensor = false;        ///< heads, FFN width, vocabulary
    bool expert = false;        ///< whole experts
    bool expert_width = false;  ///< every expert's width
    bool exact = false;         ///< `expert` only where every rank gets as many
    join_kind tensor_join = join_kind::gather;
    join_kind width_join = join_kind::gather;
    bool operator==(rules const&) const = default;

    constexpr bool any() const { return tensor || expert || expert_width; }
};

constexpr rules operator|(rules a, rules b) {
    return {a.by_default || b.by_default,
            a.tensor || b.tensor,
            a.expert || b.expert,
            a.expert_width || b.expert_width,
            a.exact || b.exact,
            a.tensor ? a.tensor_join : b.tensor_join,
            a.expert_width ? a.width_join : b.width_join};
}

namespace shard {
template <class P> concept policy = requires {
    { P::cuts } -> std::convertible_to<rules>;
};

/// What a stage without a sharding policy has.
struct by_default {
    static constexpr rules cuts{.by_default = true};
};

/// Everything whole on one rank.
struct none {
    static constexpr rules cuts{};
};

/// Heads, FFN width and vocabulary cut over the ranks.
/// Source: Shoeybi et al. 2019, "Megatron-LM", section 3.
template <join::policy Join = join::gather>
struct tensor {
    static constexpr rules cuts{.tensor = true, .tensor_join = Join::kind};
};

/// Whole experts on the ranks that `Placement` says.
/// Source: Lepikhin et al. 2020, "GShard", section 2.2.
template <placement::policy Placement = placement::even>
struct expert {
    static constexpr rules cuts{.expert = true, .exact = Placement::places.exact};
    static constexpr placement::traits places = Placement::places;
};

/// Every expert's width cut over the ranks, as `tensor` cuts a dense FFN.
template <join::policy Join = join::gather>
struct expert_width {
    static constexpr rules cuts{.expert_width = true, .width_join = Join::kind};
};

/// What a sharding says of whole experts: evenly, where it says nothing.
template <class P>
constexpr placement::traits placement_of() {
    if constexpr (requires { P::places; })
        return P::places;
    else
        return {};
}

namespace detail {
// Apart from `both`, whose constants stay usable: clang drops a class with a failed assertion and reports every use of it.
template <policy... Policies>
struct rules_compose {
    static_assert((Policies::cuts.any() && ...), "shard::both<> composes rules that cut; shard::none and by_default stand alone");
    template <bool rules::*Rule>
    static constexpr bool holds = (0 + ... + (Policies::cuts.*Rule)) <= 1;
    static_assert(holds<&rules::tensor> && holds<&rules::expert> && holds<&rules::expert_width>, "shard::both<> names each rule once");
};
}  // namespace detail

/// Several rules on the same ranks.
template <policy... Policies>
struct both {
    static_assert(sizeof(detail::rules_compose<Policies...>) != 0);

    static constexpr rules cuts = (Policies::cuts | ...);
    static constexpr placement::traits places = [] {
        placement::traits said{};
        for (placement::traits const& one : {placement_of<Policies>()...})
            if (one.awaited || !one.owners.empty()) said = one;
        return said;
    }();
};

static_assert(policy<none> && policy<tensor<>> && policy<tensor<join::reduce>> && policy<both<tensor<>, expert<>>> &&
              policy<expert_width<>>);
}  // namespace shard

}  // namespace tenon::inline v0
