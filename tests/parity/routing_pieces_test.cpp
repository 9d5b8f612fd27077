// Every way to route, on small models made of the pieces: sigmoid scores, corrections, groups worth their best or their two best, scales,
// shared experts, dense first layers. Against the float64 oracle, and bit for bit under every split.
// SPDX-License-Identifier: Apache-2.0
#include "support/described_model.hpp"
#include "support/oracle.hpp"
#include "support/random_model.hpp"
#include "support/runs.hpp"

#include <doctest/doctest.h>
#include <tenon/model/qwen3_moe.hpp>

#include <string>
#include <vector>

using namespace tenon;
using namespace support;
using testing::fault;

namespace {
constexpr double bound = 2e-4;

struct piece {
    std::string name;
    routed_experts experts;
    int dense_layers = 0;  ///< the first ones
};

std::vector<piece> const pieces{
    {"softmax, not normalised", {.count = 6, .chosen = 2, .width = 64}},
    {"softmax, scaled", {.count = 6, .chosen = 3, .width = 64, .normalised = true, .scale = 2.5}},
    {"sigmoid", {.count = 6, .chosen = 2, .width = 64, .scoring = expert_scoring::sigmoid}},
    {"sigmoid, normalised with an epsilon, scaled",
     {.count = 8, .chosen = 3, .width = 64, .scoring = expert_scoring::sigmoid, .normalised = true, .sum_epsilon = 1e-20, .scale = 2.446}},
    {"corrected for the choice alone",
     {.count = 8, .chosen = 2, .width = 64, .scoring = expert_scoring::sigmoid, .correction = true, .normalised = true}},
    {"groups worth their two best, corrected: DeepSeek-V3, Kimi-K2, GLM",
     {.count = 16, .chosen = 4, .width = 64, .shared_width = 96, .scoring = expert_scoring::sigmoid, .correction = true, .groups = 4,
      .chosen_groups = 2, .worth = group_worth::two_best, .normalised = true, .sum_epsilon = 1e-20, .scale = 2.5},
     1},
    {"groups worth their best: DeepSeek-V2",
     {.count = 12, .chosen = 3, .width = 64, .shared_width = 128, .groups = 3, .chosen_groups = 2, .worth = group_worth::best, .scale = 16.0},
     1},
    {"a shared expert wider than the others", {.count = 5, .chosen = 1, .width = 64, .shared_width = 256}},
    {"a shared expert narrower than the others", {.count = 5, .chosen = 2, .width = 64, .shared_width = 32}},
    {"one group of one expert each",
     {.count = 8, .chosen = 2, .width = 64, .groups = 8, .chosen_groups = 3, .worth = group_worth::best, .normalised = true}},
};

geometry geometry_of(piece const& p, dtype type) {
    geometry g{.name = p.name, .layers = 3, .hidden = 64, .heads = 8, .kv_heads = 4, .ffn = 96, .vocab = 61, .type = type};
    g.family = "qwen3_moe";
    g.experts = p.experts;
    for (int l = 0; l < p.dense_layers; ++l) g.dense_layers.push_back(l);
    return g;
}

/// The description of a geometry, from the pieces.
model_config described(geometry const& g) {
    model::qwen3_moe_shape const attention{.layers = g.layers, .hidden = g.hidden, .heads = g.heads, .kv_heads = g.kv_heads, .ffn = g.ffn, .vocab = g.vocab,
                                           .max_positions = g.max_positions, .rope_theta = g.theta, .rms_epsilon = g.epsilon};
    return model::with_experts(model::qwen3_moe(attention), g.experts, [&g](int layer) { return g.routes(layer); });
}

oracle::shape equations_of(geometry const& g) {
    oracle::shape s{.layers = g.layers, .hidden = g.hidden, .heads = g.heads, .kv_heads = g.kv_heads, .head_dim = g.head_width(), .ffn = g.ffn, .vocab = g.vocab,
                    .epsilon = g.epsilon, .theta = g.theta};
    s.head_norms = true;
    routed_experts const& e = g.experts;
    s.routed.count = e.count;
    s.routed.chosen = e.chosen;
    s.routed.sigmoid = e.scoring == expert_scoring::sigmoid;
    s.routed.correction = e.correction;
    s.routed.shared = e.shared_width > 0;
    s.routed.groups = e.groups;
    s.routed.chosen_groups = e.chosen_groups;
    s.routed.two_best = e.worth == group_worth::two_best;
    s.routed.normalised = e.normalised;
    s.routed.epsilon = e.sum_epsilon;
    s.routed.scale = e.scale;
    for (int l = 0; l < g.layers; ++l) s.routes.push_back(g.routes(l));
    return s;
}

/// A checkpoint, and tokens with their logits by the oracle, none of whose choices a rounding can turn.
struct expectation {
    random_model files;
    ids tokens{};
    std::vector<double> logits{};

    explicit expectation(geometry const& g) : files(g, 300 + g.name.size()) {
        for (std::uint64_t seed = 1; tokens.empty(); ++seed) try_tokens(seed);
    }

private:
    void try_tokens(std::uint64_t seed) {
        oracle::model const o(equations_of(files.shape()), [this](std::string const& name) {
            floats const& v = files.tensors().at(name).values;
            return oracle::row(v.begin(), v.end());
        });
        random_bits random(seed);
        ids const some = random_tokens(random, 14, files.shape().vocab);
        oracle::model::sequence s(o);
        logits.clear();
        for (token_id const t : some) {
            oracle::row const row = s.feed(t);
            logits.insert(logits.end(), row.begin(), row.end());
        }
        if (o.routing_margin() > 1e-5) tokens = some;
    }
};

floats rows_under(expectation const& e, std::string const& text, runtime_kind runtime = runtime_kind::sequential, fault f = fault::none, std::size_t chunk = 0,
                  numeric_profile const& profile = numeric::canonical_1) {
    load_options how;
    how.fault = f;
    how.profile = profile;
    auto m = described_model::load(described(e.files.shape()), e.files.directory(), text, runtime, how);
    return rows_of(m, e.tokens, chunk);
}

std::vector<std::string> const splits{"all@0,1:expert", "all@0,1,2:expert", "all@0,1:expert_width", "all@0,1:expert_width.reduce", "all@0,1:tensor", "all@0,1,2,3:tensor",
                                      "all@0,1:tensor+expert", "all@0,1,2,3:tensor+expert", "all@0,1:tensor+expert_width", "all@0,1:tensor+expert_width.reduce",
                                      "0@0;1@1,0:expert;2@0,1,2:expert"};
}  // namespace

TEST_CASE("Every way to route has the oracle's logits, and plain's bits under every split") {
    for (piece const& p : pieces)
        for (dtype const type : {dtype::f32, dtype::bf16}) {
            CAPTURE(p.name);
            expectation const e(geometry_of(p, type));
            floats const plain = rows_under(e, "all@0");
            CHECK(largest_distance(e.logits, plain) < bound);
            for (std::size_t const chunk : {std::size_t{1}, std::size_t{5}}) CHECK_EQ(first_difference(plain, rows_under(e, "all@0", runtime_kind::threads, fault::none, chunk)), "");
            for (std::string const& text : splits) {
                CAPTURE(text);
                CHECK_EQ(first_difference(plain, rows_under(e, text)), "");
                CHECK_EQ(first_difference(plain, rows_under(e, text, runtime_kind::threads, fault::none, 5)), "");
            }
        }
}

TEST_CASE("Exact products have plain's bits under every split, a shared expert's in a reduced join too") {
    std::vector<std::string> list = splits;
    list.insert(list.end(), {"all@0,1:tensor.reduce", "all@0,1:tensor.reduce+expert", "all@0,1:tensor.reduce+expert_width.reduce", "all@0,1:tensor.reduce+expert_width"});
    for (piece const& p : pieces) {
        if (p.experts.shared_width % 128 != 0 || p.experts.shared_width == 0) continue;  // whose inputs a reduced join may cut
        CAPTURE(p.name);
        geometry g = geometry_of(p, dtype::f32);
        g.ffn = 128;
        expectation const e(g);
        auto const rows = [&](std::string const& text, runtime_kind runtime, fault f, std::size_t chunk) {
            return rows_under(e, text, runtime, f, chunk, numeric::fixed15_1);
        };
        floats const plain = rows("all@0", runtime_kind::sequential, fault::none, 0);
        CHECK_NE(first_difference(rows_under(e, "all@0"), plain), "");
        for (std::string const& text : list) {
            CAPTURE(text);
            CHECK_EQ(first_difference(plain, rows(text, runtime_kind::sequential, fault::none, 0)), "");
            CHECK_EQ(first_difference(plain, rows(text, runtime_kind::threads, fault::none, 5)), "");
        }
        CHECK_NE(first_difference(plain, rows("all@0,1:tensor.reduce", runtime_kind::sequential, fault::own_magnitudes, 0)), "");
    }
}

TEST_CASE("A shared expert cut where a routed one is cut, or the other way round, turns parity red") {
    struct arm { std::size_t piece; std::vector<std::string> acts_in, is_mute_in; };
    // A cut that would begin too far to the right is the right one: the wider of the two is cut wrongly, the narrower not.
    for (arm const& a : {arm{5, {"all@0,1:tensor", "all@0,1,2,3:tensor", "all@0,1:tensor+expert"}, {"all@0", "all@0,1:expert"}},
                         arm{8, {"all@0,1:expert_width", "all@0,1:tensor+expert_width"}, {"all@0", "all@0,1:tensor"}}}) {
        expectation const e(geometry_of(pieces[a.piece], dtype::f32));
        CAPTURE(pieces[a.piece].name);
        floats const plain = rows_under(e, "all@0");
        for (std::string const& text : a.acts_in) {
            CAPTURE(text);
            REQUIRE_EQ(first_difference(plain, rows_under(e, text)), "");
            for (runtime_kind const runtime : {runtime_kind::sequential, runtime_kind::threads})
                CHECK_NE(first_difference(plain, rows_under(e, text, runtime, fault::swapped_widths)), "");
        }
        for (std::string const& text : a.is_mute_in) {
            CAPTURE(text);
            CHECK_EQ(first_difference(plain, rows_under(e, text, runtime_kind::sequential, fault::swapped_widths)), "");
        }
    }
}

TEST_CASE("A router that has nothing but NaN for a token is refused by name, and the states stay as they were") {
    geometry g = geometry_of(pieces[4], dtype::f32);
    expectation e(g);
    floats& correction = e.files.tensors().at("model.layers.1.mlp.gate.e_score_correction_bias").values;
    correction.assign(correction.size(), std::nanf(""));
    e.files.write();
    for (std::string const text : {"all@0", "all@0,1,2:expert", "all@0,1:tensor+expert", "0@0;1-2@1,2:expert_width"})
        for (runtime_kind const runtime : {runtime_kind::sequential, runtime_kind::threads}) {
            CAPTURE(text);
            auto m = described_model::load(described(g), e.files.directory(), text, runtime);
            state s = m.make_state();
            feed const f{&s, e.tokens};
            std::string words;
            try {
                m.forward({&f, 1});
            } catch (refusal const& r) { words = r.what(); }
            CHECK_MESSAGE(words.find("router_scores_are_numbers") != std::string::npos, words);
            CHECK_MESSAGE(words.find("layer 1") != std::string::npos, words);
            CHECK(s.length() == 0);
        }
}
