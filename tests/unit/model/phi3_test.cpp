// Phi-3: its shape, and what its config.json may say.
// SPDX-License-Identifier: Apache-2.0
#include "support.hpp"

#include <tenon/model/phi3.hpp>

using namespace model_test;

namespace {

// What a config.json without optional fields describes.
constexpr model::phi3_shape base{
    .layers = 4, .hidden = 64, .heads = 8, .kv_heads = 2, .ffn = 96, .vocab = 128, .max_positions = 4096, .rms_epsilon = 1e-5};

static_assert(model::phi3(base).kinds[0].attention == tenon::grouped_attention{8, 2, 8, false, false, false, 0});
static_assert(model::phi3({.hidden = 64, .heads = 8}).kinds[0].attention.kv_heads == 8);
static_assert(model::phi3({.layers = 1, .window = 2047}).kinds[0].attention.window == 2047);
static_assert(model::phi3(base).rope == tenon::rope{});

}  // namespace

TEST_CASE("a phi3 has a window when it says so, and never a stretched position") {
    model_config const plain = model::phi3(base);
    model::phi3_shape windowed = base, alone = base, other = base;
    windowed.window = 2047;
    alone.kv_heads = 8;
    other.max_positions = 512;
    other.rope_theta = 250000.0;
    other.rms_epsilon = 1e-6;
    other.head_dim = 16;
    other.tied = true;
    good const table[]{
        {"", plain},
        {R"("sliding_window": null, "rope_scaling": null, "attention_bias": false)", plain},
        {R"("sliding_window": 2047)", model::phi3(windowed)},
        {R"("sliding_window": 2047, "use_sliding_window": true)", model::phi3(windowed)},
        {R"("num_key_value_heads": null)", model::phi3(alone)},
        {R"("original_max_position_embeddings": 2048, "partial_rotary_factor": 1, "embd_pdrop": 0.0)", plain},
        {R"("rope_parameters": {"rope_type": "default", "rope_theta": 10000.0, "partial_rotary_factor": 1.0})", plain},
        {R"("max_position_embeddings": 512, "rope_theta": 250000, "rms_norm_eps": 1e-6, "head_dim": 16, "tie_word_embeddings": true)",
         model::phi3(other)}};
    read_as_meant("phi3", table);
}

TEST_CASE("a phi3 is refused by the field and the value that is not one") {
    constexpr bad table[]{
        {R"("rope_scaling": {"type": "longrope", "short_factor": [1.0], "long_factor": [1.0]})",
         "config_value_is_supported: config.json: rope_scaling.type = \"longrope\"; a rope_scaling of null would do"},
        {R"("rope_scaling": {"type": "su", "short_factor": [1.0], "long_factor": [1.0]})",
         "config_value_is_supported: config.json: rope_scaling.type = \"su\"; a rope_scaling of null would do"},
        {R"("rope_scaling": {"rope_type": "linear", "factor": 2})",
         "config_value_is_supported: config.json: rope_scaling.rope_type = \"linear\"; a rope_scaling of null would do"},
        {R"("rope_scaling": {"rope_type": "default"})",
         "config_value_is_supported: config.json: rope_scaling.rope_type = \"default\"; a rope_scaling of null would do"},
        {R"("rope_scaling": {})", "config_value_is_supported: config.json: rope_scaling = an object; null would do"},
        {R"("rope_scaling": 2)", "config_field_has_type: config.json: rope_scaling = 2; null would do"},
        {R"("rope_parameters": {"rope_type": "longrope"})",
         "config_value_is_supported: config.json: rope_parameters.rope_type = \"longrope\"; \"default\" would do"},
        {R"("rope_parameters": {"type": "linear", "factor": 2})",
         "config_value_is_supported: config.json: rope_parameters.type = \"linear\"; \"default\" would do"},
        {R"("rope_parameters": {"type": "dynamic", "factor": 2})",
         "config_value_is_supported: config.json: rope_parameters.type = \"dynamic\"; \"default\" would do"},
        {R"("partial_rotary_factor": 0.75)",
         "config_value_is_supported: config.json: partial_rotary_factor = 0.75; 1, which rotates the whole head, would do"},
        {R"("sliding_window": 0)",
         "config_value_is_supported: config.json: sliding_window = 0; a whole number from 1 to 2147483647 would do"},
        {R"("use_sliding_window": true)", "config_value_is_supported: config.json: use_sliding_window = true; false would do"},
        {R"("attention_bias": true)", "config_value_is_supported: config.json: attention_bias = true; false would do"},
        {R"("mlp_bias": true)", "config_value_is_supported: config.json: mlp_bias = true; false would do"},
        {R"("layer_types": ["full_attention", "sliding_attention", "full_attention", "full_attention"])",
         "config_value_is_supported: config.json: layer_types[1] = \"sliding_attention\"; \"full_attention\" for every layer would do"}};
    refused_as_said("phi3", table);
}
