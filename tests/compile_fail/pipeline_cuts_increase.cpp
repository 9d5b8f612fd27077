// A pipeline whose second cut lies before the first.
// SPDX-License-Identifier: Apache-2.0
// expect: broken_law<tenon::(v0::)?law::pipeline_cuts_increase, tenon::(v0::)?at_stage<1>, tenon::(v0::)?has<tenon::(v0::)?quantity::first_layer, 3>, tenon::(v0::)?has<tenon::(v0::)?quantity::cut, 1>, tenon::(v0::)?would_do<> ?>
#include <tenon/graph/graph.hpp>
#include <tenon/model/llama.hpp>

using namespace tenon;

struct tiny { static constexpr auto config = model::llama({.layers = 4, .hidden = 64, .heads = 4, .kv_heads = 2, .ffn = 96, .vocab = 101}); };

#ifdef REPAIRED
struct split : pipelined_at<tiny, 1, 3> {};
#else
struct split : pipelined_at<tiny, 3, 1> {};
#endif
