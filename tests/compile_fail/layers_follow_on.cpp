// A gap between two stages.
// SPDX-License-Identifier: Apache-2.0
// expect: broken_law<tenon::(v0::)?law::layers_follow_on, tenon::(v0::)?at_stage<1>, tenon::(v0::)?has<tenon::(v0::)?quantity::next_layer, 1>, tenon::(v0::)?has<tenon::(v0::)?quantity::first_layer, 2>, tenon::(v0::)?would_do<1> ?>
#include <tenon/graph/graph.hpp>
#include <tenon/model/llama.hpp>

using namespace tenon;

struct tiny { static constexpr auto config = model::llama({.layers = 4, .hidden = 64, .heads = 4, .kv_heads = 2, .ffn = 96, .vocab = 101}); };

#ifdef REPAIRED
struct split : graph<tiny, stage<layers<0, 0>>, stage<layers<1, 3>>> {};
#else
struct split : graph<tiny, stage<layers<0, 0>>, stage<layers<2, 3>>> {};
#endif
