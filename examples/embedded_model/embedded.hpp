// The embedded model as a type: the numbers of model/config.json, which a test compares, and its vocabulary, which is bytes.
// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <tenon/core/config.hpp>
#include <tenon/model/llama.hpp>

#include <span>
#include <string>
#include <string_view>
#include <vector>

/// A llama of about a million parameters whose tokens are bytes.
struct embedded_model {
    static constexpr auto config =
        tenon::model::llama({.layers = 4, .hidden = 128, .heads = 8, .kv_heads = 8, .ffn = 512, .vocab = 256, .max_positions = 512});
    static constexpr int half = config.layers / 2, last = config.layers - 1;  ///< where the examples cut it
};

/// A token for every byte of the text.
inline std::vector<tenon::token_id> tokens_of(std::string_view text) {
    std::vector<tenon::token_id> ids;
    for (char const c : text) ids.push_back(static_cast<unsigned char>(c));
    return ids;
}

inline std::string text_of(std::span<tenon::token_id const> ids) {
    std::string text;
    for (tenon::token_id const id : ids) text += static_cast<char>(id);
    return text;
}
