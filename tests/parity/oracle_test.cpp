// Random checkpoints against the float64 oracle of these tests, for what the goldens lack: F16, tied tables, biases, linear
// scaling, a head width that is no part of the hidden one, an odd vocabulary.
// SPDX-License-Identifier: Apache-2.0
#include "support/oracle.hpp"
#include "support/random_model.hpp"
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
constexpr int prompt_length = 13, new_tokens = 8;

oracle::shape equations_of(geometry const& g) {
    oracle::shape s;
    s.layers = g.layers, s.hidden = g.hidden, s.heads = g.heads, s.kv_heads = g.kv_heads, s.head_dim = g.head_width(), s.ffn = g.ffn,
    s.vocab = g.vocab;
    s.epsilon = g.epsilon, s.theta = g.theta;
    s.rope = g.rope == scaling::linear   ? oracle::stretch::linear
             : g.rope == scaling::llama3 ? oracle::stretch::llama3
                                         : oracle::stretch::none;
    s.factor = g.factor, s.low = g.low, s.high = g.high, s.original = g.original;
    s.tied = g.tied, s.qkv_bias = g.biases_qkv(), s.output_bias = g.biases_output(), s.mlp_bias = g.mlp_bias;
    s.head_norms = g.norms_heads(), s.fused = g.is_fused();
    for (int l = 0; l < g.layers; ++l) s.windows.push_back(g.window_of(l));
    return s;
}

/// What the oracle says of a checkpoint: a prompt, its greedy continuation, and the logits of both.
struct expectation {
    ids prompt{}, all{};
    std::vector<double> logits{};  ///< of every token fed, the last generated one not among them
    double margin = 1e300;         ///< the smallest distance from a chosen logit to the next one
};

expectation expect(random_model const& m, std::uint64_t seed) {
    oracle::model const o(equations_of(m.shape()), [&m](std::string const& name) {
        floats const& v = m.tensors().at(name).values;
        return oracle::row(v.begin(), v.end());
    });
    random_bits random(seed);
    expectation e;
    e.prompt = e.all = random_tokens(random, prompt_length, m.shape().vocab);
    oracle::model::sequence s(o);
    for (std::size_t i = 0; i < prompt_length + new_tokens - 1; ++i) {
        oracle::row const logits = s.feed(e.all[i]);
        e.logits.insert(e.logits.end(), logits.begin(), logits.end());
        if (i + 1 < e.all.size()) continue;
        std::size_t best = 0;
        for (std::size_t v = 1; v < logits.size(); ++v)
            if (logits[v] > logits[best]) best = v;
        for (std::size_t v = 0; v < logits.size(); ++v)
            if (v != best) e.margin = std::fmin(e.margin, logits[best] - logits[v]);
        e.all.push_back(static_cast<token_id>(best));
    }
    return e;
}

/// The first prompt whose greedy choices no rounding can turn.
expectation decided(random_model const& m) {
    for (std::uint64_t seed = 7;; ++seed)
        if (expectation e = expect(m, seed); e.margin > 2e-3) return e;
}

void check_model(language_model& m, expectation const& e) {
    auto const V = static_cast<std::size_t>(m.config().vocab);
    std::span<double const> const all(e.logits);
    ids const fed(e.all.begin(), e.all.end() - 1);
    for (std::size_t const chunk : {std::size_t{0}, std::size_t{7}, std::size_t{1}}) {
        CAPTURE(chunk);
        CHECK(largest_distance(all, rows_of(m, fed, chunk)) < bound);
    }
    CHECK(largest_distance(all.first(prompt_length * V), rows_of(m, e.prompt)) < bound);
    generation_options options;
    options.max_new_tokens = new_tokens;
    CHECK(m.generate(e.prompt, options) == e.all);
}

void check_plans(geometry const& g, std::initializer_list<char const*> plans) {
    CAPTURE(g.name);
    random_model const files(g, 1000 + g.name.size());
    expectation const e = decided(files);
    for (std::string const text : plans) {
        CAPTURE(text);
        auto m = dynamic_causal_lm<>::load(files.directory(), plan::parse(text));
        check_model(m, e);
    }
}

geometry with_everything() {
    geometry g{.name = "everything at once", .layers = 3, .hidden = 96, .heads = 8, .kv_heads = 2, .head_dim = 16, .ffn = 160, .vocab = 97};
    g.type = dtype::f16;
    g.tied = g.attention_bias = g.mlp_bias = true;
    g.rope = scaling::linear;
    return g;
}
struct everything {
    static constexpr auto config = model::llama({.layers = 3,
                                                 .hidden = 96,
                                                 .heads = 8,
                                                 .kv_heads = 2,
                                                 .head_dim = 16,
                                                 .ffn = 160,
                                                 .vocab = 97,
                                                 .max_positions = 256,
                                                 .tied = true,
                                                 .attention_bias = true,
                                                 .mlp_bias = true,
                                                 .scaling = rope_scaling::linear,
                                                 .factor = 4.0});
};
struct everything_split
    : graph<everything, stage<layers<0, 0>, device::cpu<0>>, stage<layers<1, 2>, device::cpu<1, 2>, shard::tensor<join::gather>>> {};
}  // namespace

TEST_CASE("F16 weights are read exactly") {
    check_plans({.name = "f16", .layers = 2, .hidden = 64, .heads = 4, .kv_heads = 2, .ffn = 96, .vocab = 64, .type = dtype::f16},
                {"all@0", "all@0,1", "0@0;1@1"});
}

TEST_CASE("A tied table serves as the head, on the first stage and away from it") {
    for (dtype const type : {dtype::f32, dtype::bf16})
        check_plans(
            {.name = "tied", .layers = 2, .hidden = 64, .heads = 4, .kv_heads = 4, .ffn = 64, .vocab = 64, .type = type, .tied = true},
            {"all@0", "all@0,1:tensor.reduce", "0@0;1@1", "0@0,1;1@2,3"});
}

TEST_CASE("Biases of attention and FFN are added once") {
    geometry g{.name = "attention bias", .layers = 2, .hidden = 64, .heads = 4, .kv_heads = 2, .ffn = 128, .vocab = 65};
    g.attention_bias = true;
    check_plans(g, {"all@0", "all@0,1", "all@0,1:tensor.reduce", "all@0,1,2,3:tensor.reduce"});
    g.name = "both biases";
    g.mlp_bias = true;
    check_plans(g, {"all@0", "all@0,1", "all@0,1:tensor.reduce", "all@0,1,2,3:tensor.reduce"});
    g.name = "FFN bias alone";
    g.attention_bias = false;
    check_plans(g, {"all@0", "all@0,1:tensor.reduce"});
}

TEST_CASE("Positions are stretched as the config says") {
    for (scaling const s : {scaling::linear, scaling::llama3})
        check_plans({.name = s == scaling::linear ? "linear" : "llama3",
                     .layers = 2,
                     .hidden = 64,
                     .heads = 4,
                     .kv_heads = 2,
                     .ffn = 96,
                     .vocab = 64,
                     .theta = 50000.0,
                     .rope = s},
                    {"all@0", "0@0;1@1"});
}

TEST_CASE("A head width may be explicit: heads times head_dim is not the hidden width") {
    check_plans({.name = "wide heads", .layers = 2, .hidden = 48, .heads = 4, .kv_heads = 1, .head_dim = 24, .ffn = 56, .vocab = 64},
                {"all@0", "all@0,1", "all@0,1,2,3"});
    check_plans({.name = "narrow", .layers = 2, .hidden = 80, .heads = 6, .kv_heads = 3, .head_dim = 10, .ffn = 72, .vocab = 64},
                {"all@0", "all@0,1,2"});
}

TEST_CASE("A vocabulary need not divide over the ranks") {
    check_plans({.name = "odd vocabulary", .layers = 2, .hidden = 64, .heads = 8, .kv_heads = 8, .ffn = 64, .vocab = 67},
                {"all@0", "all@0,1", "all@0,1,2,3", "all@0,1,2,3,4,5,6,7"});
}

TEST_CASE("phi3_oracle: fused tensors are split by their parts, with and without a window") {
    geometry g{.name = "phi3", .layers = 2, .hidden = 64, .heads = 8, .kv_heads = 4, .ffn = 96, .vocab = 67};
    g.family = "phi3";
    for (int const window : {0, 5})
        for (dtype const type : {dtype::f32, dtype::bf16}) {
            g.window = window;
            g.type = type;
            check_plans(g, {"all@0", "all@0,1", "all@0,1,2,3", "all@0,1,2,3,4,5,6,7", "0@0;1@1", "0@0,1;1@2,3,4,5"});
        }
    g.kv_heads = 8;
    check_plans(g, {"all@0", "all@0,1", "0@0;1@1,0"});
}

TEST_CASE("A window holds in every layer of a mistral, and in the upper ones of a qwen where it is switched on") {
    geometry g{.name = "windows", .layers = 3, .hidden = 64, .heads = 4, .kv_heads = 2, .ffn = 96, .vocab = 64};
    for (std::string const family : {"mistral", "qwen2", "qwen3"})
        for (int const window : {1, 4, 12}) {
            g.family = g.name = family;
            g.window = window;
            g.head_dim = family == "qwen3" ? 24 : 0;
            g.first_window_layer = family == "mistral" ? 0 : 1;
            CAPTURE(window);
            check_plans(g, {"all@0", "all@0,1", "0@0;1-2@1"});
        }
}

TEST_CASE("Head norms and biases are where their family has them") {
    geometry g{.name = "qwen3 with biases", .layers = 2, .hidden = 48, .heads = 6, .kv_heads = 3, .head_dim = 16, .ffn = 96, .vocab = 64};
    g.family = "qwen3";
    g.attention_bias = true;
    check_plans(g, {"all@0", "all@0,1,2", "all@0,1,2,3,4,5", "0@0;1@1"});
    geometry odd{.name = "qwen2, seven heads a group", .layers = 2, .hidden = 112, .heads = 14, .kv_heads = 2, .ffn = 96, .vocab = 64};
    odd.family = "qwen2";
    check_plans(odd, {"all@0", "all@0,1", "all@0,1,2,3,4,5,6,7,8,9,10,11,12,13", "0@0;1@1"});
}

TEST_CASE("Everything at once, by both ways in") {
    geometry const g = with_everything();
    check_plans(g, {"all@0", "all@0,1", "0@0;1@1;2@2"});
    random_model const files(g, 1000 + g.name.size());
    expectation const e = decided(files);
    auto plain = causal_lm<graph<everything, stage<layers<0, 2>>>>::load(files.directory());
    check_model(plain, e);
    auto split = causal_lm<everything_split>::load(files.directory());
    check_model(split, e);
}
