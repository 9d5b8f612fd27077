// Qwen3: its shape, and what its config.json may say.
// SPDX-License-Identifier: Apache-2.0
#include "support.hpp"

#include <tenon/model/qwen3.hpp>

using namespace model_test;

namespace {

// What a config.json without optional fields describes.
constexpr model::qwen3_shape base{
    .layers = 4, .hidden = 64, .heads = 8, .kv_heads = 2, .ffn = 96, .vocab = 128, .max_positions = 32768, .rms_epsilon = 1e-6};
constexpr model::qwen3_shape windowed(int window, int first) {
    model::qwen3_shape s = base;
    s.window = window;
    s.first_window_layer = first;
    return s;
}

static_assert(model::qwen3(base).kinds[0].attention == tenon::grouped_attention{8, 2, 128, false, false, true, 0});
static_assert(model::qwen3({.hidden = 64, .heads = 8, .head_dim = 32}).kinds[0].attention.head_dim == 32);
static_assert(model::qwen3({.attention_bias = true}).kinds[0].attention.qkv_bias);
static_assert(model::qwen3({.attention_bias = true}).kinds[0].attention.output_bias);
static_assert(has_windows(model::qwen3(windowed(8, 2)), {0, 0, 8, 8}));
static_assert(model::qwen3(windowed(8, 2)).kinds[1].attention.qk_norm);
static_assert(model::qwen3(windowed(8, 4)) == model::qwen3(base));

}  // namespace

TEST_CASE("a qwen3 has heads of 128, biases by its key and windows as qwen2 has them") {
    model_config const plain = model::qwen3(base);
    model::qwen3_shape biased = base, other = base, alone = base;
    biased.attention_bias = true;
    other.max_positions = 512;
    other.rope_theta = 1e6;
    other.head_dim = 32;
    other.tied = true;
    alone.kv_heads = 8;
    good const table[]{
        {"", plain},
        {R"("head_dim": null, "attention_bias": false, "mlp_bias": false, "use_qk_norm": true, "sliding_window": null)", plain},
        {R"("attention_bias": true)", model::qwen3(biased)},
        {R"("num_key_value_heads")", model::qwen3(alone)},
        {R"("sliding_window": 8, "use_sliding_window": false, "max_window_layers": 2)", plain},
        {R"("sliding_window": null, "use_sliding_window": true, "max_window_layers": 2)", plain},
        {R"("sliding_window": 8, "use_sliding_window": true, "max_window_layers": 2)", model::qwen3(windowed(8, 2))},
        {R"("sliding_window": 8, "use_sliding_window": true,
            "layer_types": ["sliding_attention", "sliding_attention", "full_attention", "full_attention"])",
         model::with_window(plain, 8, {0, 1})},
        {R"("sliding_window": 8, "use_sliding_window": true,
            "layer_types": ["sliding_attention", "sliding_attention", "sliding_attention", "sliding_attention"])",
         model::qwen3(windowed(8, 0))},
        {R"("max_position_embeddings": 512, "rope_parameters": {"rope_type": "default", "rope_theta": 1000000}, "head_dim": 32,
            "tie_word_embeddings": true)",
         model::qwen3(other)}};
    read_as_meant("qwen3", table);
}

TEST_CASE("a qwen3 is refused by the field and the value that is not one") {
    constexpr bad table[]{
        {R"("use_qk_norm": false)", "config_value_is_supported: config.json: use_qk_norm = false; true would do"},
        {R"("qkv_bias": true)", "config_value_is_supported: config.json: qkv_bias = true; false would do"},
        {R"("mlp_bias": true)", "config_value_is_supported: config.json: mlp_bias = true; false would do"},
        {R"("attention_bias": 1)", "config_field_has_type: config.json: attention_bias = 1; true or false would do"},
        {R"("layer_types": ["full_attention"])",
         "config_keys_agree: config.json: layer_types has 1 entries; 4, as num_hidden_layers says, would do"},
        {R"("layer_types": ["full_attention", "sliding_attention", "full_attention", "full_attention"])",
         "config_value_is_supported: config.json: layer_types[1] = \"sliding_attention\"; \"full_attention\" for every layer, or a "
         "sliding_window with use_sliding_window true, would do"},
        {R"("use_sliding_window": true)",
         "config_field_is_present: config.json: sliding_window is missing; a number of keys, or null for no window, would do"},
        {R"("num_experts": 128)", "config_value_is_supported: config.json: num_experts = 128; qwen3 has none; null would do"},
        {R"("rope_scaling": {"rope_type": "yarn", "factor": 4.0})",
         "config_value_is_supported: config.json: rope_scaling.rope_type = \"yarn\"; \"default\", \"linear\", \"dynamic\" or \"llama3\" "
         "would do"}};
    refused_as_said("qwen3", table);
}
