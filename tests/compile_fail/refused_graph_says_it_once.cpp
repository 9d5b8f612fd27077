// A budget, a cost, a plan and a lowered graph of a refused graph add nothing to the one error.
// SPDX-License-Identifier: Apache-2.0
// expect: broken_law<tenon::(v0::)?law::layers_cover_the_model, tenon::(v0::)?at_stage<0>, tenon::(v0::)?has<tenon::(v0::)?quantity::layers, 4>, tenon::(v0::)?has<tenon::(v0::)?quantity::last_layer, 2>, tenon::(v0::)?would_do<3> ?>
#include <tenon/graph/graph.hpp>
#include <tenon/model/llama.hpp>

using namespace tenon;

struct tiny { static constexpr auto config = model::llama({.layers = 4, .hidden = 64, .heads = 4, .kv_heads = 2, .ffn = 96, .vocab = 101}); };

#ifdef REPAIRED
struct split : graph<tiny, stage<layers<0, 3>, device::cpu<0, 1>>> {
#else
struct split : graph<tiny, stage<layers<0, 2>, device::cpu<0, 1>>> {
#endif
    static_assert(cost(weights::f32).weight_bytes(device_index{0}) < 3'000'000'000);
};
static_assert(split::cost(weights::bf16).kv_bytes(rank_index{0}, 2048) < 3'000'000'000);
auto const nodes = split::ir().nodes.size();
auto const text = split::plan();
