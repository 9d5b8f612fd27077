// Qwen3-MoE: its shape, and what its config.json may say.
// SPDX-License-Identifier: Apache-2.0
#include "support.hpp"

#include <tenon/model/kinds.hpp>
#include <tenon/model/qwen3.hpp>
#include <tenon/model/qwen3_moe.hpp>

using namespace model_test;

namespace {

// What a config.json describes that says of experts what it must, and nothing else.
constexpr model::qwen3_moe_shape base{.layers = 4,
                                      .hidden = 64,
                                      .heads = 8,
                                      .kv_heads = 2,
                                      .ffn = 96,
                                      .experts = 16,
                                      .experts_per_token = 4,
                                      .expert_width = 24,
                                      .vocab = 128,
                                      .max_positions = 32768};
template <class Change>
constexpr model_config base_but(Change change) {
    model::qwen3_moe_shape s = base;
    change(s);
    return model::qwen3_moe(s);
}

/// Whether so many experts are in the layers, in order; a layer without any has its FFN.
constexpr bool has_experts(model_config const& c, std::initializer_list<int> counts) {
    int layer = 0;
    for (int const count : counts) {
        tenon::block_kind const& b = c.layer(layer++);
        if (b.experts.count != count || b.ffn.width != (count == 0 ? 96 : 0)) return false;
    }
    return layer == c.layers;
}

static_assert(model::qwen3_moe(base).kind_count == 1 && has_experts(model::qwen3_moe(base), {16, 16, 16, 16}));
static_assert(model::qwen3_moe(base).kinds[0].attention ==
              tenon::grouped_attention{8, 2, 8, false, false, true, 0});  // no width of its own
static_assert(model::qwen3_moe(base).kinds[0].experts == tenon::routed_experts{.count = 16, .chosen = 4, .width = 24});
static_assert(base_but([](auto& s) { s.normalised = true; }).kinds[0].experts.normalised);
static_assert(base_but([](auto& s) { s.attention_bias = true; }).kinds[0].attention.output_bias);

// A step counts layers from 1, a list from 0; what is listed stays dense whatever the step says.
static_assert(has_experts(base_but([](auto& s) { s.sparse_step = 2; }), {0, 16, 0, 16}));
static_assert(has_experts(base_but([](auto& s) { s.sparse_step = 4; }), {0, 0, 0, 16}));
static_assert(has_experts(base_but([](auto& s) { s.sparse_step = 5; }), {0, 0, 0, 0}));
static_assert(has_experts(base_but([](auto& s) { s.dense_only = {0, 2}; }), {0, 16, 0, 16}));
static_assert(has_experts(base_but([](auto& s) { s.sparse_step = 2, s.dense_only = {3}; }), {0, 16, 0, 0}));
static_assert(base_but([](auto& s) { s.dense_only = {0, 2}; }) == base_but([](auto& s) { s.sparse_step = 2; }));
static_assert(base_but([](auto& s) { s.window = 8, s.dense_only = {0}; }).kind_count == 2);
static_assert(has_windows(base_but([](auto& s) { s.window = 8, s.dense_only = {0}; }), {8, 8, 8, 8}));

// Without experts it is a dense model of norms like a Qwen3, whose heads are as wide as hidden / heads says.
static_assert(has_experts(base_but([](auto& s) { s.experts = 0; }), {0, 0, 0, 0}));
static_assert(base_but([](auto& s) { s.experts = 0, s.head_dim = 128; }).kinds[0] ==
              model::qwen3({.layers = 4, .hidden = 64, .heads = 8, .kv_heads = 2, .ffn = 96, .vocab = 128}).kinds[0]);

}  // namespace

TEST_CASE("a qwen3_moe routes in the layers that its step and its list say, and is windowed in all or none") {
    model_config const plain = model::qwen3_moe(base);
    good const table[]{
        {R"("num_experts": 16, "num_experts_per_tok": 4, "moe_intermediate_size": 24)", plain},
        {R"("num_local_experts": 16, "num_experts_per_tok": 4, "moe_intermediate_size": 24)", plain},
        {R"("num_experts": 16, "num_experts_per_tok": 4, "moe_intermediate_size": 24, "num_local_experts": 16, "norm_topk_prob": false, "mlp_only_layers": [], "decoder_sparse_step": 1)",
         plain},
        {R"("num_experts": 16, "num_experts_per_tok": 4, "moe_intermediate_size": 24, "norm_topk_prob": true)",
         base_but([](auto& s) { s.normalised = true; })},
        {R"("num_experts": 16, "num_experts_per_tok": 4, "moe_intermediate_size": 24, "decoder_sparse_step": 2)",
         base_but([](auto& s) { s.sparse_step = 2; })},
        {R"("num_experts": 16, "num_experts_per_tok": 4, "moe_intermediate_size": 24, "mlp_only_layers": [2, 0])", base_but([](auto& s) {
             s.dense_only = {0, 2};
         })},
        {R"("num_experts": 16, "num_experts_per_tok": 4, "moe_intermediate_size": 24, "decoder_sparse_step": 2, "mlp_only_layers": [3])",
         base_but([](auto& s) { s.sparse_step = 2, s.dense_only = {3}; })},
        {R"("num_experts": 16, "num_experts_per_tok": 4, "moe_intermediate_size": 24, "decoder_sparse_step": 5)",
         base_but([](auto& s) { s.experts = 0; })},
        {R"("num_experts": 16, "num_experts_per_tok": 4, "moe_intermediate_size": 24, "attention_bias": true)",
         base_but([](auto& s) { s.attention_bias = true; })},
        {R"("num_experts": 16, "num_experts_per_tok": 4, "moe_intermediate_size": 24, "head_dim": 32, "tie_word_embeddings": true)",
         base_but([](auto& s) { s.head_dim = 32, s.tied = true; })},
        {R"("num_experts": 16, "num_experts_per_tok": 4, "moe_intermediate_size": 24, "head_dim": null, "use_qk_norm": true, "router_aux_loss_coef": 0.001, "output_router_logits": false)",
         plain},
        {R"("num_experts": 16, "num_experts_per_tok": 4, "moe_intermediate_size": 24, "sliding_window": 8, "use_sliding_window": false, "max_window_layers": 2)",
         plain},
        {R"("num_experts": 16, "num_experts_per_tok": 4, "moe_intermediate_size": 24, "sliding_window": 8, "use_sliding_window": true)",
         base_but([](auto& s) { s.window = 8; })},
        {R"("num_experts": 16, "num_experts_per_tok": 4, "moe_intermediate_size": 24, "sliding_window": 8, "use_sliding_window": true, "max_window_layers": 2)",
         base_but([](auto& s) { s.window = 8; })}};
    read_as_meant("qwen3_moe", table);
}

TEST_CASE("a qwen3_moe is refused by the field and the value that is not one") {
    constexpr bad table[]{
        {R"("num_experts": 16)",
         "config_field_is_present: config.json: num_experts_per_tok, moe_intermediate_size is missing; a whole number for each, as this "
         "reader guesses no experts, would do"},
        {R"("num_experts_per_tok": 4, "moe_intermediate_size": 24)",
         "config_field_is_present: config.json: num_experts is missing; a whole number for each, as this reader guesses no experts, would "
         "do"},
        {R"("num_experts": 16, "num_experts_per_tok": 4, "moe_intermediate_size": 24, "num_local_experts": 8)",
         "config_keys_agree: config.json: num_local_experts = 8; num_experts is 16, one of the keys, or the same value in both, would do"},
        {R"("num_experts": 16, "num_experts_per_tok": 4, "moe_intermediate_size": 24, "mlp_only_layers": [4])",
         "config_value_is_supported: config.json: mlp_only_layers[0] = 4; a layer from 0 to 3 would do"},
        {R"("num_experts": 16, "num_experts_per_tok": 4, "moe_intermediate_size": 24, "mlp_only_layers": 2)",
         "config_field_has_type: config.json: mlp_only_layers = 2; an array of whole numbers would do"},
        {R"("num_experts": 16, "num_experts_per_tok": 4, "moe_intermediate_size": 24, "decoder_sparse_step": 0)",
         "config_value_is_supported: config.json: decoder_sparse_step = 0; a whole number from 1 to 2147483647 would do"},
        {R"("num_experts": 4, "num_experts_per_tok": 8, "moe_intermediate_size": 24)",
         "chosen_experts_exist: a token chooses at least one expert, and no more than there are; stage 0: experts = 4, chosen experts = 8; "
         "chosen experts = 4 would do"},
        {R"("num_experts": 16, "num_experts_per_tok": 4, "moe_intermediate_size": 24, "n_shared_experts": 1)",
         "config_value_is_supported: config.json: n_shared_experts = 1; qwen3_moe has none; null would do"},
        {R"("num_experts": 16, "num_experts_per_tok": 4, "moe_intermediate_size": 24, "n_group": 4)",
         "config_value_is_supported: config.json: n_group = 4; qwen3_moe has none; null would do"},
        {R"("num_experts": 16, "num_experts_per_tok": 4, "moe_intermediate_size": 24, "use_qk_norm": false)",
         "config_value_is_supported: config.json: use_qk_norm = false; true would do"},
        {R"("num_experts": 16, "num_experts_per_tok": 4, "moe_intermediate_size": 24, "mlp_bias": true)",
         "config_value_is_supported: config.json: mlp_bias = true; false would do"}};
    refused_as_said("qwen3_moe", table);
}

TEST_CASE("a step of nothing and a listed layer that the model does not have are refused") {
    auto const law_of = [](auto change) {
        try {
            base_but(change);
        } catch (tenon::refusal const& r) { return std::string(r.law_name()); }
        return std::string("none");
    };
    CHECK(law_of([](auto& s) { s.sparse_step = 0; }) == "shape_is_positive");
    CHECK(law_of([](auto& s) { s.sparse_step = -1; }) == "shape_is_positive");
    CHECK(law_of([](auto& s) { s.dense_only = {4}; }) == "layers_within_model");
    CHECK(law_of([](auto& s) { s.dense_only = {3}; }) == "none");
}
