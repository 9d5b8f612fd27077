// A backend that this program does not have: nothing serves a rank on it.
// SPDX-License-Identifier: Apache-2.0
// expect: broken_law<tenon::(v0::)?law::device_is_available, tenon::(v0::)?at_stage<0>, tenon::(v0::)?has<tenon::(v0::)?quantity::kind, 4>, tenon::(v0::)?has<tenon::(v0::)?quantity::device, 7>, tenon::(v0::)?would_do<> ?>
#include <tenon/graph/graph.hpp>
#include <tenon/model/llama.hpp>

using namespace tenon;

struct tiny { static constexpr auto config = model::llama({.layers = 4, .hidden = 64, .heads = 4, .kv_heads = 2, .ffn = 96, .vocab = 101}); };

template <int Index>
struct absent {
    static constexpr device_kind kind = device_kind::cuda;
    static constexpr int most_ranks = 0;
    static constexpr bool canonical = true;
    static constexpr std::array<device_id, 1> devices{device_id{kind, Index}};
};

#ifdef REPAIRED
struct split : graph<tiny, stage<layers<0, 3>, device::cpu<7>>> {};
#else
struct split : graph<tiny, stage<layers<0, 3>, absent<7>>> {};
#endif
