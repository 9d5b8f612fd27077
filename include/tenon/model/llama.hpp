// The dense Llama family (2, 3, 3.1), described with the public pieces of core/config.hpp.
// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <tenon/model/dense.hpp>

namespace tenon::inline v0::model {

/// The numbers of a Llama checkpoint, by the names that its config.json has for them.
struct llama_shape {
    int layers = 0, hidden = 0, heads = 0;
    int kv_heads = 0;  ///< 0: as many as heads
    int head_dim = 0;  ///< 0: hidden / heads
    int ffn = 0, vocab = 0;
    int max_positions = 2048;
    double rope_theta = 10000.0;
    double rms_epsilon = 1e-5;
    bool tied = false, attention_bias = false, mlp_bias = false;
    rope_scaling scaling = rope_scaling::none;
    double factor = 1.0, low_freq_factor = 1.0, high_freq_factor = 4.0;
    int original_positions = 0;
};

/// The Llama of that shape. Every layer is of one kind.
/// Source: Touvron et al. 2023, "Llama 2", section 2.2.
constexpr model_config llama(llama_shape const& s) {
    model_config c = detail::dense(adapter_id::llama, s);
    c.kinds[0].attention.qkv_bias = c.kinds[0].attention.output_bias = s.attention_bias;
    c.kinds[0].ffn.bias = s.mlp_bias;
    return c;
}

}  // namespace tenon::inline v0::model
