// Routed experts of whole blocks of q8, and a shared one that ends inside a block: it is the one that is named.
// SPDX-License-Identifier: Apache-2.0
// expect: broken_law<tenon::(v0::)?law::blocks_divide_inputs, tenon::(v0::)?at_tensor<1, tenon::(v0::)?role::shared_down>, tenon::(v0::)?has<tenon::(v0::)?quantity::inputs, 336>, tenon::(v0::)?has<tenon::(v0::)?quantity::block, 32>, tenon::(v0::)?would_do<> ?>
#include <tenon/graph/graph.hpp>
#include <tenon/model/kinds.hpp>
#include <tenon/model/llama.hpp>

using namespace tenon;

#ifdef REPAIRED
constexpr int shared_width = 352;
#else
constexpr int shared_width = 336;  // ten and a half blocks
#endif
constexpr auto plain = model::llama({.layers = 4, .hidden = 64, .heads = 4, .kv_heads = 4, .ffn = 96, .vocab = 101});
struct shared { static constexpr auto config = model::with_experts(plain, {.count = 8, .chosen = 2, .width = 128, .shared_width = shared_width}, {2, 3}); };

struct split : planned<shared, "0-1@0;2-3@0,1,2,3:tensor+expert"> {
    static_assert(cost<weights::q8>().weight_bytes(device_index{3}) < 1'000'000);
};
