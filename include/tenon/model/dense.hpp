// What the families share: a stack of equal layers, which the pieces of kinds.hpp make different. Knows no family by name.
// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <tenon/core/config.hpp>
#include <tenon/model/kinds.hpp>

namespace tenon::inline v0::model {

namespace detail {

/// The model of a family's shape: every layer of one kind, without biases and without a window, its FFN dense where the shape has one.
template <class Shape>
constexpr model_config dense(adapter_id adapter, Shape const& s) {
    model_config c{.adapter = adapter,
                   .layers = s.layers,
                   .hidden = s.hidden,
                   .vocab = s.vocab,
                   .max_positions = s.max_positions,
                   .rms_epsilon = s.rms_epsilon,
                   .rope = {.theta = s.rope_theta},
                   .tied = s.tied};
    if constexpr (requires { s.scaling; })
        c.rope = {s.rope_theta, s.scaling, s.factor, s.low_freq_factor, s.high_freq_factor, s.original_positions};
    int const head_dim = s.head_dim != 0 ? s.head_dim : s.heads > 0 ? s.hidden / s.heads : 0;
    c.kinds[0].attention = {.heads = s.heads, .kv_heads = s.kv_heads != 0 ? s.kv_heads : s.heads, .head_dim = head_dim};
    if constexpr (requires { s.ffn; }) c.kinds[0].ffn.width = s.ffn;
    return c;
}

}  // namespace detail

}  // namespace tenon::inline v0::model
