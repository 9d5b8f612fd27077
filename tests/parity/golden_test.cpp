// The golden checkpoints against their float64 reference: every prompt position and every step within 2e-4, the same greedy
// tokens, by both ways in, in one piece, in two, token by token, and sharded.
// SPDX-License-Identifier: Apache-2.0
#include "support/golden.hpp"
#include "support/runs.hpp"

#include <doctest/doctest.h>
#include <tenon/causal_lm.hpp>
#include <tenon/dynamic_causal_lm.hpp>
#include <tenon/model/llama.hpp>

#include <string>

using namespace tenon;
using namespace support;

namespace {
constexpr double bound = 2e-4;

struct mha {
    static constexpr auto config = model::llama({.layers = 4, .hidden = 64, .heads = 8, .ffn = 64, .vocab = 128, .max_positions = 512});
};
struct gqa {
    static constexpr auto config = model::llama({.layers = 4,
                                                 .hidden = 64,
                                                 .heads = 8,
                                                 .kv_heads = 2,
                                                 .head_dim = 8,
                                                 .ffn = 96,
                                                 .vocab = 128,
                                                 .max_positions = 512,
                                                 .rope_theta = 500000.0,
                                                 .scaling = rope_scaling::llama3,
                                                 .factor = 8.0,
                                                 .original_positions = 256});
};
struct mha_plain : graph<mha, stage<layers<0, 3>>> {};
struct mha_halves : graph<mha, stage<layers<0, 1>, device::cpu<0>>, stage<layers<2, 3>, device::cpu<1>>> {};
struct mha_reduced : graph<mha, stage<layers<0, 3>, device::cpu<0, 1>, shard::tensor<join::reduce>>> {};
struct gqa_plain : graph<gqa, stage<layers<0, 3>>> {};
struct gqa_gathered : graph<gqa, stage<layers<0, 3>, device::cpu<0, 1, 2, 3>, shard::tensor<join::gather>>> {};
struct gqa_mixed : graph<gqa, stage<layers<0, 0>, device::cpu<0>>, stage<layers<1, 3>, device::cpu<1, 0>, shard::tensor<join::gather>>> {};

std::string const data = TENON_TEST_DATA "/golden/";

/// All rows of a generation, sequence by sequence.
struct recorder final : logits_observer {
    std::vector<floats> rows;
    void row(std::size_t sequence, std::int64_t, std::span<float const> logits) override {
        if (rows.size() <= sequence) rows.resize(sequence + 1);
        append(rows[sequence], logits);
    }
};

void check_model(language_model& m, golden const& g) {
    auto const V = static_cast<std::size_t>(m.config().vocab);
    std::span<double const> const prefill(g.logits), decode(g.decode_logits);
    for (std::size_t p = 0; p < g.prompts.size(); ++p) {
        ids const& prompt = g.prompts[p];
        std::span<double const> const expected = prefill.subspan(g.row_offsets[p] * V, prompt.size() * V);
        for (std::size_t const chunk : {prompt.size(), (prompt.size() + 1) / 2, std::size_t{1}}) {
            CAPTURE(chunk);
            CHECK(largest_distance(expected, rows_of(m, prompt, chunk)) < bound);
        }
    }
    recorder seen;
    generation_options options;
    options.max_new_tokens = g.new_tokens;
    options.observer = &seen;
    generation const made = m.generate_batch(g.prompts, options);
    for (std::size_t p = 0; p < g.prompts.size(); ++p) {
        ids expected = g.prompts[p];
        expected.insert(expected.end(), g.greedy[p].begin(), g.greedy[p].end());
        CHECK(made.ids[p] == expected);
        auto const steps = static_cast<std::size_t>(g.new_tokens);
        REQUIRE(seen.rows[p].size() == (g.prompts[p].size() + steps - 1) * V);
        std::span<float const> const chosen = std::span<float const>(seen.rows[p]).last(steps * V);
        CHECK(largest_distance(decode.subspan(p * steps * V, steps * V), chosen) < bound);
    }
}

template <graph_type Graph>
void check_static(golden const& g) {
    CAPTURE(Graph::plan());
    auto threaded = causal_lm<Graph>::load(g.directory);
    check_model(threaded, g);
    auto serial = causal_lm<Graph>::load(g.directory, runtime::sequential{});
    check_model(serial, g);
}

void check_dynamic(golden const& g, std::string const& text) {
    CAPTURE(text);
    auto m = dynamic_causal_lm<>::load(g.directory, plan::parse(text));
    check_model(m, g);
}
}  // namespace

TEST_CASE("llama_mha_f32 has the reference's logits and tokens under graphs written as types") {
    golden const g = read_golden(data + "llama_mha_f32");
    check_static<mha_plain>(g);
    check_static<mha_halves>(g);
    check_static<mha_reduced>(g);
}

TEST_CASE("llama_gqa_bf16_sharded has the reference's logits and tokens under graphs written as types") {
    golden const g = read_golden(data + "llama_gqa_bf16_sharded");
    check_static<gqa_plain>(g);
    check_static<gqa_gathered>(g);
    check_static<gqa_mixed>(g);
}

TEST_CASE("the goldens have the reference's logits and tokens under plans that arrive as text") {
    golden const f32 = read_golden(data + "llama_mha_f32"), bf16 = read_golden(data + "llama_gqa_bf16_sharded");
    for (std::string const text :
         {"all@0", "all@0,1", "all@0,1,2,3", "all@0,1,2,3,4,5,6,7", "0-1@0;2-3@1", "0@0;1@1;2@2;3@3", "0-1@0,1;2-3@2,3:tensor.gather"}) {
        check_dynamic(f32, text);
        check_dynamic(bf16, text);
    }
    check_dynamic(f32, "all@0,1:tensor.reduce");
    check_dynamic(f32, "0-2@0,1:tensor.reduce;3@0,1,2,3");
}
