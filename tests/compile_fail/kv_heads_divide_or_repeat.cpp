// Twelve heads go on four ranks; six KV heads neither divide over four nor repeat on them.
// SPDX-License-Identifier: Apache-2.0
// expect: broken_law<tenon::(v0::)?law::kv_heads_divide_or_repeat, tenon::(v0::)?at_stage<1>, tenon::(v0::)?has<tenon::(v0::)?quantity::kv_heads, 6>, tenon::(v0::)?has<tenon::(v0::)?quantity::ranks, 4>, tenon::(v0::)?would_do<1, 2, 3, 6, 12> ?>
#include <tenon/graph/graph.hpp>
#include <tenon/model/llama.hpp>

using namespace tenon;

struct described { static constexpr auto config = model::llama({.layers = 4, .hidden = 192, .heads = 12, .kv_heads = 6, .ffn = 96, .vocab = 101}); };

#ifdef REPAIRED
struct split : graph<described, stage<layers<0, 1>>, stage<layers<2, 3>, device::cpu<0, 1, 2, 3, 4, 5>, shard::tensor<>>> {};
#else
struct split : graph<described, stage<layers<0, 1>>, stage<layers<2, 3>, device::cpu<0, 1, 2, 3>, shard::tensor<>>> {};
#endif
