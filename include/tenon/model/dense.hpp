// What the dense families share: a stack of equal layers, and which of them see a window alone. Knows no family by name.
// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <tenon/core/config.hpp>
#include <tenon/core/error.hpp>

#include <cstddef>
#include <initializer_list>

namespace tenon::inline v0::model {

/// The model whose layers with `windowed(layer)` see at most `window` keys, and the others all before them: kind 0 is full and kind 1
/// windowed, or there is one kind when all layers agree, so that equal models compare equal. Every layer of `c` is of one kind.
/// Source: Beltagy et al. 2020, "Longformer", section 3.1.
template <class Predicate>
constexpr model_config with_window(model_config c, int window, Predicate windowed) {
    block_kind full = c.kinds[0], local = full;
    full.attention.window = 0;
    local.attention.window = window;
    int const layers = c.layers < most_layers ? c.layers : most_layers;
    int count = 0;
    for (int l = 0; l < layers; ++l) count += windowed(l) ? 1 : 0;
    bool const mixed = window != 0 && count > 0 && count < layers;
    c.kind_count = mixed ? 2 : 1;
    c.kinds = {mixed || count == 0 ? full : local};
    if (mixed) c.kinds[1] = local;
    for (int l = 0; l < layers; ++l) c.kind_of[static_cast<std::size_t>(l)] = mixed && windowed(l) ? 1 : 0;
    return c;
}

/// The same with the windowed layers in a list. One that the model does not have is refused with `layers_within_model`; in a constant
/// expression, by the compiler.
constexpr model_config with_window(model_config const& c, int window, std::initializer_list<int> windowed) {
    for (int const w : windowed)
        if (w < 0 || w >= c.layers) tenon::v0::detail::refuse("layers_within_model", "a windowed layer is none of the model's");
    return with_window(c, window, [windowed](int layer) {
        for (int const w : windowed)
            if (w == layer) return true;
        return false;
    });
}

namespace detail {

/// The model of a family's shape: every layer of one kind, without biases and without a window.
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
    c.kinds[0] = {.attention = {.heads = s.heads, .kv_heads = s.kv_heads != 0 ? s.kv_heads : s.heads, .head_dim = head_dim},
                  .ffn = {.width = s.ffn}};
    return c;
}

}  // namespace detail

}  // namespace tenon::inline v0::model
