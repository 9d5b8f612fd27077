// An FFN narrower than its ranks.
// SPDX-License-Identifier: Apache-2.0
// expect: broken_law<tenon::(v0::)?law::every_rank_has_work, tenon::(v0::)?at_stage<1>, tenon::(v0::)?has<tenon::(v0::)?quantity::ffn, 3>, tenon::(v0::)?has<tenon::(v0::)?quantity::ranks, 4>, tenon::(v0::)?would_do<1, 2> ?>
#include <tenon/graph/graph.hpp>
#include <tenon/model/llama.hpp>

using namespace tenon;

struct described { static constexpr auto config = model::llama({.layers = 4, .hidden = 64, .heads = 4, .kv_heads = 2, .ffn = 3, .vocab = 101}); };

#ifdef REPAIRED
struct split : graph<described, stage<layers<0, 1>>, stage<layers<2, 3>, device::cpu<0, 1>, shard::tensor<>>> {};
#else
struct split : graph<described, stage<layers<0, 1>>, stage<layers<2, 3>, device::cpu<0, 1, 2, 3>, shard::tensor<>>> {};
#endif
