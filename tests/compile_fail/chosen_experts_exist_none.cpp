// A router that chooses nothing.
// SPDX-License-Identifier: Apache-2.0
// expect: broken_law<tenon::(v0::)?law::chosen_experts_exist, tenon::(v0::)?at_stage<0>, tenon::(v0::)?has<tenon::(v0::)?quantity::experts, 8>, tenon::(v0::)?has<tenon::(v0::)?quantity::chosen_experts, 0>, tenon::(v0::)?would_do<1> ?>
#include <tenon/graph/graph.hpp>
#include <tenon/model/mixtral.hpp>

using namespace tenon;

#ifdef REPAIRED
struct mixture { static constexpr auto config = model::mixtral({.layers = 4, .hidden = 64, .heads = 4, .kv_heads = 2, .experts = 8, .experts_per_token = 1, .expert_width = 96, .vocab = 101}); };
#else
struct mixture { static constexpr auto config = model::mixtral({.layers = 4, .hidden = 64, .heads = 4, .kv_heads = 2, .experts = 8, .experts_per_token = 0, .expert_width = 96, .vocab = 101}); };
#endif

struct whole : graph<mixture, stage<layers<0, 3>>> {};
