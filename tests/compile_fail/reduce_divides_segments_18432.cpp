// 18432 inputs of down, 576 blocks of q8, summed over 32 ranks: there are eight sums at most.
// SPDX-License-Identifier: Apache-2.0
// expect: broken_law<tenon::(v0::)?law::reduce_divides_segments, tenon::(v0::)?at_stage<0>, tenon::(v0::)?has<tenon::(v0::)?quantity::segments, 8>, tenon::(v0::)?has<tenon::(v0::)?quantity::ranks, 32>, tenon::(v0::)?would_do_or_gather<1, 2, 4, 8> ?>
#include <tenon/graph/graph.hpp>
#include <tenon/model/llama.hpp>

using namespace tenon;

struct wide { static constexpr auto config = model::llama({.layers = 2, .hidden = 4096, .heads = 32, .kv_heads = 32, .ffn = 18432, .vocab = 256}); };

#ifdef REPAIRED
using joined = join::gather;
#else
using joined = join::reduce;
#endif
using many = device::cpu<0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30, 31>;

struct split : graph<wide, stage<layers<0, 1>, many, shard::tensor<joined>>> {
    static_assert(cost<weights::q8>().weight_bytes(device_index{31}) < 1'000'000'000);
};
