// The Qwen3-MoE family: a Qwen3 of which all layers, or every n-th, route experts.
// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <tenon/model/dense.hpp>

namespace tenon::inline v0::model {

/// The numbers of a Qwen3-MoE checkpoint.
struct qwen3_moe_shape {
    int layers = 0, hidden = 0, heads = 0;
    int kv_heads = 0;  ///< 0: as many as heads
    int head_dim = 0;  ///< 0: hidden / heads
    int ffn = 0;       ///< width of the layers that are dense
    int experts = 0;   ///< 0: every layer is dense
    int experts_per_token = 0, expert_width = 0;
    bool normalised = false;  ///< the weights of a token's experts sum to one
    int sparse_step = 1;      ///< every layer of which the number, counted from 1, divides by it routes experts,
    layer_set dense_only{};   ///< but not these, counted from 0
    int vocab = 0;
    int max_positions = 2048;
    double rope_theta = 10000.0;
    double rms_epsilon = 1e-6;
    bool tied = false;
    bool attention_bias = false;  ///< on q, k, v and o
    int window = 0;               ///< most keys that a query sees, in every layer; 0: all before it
    rope_scaling scaling = rope_scaling::none;
    double factor = 1.0, low_freq_factor = 1.0, high_freq_factor = 4.0;
    int original_positions = 0;
};

/// The Qwen3-MoE of that shape. A step below 1 is refused with `shape_is_positive` and a listed layer that the model does not have with
/// `layers_within_model`; in a constant expression, by the compiler.
/// Source: Yang et al. 2025, "Qwen3 Technical Report", section 2.
constexpr model_config qwen3_moe(qwen3_moe_shape const& s) {
    if (s.sparse_step < 1) tenon::v0::detail::refuse("shape_is_positive", "sparse_step is below 1");
    model_config c = detail::dense(adapter_id::qwen3_moe, s);
    c.kinds[0].attention.qk_norm = true;
    c.kinds[0].attention.qkv_bias = c.kinds[0].attention.output_bias = s.attention_bias;
    c.kinds[0].attention.window = s.window;
    every_nth const routed{s.sparse_step, s.dense_only.within(s.layers)};
    if (s.experts == 0) return c;
    return with_experts(c, {.count = s.experts, .chosen = s.experts_per_token, .width = s.expert_width, .normalised = s.normalised},
                        routed);
}

}  // namespace tenon::inline v0::model
