// Seven query heads cannot share two KV heads evenly.
// SPDX-License-Identifier: Apache-2.0
// expect: broken_law<tenon::(v0::)?law::heads_share_kv_heads, tenon::(v0::)?at_stage<0>, tenon::(v0::)?has<tenon::(v0::)?quantity::heads, 7>, tenon::(v0::)?has<tenon::(v0::)?quantity::kv_heads, 2>, tenon::(v0::)?would_do<> ?>
#include <tenon/graph/graph.hpp>
#include <tenon/model/llama.hpp>

using namespace tenon;

#ifdef REPAIRED
struct described { static constexpr auto config = model::llama({.layers = 4, .hidden = 112, .heads = 8, .kv_heads = 2, .head_dim = 16, .ffn = 96, .vocab = 101}); };
#else
struct described { static constexpr auto config = model::llama({.layers = 4, .hidden = 112, .heads = 7, .kv_heads = 2, .head_dim = 16, .ffn = 96, .vocab = 101}); };
#endif

struct whole : graph<described, stage<layers<0, 3>>> {};
