// More groups to choose from than there are.
// SPDX-License-Identifier: Apache-2.0
// expect: broken_law<tenon::(v0::)?law::chosen_groups_exist, tenon::(v0::)?at_stage<0>, tenon::(v0::)?has<tenon::(v0::)?quantity::groups, 4>, tenon::(v0::)?has<tenon::(v0::)?quantity::chosen_groups, 5>, tenon::(v0::)?would_do<4> ?>
#include <tenon/graph/graph.hpp>
#include <tenon/model/kinds.hpp>
#include <tenon/model/llama.hpp>

using namespace tenon;

constexpr model_config plain = model::llama({.layers = 4, .hidden = 64, .heads = 4, .kv_heads = 2, .ffn = 96, .vocab = 101});

#ifdef REPAIRED
struct grouped { static constexpr auto config = model::with_experts(plain, {.count = 8, .chosen = 2, .width = 96, .groups = 4, .chosen_groups = 4}, {1, 2, 3}); };
#else
struct grouped { static constexpr auto config = model::with_experts(plain, {.count = 8, .chosen = 2, .width = 96, .groups = 4, .chosen_groups = 5}, {1, 2, 3}); };
#endif

struct whole : graph<grouped, stage<layers<0, 3>>> {};
