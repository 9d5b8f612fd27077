// One small geometry of every family, each with what sets it apart; and routed ones of every shape.
// SPDX-License-Identifier: Apache-2.0
#pragma once
#include "random_model.hpp"

#include <vector>

namespace support {

/// Four layers, eight heads over two or four KV heads; every product cuts into 8 segments, so that `reduce` is legal on 2, 4 and 8 ranks.
inline std::vector<geometry> dense_families() {
    std::vector<geometry> all;
    geometry g{.hidden = 64, .heads = 8, .kv_heads = 4, .ffn = 256, .vocab = 61};
    for (std::string const family : {"llama", "mistral", "qwen2", "qwen3", "phi3"}) {
        geometry f = g;
        f.name = f.family = family;
        if (family == "mistral") f.window = 9, f.kv_heads = 2, f.type = tenon::dtype::bf16;
        if (family == "qwen2") f.tied = true;
        if (family == "qwen3") f.head_dim = 24, f.window = 17, f.first_window_layer = 2, f.type = tenon::dtype::f16;
        if (family == "phi3") f.window = 40, f.type = tenon::dtype::bf16;
        all.push_back(f);
    }
    return all;
}

/// Four layers, eight heads over four KV heads, and experts whose products cut into 8 segments.
inline std::vector<geometry> routed_families() {
    geometry mixtral{.name = "mixtral", .hidden = 64, .heads = 8, .kv_heads = 4, .ffn = 256, .vocab = 61};
    mixtral.family = "mixtral";
    mixtral.window = 21;
    mixtral.type = tenon::dtype::bf16;
    mixtral.experts = {.count = 8, .chosen = 2, .width = 256, .normalised = true};

    geometry sparse{.name = "qwen3_moe, sixteen experts, dense layers", .hidden = 64, .heads = 8, .kv_heads = 4, .ffn = 256, .vocab = 61};
    sparse.family = "qwen3_moe";
    sparse.head_dim = 24;
    sparse.experts = {.count = 16, .chosen = 4, .width = 256, .normalised = true};
    sparse.dense_layers = {0};

    geometry top_one{.name = "qwen3_moe, the best of eleven", .hidden = 64, .heads = 8, .kv_heads = 4, .ffn = 256, .vocab = 61};
    top_one.family = "qwen3_moe";
    top_one.type = tenon::dtype::f16;
    top_one.tied = top_one.attention_bias = top_one.stacked = true;
    top_one.experts = {.count = 11, .chosen = 1, .width = 256};
    top_one.sparse_step = 2;
    return {mixtral, sparse, top_one};
}

}  // namespace support
