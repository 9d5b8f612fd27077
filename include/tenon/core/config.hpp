// The numbers that fix a model's shape and arithmetic. Knows nothing about ranks, devices or files.
// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <array>
#include <cstddef>
#include <cstdint>

namespace tenon::inline v0 {

using token_id = std::int32_t;

inline constexpr int most_layers = 256;    ///< layers of one model
inline constexpr int most_kinds = 4;       ///< different kinds of layer in one model
inline constexpr int most_experts = 1024;  ///< of one layer

/// What names the tensors of an architecture and fixes what its description does not say. One a certified architecture.
enum class adapter_id : std::uint8_t { llama, mistral, qwen2, qwen3, phi3, mixtral, qwen3_moe };

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

/// What turns a router's logits into scores.
enum class expert_scoring : std::uint8_t { softmax, sigmoid };

/// What a group of experts is worth when only the best groups may be chosen from.
enum class group_worth : std::uint8_t { best, two_best };

/// An FFN of E gated experts of which a router chooses k for every token, and one gated expert more that every token goes through.
/// Sources: Shazeer et al. 2017, "Outrageously Large Neural Networks", section 2; DeepSeek-AI 2024, "DeepSeek-V3 Technical Report", 2.1.2.
struct routed_experts {
    int count = 0;         ///< E; 0: the layer has a dense FFN
    int chosen = 0;        ///< k, experts of one token
    int width = 0;         ///< of every expert
    int shared_width = 0;  ///< of the expert that every token goes through; 0: there is none
    expert_scoring scoring = expert_scoring::softmax;
    bool correction = false;  ///< a bias is added to the scores for the choice, and for the choice alone
    int groups = 1;           ///< contiguous and equal; their best `chosen_groups` are chosen from
    int chosen_groups = 1;
    group_worth worth = group_worth::two_best;
    bool normalised = false;   ///< the chosen scores are divided by their sum
    double sum_epsilon = 0.0;  ///< added to that sum
    double scale = 1.0;        ///< the chosen scores are multiplied by it, at last
    bool operator==(routed_experts const&) const = default;

    constexpr explicit operator bool() const { return count > 0; }
};

/// One kind of layer: norm, attention, residual; norm, FFN, residual. The FFN is dense, or routed and then `ffn.width` is 0.
struct block_kind {
    grouped_attention attention{};
    gated_ffn ffn{};
    routed_experts experts{};
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
