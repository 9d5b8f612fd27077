// A matrix whose rows are not whole blocks of q8.
// SPDX-License-Identifier: Apache-2.0
// expect: broken_law<tenon::(v0::)?law::blocks_divide_inputs, tenon::(v0::)?at_tensor<0, tenon::(v0::)?role::down>, tenon::(v0::)?has<tenon::(v0::)?quantity::inputs, 2736>, tenon::(v0::)?has<tenon::(v0::)?quantity::block, 32>, tenon::(v0::)?would_do<> ?>
#include <tenon/graph/graph.hpp>
#include <tenon/model/llama.hpp>

using namespace tenon;

#ifdef REPAIRED
constexpr int ffn = 2752;
#else
constexpr int ffn = 2736;  // 85.5 blocks
#endif
struct small { static constexpr auto config = model::llama({.layers = 2, .hidden = 1024, .heads = 16, .kv_heads = 16, .ffn = ffn, .vocab = 32000}); };

struct whole : planned<small, "all@0"> {
    static_assert(cost<weights::q8>().weight_bytes(device_index{0}) < 200'000'000);
};
