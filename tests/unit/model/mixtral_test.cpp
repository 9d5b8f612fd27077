// Mixtral: its shape, and what its config.json may say.
// SPDX-License-Identifier: Apache-2.0
#include "support.hpp"

#include <tenon/model/kinds.hpp>
#include <tenon/model/mixtral.hpp>

using namespace model_test;

namespace {

// What a config.json describes that says of experts what it must, and nothing else.
constexpr model::mixtral_shape base{.layers = 4,
                                    .hidden = 64,
                                    .heads = 8,
                                    .kv_heads = 2,
                                    .experts = 8,
                                    .experts_per_token = 2,
                                    .expert_width = 96,
                                    .vocab = 128,
                                    .max_positions = 131072};

constexpr tenon::block_kind only = model::mixtral(base).kinds[0];
static_assert(model::mixtral(base).kind_count == 1 && model::mixtral(base).adapter == adapter_id::mixtral);
static_assert(only.attention == tenon::grouped_attention{8, 2, 8, false, false, false, 0});
static_assert(only.experts == tenon::routed_experts{.count = 8, .chosen = 2, .width = 96, .normalised = true} &&
              only.ffn == tenon::gated_ffn{});
static_assert(model::mixtral(base).rope.theta == 1e6 && model::mixtral(base).rms_epsilon == 1e-5);
static_assert(model::mixtral({.heads = 8}).kinds[0].attention.kv_heads == 8);
static_assert(model::mixtral({.hidden = 5120, .heads = 32, .head_dim = 128}).kinds[0].attention.head_dim == 128);
static_assert(model::mixtral({.window = 8}).kinds[0].attention.window == 8);
static_assert(model::mixtral({.layers = 2, .scaling = rope_scaling::linear, .factor = 2.0}).rope.factor == 2.0);

}  // namespace

TEST_CASE("a mixtral routes in every layer, and has a window where its config.json says so") {
    model::mixtral_shape windowed = base, other = base, narrow = base;
    windowed.window = 8;
    other.max_positions = 512;
    other.rope_theta = 1e4;
    other.rms_epsilon = 1e-6;
    other.head_dim = 16;
    other.tied = true;
    narrow.experts = 3;
    narrow.experts_per_token = 3;
    narrow.expert_width = 8;
    good const table[]{
        {R"("num_local_experts": 8, "num_experts_per_tok": 2)", model::mixtral(base)},
        {R"("num_local_experts": 8, "num_experts_per_tok": 2, "sliding_window": null)", model::mixtral(base)},
        {R"("num_local_experts": 8, "num_experts_per_tok": 2, "sliding_window": 8)", model::mixtral(windowed)},
        {R"("num_local_experts": 8, "num_experts_per_tok": 2, "router_jitter_noise": 0.1, "router_aux_loss_coef": 0.02, "output_router_logits": true)",
         model::mixtral(base)},
        {R"("num_local_experts": 8, "num_experts_per_tok": 2, "attention_bias": false, "mlp_bias": null, "use_qk_norm": false, "norm_topk_prob": null)",
         model::mixtral(base)},
        {R"("num_local_experts": 3, "num_experts_per_tok": 3.0, "intermediate_size": 8)", model::mixtral(narrow)},
        {R"("num_local_experts": 8, "num_experts_per_tok": 2, "max_position_embeddings": 512, "rope_theta": 10000.0, "rms_norm_eps": 1e-6, "head_dim": 16, "tie_word_embeddings": true)",
         model::mixtral(other)}};
    read_as_meant("mixtral", table);
}

TEST_CASE("a mixtral is refused by the field and the value that is not one") {
    constexpr bad table[]{
        {R"("num_local_experts": 8)",
         "config_field_is_present: config.json: num_experts_per_tok is missing; a whole number for each, as this reader guesses no "
         "experts, "
         "would do"},
        {R"("num_experts_per_tok": 2)",
         "config_field_is_present: config.json: num_local_experts is missing; a whole number for each, as this reader guesses no experts, "
         "would do"},
        {R"("num_local_experts": 8, "num_experts_per_tok": 9)",
         "chosen_experts_exist: a token chooses at least one expert, and no more than there are; stage 0: experts = 8, chosen experts = 9; "
         "chosen experts = 8 would do"},
        {R"("num_local_experts": 1025, "num_experts_per_tok": 2)",
         "shape_fits: a model's extents stay inside what the library counts with; stage 0: experts = 1025, limit = 1024; limit = 1024 "
         "would do"},
        {R"("num_local_experts": 8, "num_experts_per_tok": 2, "num_experts": 8)",
         "config_value_is_supported: config.json: num_experts = 8; mixtral has none; null would do"},
        {R"("num_local_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": 8)",
         "config_value_is_supported: config.json: moe_intermediate_size = 8; mixtral has none; null would do"},
        {R"("num_local_experts": 8, "num_experts_per_tok": 2, "n_shared_experts": 1)",
         "config_value_is_supported: config.json: n_shared_experts = 1; mixtral has none; null would do"},
        {R"("num_local_experts": 8, "num_experts_per_tok": 2, "norm_topk_prob": false)",
         "config_value_is_supported: config.json: norm_topk_prob = false; mixtral has none; null would do"},
        {R"("num_local_experts": 8, "num_experts_per_tok": 2, "decoder_sparse_step": 2)",
         "config_value_is_supported: config.json: decoder_sparse_step = 2; mixtral has none; null would do"},
        {R"("num_local_experts": 8, "num_experts_per_tok": 2, "attention_bias": true)",
         "config_value_is_supported: config.json: attention_bias = true; false would do"},
        {R"("num_local_experts": 8, "num_experts_per_tok": 2, "use_qk_norm": true)",
         "config_value_is_supported: config.json: use_qk_norm = true; false would do"},
        {R"("num_local_experts": 8, "num_experts_per_tok": 2, "mlp_bias": true)",
         "config_value_is_supported: config.json: mlp_bias = true; false would do"}};
    refused_as_said("mixtral", table);
}
