// Two stages that wait for one map, of which none fits both.
// SPDX-License-Identifier: Apache-2.0
// expect: broken_law<tenon::(v0::)?law::placement_ranks_are_the_stages, tenon::(v0::)?at_stage<1>, tenon::(v0::)?has<tenon::(v0::)?quantity::ranks, 3>, tenon::(v0::)?has<tenon::(v0::)?quantity::map_ranks, 2>, tenon::(v0::)?would_do<> ?>
#include <tenon/graph/graph.hpp>
#include <tenon/model/mixtral.hpp>

using namespace tenon;

struct mixture { static constexpr auto config = model::mixtral({.layers = 4, .hidden = 64, .heads = 4, .kv_heads = 2, .experts = 8, .experts_per_token = 2, .expert_width = 96, .vocab = 101}); };

using first = stage<layers<0, 1>, device::cpu<0, 1>, shard::expert<placement::at_load>>;
#ifdef REPAIRED
struct split : graph<mixture, first, stage<layers<2, 3>, device::cpu<0, 1, 2>, shard::expert<>>> {};
#else
struct split : graph<mixture, first, stage<layers<2, 3>, device::cpu<0, 1, 2>, shard::expert<placement::at_load>>> {};
#endif
