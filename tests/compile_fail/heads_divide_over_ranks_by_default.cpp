// Several devices and no sharding mean `tensor`, under the same law. 28 heads, 4 KV heads, 8 devices.
// SPDX-License-Identifier: Apache-2.0
// expect: broken_law<tenon::(v0::)?law::heads_divide_over_ranks, tenon::(v0::)?at_stage<0>, tenon::(v0::)?has<tenon::(v0::)?quantity::heads, 28>, tenon::(v0::)?has<tenon::(v0::)?quantity::ranks, 8>, tenon::(v0::)?would_do<1, 2, 4, 28> ?>
#include <tenon/graph/graph.hpp>
#include <tenon/model/llama.hpp>

using namespace tenon;

struct described { static constexpr auto config = model::llama({.layers = 4, .hidden = 448, .heads = 28, .kv_heads = 4, .ffn = 96, .vocab = 101}); };

#ifdef REPAIRED
struct split : graph<described, stage<layers<0, 3>, device::cpu<0, 1, 2, 3>>> {};
#else
struct split : graph<described, stage<layers<0, 3>, device::cpu<0, 1, 2, 3, 4, 5, 6, 7>>> {};
#endif
