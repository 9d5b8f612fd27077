// A reduce join of more ranks than the segments of whole q8 blocks: heads of 16 share a block with their neighbours.
// SPDX-License-Identifier: Apache-2.0
// expect: broken_law<tenon::(v0::)?law::reduce_divides_segments, tenon::(v0::)?at_tensor<0, tenon::(v0::)?role::o>, tenon::(v0::)?has<tenon::(v0::)?quantity::segments, 4>, tenon::(v0::)?has<tenon::(v0::)?quantity::ranks, 8>, tenon::(v0::)?would_do_or_gather<1, 2, 4> ?>
#include <tenon/graph/graph.hpp>
#include <tenon/model/llama.hpp>

using namespace tenon;

struct small { static constexpr auto config = model::llama({.layers = 2, .hidden = 128, .heads = 8, .kv_heads = 8, .ffn = 512, .vocab = 256}); };

struct split : planned<small, "all@0,1,2,3,4,5,6,7:tensor.reduce"> {
#ifdef REPAIRED
    static_assert(cost<weights::bf16>().weight_bytes(device_index{7}) < 200'000);
#else
    static_assert(cost<weights::q8>().weight_bytes(device_index{7}) < 200'000);
#endif
};
