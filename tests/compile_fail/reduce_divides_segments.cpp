// Partial sums over three ranks: six heads make two segments, and a rank owns whole ones.
// SPDX-License-Identifier: Apache-2.0
// expect: broken_law<tenon::(v0::)?law::reduce_divides_segments, tenon::(v0::)?at_stage<0>, tenon::(v0::)?has<tenon::(v0::)?quantity::segments, 2>, tenon::(v0::)?has<tenon::(v0::)?quantity::ranks, 3>, tenon::(v0::)?would_do_or_gather<1, 2> ?>
#include <tenon/graph/graph.hpp>
#include <tenon/model/llama.hpp>

using namespace tenon;

struct described { static constexpr auto config = model::llama({.layers = 4, .hidden = 96, .heads = 6, .ffn = 256, .vocab = 101}); };

#ifdef REPAIRED
struct split : graph<described, stage<layers<0, 3>, device::cpu<0, 1>, shard::tensor<join::reduce>>> {};
#else
struct split : graph<described, stage<layers<0, 3>, device::cpu<0, 1, 2>, shard::tensor<join::reduce>>> {};
#endif
