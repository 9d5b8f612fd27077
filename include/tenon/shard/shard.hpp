// How a stage is cut over its ranks: a set of axis rules, as values, and the policies that name them in a type.
// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <tenon/join/join.hpp>

namespace tenon::inline v0 {

/// The rules of one stage. `by_default` stands for a stage that names none: whole on one rank, `tensor` on several.
struct rules {
    bool by_default = false;
    bool tensor = false;        ///< heads, FFN width, vocabulary
    bool expert = false;        ///< whole experts
    bool expert_width = false;  ///< every expert's width
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

/// Several rules on the same ranks.
template <policy... Policies>
struct both {
    static constexpr rules cuts = (Policies::cuts | ...);
};

static_assert(policy<none> && policy<tensor<>> && policy<tensor<join::reduce>>);
}  // namespace shard

}  // namespace tenon::inline v0
