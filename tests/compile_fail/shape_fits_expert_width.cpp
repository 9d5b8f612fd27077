// Experts that together are wider than the library counts with: 2^24.
// SPDX-License-Identifier: Apache-2.0
// expect: broken_law<tenon::(v0::)?law::shape_fits, tenon::(v0::)?at_stage<0>, tenon::(v0::)?has<tenon::(v0::)?quantity::experts, 1000>, tenon::(v0::)?has<tenon::(v0::)?quantity::expert_width, 16778>, tenon::(v0::)?would_do<16777> ?>
#include <tenon/graph/graph.hpp>
#include <tenon/model/mixtral.hpp>

using namespace tenon;

#ifdef REPAIRED
struct mixture { static constexpr auto config = model::mixtral({.layers = 4, .hidden = 64, .heads = 4, .kv_heads = 2, .experts = 1000, .experts_per_token = 2, .expert_width = 16777, .vocab = 101}); };
#else
struct mixture { static constexpr auto config = model::mixtral({.layers = 4, .hidden = 64, .heads = 4, .kv_heads = 2, .experts = 1000, .experts_per_token = 2, .expert_width = 16778, .vocab = 101}); };
#endif

struct whole : graph<mixture, stage<layers<0, 3>>> {};
