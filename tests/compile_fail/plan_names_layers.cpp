// A part that begins with a word.
// SPDX-License-Identifier: Apache-2.0
// expect: broken_law<tenon::(v0::)?law::plan_names_layers, tenon::(v0::)?at_stage<0>, tenon::(v0::)?has<tenon::(v0::)?quantity::character, 0>, tenon::(v0::)?has<tenon::(v0::)?quantity::nothing, 0>, tenon::(v0::)?would_do<> ?>
#include <tenon/graph/graph.hpp>
#include <tenon/model/llama.hpp>

using namespace tenon;

struct tiny { static constexpr auto config = model::llama({.layers = 4, .hidden = 64, .heads = 4, .kv_heads = 2, .ffn = 96, .vocab = 101}); };

#ifdef REPAIRED
struct split : planned<tiny, "all@0"> {};
#else
struct split : planned<tiny, "banana"> {};
#endif
