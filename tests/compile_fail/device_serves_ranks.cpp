// A backend of one device asked for two: a user's own policy.
// SPDX-License-Identifier: Apache-2.0
// expect: broken_law<tenon::(v0::)?law::device_serves_ranks, tenon::(v0::)?at_stage<0>, tenon::(v0::)?has<tenon::(v0::)?quantity::most_ranks, 1>, tenon::(v0::)?has<tenon::(v0::)?quantity::ranks, 2>, tenon::(v0::)?would_do<1> ?>
#include <tenon/graph/graph.hpp>
#include <tenon/model/llama.hpp>

using namespace tenon;

struct tiny { static constexpr auto config = model::llama({.layers = 4, .hidden = 64, .heads = 4, .kv_heads = 2, .ffn = 96, .vocab = 101}); };

template <int... Index>
struct single {
    static constexpr device_kind kind = device_kind::xtensor;
    static constexpr int most_ranks = 1;
    static constexpr bool canonical = true;
    static constexpr std::array<device_id, sizeof...(Index)> devices{device_id{device_kind::xtensor, Index}...};
};

#ifdef REPAIRED
struct split : graph<tiny, stage<layers<0, 3>, single<0>>> {};
#else
struct split : graph<tiny, stage<layers<0, 3>, single<0, 1>>> {};
#endif
