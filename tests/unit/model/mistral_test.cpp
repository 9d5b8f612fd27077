// Mistral: its shape, and what its config.json may say.
// SPDX-License-Identifier: Apache-2.0
#include "support.hpp"

#include <tenon/model/mistral.hpp>

using namespace model_test;

namespace {

// What a config.json without optional fields describes.
constexpr model::mistral_shape base{.layers = 4,
                                    .hidden = 64,
                                    .heads = 8,
                                    .kv_heads = 2,
                                    .ffn = 96,
                                    .vocab = 128,
                                    .max_positions = 131072,
                                    .rms_epsilon = 1e-6,
                                    .window = 4096};
constexpr model::mistral_shape windowed(int window) {
    model::mistral_shape s = base;
    s.window = window;
    return s;
}

static_assert(model::mistral(base).kinds[0].attention == tenon::grouped_attention{8, 2, 8, false, false, false, 4096});
static_assert(model::mistral({.hidden = 5120, .heads = 32, .head_dim = 128}).kinds[0].attention.head_dim == 128);
static_assert(model::mistral({.heads = 8}).kinds[0].attention.kv_heads == 8);
static_assert(model::mistral({.layers = 2, .scaling = rope_scaling::linear, .factor = 2.0}).rope.factor == 2.0);

}  // namespace

TEST_CASE("the window of a mistral is in every layer: 4096 where the key is absent, none where it is null") {
    model::mistral_shape other = base;
    other.max_positions = 512;
    other.rope_theta = 1e6;
    other.rms_epsilon = 1e-5;
    other.head_dim = 16;
    other.tied = true;
    other.window = 0;
    good const table[]{
        {"", model::mistral(base)},
        {R"("sliding_window": null)", model::mistral(windowed(0))},
        {R"("sliding_window": 8)", model::mistral(windowed(8))},
        {R"("sliding_window": 8.0, "use_sliding_window": true, "max_window_layers": 0)", model::mistral(windowed(8))},
        {R"("sliding_window": null, "use_sliding_window": false, "max_window_layers": 21)", model::mistral(windowed(0))},
        {R"("sliding_window": 8, "layer_types": ["sliding_attention", "sliding_attention", "sliding_attention", "sliding_attention"])",
         model::mistral(windowed(8))},
        {R"("sliding_window": null, "layer_types": ["full_attention", "full_attention", "full_attention", "full_attention"])",
         model::mistral(windowed(0))},
        {R"("attention_bias": false, "mlp_bias": null, "use_qk_norm": false)", model::mistral(base)},
        {R"("sliding_window": null, "max_position_embeddings": 512, "rope_theta": 1e6, "rms_norm_eps": 1e-5, "head_dim": 16, "tie_word_embeddings": true)",
         model::mistral(other)}};
    read_as_meant("mistral", table);
}

TEST_CASE("a mistral is refused by the field and the value that is not one") {
    constexpr bad table[]{
        {R"("num_key_value_heads")",
         "config_field_is_present: config.json: num_key_value_heads is missing; a whole number for each, as this reader guesses no widths, "
         "would do"},
        {R"("num_key_value_heads": null)",
         "config_field_is_present: config.json: num_key_value_heads is missing; a whole number for each, as this reader guesses no widths, "
         "would do"},
        {R"("sliding_window": 0)",
         "config_value_is_supported: config.json: sliding_window = 0; a whole number from 1 to 2147483647 would do"},
        {R"("sliding_window": -1)",
         "config_value_is_supported: config.json: sliding_window = -1; a whole number from 1 to 2147483647 would do"},
        {R"("sliding_window": "8")", "config_field_has_type: config.json: sliding_window = \"8\"; a whole number would do"},
        {R"("sliding_window": true)", "config_field_has_type: config.json: sliding_window = true; a whole number would do"},
        {R"("sliding_window": 8, "use_sliding_window": false)",
         "config_value_is_supported: config.json: use_sliding_window = false; true would do"},
        {R"("sliding_window": null, "use_sliding_window": true)",
         "config_value_is_supported: config.json: use_sliding_window = true; false would do"},
        {R"("sliding_window": 8, "max_window_layers": 2)",
         "config_value_is_supported: config.json: max_window_layers = 2; 0, as every layer has the window, would do"},
        {R"("sliding_window": 8, "layer_types": ["sliding_attention", "full_attention", "sliding_attention", "sliding_attention"])",
         "config_value_is_supported: config.json: layer_types[1] = \"full_attention\"; \"sliding_attention\" for every layer would do"},
        {R"("sliding_window": null, "layer_types": ["sliding_attention", "full_attention", "full_attention", "full_attention"])",
         "config_value_is_supported: config.json: layer_types[0] = \"sliding_attention\"; \"full_attention\" for every layer would do"},
        {R"("attention_bias": true)", "config_value_is_supported: config.json: attention_bias = true; false would do"},
        {R"("mlp_bias": true)", "config_value_is_supported: config.json: mlp_bias = true; false would do"},
        {R"("qkv_bias": true)", "config_value_is_supported: config.json: qkv_bias = true; false would do"},
        {R"("use_qk_norm": true)", "config_value_is_supported: config.json: use_qk_norm = true; false would do"}};
    refused_as_said("mistral", table);
}
