// A budget inside a lawful graph: the user's own assertion, and its one error.
// SPDX-License-Identifier: Apache-2.0
// expect: static assertion failed|static_assert failed
#include <tenon/graph/graph.hpp>
#include <tenon/model/llama.hpp>

using namespace tenon;

struct tiny { static constexpr auto config = model::llama({.layers = 4, .hidden = 64, .heads = 4, .kv_heads = 2, .ffn = 96, .vocab = 101}); };

struct split : graph<tiny, stage<layers<0, 3>, device::cpu<0, 1>>> {
#ifdef REPAIRED
    static_assert(cost(weights::f32).weight_bytes(device_index{0}) < 1'000'000);
#else
    static_assert(cost(weights::f32).weight_bytes(device_index{0}) < 1000);
#endif
};
