// A stage that waits for a map, of layers with different numbers of experts.
// SPDX-License-Identifier: Apache-2.0
// expect: broken_law<tenon::(v0::)?law::placement_experts_are_the_models, tenon::(v0::)?at_stage<0>, tenon::(v0::)?has<tenon::(v0::)?quantity::experts, 6>, tenon::(v0::)?has<tenon::(v0::)?quantity::map_experts, 8>, tenon::(v0::)?would_do<> ?>
#include <tenon/graph/graph.hpp>
#include <tenon/model/mixtral.hpp>

using namespace tenon;

struct plain_mixture { static constexpr auto config = model::mixtral({.layers = 4, .hidden = 64, .heads = 4, .kv_heads = 2, .experts = 8, .experts_per_token = 2, .expert_width = 96, .vocab = 101}); };
struct mixture { static constexpr auto config = model::with_experts(plain_mixture::config, {.count = 6, .chosen = 2, .width = 96}, {3}); };

#ifdef REPAIRED
struct split : graph<mixture, stage<layers<0, 2>, device::cpu<0, 1>, shard::expert<placement::at_load>>, stage<layers<3, 3>, device::cpu<0, 1>, shard::expert<>>> {};
#else
struct split : graph<mixture, stage<layers<0, 3>, device::cpu<0, 1>, shard::expert<placement::at_load>>> {};
#endif
