// Experts that went wrong elsewhere, each as a test of its kind: counts that ranks do not divide, batches that cross a tile, ranks beyond two,
// scores that are NaN or infinite, ties, scores that a narrower type cannot tell apart, rows that are nobody's.
// SPDX-License-Identifier: Apache-2.0
#include "support/described_model.hpp"
#include "support/families.hpp"
#include "support/runs.hpp"

#include <doctest/doctest.h>
#include <tenon/dynamic_causal_lm.hpp>
#include <tenon/graph/describe.hpp>
#include <tenon/model/qwen3_moe.hpp>

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

using namespace tenon;
using namespace support;

namespace {
std::string on(int ranks, std::string const& rules) {
    std::string text = "all@0";
    for (int r = 1; r < ranks; ++r) text += "," + std::to_string(r);
    return text + ":" + rules;
}

geometry with_experts(int count, int chosen, int layers = 2) {
    geometry g{.name = "experts", .layers = layers, .hidden = 64, .heads = 4, .kv_heads = 2, .ffn = 32, .vocab = 61};
    g.family = "mixtral";
    g.experts = {.count = count, .chosen = chosen, .width = 32, .normalised = true};
    return g;
}

floats rows_under(random_model const& files, std::string const& text, ids const& tokens, runtime_kind runtime = runtime_kind::sequential) {
    auto m = dynamic_causal_lm<>::load(files.directory(), plan::parse(text), runtime);
    return rows_of(m, tokens);
}

/// How many experts each of `ranks` ranks of one stage holds, by the graph.
std::vector<int> experts_held(random_model const& files, int ranks) {
    auto m = dynamic_causal_lm<>::load(files.directory(), plan::parse(on(ranks, "expert")), runtime::sequential{});
    graph_view const g = m.graph();
    std::vector<int> held;
    for (int r = 0; r < ranks; ++r)
        for (tensor const& t : g.ir.tensors)
            if (t.what == role::expert_gate) held.push_back(static_cast<int>(held_count(t, g.stages[0], *g.config, r)) / g.config->layers);
    return held;
}

/// What every token chose: layer by layer, token by token.
struct choices final : routing_observer {
    std::vector<ids> seen;
    void routed(int, std::int64_t, std::int64_t, std::span<std::int32_t const> experts) override { seen.emplace_back(experts.begin(), experts.end()); }
};

/// One layer of sigmoid scores, over an (E, H) router of the caller's own.
struct own_router {
    explicit own_router(void (*change)(floats& router)) {
        change(files.tensors().at(files.shape().router_name(0)).values);
        files.write();
    }
    described_model load(std::string const& text, routing_observer* trace = nullptr) const {
        load_options how;
        how.routing = trace;
        geometry const& g = files.shape();
        model::qwen3_moe_shape const attention{.layers = 1, .hidden = g.hidden, .heads = g.heads, .kv_heads = g.kv_heads, .vocab = g.vocab, .max_positions = 256, .rms_epsilon = 1e-5};
        return described_model::load(model::with_experts(model::qwen3_moe(attention), g.experts, [](int) { return true; }), files.directory(), text, runtime_kind::threads, how);
    }
    random_model files{shape(), 91};

    static geometry shape() {
        geometry g = with_experts(8, 2, 1);
        g.family = "qwen3_moe";
        g.experts.scoring = expert_scoring::sigmoid;
        return g;
    }
};

ids const tokens{3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 58, 60};
}  // namespace

TEST_CASE("Ranks that do not divide the experts share them out, one more or less, with equal bits; `exact` is refused early") {
    struct split { int experts, ranks; std::vector<int> held; };
    for (split const& s : {split{8, 3, {3, 3, 2}}, split{9, 3, {3, 3, 3}}, split{30, 8, {4, 4, 4, 3, 4, 4, 4, 3}}, split{128, 6, {22, 21, 21, 22, 21, 21}}}) {
        CAPTURE(s.experts);
        CAPTURE(s.ranks);
        random_model const files(with_experts(s.experts, 2), 92);
        std::vector<int> const held = experts_held(files, s.ranks);
        CHECK(held == s.held);
        int sum = 0;
        for (int const n : held) sum += n;
        CHECK(sum == s.experts);
        floats const plain = rows_under(files, "all@0", tokens);
        for (std::string const rules : {"expert", "tensor+expert"})
            if (rules == "expert" || 4 % s.ranks == 0) CHECK_EQ(first_difference(plain, rows_under(files, on(s.ranks, rules), tokens, runtime_kind::threads)), "");
        auto const exactly = [&] { return rows_under(files, on(s.ranks, "expert.exact"), tokens); };
        if (s.experts % s.ranks == 0)
            CHECK_EQ(first_difference(plain, exactly()), "");
        else
            CHECK_THROWS_WITH_AS(exactly(), doctest::Contains("experts_divide_over_ranks"), graph_error);
    }
}

TEST_CASE("Any number of ranks from 1 to 8 gives the same bits, four experts a token, alone and in every batch around a tile") {
    random_model const files(with_experts(8, 4), 93);
    random_bits random(5);
    std::vector<ids> sequences;
    for (int i = 0; i < 17; ++i) sequences.push_back(random_tokens(random, 2, 61));
    auto plain = dynamic_causal_lm<>::load(files.directory(), plan::parse("all@0"));
    std::vector<floats> alone;
    for (ids const& s : sequences) alone.push_back(rows_of(plain, s));
    for (int ranks = 1; ranks <= 8; ++ranks) {
        CAPTURE(ranks);
        auto m = dynamic_causal_lm<>::load(files.directory(), plan::parse(on(ranks, "expert")), runtime::sequential{});
        for (std::size_t const size : {1U, 2U, 3U, 4U, 7U, 8U, 9U, 15U, 16U, 17U}) {
            std::vector<state> states;
            std::vector<feed> feeds;
            for (std::size_t i = 0; i < size; ++i) states.push_back(m.make_state());
            for (std::size_t i = 0; i < size; ++i) feeds.push_back({&states[i], sequences[i]});
            std::span<float const> logits = m.forward(feeds, rows_wanted::all);
            for (std::size_t i = 0; i < size; ++i, logits = logits.subspan(alone[0].size())) {
                CAPTURE(size);
                CHECK_EQ(first_difference(alone[i], logits.first(alone[i].size())), "");
            }
        }
    }
}

TEST_CASE("An expert whose logit is NaN is never chosen; one at infinity is chosen or left out by its sign") {
    auto const make_nan = [](floats& router) { std::fill_n(router.begin() + 3 * 64, 64, std::nanf("")); };
    auto const make_infinite = [](floats& router) {
        std::fill_n(router.begin() + 3 * 64, 64, 0.0f);
        router[3 * 64] = std::numeric_limits<float>::infinity();  // times an input of either sign
    };
    for (bool const infinite : {false, true}) {
        CAPTURE(infinite);
        own_router const known(infinite ? +make_infinite : +make_nan);
        choices trace;
        auto m = known.load("all@0,1,2:expert", &trace);
        floats const rows = rows_of(m, tokens);
        auto const times = std::count_if(trace.seen.begin(), trace.seen.end(), [](ids const& chosen) { return std::count(chosen.begin(), chosen.end(), 3) == 1; });
        CHECK((times > 0) == infinite);
        CHECK(times < static_cast<std::ptrdiff_t>(tokens.size()));
        for (float const x : rows) CHECK(std::isfinite(x));
        auto plain = known.load("all@0");
        CHECK_EQ(first_difference(rows, rows_of(plain, tokens)), "");
    }
}

TEST_CASE("Every logit NaN in a softmax router is refused by name on every split, before a state moves") {
    random_model files(with_experts(8, 2), 94);
    floats& router = files.tensors().at(files.shape().router_name(1)).values;
    router[5 * 64] = std::nanf("");  // one NaN among a softmax's logits makes all its scores NaN
    files.write();
    for (std::string const text : {"all@0", "all@0,1,2:expert", "all@0,1:tensor+expert", "all@0,1:expert_width"}) {
        CAPTURE(text);
        auto m = dynamic_causal_lm<>::load(files.directory(), plan::parse(text));
        state s = m.make_state();
        CHECK(law_of([&] { m.step(s, 7); }) == "router_scores_are_numbers");
        CHECK(s.length() == 0);
        CHECK(law_of([&] { m.step(s, 7); }) == "router_scores_are_numbers");
    }
}

TEST_CASE("The refusal names the first layer, the state of the batch and its position, and the next call is served") {
    random_model files(with_experts(8, 2), 97);
    floats& router = files.tensors().at(files.shape().router_name(0)).values;
    router[5 * 64] = std::numeric_limits<float>::infinity();  // NaN scores for the tokens whose first value is positive
    files.write();
    auto plain = dynamic_causal_lm<>::load(files.directory(), plan::parse("all@0"), runtime::sequential{});
    auto const is_refused = [&plain](ids const& tokens) {
        state s = plain.make_state();
        feed const f{&s, tokens};
        return law_of([&] { plain.forward({&f, 1}); }) == "router_scores_are_numbers";
    };
    ids served{0}, refused;
    while (is_refused(served)) REQUIRE(++served[0] < files.shape().vocab);
    refused = {served[0], 0};
    while (!is_refused(refused)) REQUIRE(++refused[1] < files.shape().vocab);
    floats const expected = rows_of(plain, served);
    for (std::string const text : {"all@0", "0@0;1@1", "all@0,1,2:expert", "0@0,1:tensor+expert;1@2,3:expert_width"}) {
        CAPTURE(text);
        auto m = dynamic_causal_lm<>::load(files.directory(), plan::parse(text));
        state a = m.make_state(), b = m.make_state();
        m.step(b, served[0]);
        ids const next{refused[1]};
        std::string words;
        try {
            m.forward(std::vector<feed>{{&a, served}, {&b, next}});
        } catch (refusal const& r) { words = r.what(); }
        CHECK_MESSAGE(words.find("layer 0: all 8 scores of state 1 at position 1 are NaN") != std::string::npos, words);
        CHECK(a.length() == 0);
        CHECK(b.length() == 1);
        feed const again{&a, served};
        std::span<float const> const rows = m.forward({&again, 1});
        CHECK_EQ(first_difference(expected, floats(rows.begin(), rows.end())), "");
    }
}

TEST_CASE("Scores that bfloat16 cannot tell apart choose by their float32 bits, whatever the other weights are held in") {
    geometry g = with_experts(8, 1, 1);
    g.type = dtype::bf16;
    random_model files(g, 95);
    stored_tensor& router = files.tensors().at(g.router_name(0));
    router.type = dtype::f32;
    for (std::size_t e = 1; e < 8; e += 2)
        for (std::size_t i = 0; i < 64; ++i) router.values[e * 64 + i] = router.values[(e - 1) * 64 + i] * (1.0f + 0x1p-18f);
    files.write();
    std::vector<ids> first;
    for (weights const w : {weights::stored, weights::f32, weights::bf16}) {
        choices trace;
        load_options how;
        how.weights = w;
        how.routing = &trace;
        auto m = dynamic_causal_lm<>::load(files.directory(), plan::parse("all@0,1:expert"), runtime::sequential{}, how);
        rows_of(m, tokens);
        auto const odd = std::count_if(trace.seen.begin(), trace.seen.end(), [](ids const& chosen) { return chosen[0] % 2 == 1; });
        CHECK(odd > 0);  // rounded, every one would tie with its even neighbour and lose
        if (first.empty()) first = trace.seen;
        CHECK(trace.seen == first);
    }
}

TEST_CASE("A ragged batch routes its tokens and nothing beside them") {
    geometry const g = with_experts(8, 2);
    random_model const files(g, 96);
    choices trace;
    load_options how;
    how.routing = &trace;
    auto m = dynamic_causal_lm<>::load(files.directory(), plan::parse("all@0,1:expert"), runtime::threads{}, how);
    std::vector<ids> const sequences{{1, 2, 3, 4, 5, 6, 7}, {8}, {9, 10, 11}};
    std::vector<state> states;
    std::vector<feed> feeds;
    for (std::size_t i = 0; i < 3; ++i) states.push_back(m.make_state());
    for (std::size_t i = 0; i < 3; ++i) feeds.push_back({&states[i], sequences[i]});
    m.forward(feeds);
    CHECK(trace.seen.size() == 2 * 11);
    std::int64_t dispatched = 0;
    for (expert_census const& e : m.counts().total.experts) dispatched += e.dispatched_rows;
    CHECK(dispatched == 2 * 11 * 2);
}
