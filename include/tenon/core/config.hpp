// The numbers that fix a model's shape and arithmetic. Knows nothing about ranks, devices or files.
// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <array>
#include <cstddef>
#include <cstdint>

namespace tenon::inline v0 {

using token_id = std::int32_t;

inline constexpr int most_layers = 256;  ///< layers of one model
inline constexpr int most_kinds = 4;     ///< different kinds of layer in one model

/// What names the tensors of an architecture and fixes what its description does not say. One a certified architecture.
enum class adapter_id : std::uint8_t { llama, mistral, qwen2, qwen3, phi3 };

/// How the rotation's frequencies are stretched beyond the positions a model was trained on.
enum class rope_scaling : std::uint8_t { none, linear, llama3 };

/// Rotary position embedding over the whole head, halves paired (j with j + D/2).
/// Source: Su et al. 2021, "RoFormer", section 3.4.
struct rope {
    double theta = 10000.0;
    rope_scaling scaling = rope_scaling::none;
    double factor = 1.0;            ///< linear, llama3: positions are stretched by this
    double low_freq_factor = 1.0;   ///< llama3: wavelengths above original / low are stretched whole
    double high_freq_factor = 4.0;  ///< llama3: wavelengths below original / high are kept
    int original_positions = 0;     ///< llama3: positions before stretching
    bool operator==(rope const&) const = default;
};

/// Softmax attention in which `heads / kv_heads` query heads share one key/value head.
/// Source: Ainslie et al. 2023, "GQA", section 2.2.
struct grouped_attention {
    int heads = 0;
    int kv_heads = 0;
    int head_dim = 0;
    bool qkv_bias = false;
    bool output_bias = false;
    bool qk_norm = false;  ///< every query and key head is normed over its D values before it is rotated
    int window = 0;        ///< most keys that a query sees, itself included; 0: all before it
    bool operator==(grouped_attention const&) const = default;
};

/// down(silu(gate x) * up x).
/// Source: Shazeer 2020, "GLU Variants Improve Transformer", section 2.
struct gated_ffn {
    int width = 0;
    bool bias = false;
    bool operator==(gated_ffn const&) const = default;
};

/// One kind of layer: norm, attention, residual; norm, FFN, residual.
struct block_kind {
    grouped_attention attention{};
    gated_ffn ffn{};
    bool operator==(block_kind const&) const = default;
};

/// The description of one decoder-only transformer: plain values, so that it can be compared and computed at compile time.
struct model_config {
    adapter_id adapter = adapter_id::llama;  ///< how a checkpoint names its tensors
    int layers = 0;
    int hidden = 0;  ///< width of the residual stream, in elements
    int vocab = 0;
    int max_positions = 0;      ///< most positions of one sequence
    double rms_epsilon = 1e-5;  ///< added to the mean square before the root
    tenon::v0::rope rope{};
    bool tied = false;   ///< the LM head is the embedding table
    int kind_count = 1;  ///< how many of `kinds` are used
    std::array<block_kind, most_kinds> kinds{};
    std::array<std::uint8_t, most_layers> kind_of{};  ///< of every layer, an index into `kinds`
    bool operator==(model_config const&) const = default;

    constexpr block_kind const& layer(int index) const { return kinds[kind_of[static_cast<std::size_t>(index)]]; }
};

}  // namespace tenon::inline v0
