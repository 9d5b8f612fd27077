// A range written backwards, as a plan.
// SPDX-License-Identifier: Apache-2.0
// expect: broken_law<tenon::(v0::)?law::layers_run_forward, tenon::(v0::)?at_stage<0>, tenon::(v0::)?has<tenon::(v0::)?quantity::first_layer, 3>, tenon::(v0::)?has<tenon::(v0::)?quantity::last_layer, 1>, tenon::(v0::)?would_do<> ?>
#include <tenon/graph/graph.hpp>
#include <tenon/model/llama.hpp>

using namespace tenon;

struct tiny { static constexpr auto config = model::llama({.layers = 4, .hidden = 64, .heads = 4, .kv_heads = 2, .ffn = 96, .vocab = 101}); };

#ifdef REPAIRED
struct split : planned<tiny, "0-3@0,1"> {};
#else
struct split : planned<tiny, "3-1@0,1"> {};
#endif
