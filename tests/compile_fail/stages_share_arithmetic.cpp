// A backend with an arithmetic of its own beside a canonical one: moving the cut would change bits.
// SPDX-License-Identifier: Apache-2.0
// expect: broken_law<tenon::(v0::)?law::stages_share_arithmetic, tenon::(v0::)?at_stage<1>, tenon::(v0::)?has<tenon::(v0::)?quantity::kind, 1>, tenon::(v0::)?has<tenon::(v0::)?quantity::kind, 3>, tenon::(v0::)?would_do<1> ?>
#include <tenon/graph/graph.hpp>
#include <tenon/model/llama.hpp>

using namespace tenon;

struct tiny { static constexpr auto config = model::llama({.layers = 4, .hidden = 64, .heads = 4, .kv_heads = 2, .ffn = 96, .vocab = 101}); };

template <int... Index>
struct own_bits {
    static constexpr device_kind kind = device_kind::eigen;
    static constexpr int most_ranks = 64;
    static constexpr bool canonical = false;
    static constexpr std::array<device_id, sizeof...(Index)> devices{device_id{kind, Index}...};
};

#ifdef REPAIRED
struct split : graph<tiny, stage<layers<0, 1>, own_bits<0>>, stage<layers<2, 3>, own_bits<1>>> {};
#else
struct split : graph<tiny, stage<layers<0, 1>, device::cpu<0>>, stage<layers<2, 3>, own_bits<1>>> {};
#endif
