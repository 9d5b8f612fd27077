// Two sharding policies that are not composed.
// SPDX-License-Identifier: Apache-2.0
// expect: a stage has one shard policy; compose several with shard::both<>
#include <tenon/graph/graph.hpp>
#include <tenon/model/llama.hpp>

using namespace tenon;

struct tiny { static constexpr auto config = model::llama({.layers = 4, .hidden = 64, .heads = 4, .kv_heads = 2, .ffn = 96, .vocab = 101}); };

#ifdef REPAIRED
struct split : graph<tiny, stage<layers<0, 3>, device::cpu<0, 1>, shard::tensor<>>> {};
#else
struct split : graph<tiny, stage<layers<0, 3>, device::cpu<0, 1>, shard::tensor<>, shard::none>> {};
#endif
