// Two boundary policies.
// SPDX-License-Identifier: Apache-2.0
// expect: a stage has one boundary policy
#include <tenon/graph/graph.hpp>
#include <tenon/model/llama.hpp>

using namespace tenon;

struct tiny { static constexpr auto config = model::llama({.layers = 4, .hidden = 64, .heads = 4, .kv_heads = 2, .ffn = 96, .vocab = 101}); };

#ifdef REPAIRED
struct split : graph<tiny, stage<layers<0, 3>, boundary::residual<>>> {};
#else
struct split : graph<tiny, stage<layers<0, 3>, boundary::residual<>, boundary::residual<>>> {};
#endif
