// A model without a vocabulary.
// SPDX-License-Identifier: Apache-2.0
// expect: broken_law<tenon::(v0::)?law::shape_is_positive, tenon::(v0::)?at_stage<0>, tenon::(v0::)?has<tenon::(v0::)?quantity::extent, 0>, tenon::(v0::)?has<tenon::(v0::)?quantity::limit, 1>, tenon::(v0::)?would_do<> ?>
#include <tenon/graph/graph.hpp>
#include <tenon/model/llama.hpp>

using namespace tenon;

#ifdef REPAIRED
struct described { static constexpr auto config = model::llama({.layers = 4, .hidden = 64, .heads = 4, .kv_heads = 2, .head_dim = 16, .ffn = 96, .vocab = 101}); };
#else
struct described { static constexpr auto config = model::llama({.layers = 4, .hidden = 64, .heads = 4, .kv_heads = 2, .head_dim = 16, .ffn = 96, .vocab = 0}); };
#endif

struct whole : graph<described, stage<layers<0, 3>>> {};
