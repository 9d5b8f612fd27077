// A rule for experts on layers that route none.
// SPDX-License-Identifier: Apache-2.0
// expect: broken_law<tenon::(v0::)?law::rule_cuts_something, tenon::(v0::)?at_stage<0>, tenon::(v0::)?has<tenon::(v0::)?quantity::experts, 0>, tenon::(v0::)?has<tenon::(v0::)?quantity::ranks, 2>, tenon::(v0::)?would_do<> ?>
#include <tenon/graph/graph.hpp>
#include <tenon/model/llama.hpp>

using namespace tenon;

struct tiny { static constexpr auto config = model::llama({.layers = 4, .hidden = 64, .heads = 4, .kv_heads = 2, .ffn = 96, .vocab = 101}); };

struct by_expert { static constexpr rules cuts{.expert = true}; };

#ifdef REPAIRED
struct split : graph<tiny, stage<layers<0, 3>, device::cpu<0, 1>>> {};
#else
struct split : graph<tiny, stage<layers<0, 3>, device::cpu<0, 1>, by_expert>> {};
#endif
