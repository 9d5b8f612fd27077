// The same, from a plan.
// SPDX-License-Identifier: Apache-2.0
// expect: broken_law<tenon::(v0::)?law::experts_divide_over_ranks, tenon::(v0::)?at_stage<1>, tenon::(v0::)?has<tenon::(v0::)?quantity::experts, 8>, tenon::(v0::)?has<tenon::(v0::)?quantity::ranks, 3>, tenon::(v0::)?would_do<1, 2, 4, 8> ?>
#include <tenon/graph/graph.hpp>
#include <tenon/model/mixtral.hpp>

using namespace tenon;

struct mixture { static constexpr auto config = model::mixtral({.layers = 4, .hidden = 64, .heads = 4, .kv_heads = 2, .experts = 8, .experts_per_token = 2, .expert_width = 96, .vocab = 101}); };

#ifdef REPAIRED
struct split : planned<mixture, "0@0;1-3@0,1,2:expert"> {};
#else
struct split : planned<mixture, "0@0;1-3@0,1,2:expert.exact"> {};
#endif
