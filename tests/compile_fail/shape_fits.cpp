// More layers than the library counts with.
// SPDX-License-Identifier: Apache-2.0
// expect: broken_law<tenon::(v0::)?law::shape_fits, tenon::(v0::)?at_stage<0>, tenon::(v0::)?has<tenon::(v0::)?quantity::layers, 300>, tenon::(v0::)?has<tenon::(v0::)?quantity::limit, 256>, tenon::(v0::)?would_do<256> ?>
#include <tenon/graph/graph.hpp>
#include <tenon/model/llama.hpp>

using namespace tenon;

#ifdef REPAIRED
struct described { static constexpr auto config = model::llama({.layers = 4, .hidden = 64, .heads = 4, .kv_heads = 2, .ffn = 96, .vocab = 101}); };
#else
struct described { static constexpr auto config = model::llama({.layers = 300, .hidden = 64, .heads = 4, .kv_heads = 2, .ffn = 96, .vocab = 101}); };
#endif

struct whole : graph<described, stage<layers<0, 3>>> {};
