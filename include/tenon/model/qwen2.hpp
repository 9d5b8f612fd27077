// The dense Qwen2 and Qwen2.5 families: a Llama with biases on q, k and v alone, whose upper layers may see a window.
// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <tenon/model/dense.hpp>

namespace tenon::inline v0::model {

/// The numbers of a Qwen2 checkpoint.
struct qwen2_shape {
    int layers = 0, hidden = 0, heads = 0;
    int kv_heads = 0;  ///< 0: as many as heads
    int head_dim = 0;  ///< 0: hidden / heads
    int ffn = 0, vocab = 0;
    int max_positions = 2048;
    double rope_theta = 10000.0;
    double rms_epsilon = 1e-6;
    bool tied = false;
    int window = 0;              ///< most keys that a query sees in the windowed layers; 0: all before it
    int first_window_layer = 0;  ///< this layer and those above it are windowed
    rope_scaling scaling = rope_scaling::none;
    double factor = 1.0, low_freq_factor = 1.0, high_freq_factor = 4.0;
    int original_positions = 0;
};

/// The Qwen2 of that shape.
/// Source: Yang et al. 2024, "Qwen2 Technical Report", section 2.2.1.
constexpr model_config qwen2(qwen2_shape const& s) {
    model_config c = detail::dense(adapter_id::qwen2, s);
    c.kinds[0].attention.qkv_bias = true;
    return with_window(c, s.window, [&s](int layer) { return layer >= s.first_window_layer; });
}

}  // namespace tenon::inline v0::model
