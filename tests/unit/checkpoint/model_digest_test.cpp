// What makes two models one: every number of a description, every byte of a weight that is used, and nothing else.
// SPDX-License-Identifier: Apache-2.0
#include "support/random_model.hpp"

#include <doctest/doctest.h>
#include <tenon/checkpoint/config_json.hpp>
#include <tenon/checkpoint/model_digest.hpp>

#include <functional>
#include <set>
#include <string>
#include <vector>

using namespace tenon;

namespace {
model_config described() {
    model_config c{.layers = 3, .hidden = 64, .vocab = 61, .max_positions = 128, .kind_count = 2};
    c.kinds[0] = {.attention = {.heads = 8, .kv_heads = 4, .head_dim = 8}, .ffn = {.width = 96}};
    c.kinds[1] = {.attention = {.heads = 8, .kv_heads = 2, .head_dim = 8, .window = 9}, .experts = {.count = 8, .chosen = 2, .width = 32}};
    c.kind_of[1] = 1;
    return c;
}
}  // namespace

TEST_CASE("Every number of a description is in its digest") {
    std::vector<std::function<void(model_config&)>> const changes{
        [](model_config& c) { c.adapter = adapter_id::mistral; },
        [](model_config& c) { c.layers = 2; },
        [](model_config& c) { c.hidden = 128; },
        [](model_config& c) { c.vocab = 62; },
        [](model_config& c) { c.max_positions = 256; },
        [](model_config& c) { c.rms_epsilon = 1e-6; },
        [](model_config& c) { c.tied = true; },
        [](model_config& c) { c.rope.theta = 10001.0; },
        [](model_config& c) { c.rope.scaling = rope_scaling::linear; },
        [](model_config& c) { c.rope.factor = 2.0; },
        [](model_config& c) { c.rope.low_freq_factor = 2.0; },
        [](model_config& c) { c.rope.high_freq_factor = 2.0; },
        [](model_config& c) { c.rope.original_positions = 64; },
        [](model_config& c) { c.kinds[0].attention.heads = 4; },
        [](model_config& c) { c.kinds[0].attention.kv_heads = 2; },
        [](model_config& c) { c.kinds[0].attention.head_dim = 16; },
        [](model_config& c) { c.kinds[0].attention.qkv_bias = true; },
        [](model_config& c) { c.kinds[0].attention.output_bias = true; },
        [](model_config& c) { c.kinds[0].attention.qk_norm = true; },
        [](model_config& c) { c.kinds[0].attention.window = 8; },
        [](model_config& c) { c.kinds[0].ffn.width = 64; },
        [](model_config& c) { c.kinds[0].ffn.bias = true; },
        [](model_config& c) { c.kinds[1].experts.count = 16; },
        [](model_config& c) { c.kinds[1].experts.chosen = 1; },
        [](model_config& c) { c.kinds[1].experts.width = 64; },
        [](model_config& c) { c.kinds[1].experts.shared_width = 64; },
        [](model_config& c) { c.kinds[1].experts.scoring = expert_scoring::sigmoid; },
        [](model_config& c) { c.kinds[1].experts.correction = true; },
        [](model_config& c) { c.kinds[1].experts.groups = 2; },
        [](model_config& c) { c.kinds[1].experts.chosen_groups = 2; },
        [](model_config& c) { c.kinds[1].experts.worth = group_worth::best; },
        [](model_config& c) { c.kinds[1].experts.normalised = true; },
        [](model_config& c) { c.kinds[1].experts.sum_epsilon = 1e-20; },
        [](model_config& c) { c.kinds[1].experts.scale = 2.5; },
        [](model_config& c) { c.kind_of[2] = 1; },
    };
    std::set<std::string> seen{checkpoint::config_digest(described())};
    for (auto const& change : changes) {
        model_config c = described();
        change(c);
        CHECK(seen.insert(checkpoint::config_digest(c)).second);
    }
}

TEST_CASE("The numbers of kinds, and kinds that no layer has, are not in the digest of a description") {
    model_config c = described();
    std::swap(c.kinds[0], c.kinds[1]);
    for (std::size_t l = 0; l < 3; ++l) c.kind_of[l] ^= 1U;
    c.kind_count = 3;
    c.kinds[2].ffn.width = 7;
    CHECK(checkpoint::config_digest(c) == checkpoint::config_digest(described()));
}

TEST_CASE("A digest of weights is that of their bytes, whoever helps, and changes with a bit of any tensor and with the scaling") {
    support::random_model files({.name = "digest", .layers = 2, .hidden = 256, .heads = 4, .kv_heads = 2, .ffn = 1100, .vocab = 300}, 5);
    auto const digest = [&files](unsigned threads, checkpoint::block_scaling scaling = {}) {
        checkpoint::folder const folder(files.directory());
        return checkpoint::weights_digest(folder, checkpoint::read_config(files.config(), "test"), scaling, threads);
    };
    std::string const plain = digest(1);
    CHECK(plain.size() == 64);
    for (unsigned const threads : {0U, 2U, 3U, 16U}) CHECK(digest(threads) == plain);
    CHECK(digest(1, {128, 128}) != plain);
    std::set<std::string> seen{plain};
    for (char const* const name : {"model.embed_tokens.weight", "model.layers.0.self_attn.k_proj.weight", "model.layers.1.mlp.down_proj.weight",
                                   "model.layers.1.input_layernorm.weight", "model.norm.weight", "lm_head.weight"}) {
        std::vector<float>& values = files.tensors().at(name).values;
        for (std::size_t const at : {std::size_t{0}, values.size() / 2, values.size() - 1}) {
            float const before = values[at];
            values[at] = std::bit_cast<float>(std::bit_cast<std::uint32_t>(before) ^ 1U);
            files.write();
            CHECK(seen.insert(digest(2)).second);
            values[at] = before;
        }
    }
    files.write();
    CHECK(digest(2) == plain);
}
