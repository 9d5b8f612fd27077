// A table that names a fourth rank of three.
// SPDX-License-Identifier: Apache-2.0
// expect: broken_law<tenon::(v0::)?law::placement_rank_exists, tenon::(v0::)?at_stage<1>, tenon::(v0::)?has<tenon::(v0::)?quantity::owner, 3>, tenon::(v0::)?has<tenon::(v0::)?quantity::ranks, 3>, tenon::(v0::)?would_do<4> ?>
#include <tenon/graph/graph.hpp>
#include <tenon/model/mixtral.hpp>

using namespace tenon;

struct mixture { static constexpr auto config = model::mixtral({.layers = 4, .hidden = 64, .heads = 4, .kv_heads = 2, .experts = 8, .experts_per_token = 2, .expert_width = 96, .vocab = 101}); };

#ifdef REPAIRED
struct split : graph<mixture, stage<layers<0, 0>, device::cpu<0>>, stage<layers<1, 3>, device::cpu<0, 1, 2, 3>, shard::expert<placement::table<0, 1, 2, 0, 1, 2, 0, 3>>>> {};
#else
struct split : graph<mixture, stage<layers<0, 0>, device::cpu<0>>, stage<layers<1, 3>, device::cpu<0, 1, 2>, shard::expert<placement::table<0, 1, 2, 0, 1, 2, 0, 3>>>> {};
#endif
