// Experts of 320 inputs, ten blocks of q8, summed over four ranks: a rank's part would be two and a half.
// SPDX-License-Identifier: Apache-2.0
// expect: broken_law<tenon::(v0::)?law::reduce_divides_segments, tenon::(v0::)?at_stage<0>, tenon::(v0::)?has<tenon::(v0::)?quantity::segments, 2>, tenon::(v0::)?has<tenon::(v0::)?quantity::ranks, 4>, tenon::(v0::)?would_do_or_gather<1, 2> ?>
#include <tenon/graph/graph.hpp>
#include <tenon/model/qwen3_moe.hpp>

using namespace tenon;

struct narrow { static constexpr auto config = model::qwen3_moe({.layers = 2, .hidden = 64, .heads = 8, .kv_heads = 8, .head_dim = 32, .ffn = 256, .experts = 8, .experts_per_token = 2, .expert_width = 320, .vocab = 256}); };

#ifdef REPAIRED
struct split : planned<narrow, "all@0,1:expert_width.reduce"> {
#else
struct split : planned<narrow, "all@0,1,2,3:expert_width.reduce"> {
#endif
    static_assert(cost<weights::q8>().weight_bytes(device_index{0}) < 1'000'000);
};
