// A vocabulary smaller than the ranks of the stage that embeds.
// SPDX-License-Identifier: Apache-2.0
// expect: broken_law<tenon::(v0::)?law::every_rank_has_work, tenon::(v0::)?at_stage<0>, tenon::(v0::)?has<tenon::(v0::)?quantity::vocab, 3>, tenon::(v0::)?has<tenon::(v0::)?quantity::ranks, 4>, tenon::(v0::)?would_do<1, 2> ?>
#include <tenon/graph/graph.hpp>
#include <tenon/model/llama.hpp>

using namespace tenon;

struct described { static constexpr auto config = model::llama({.layers = 4, .hidden = 64, .heads = 4, .kv_heads = 2, .ffn = 96, .vocab = 3}); };

#ifdef REPAIRED
struct split : graph<described, stage<layers<0, 1>, device::cpu<0, 1>>, stage<layers<2, 3>>> {};
#else
struct split : graph<described, stage<layers<0, 1>, device::cpu<0, 1, 2, 3>>, stage<layers<2, 3>>> {};
#endif
