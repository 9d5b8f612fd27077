// The dense Qwen3 family: a Llama that norms every query and key head, whose upper layers may see a window.
// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <tenon/model/dense.hpp>

namespace tenon::inline v0::model {

/// The numbers of a Qwen3 checkpoint.
struct qwen3_shape {
    int layers = 0, hidden = 0, heads = 0;
    int kv_heads = 0;  ///< 0: as many as heads
    int head_dim = 0;  ///< 0: 128, whatever the width
    int ffn = 0, vocab = 0;
    int max_positions = 2048;
    double rope_theta = 10000.0;
    double rms_epsilon = 1e-6;
    bool tied = false;
    bool attention_bias = false;  ///< on q, k, v and o
    int window = 0;               ///< most keys that a query sees in the windowed layers; 0: all before it
    int first_window_layer = 0;   ///< this layer and those above it are windowed
    rope_scaling scaling = rope_scaling::none;
    double factor = 1.0, low_freq_factor = 1.0, high_freq_factor = 4.0;
    int original_positions = 0;
};

/// The Qwen3 of that shape.
/// Source: Yang et al. 2025, "Qwen3 Technical Report", section 2.
constexpr model_config qwen3(qwen3_shape s) {
    if (s.head_dim == 0) s.head_dim = 128;
    model_config c = detail::dense(adapter_id::qwen3, s);
    c.kinds[0].attention.qk_norm = true;
    c.kinds[0].attention.qkv_bias = c.kinds[0].attention.output_bias = s.attention_bias;
    return with_window(c, s.window, [&s](int layer) { return layer >= s.first_window_layer; });
}

}  // namespace tenon::inline v0::model
