// The dense Phi-3 family: a Llama without biases whose layers may all see a window. That its checkpoints fuse q, k and v, and gate
// and up, is the loader's business.
// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <tenon/model/dense.hpp>

namespace tenon::inline v0::model {

/// The numbers of a Phi-3 checkpoint. Positions are never stretched.
struct phi3_shape {
    int layers = 0, hidden = 0, heads = 0;
    int kv_heads = 0;  ///< 0: as many as heads
    int head_dim = 0;  ///< 0: hidden / heads
    int ffn = 0, vocab = 0;
    int max_positions = 2048;
    double rope_theta = 10000.0;
    double rms_epsilon = 1e-5;
    bool tied = false;
    int window = 0;  ///< most keys that a query sees, in every layer; 0: all before it
};

/// The Phi-3 of that shape. Every layer is of one kind.
/// Source: Abdin et al. 2024, "Phi-3 Technical Report", section 2.
constexpr model_config phi3(phi3_shape const& s) {
    return with_window(detail::dense(adapter_id::phi3, s), s.window, [](int) { return true; });
}

}  // namespace tenon::inline v0::model
