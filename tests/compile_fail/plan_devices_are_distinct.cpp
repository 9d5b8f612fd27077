// A device twice in one list, as a plan.
// SPDX-License-Identifier: Apache-2.0
// expect: broken_law<tenon::(v0::)?law::devices_are_distinct, tenon::(v0::)?at_stage<0>, tenon::(v0::)?has<tenon::(v0::)?quantity::devices, 2>, tenon::(v0::)?has<tenon::(v0::)?quantity::device, 0>, tenon::(v0::)?would_do<> ?>
#include <tenon/graph/graph.hpp>
#include <tenon/model/llama.hpp>

using namespace tenon;

struct tiny { static constexpr auto config = model::llama({.layers = 4, .hidden = 64, .heads = 4, .kv_heads = 2, .ffn = 96, .vocab = 101}); };

#ifdef REPAIRED
struct split : planned<tiny, "0-3@0,1"> {};
#else
struct split : planned<tiny, "0-3@0,0"> {};
#endif
