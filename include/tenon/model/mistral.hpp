// The dense Mistral family: a Llama without biases whose layers may all see a window.
// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <tenon/model/dense.hpp>

namespace tenon::inline v0::model {

/// The numbers of a Mistral checkpoint.
struct mistral_shape {
    int layers = 0, hidden = 0, heads = 0;
    int kv_heads = 0;  ///< 0: as many as heads
    int head_dim = 0;  ///< 0: hidden / heads
    int ffn = 0, vocab = 0;
    int max_positions = 2048;
    double rope_theta = 10000.0;
    double rms_epsilon = 1e-5;
    bool tied = false;
    int window = 0;  ///< most keys that a query sees, in every layer; 0: all before it
    rope_scaling scaling = rope_scaling::none;
    double factor = 1.0, low_freq_factor = 1.0, high_freq_factor = 4.0;
    int original_positions = 0;
};

/// The Mistral of that shape. Every layer is of one kind.
/// Source: Jiang et al. 2023, "Mistral 7B", section 2.
constexpr model_config mistral(mistral_shape const& s) {
    return with_window(detail::dense(adapter_id::mistral, s), s.window, [](int) { return true; });
}

}  // namespace tenon::inline v0::model
