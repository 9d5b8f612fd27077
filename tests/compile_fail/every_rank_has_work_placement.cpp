// A table that leaves rank 1 without an expert.
// SPDX-License-Identifier: Apache-2.0
// expect: broken_law<tenon::(v0::)?law::every_rank_has_work, tenon::(v0::)?at_stage<0>, tenon::(v0::)?has<tenon::(v0::)?quantity::owner, 1>, tenon::(v0::)?has<tenon::(v0::)?quantity::experts, 0>, tenon::(v0::)?would_do<> ?>
#include <tenon/graph/graph.hpp>
#include <tenon/model/mixtral.hpp>

using namespace tenon;

struct mixture { static constexpr auto config = model::mixtral({.layers = 4, .hidden = 64, .heads = 4, .kv_heads = 2, .experts = 8, .experts_per_token = 2, .expert_width = 96, .vocab = 101}); };

#ifdef REPAIRED
struct split : graph<mixture, stage<layers<0, 3>, device::cpu<0, 1, 2>, shard::expert<placement::table<0, 0, 0, 1, 2, 2, 2, 2>>>> {};
#else
struct split : graph<mixture, stage<layers<0, 3>, device::cpu<0, 1, 2>, shard::expert<placement::table<0, 0, 0, 0, 2, 2, 2, 2>>>> {};
#endif
