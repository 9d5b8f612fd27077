// Splits that went wrong elsewhere, each as a test of its kind: ranks beyond the KV heads, tied heads away from their table, large
// batches under row and column splits, batches in another order, two spellings of one plan.
// SPDX-License-Identifier: Apache-2.0
#include "support/random_model.hpp"
#include "support/runs.hpp"

#include <doctest/doctest.h>
#include <tenon/dynamic_causal_lm.hpp>

#include <algorithm>
#include <string>
#include <vector>

using namespace tenon;
using namespace support;

namespace {
std::string group(int ranks, std::string const& rule = "") {
    std::string text = "all@0";
    for (int r = 1; r < ranks; ++r) text += "," + std::to_string(r);
    return text + rule;
}
dynamic_causal_lm<> load(random_model const& files, std::string const& text) {
    return dynamic_causal_lm<>::load(files.directory(), plan::parse(text), runtime::sequential{});
}
floats rows_under(random_model const& files, std::string const& text, ids const& tokens, std::size_t chunk = 0) {
    auto m = load(files, text);
    return rows_of(m, tokens, chunk);
}
}  // namespace

TEST_CASE("More ranks than KV heads repeat them, with plain's bits and a cost that shows it") {
    struct shape { int heads, kv_heads, ranks; };
    for (shape const s : {shape{28, 4, 28}, shape{28, 4, 2}, shape{32, 4, 8}, shape{32, 4, 32}, shape{8, 1, 8}, shape{12, 3, 6}}) {
        CAPTURE(s.heads);
        CAPTURE(s.ranks);
        random_model const files({.name = "repeated", .layers = 2, .hidden = 64, .heads = s.heads, .kv_heads = s.kv_heads, .head_dim = 4, .ffn = 64, .vocab = 61}, 51);
        ids const tokens{3, 1, 4, 1, 5, 9, 2, 6};
        CHECK_EQ(first_difference(rows_under(files, "all@0", tokens), rows_under(files, group(s.ranks), tokens, 3)), "");
        auto m = load(files, group(s.ranks));
        cost_view const cost(m.graph(), weights::f32, dtype::f32);
        std::int64_t kv = 0;
        for (int r = 0; r < s.ranks; ++r) kv += cost.kv_bytes_per_position(rank_index{r});
        CHECK(kv == 2LL * 2 * 4 * 4 * std::max(s.kv_heads, s.ranks));
    }
}

TEST_CASE("A refusal leaves the process able to make the next plan, and says which counts would do") {
    random_model const files({.name = "fifty-two", .layers = 2, .hidden = 52, .heads = 52, .kv_heads = 52, .head_dim = 2, .ffn = 64, .vocab = 61}, 52);
    for (int const ranks : {3, 8})
        CHECK_THROWS_WITH_AS(load(files, group(ranks)), doctest::Contains("ranks = 1, 2, 4, 13, 26 or 52 would do"), graph_error);
    ids const tokens{1, 2, 3};
    floats const plain = rows_under(files, "all@0", tokens);
    for (int const ranks : {2, 4, 13, 26, 52}) {
        CAPTURE(ranks);
        CHECK_EQ(first_difference(plain, rows_under(files, group(ranks), tokens)), "");
    }
}

TEST_CASE("A head tied to a table that another stage looks up has plain's bits") {
    for (dtype const type : {dtype::f32, dtype::bf16}) {
        random_model const files({.name = "tied", .layers = 3, .hidden = 64, .kv_heads = 2, .ffn = 96, .vocab = 67, .type = type, .tied = true}, 53);
        ids const tokens{5, 0, 66, 13, 8};
        floats const plain = rows_under(files, "all@0", tokens);
        for (std::string const text : {"0-1@0;2@1", "0@0;1@1;2@2", "0@0,1;1-2@2,3", "0@0;1-2@1,2,3,0"}) {
            CAPTURE(text);
            CHECK_EQ(first_difference(plain, rows_under(files, text, tokens)), "");
        }
    }
}

TEST_CASE("A batch of 512 rows and a batch of one have the same bits under row, column and layer splits") {
    random_model const files({.name = "large batch", .layers = 2, .hidden = 64, .kv_heads = 4, .ffn = 256, .vocab = 61}, 54);
    random_bits random(9);
    std::vector<ids> sequences;
    for (int i = 0; i < 512; ++i) sequences.push_back(random_tokens(random, 1, 61));
    auto plain = load(files, "all@0");
    std::vector<floats> alone;
    for (ids const& s : sequences) alone.push_back(rows_of(plain, s));
    for (std::string const text : {"all@0", "all@0,1", "all@0,1:tensor.reduce", "0@0;1@1"}) {
        CAPTURE(text);
        auto m = load(files, text);
        std::vector<state> states;
        std::vector<feed> feeds;
        for (std::size_t i = 0; i < sequences.size(); ++i) states.push_back(m.make_state());
        for (std::size_t i = 0; i < sequences.size(); ++i) feeds.push_back({&states[i], sequences[i]});
        std::span<float const> const logits = m.forward(feeds);
        std::size_t wrong = 0;
        for (std::size_t i = 0; i < alone.size(); ++i) wrong += first_difference(alone[i], logits.subspan(i * 61, 61)).empty() ? 0 : 1;
        CHECK(wrong == 0);
    }
}

TEST_CASE("Sequences of a batch may stand in any order: each row keeps its bits") {
    random_model const files({.name = "order", .layers = 2, .hidden = 64, .kv_heads = 4, .ffn = 256, .vocab = 61}, 55);
    random_bits random(10);
    std::vector<ids> sequences;
    for (int i = 0; i < 9; ++i) sequences.push_back(random_tokens(random, 1 + i % 4, 61));
    for (std::string const text : {"all@0", "all@0,1,2,3", "all@0,1,2,3:tensor.reduce"}) {
        CAPTURE(text);
        auto m = load(files, text);
        std::vector<floats> expected;
        for (ids const& s : sequences) expected.push_back(rows_of(m, s));
        for (int shift : {0, 1, 4, 8}) {
            std::vector<state> states;
            std::vector<feed> feeds;
            std::vector<std::size_t> who;
            for (std::size_t i = 0; i < sequences.size(); ++i) states.push_back(m.make_state());
            for (std::size_t i = 0; i < sequences.size(); ++i) {
                who.push_back((i * 2 + static_cast<std::size_t>(shift)) % sequences.size());
                feeds.push_back({&states[who.back()], sequences[who.back()]});
            }
            std::span<float const> logits = m.forward(feeds, rows_wanted::all);
            for (std::size_t const i : who) {
                CHECK_EQ(first_difference(expected[i], logits.first(expected[i].size())), "");
                logits = logits.subspan(expected[i].size());
            }
        }
    }
}

TEST_CASE("Widths around every internal tile, and batches around every row tile, have plain's bits on threads too") {
    random_bits random(11);
    for (int const width : {31, 32, 33, 63, 64, 65, 127, 129, 316}) {
        CAPTURE(width);
        random_model const files({.name = "width", .layers = 1, .hidden = width, .heads = 4, .kv_heads = 2, .head_dim = 16, .ffn = width, .vocab = width}, 56);
        auto plain = load(files, "all@0");
        ids const tokens = random_tokens(random, 17, width);
        floats const expected = rows_of(plain, tokens, 1);
        for (std::size_t const chunk : {2, 3, 4, 7, 8, 9, 15, 16, 17}) {
            CAPTURE(chunk);
            CHECK_EQ(first_difference(expected, rows_of(plain, tokens, chunk)), "");
        }
        for (int const ranks : {2, 4}) {
            auto m = dynamic_causal_lm<>::load(files.directory(), plan::parse(group(ranks)), runtime::threads{});
            CHECK_EQ(first_difference(expected, rows_of(m, tokens, 5)), "");
        }
    }
}

TEST_CASE("Two spellings of one plan are one plan, and ranges may be told in any order") {
    random_model const files({.name = "spellings", .layers = 4, .hidden = 64, .ffn = 96}, 57);
    auto const spelled = [&](std::string const& text) { return load(files, text).plan(); };
    CHECK(spelled("all@0") == spelled("0-3@0"));
    CHECK(spelled("all@0") == spelled("all@0:none"));
    CHECK(spelled("all@0,1") == spelled("0-3@0,1"));
    ids const tokens{1, 2, 3};
    CHECK_EQ(first_difference(rows_under(files, "all@0,1", tokens), rows_under(files, "0-3@0,1:tensor", tokens)), "");
    CHECK(spelled("2-3@1;0-1@0") == spelled("0-1@0;2-3@1"));
    CHECK(spelled("1@0,1") == spelled("0@0;1@0,1;2-3@0"));
}
