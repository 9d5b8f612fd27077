// Experts without a width.
// SPDX-License-Identifier: Apache-2.0
// expect: broken_law<tenon::(v0::)?law::shape_is_positive, tenon::(v0::)?at_stage<0>, tenon::(v0::)?has<tenon::(v0::)?quantity::extent, 0>, tenon::(v0::)?has<tenon::(v0::)?quantity::limit, 1>, tenon::(v0::)?would_do<> ?>
#include <tenon/graph/graph.hpp>
#include <tenon/model/mixtral.hpp>

using namespace tenon;

#ifdef REPAIRED
struct mixture { static constexpr auto config = model::mixtral({.layers = 4, .hidden = 64, .heads = 4, .kv_heads = 2, .experts = 8, .experts_per_token = 2, .expert_width = 1, .vocab = 101}); };
#else
struct mixture { static constexpr auto config = model::mixtral({.layers = 4, .hidden = 64, .heads = 4, .kv_heads = 2, .experts = 8, .experts_per_token = 2, .expert_width = 0, .vocab = 101}); };
#endif

struct whole : graph<mixture, stage<layers<0, 3>>> {};
