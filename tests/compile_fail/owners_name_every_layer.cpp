// Three owners for four layers.
// SPDX-License-Identifier: Apache-2.0
// expect: broken_law<tenon::(v0::)?law::owners_name_every_layer, tenon::(v0::)?at_stage<0>, tenon::(v0::)?has<tenon::(v0::)?quantity::layers, 4>, tenon::(v0::)?has<tenon::(v0::)?quantity::owners, 3>, tenon::(v0::)?would_do<4> ?>
#include <tenon/graph/graph.hpp>
#include <tenon/model/llama.hpp>

using namespace tenon;

struct tiny { static constexpr auto config = model::llama({.layers = 4, .hidden = 64, .heads = 4, .kv_heads = 2, .ffn = 96, .vocab = 101}); };

#ifdef REPAIRED
struct split : owned<tiny, 0, 1, 1, 0> {};
#else
struct split : owned<tiny, 0, 1, 1> {};
#endif
