// The golden checkpoints against their float64 reference: every prompt position and every step within 2e-4, the same greedy
// tokens, by both ways in, in one piece, in two, token by token, and sharded; under the default profile and under the one that promises
// nothing else. Says nothing of a device: golden/DEVICE_test.cpp do.
// SPDX-License-Identifier: Apache-2.0
#pragma once
#include "support/golden.hpp"
#include "support/golden_models.hpp"
#include "support/runs.hpp"

#include <doctest/doctest.h>
#include <tenon/causal_lm.hpp>
#include <tenon/dynamic_causal_lm.hpp>

#include <string>

using namespace tenon;
using namespace support;

namespace {
constexpr double bound = 2e-4;

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

/// Calls `load(options)` for every profile that is held to the bound, and checks what it gives.
template <class Load>
void check_profiles(golden const& g, Load load) {
    for (numeric_profile const& p : {numeric::canonical_1, numeric::fast}) {
        CAPTURE(p.name);
        auto m = load(load_options{.profile = p});
        check_model(m, g);
    }
}

template <graph_type Graph>
void check_static(golden const& g) {
    CAPTURE(Graph::plan());
    check_profiles(g, [&](load_options const& how) { return causal_lm<Graph>::load(g.directory, runtime::threads{}, how); });
}

void check_dynamic(golden const& g, std::string const& text) {
    CAPTURE(text);
    check_profiles(g, [&](load_options const& how) { return dynamic_causal_lm<on>::load(g.directory, plan::parse(text), runtime::threads{}, how); });
}

std::string devices(int ranks) {
    std::string text = "all@0";
    for (int r = 1; r < ranks; ++r) text += "," + std::to_string(r);
    return text;
}
}  // namespace

TEST_CASE("Every dense golden has the reference's logits and tokens under graphs written as types") {
    dense_goldens::each([]<class Model>() {
        CAPTURE(Model::folder);
        golden const g = read_golden(data + std::string(Model::folder));
        check_static<whole<Model, on>>(g);
        check_static<support::cut<Model, on>>(g);
    });
}

TEST_CASE("Every dense golden has them under plans that arrive as text: pipelines, groups, both joins") {
    dense_goldens::each([]<class Model>() {
        CAPTURE(Model::folder);
        golden const g = read_golden(data + std::string(Model::folder));
        grouped_attention const& a = Model::config.kinds[0].attention;
        int const layers = Model::config.layers;
        std::string const last = std::to_string(layers - 1);
        for (std::string const& text : {std::string("all@0"), "0-1@0;2-" + last + "@1", "0-1@0,1;2-" + last + "@2,3:tensor.gather"})
            check_dynamic(g, text);
        for (int const ranks : {2, 3, 4, 6, 8}) {
            bool const legal = a.heads % ranks == 0 && (a.kv_heads % ranks == 0 || ranks % a.kv_heads == 0);
            if (legal && (every_plan || ranks == 2)) check_dynamic(g, devices(ranks));
        }
    });
}

TEST_CASE("A golden whose products cut into segments has them under reduced joins") {
    golden const g = read_golden(data + "llama_mha_f32");
    check_dynamic(g, "all@0,1:tensor.reduce");
    check_dynamic(g, "0-2@0,1:tensor.reduce;3@0,1,2,3");
}

TEST_CASE("Every routed golden has the reference's logits and tokens under graphs written as types") {
    routed_goldens::each([]<class Model>() {
        CAPTURE(Model::folder);
        golden const g = read_golden(data + std::string(Model::folder));
        check_static<whole<Model, on>>(g);
        check_static<support::cut<Model, on>>(g);
        check_static<experts_apart<Model, on>>(g);
        check_static<experts_and_heads_apart<Model, on>>(g);
    });
}

TEST_CASE("Every routed golden has them under plans that arrive as text: whole experts, their widths, with heads and in pipelines") {
    routed_goldens::each([]<class Model>() {
        CAPTURE(Model::folder);
        golden const g = read_golden(data + std::string(Model::folder));
        int const layers = Model::config.layers;
        std::string const last = std::to_string(layers - 1);
        for (std::string const& text :
             {std::string("all@0"), "0-1@0;2-" + last + "@1:none", devices(3) + ":expert", devices(2) + ":expert_width",
              "0-1@0,1:tensor+expert_width.reduce;2-" + last + "@2,0,1:expert"})
            check_dynamic(g, text);
        if (!every_plan) return;
        for (int const ranks : {2, 4, 8})
            for (std::string const rule : {":expert", ":tensor+expert", ":expert_width", ":tensor+expert_width"}) check_dynamic(g, devices(ranks) + rule);
    });
}
