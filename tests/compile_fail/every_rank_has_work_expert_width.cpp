// Experts narrower than their ranks.
// SPDX-License-Identifier: Apache-2.0
// expect: broken_law<tenon::(v0::)?law::every_rank_has_work, tenon::(v0::)?at_stage<0>, tenon::(v0::)?has<tenon::(v0::)?quantity::expert_width, 3>, tenon::(v0::)?has<tenon::(v0::)?quantity::ranks, 4>, tenon::(v0::)?would_do<1, 2, 3> ?>
#include <tenon/graph/graph.hpp>
#include <tenon/model/mixtral.hpp>

using namespace tenon;

struct few { static constexpr auto config = model::mixtral({.layers = 4, .hidden = 64, .heads = 4, .kv_heads = 2, .experts = 3, .experts_per_token = 2, .expert_width = 3, .vocab = 101}); };

#ifdef REPAIRED
struct split : graph<few, stage<layers<0, 3>, device::cpu<0, 1, 2>, shard::expert_width<>>> {};
#else
struct split : graph<few, stage<layers<0, 3>, device::cpu<0, 1, 2, 3>, shard::expert_width<>>> {};
#endif
