// The golden checkpoints as model types, and graphs that split each of them over any backend.
// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <tenon/graph/graph.hpp>
#include <tenon/model/llama.hpp>
#include <tenon/model/mistral.hpp>
#include <tenon/model/mixtral.hpp>
#include <tenon/model/qwen2.hpp>
#include <tenon/model/qwen3.hpp>
#include <tenon/model/qwen3_moe.hpp>

#include <string_view>

namespace support {

struct llama_mha_f32 {
    static constexpr std::string_view folder = "llama_mha_f32";
    static constexpr auto config = tenon::model::llama({.layers = 4, .hidden = 64, .heads = 8, .ffn = 64, .vocab = 128, .max_positions = 512});
};
struct llama_gqa_bf16 {
    static constexpr std::string_view folder = "llama_gqa_bf16_sharded";
    static constexpr auto config = tenon::model::llama({.layers = 4,
                                                        .hidden = 64,
                                                        .heads = 8,
                                                        .kv_heads = 2,
                                                        .head_dim = 8,
                                                        .ffn = 96,
                                                        .vocab = 128,
                                                        .max_positions = 512,
                                                        .rope_theta = 500000.0,
                                                        .scaling = tenon::rope_scaling::llama3,
                                                        .factor = 8.0,
                                                        .original_positions = 256});
};
struct mistral_nemo_f16 {
    static constexpr std::string_view folder = "mistral_nemo_f16";
    static constexpr auto config = tenon::model::mistral(
        {.layers = 4, .hidden = 80, .heads = 4, .kv_heads = 2, .head_dim = 16, .ffn = 96, .vocab = 130, .max_positions = 512, .rope_theta = 1e6});
};
struct mistral_swa_bf16 {
    static constexpr std::string_view folder = "mistral_swa_bf16";
    static constexpr auto config = tenon::model::mistral(
        {.layers = 4, .hidden = 64, .heads = 8, .kv_heads = 2, .ffn = 96, .vocab = 128, .max_positions = 512, .window = 8});
};
struct qwen2_f32 {
    static constexpr std::string_view folder = "qwen2_f32";
    static constexpr auto config = tenon::model::qwen2(
        {.layers = 3, .hidden = 64, .heads = 4, .kv_heads = 4, .ffn = 40, .vocab = 128, .max_positions = 512, .rope_theta = 1e6, .rms_epsilon = 1e-6});
};
struct qwen2_tied_bf16 {
    static constexpr std::string_view folder = "qwen2_tied_bf16";
    static constexpr auto config = tenon::model::qwen2({.layers = 4,
                                                        .hidden = 96,
                                                        .heads = 6,
                                                        .kv_heads = 2,
                                                        .ffn = 56,
                                                        .vocab = 128,
                                                        .max_positions = 512,
                                                        .rope_theta = 1e6,
                                                        .rms_epsilon = 1e-6,
                                                        .tied = true});
};
struct qwen3_bf16 {
    static constexpr std::string_view folder = "qwen3_bf16";
    static constexpr auto config = tenon::model::qwen3({.layers = 4,
                                                        .hidden = 64,
                                                        .heads = 4,
                                                        .kv_heads = 2,
                                                        .head_dim = 32,
                                                        .ffn = 96,
                                                        .vocab = 128,
                                                        .max_positions = 512,
                                                        .rope_theta = 1e6,
                                                        .rms_epsilon = 1e-6,
                                                        .tied = true});
};
struct qwen3_fp8 {
    static constexpr std::string_view folder = "qwen3_fp8";
    static constexpr auto config = tenon::model::qwen3({.layers = 4,
                                                        .hidden = 96,
                                                        .heads = 4,
                                                        .kv_heads = 2,
                                                        .head_dim = 32,
                                                        .ffn = 160,
                                                        .vocab = 128,
                                                        .max_positions = 512,
                                                        .rope_theta = 1e6,
                                                        .rms_epsilon = 1e-6});
};
struct qwen3_moe_f32 {
    static constexpr std::string_view folder = "qwen3_moe_f32";
    static constexpr auto config = tenon::model::qwen3_moe({.layers = 4,
                                                            .hidden = 64,
                                                            .heads = 8,
                                                            .kv_heads = 4,
                                                            .head_dim = 8,
                                                            .ffn = 96,
                                                            .experts = 8,
                                                            .experts_per_token = 2,
                                                            .expert_width = 8,
                                                            .normalised = true,
                                                            .vocab = 128,
                                                            .max_positions = 512,
                                                            .rope_theta = 1e6});
};
struct qwen3_moe_bf16 {
    static constexpr std::string_view folder = "qwen3_moe_bf16_sharded";
    static constexpr auto config = tenon::model::qwen3_moe({.layers = 6,
                                                            .hidden = 64,
                                                            .heads = 8,
                                                            .kv_heads = 2,
                                                            .head_dim = 8,
                                                            .ffn = 96,
                                                            .experts = 16,
                                                            .experts_per_token = 4,
                                                            .expert_width = 8,
                                                            .sparse_step = 2,
                                                            .dense_only = {3},
                                                            .vocab = 128,
                                                            .max_positions = 512,
                                                            .rope_theta = 1e6});
};
struct mixtral_bf16 {
    static constexpr std::string_view folder = "mixtral_bf16_sharded";
    static constexpr auto config = tenon::model::mixtral({.layers = 4,
                                                          .hidden = 64,
                                                          .heads = 8,
                                                          .kv_heads = 2,
                                                          .experts = 8,
                                                          .experts_per_token = 2,
                                                          .expert_width = 16,
                                                          .vocab = 128,
                                                          .max_positions = 512});
};

template <class Model, template <int...> class Device>
struct whole : tenon::graph<Model, tenon::stage<tenon::layers<0, Model::config.layers - 1>, Device<0>>> {};
template <class Model, template <int...> class Device>
struct cut : tenon::graph<Model, tenon::stage<tenon::layers<0, 0>, Device<0>>,
                          tenon::stage<tenon::layers<1, Model::config.layers - 1>, Device<1, 0>, tenon::shard::tensor<>>> {};
template <class Model, template <int...> class Device>
struct experts_apart : tenon::graph<Model, tenon::stage<tenon::layers<0, 0>, Device<0>>,
                                    tenon::stage<tenon::layers<1, Model::config.layers - 1>, Device<1, 0, 2>, tenon::shard::expert<>>> {};
template <class Model, template <int...> class Device>
struct experts_and_heads_apart
    : tenon::graph<Model, tenon::stage<tenon::layers<0, Model::config.layers - 1>, Device<0, 1>,
                                       tenon::shard::both<tenon::shard::tensor<>, tenon::shard::expert<>>>> {};

/// Calls `visit` with every model of the list.
template <class... Models>
struct model_list {
    template <class Visit>
    static void each(Visit visit) {
        (visit.template operator()<Models>(), ...);
    }
};
using routed_goldens = model_list<mixtral_bf16, qwen3_moe_f32, qwen3_moe_bf16>;
using dense_goldens = model_list<llama_mha_f32, llama_gqa_bf16, mistral_nemo_f16, mistral_swa_bf16, qwen2_f32, qwen2_tied_bf16, qwen3_bf16, qwen3_fp8>;

}  // namespace support
