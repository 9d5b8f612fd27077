// Whole experts on the layers of a routed model that are dense.
// SPDX-License-Identifier: Apache-2.0
// expect: broken_law<tenon::(v0::)?law::rule_cuts_something, tenon::(v0::)?at_stage<0>, tenon::(v0::)?has<tenon::(v0::)?quantity::experts, 0>, tenon::(v0::)?has<tenon::(v0::)?quantity::ranks, 2>, tenon::(v0::)?would_do<> ?>
#include <tenon/graph/graph.hpp>
#include <tenon/model/kinds.hpp>
#include <tenon/model/llama.hpp>

using namespace tenon;

constexpr model_config plain = model::llama({.layers = 4, .hidden = 64, .heads = 4, .kv_heads = 2, .ffn = 96, .vocab = 101});

struct shared { static constexpr auto config = model::with_experts(plain, {.count = 8, .chosen = 2, .width = 96, .shared_width = 3}, {2, 3}); };

#ifdef REPAIRED
struct split : graph<shared, stage<layers<0, 1>, device::cpu<0, 1>, shard::tensor<>>, stage<layers<2, 3>, device::cpu<0, 1>, shard::expert<>>> {};
#else
struct split : graph<shared, stage<layers<0, 1>, device::cpu<0, 1>, shard::expert<>>, stage<layers<2, 3>, device::cpu<0, 1>, shard::expert<>>> {};
#endif
