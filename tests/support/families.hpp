// One small geometry of every dense family, each with what sets it apart.
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

}  // namespace support
