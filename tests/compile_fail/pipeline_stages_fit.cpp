// A pipeline of more stages than layers.
// SPDX-License-Identifier: Apache-2.0
// expect: broken_law<tenon::(v0::)?law::pipeline_stages_fit, tenon::(v0::)?at_stage<0>, tenon::(v0::)?has<tenon::(v0::)?quantity::layers, 4>, tenon::(v0::)?has<tenon::(v0::)?quantity::stages, 5>, tenon::(v0::)?would_do<> ?>
#include <tenon/graph/graph.hpp>
#include <tenon/model/llama.hpp>

using namespace tenon;

struct tiny { static constexpr auto config = model::llama({.layers = 4, .hidden = 64, .heads = 4, .kv_heads = 2, .ffn = 96, .vocab = 101}); };

#ifdef REPAIRED
struct split : pipelined<tiny, 4> {};
#else
struct split : pipelined<tiny, 5> {};
#endif
