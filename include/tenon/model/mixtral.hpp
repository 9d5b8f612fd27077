// The Mixtral family: a Mistral whose layers all route experts.
// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <tenon/model/dense.hpp>

namespace tenon::inline v0::model {

/// The numbers of a Mixtral checkpoint.
struct mixtral_shape {
    int layers = 0, hidden = 0, heads = 0;
    int kv_heads = 0;                                          ///< 0: as many as heads
    int head_dim = 0;                                          ///< 0: hidden / heads
    int experts = 0, experts_per_token = 0, expert_width = 0;  ///< `intermediate_size` is the width of every expert
    int vocab = 0;
    int max_positions = 2048;
    double rope_theta = 1e6;
    double rms_epsilon = 1e-5;
    bool tied = false;
    int window = 0;  ///< most keys that a query sees, in every layer; 0: all before it
    rope_scaling scaling = rope_scaling::none;
    double factor = 1.0, low_freq_factor = 1.0, high_freq_factor = 4.0;
    int original_positions = 0;
};

/// The Mixtral of that shape. Every layer is of one kind; the weights of a token's experts sum to one.
/// Source: Jiang et al. 2024, "Mixtral of Experts", section 2.
constexpr model_config mixtral(mixtral_shape const& s) {
    model_config c = detail::dense(adapter_id::mixtral, s);
    c.kinds[0].attention.window = s.window;
    c.kinds[0].experts = {.count = s.experts, .chosen = s.experts_per_token, .width = s.expert_width, .normalised = true};
    return c;
}

}  // namespace tenon::inline v0::model
