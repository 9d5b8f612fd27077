// A layer that no part names, where it is not clear who serves it.
// SPDX-License-Identifier: Apache-2.0
// expect: broken_law<tenon::(v0::)?law::plan_layers_are_all_named, tenon::(v0::)?at_stage<1>, tenon::(v0::)?has<tenon::(v0::)?quantity::layers, 4>, tenon::(v0::)?has<tenon::(v0::)?quantity::layer, 1>, tenon::(v0::)?would_do<> ?>
#include <tenon/graph/graph.hpp>
#include <tenon/model/llama.hpp>

using namespace tenon;

struct tiny { static constexpr auto config = model::llama({.layers = 4, .hidden = 64, .heads = 4, .kv_heads = 2, .ffn = 96, .vocab = 101}); };

#ifdef REPAIRED
struct split : planned<tiny, "0@0;1-3@1"> {};
#else
struct split : planned<tiny, "0@0;3@1"> {};
#endif
