// The same through an alias, which is checked where it is first used.
// SPDX-License-Identifier: Apache-2.0
// expect: broken_law<tenon::(v0::)?law::heads_divide_over_ranks, tenon::(v0::)?at_stage<1>, tenon::(v0::)?has<tenon::(v0::)?quantity::heads, 30>, tenon::(v0::)?has<tenon::(v0::)?quantity::ranks, 4>, tenon::(v0::)?would_do<1, 2, 3, 6, 30> ?>
#include <tenon/graph/graph.hpp>
#include <tenon/model/llama.hpp>

using namespace tenon;

struct described { static constexpr auto config = model::llama({.layers = 4, .hidden = 480, .heads = 30, .kv_heads = 6, .ffn = 96, .vocab = 101}); };

#ifdef REPAIRED
using split = graph<described, stage<layers<0, 1>>, stage<layers<2, 3>, device::cpu<0, 1, 2>, shard::tensor<>>>;
#else
using split = graph<described, stage<layers<0, 1>>, stage<layers<2, 3>, device::cpu<0, 1, 2, 3>, shard::tensor<>>>;
#endif

auto const messages = split::cost(weights::f32).seam_messages_per_token(0);
