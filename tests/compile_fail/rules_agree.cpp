// Whole experts and the width of every expert, on the same ranks.
// SPDX-License-Identifier: Apache-2.0
// expect: broken_law<tenon::(v0::)?law::rules_agree, tenon::(v0::)?at_stage<0>, tenon::(v0::)?has<tenon::(v0::)?quantity::layers, 4>, tenon::(v0::)?has<tenon::(v0::)?quantity::ranks, 2>, tenon::(v0::)?would_do<> ?>
#include <tenon/graph/graph.hpp>
#include <tenon/model/llama.hpp>

using namespace tenon;

struct tiny { static constexpr auto config = model::llama({.layers = 4, .hidden = 64, .heads = 4, .kv_heads = 2, .ffn = 96, .vocab = 101}); };

struct by_expert { static constexpr rules cuts{.expert = true}; };
struct by_width { static constexpr rules cuts{.expert_width = true}; };

#ifdef REPAIRED
struct split : graph<tiny, stage<layers<0, 3>, device::cpu<0, 1>, shard::tensor<>>> {};
#else
struct split : graph<tiny, stage<layers<0, 3>, device::cpu<0, 1>, shard::both<by_expert, by_width>>> {};
#endif
