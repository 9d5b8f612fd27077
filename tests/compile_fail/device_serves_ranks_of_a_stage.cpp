// More ranks than a stage may have, whatever the device policy promises.
// SPDX-License-Identifier: Apache-2.0
// expect: broken_law<tenon::(v0::)?law::device_serves_ranks, tenon::(v0::)?at_stage<0>, tenon::(v0::)?has<tenon::(v0::)?quantity::most_ranks, 64>, tenon::(v0::)?has<tenon::(v0::)?quantity::ranks, 65>, tenon::(v0::)?would_do<1, 2, 3, 4, 5, 6, 7, 8> ?>
#include <tenon/graph/graph.hpp>
#include <tenon/model/mixtral.hpp>
#include <utility>

using namespace tenon;

struct mixture { static constexpr auto config = model::mixtral({.layers = 4, .hidden = 64, .heads = 4, .kv_heads = 2, .experts = 128, .experts_per_token = 2, .expert_width = 96, .vocab = 101}); };

template <int... Index>
struct wide {
    static constexpr device_kind kind = device_kind::user;
    static constexpr int most_ranks = 1000;
    static constexpr bool canonical = true;
    static constexpr std::array<device_id, sizeof...(Index)> devices{device_id{device_kind::user, Index}...};
};
template <int... Index>
wide<Index...> of(std::integer_sequence<int, Index...>);

#ifdef REPAIRED
struct split : graph<mixture, stage<layers<0, 3>, decltype(of(std::make_integer_sequence<int, 64>{})), shard::expert<>>> {};
#else
struct split : graph<mixture, stage<layers<0, 3>, decltype(of(std::make_integer_sequence<int, 65>{})), shard::expert<>>> {};
#endif
