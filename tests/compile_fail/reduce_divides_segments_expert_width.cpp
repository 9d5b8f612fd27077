// Partial sums of experts whose 96 inputs of down are three granules of 32, and so one segment.
// SPDX-License-Identifier: Apache-2.0
// expect: broken_law<tenon::(v0::)?law::reduce_divides_segments, tenon::(v0::)?at_stage<0>, tenon::(v0::)?has<tenon::(v0::)?quantity::segments, 1>, tenon::(v0::)?has<tenon::(v0::)?quantity::ranks, 2>, tenon::(v0::)?would_do_or_gather<1> ?>
#include <tenon/graph/graph.hpp>
#include <tenon/model/mixtral.hpp>

using namespace tenon;

struct odd { static constexpr auto config = model::mixtral({.layers = 4, .hidden = 64, .heads = 4, .kv_heads = 2, .experts = 8, .experts_per_token = 2, .expert_width = 96, .vocab = 101}); };

#ifdef REPAIRED
struct split : graph<odd, stage<layers<0, 3>, device::cpu<0, 1>, shard::expert_width<>>> {};
#else
struct split : graph<odd, stage<layers<0, 3>, device::cpu<0, 1>, shard::expert_width<join::reduce>>> {};
#endif
