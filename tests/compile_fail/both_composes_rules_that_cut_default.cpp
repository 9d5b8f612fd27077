// A rule beside the default, which would win over it.
// SPDX-License-Identifier: Apache-2.0
// expect: shard::both<> composes rules that cut; shard::none and by_default stand alone
#include <tenon/graph/graph.hpp>
#include <tenon/model/mixtral.hpp>

using namespace tenon;

struct mixture { static constexpr auto config = model::mixtral({.layers = 4, .hidden = 64, .heads = 4, .kv_heads = 2, .experts = 8, .experts_per_token = 2, .expert_width = 96, .vocab = 101}); };

#ifdef REPAIRED
struct split : graph<mixture, stage<layers<0, 3>, device::cpu<0, 1>, shard::both<shard::tensor<>, shard::expert_width<>>>> {};
#else
struct split : graph<mixture, stage<layers<0, 3>, device::cpu<0, 1>, shard::both<shard::by_default, shard::expert_width<>>>> {};
#endif
