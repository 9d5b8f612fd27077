// A boundary that rounds what crosses it, without saying that it is lossy.
// SPDX-License-Identifier: Apache-2.0
// expect: broken_law<tenon::(v0::)?law::boundary_keeps_bits, tenon::(v0::)?at_stage<0>, tenon::(v0::)?has<tenon::(v0::)?quantity::bytes_per_element, 2>, tenon::(v0::)?has<tenon::(v0::)?quantity::bytes_per_element, 4>, tenon::(v0::)?would_do<> ?>
#include <tenon/graph/graph.hpp>
#include <tenon/model/llama.hpp>

using namespace tenon;

struct tiny { static constexpr auto config = model::llama({.layers = 4, .hidden = 64, .heads = 4, .kv_heads = 2, .ffn = 96, .vocab = 101}); };

#ifdef REPAIRED
struct split : graph<tiny, stage<layers<0, 3>, boundary::residual<>>> {};
#else
struct split : graph<tiny, stage<layers<0, 3>, boundary::residual<boundary_schema, dtype::f16>>> {};
#endif
