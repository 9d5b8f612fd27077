// Qwen2: its shape, and what its config.json may say.
// SPDX-License-Identifier: Apache-2.0
#include "support.hpp"

#include <tenon/model/qwen2.hpp>

using namespace model_test;

namespace {

// What a config.json without optional fields describes.
constexpr model::qwen2_shape base{
    .layers = 4, .hidden = 64, .heads = 8, .kv_heads = 2, .ffn = 96, .vocab = 128, .max_positions = 32768, .rms_epsilon = 1e-6};
constexpr model::qwen2_shape windowed(int window, int first) {
    model::qwen2_shape s = base;
    s.window = window;
    s.first_window_layer = first;
    return s;
}

static_assert(model::qwen2(base).kinds[0].attention == tenon::grouped_attention{8, 2, 8, true, false, false, 0});
static_assert(!model::qwen2(base).kinds[0].ffn.bias);
static_assert(has_windows(model::qwen2(windowed(8, 0)), {8, 8, 8, 8}));
static_assert(has_windows(model::qwen2(windowed(8, 3)), {0, 0, 0, 8}));
static_assert(model::qwen2(windowed(8, 4)) == model::qwen2(base) && model::qwen2(windowed(0, 2)) == model::qwen2(base));
static_assert(model::qwen2(windowed(8, 3)).kinds[1].attention.qkv_bias);

}  // namespace

TEST_CASE("the layers of a qwen2 are windowed by a switch, a first layer or a list") {
    model_config const plain = model::qwen2(base);
    model::qwen2_shape other = base;
    other.max_positions = 512;
    other.rope_theta = 1e6;
    other.head_dim = 16;
    other.tied = true;
    good const table[]{
        {"", plain},
        {R"("sliding_window": 8, "use_sliding_window": false, "max_window_layers": 2)", plain},
        {R"("sliding_window": 8)", plain},
        {R"("sliding_window": 0, "use_sliding_window": false)", plain},
        {R"("sliding_window": null, "use_sliding_window": true, "max_window_layers": 2)", plain},
        {R"("sliding_window": 8, "use_sliding_window": true, "max_window_layers": 2)", model::qwen2(windowed(8, 2))},
        {R"("sliding_window": 8, "use_sliding_window": true, "max_window_layers": 0)", model::qwen2(windowed(8, 0))},
        {R"("sliding_window": 8, "use_sliding_window": true)", plain},  // 28 layers are full
        {R"("sliding_window": 8, "use_sliding_window": true, "max_window_layers": 4,
            "layer_types": ["sliding_attention", "full_attention", "sliding_attention", "full_attention"])",
         model::with_window(plain, 8, {0, 2})},
        {R"("sliding_window": 8, "use_sliding_window": true, "max_window_layers": 0,
            "layer_types": ["full_attention", "full_attention", "full_attention", "full_attention"])",
         plain},
        {R"("sliding_window": 8, "use_sliding_window": true,
            "layer_types": ["full_attention", "full_attention", "full_attention", "sliding_attention"])",
         model::qwen2(windowed(8, 3))},
        {R"("sliding_window": 8, "layer_types": ["full_attention", "full_attention", "full_attention", "full_attention"])", plain},
        {R"("attention_bias": false, "qkv_bias": false, "use_qkv_bias": 0, "use_mrope": false)", plain},
        {R"("attention_bias": true, "qkv_bias": "no")", plain},
        {R"("max_position_embeddings": 512, "rope_theta": 1000000.0, "head_dim": 16, "tie_word_embeddings": true)", model::qwen2(other)}};
    read_as_meant("qwen2", table);

    std::string const thirty = R"("num_hidden_layers": 30, "sliding_window": 8, "use_sliding_window": true)";
    model_config const c = tenon::checkpoint::read_config(config_text("qwen2", thirty));
    CHECK(c.layer(27).attention.window == 0);
    CHECK(c.layer(28).attention.window == 8);
}

TEST_CASE("a qwen2 is refused by the field and the value that is not one") {
    constexpr bad table[]{
        {R"("num_key_value_heads")",
         "config_field_is_present: config.json: num_key_value_heads is missing; a whole number for each, as this reader guesses no widths, "
         "would do"},
        {R"("use_sliding_window": true)",
         "config_field_is_present: config.json: sliding_window is missing; a number of keys, or null for no window, would do"},
        {R"("use_sliding_window": 1)", "config_field_has_type: config.json: use_sliding_window = 1; true or false would do"},
        {R"("use_sliding_window": true, "sliding_window": 0)",
         "config_value_is_supported: config.json: sliding_window = 0; a whole number from 1 to 2147483647 would do"},
        {R"("sliding_window": "8")", "config_field_has_type: config.json: sliding_window = \"8\"; a whole number would do"},
        {R"("max_window_layers": -1)",
         "config_value_is_supported: config.json: max_window_layers = -1; a whole number from 0 to 2147483647 would do"},
        {R"("max_window_layers": 1.5)", "config_field_has_type: config.json: max_window_layers = 1.5; a whole number would do"},
        {R"("layer_types": ["full_attention", "full_attention", "full_attention"])",
         "config_keys_agree: config.json: layer_types has 3 entries; 4, as num_hidden_layers says, would do"},
        {R"("layer_types": [])", "config_keys_agree: config.json: layer_types has 0 entries; 4, as num_hidden_layers says, would do"},
        {R"("layer_types": "full_attention")",
         "config_field_has_type: config.json: layer_types = \"full_attention\"; an array of strings would do"},
        {R"("layer_types": ["full_attention", 1, "full_attention", "full_attention"])",
         "config_field_has_type: config.json: layer_types[1] = 1; \"full_attention\" or \"sliding_attention\" would do"},
        {R"("layer_types": ["linear_attention", "full_attention", "full_attention", "full_attention"])",
         "config_value_is_supported: config.json: layer_types[0] = \"linear_attention\"; \"full_attention\" or \"sliding_attention\" would "
         "do"},
        {R"("sliding_window": 8, "layer_types": ["full_attention", "full_attention", "sliding_attention", "full_attention"])",
         "config_value_is_supported: config.json: layer_types[2] = \"sliding_attention\"; \"full_attention\" for every layer, or a "
         "sliding_window with use_sliding_window true, would do"},
        {R"("use_sliding_window": true, "sliding_window": null,
            "layer_types": ["full_attention", "full_attention", "sliding_attention", "full_attention"])",
         "config_value_is_supported: config.json: layer_types[2] = \"sliding_attention\"; \"full_attention\" for every layer, or a "
         "sliding_window with use_sliding_window true, would do"},
        {R"("use_mrope": true)", "config_value_is_supported: config.json: use_mrope = true; false would do"},
        {R"("mlp_bias": true)", "config_value_is_supported: config.json: mlp_bias = true; false would do"},
        {R"("use_qk_norm": true)", "config_value_is_supported: config.json: use_qk_norm = true; false would do"},
        {R"("rope_scaling": {"type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32768})",
         "config_value_is_supported: config.json: rope_scaling.type = \"yarn\"; \"default\", \"linear\", \"dynamic\" or \"llama3\" would "
         "do"},
        {R"("rope_scaling": {"type": "mrope", "mrope_section": [16, 24, 24]})",
         "config_value_is_supported: config.json: rope_scaling.mrope_section = an array; mrope is not supported; none would do"}};
    refused_as_said("qwen2", table);
}
