// States and calls: what is refused, by name and before anything runs, and what stays as it was afterwards.
// SPDX-License-Identifier: Apache-2.0
#include "support/random_model.hpp"
#include "support/runs.hpp"

#include <doctest/doctest.h>
#include <tenon/dynamic_causal_lm.hpp>

#include <atomic>
#include <limits>
#include <string>
#include <thread>
#include <vector>

using namespace tenon;
using namespace support;

namespace {
random_model const& files() {
    static random_model const f({.name = "states", .layers = 2, .hidden = 64, .heads = 4, .kv_heads = 2, .ffn = 64, .max_positions = 96},
                                31);
    return f;
}
dynamic_causal_lm<> loaded(std::string const& text = "all@0") { return dynamic_causal_lm<>::load(files().directory(), plan::parse(text)); }

std::string law_of_feeds(language_model& m, std::vector<feed> const& feeds) {
    return law_of([&] { m.forward(feeds); });
}
ids const three{1, 2, 3};
}  // namespace

TEST_CASE("A state knows its length, moves, and is empty once released") {
    auto m = loaded();
    state s = m.make_state();
    CHECK(s.length() == 0);
    CHECK_FALSE(s.released());
    m.prefill(s, three);
    CHECK(s.length() == 3);
    CHECK(s.kv_bytes(0) > 0);
    state moved = std::move(s);
    CHECK(moved.length() == 3);
    m.step(moved, 4);
    CHECK(moved.length() == 4);
    moved.release();
    moved.release();
    CHECK(moved.released());
    CHECK(moved.length() == 0);
    CHECK(moved.kv_bytes(0) == 0);
    CHECK(law_of_feeds(m, {{&moved, three}}) == "state_is_alive");
}

TEST_CASE("An empty, released, missing or foreign state is refused") {
    auto m = loaded(), other = loaded();
    state mine = m.make_state(), foreign = other.make_state(), never;
    CHECK(law_of_feeds(m, {{&never, three}}) == "state_is_alive");
    CHECK(law_of_feeds(m, {{nullptr, three}}) == "state_is_alive");
    CHECK(law_of_feeds(m, {{&mine, three}, {&foreign, three}}) == "state_belongs_to_the_model");
    CHECK(mine.length() == 0);
    CHECK(law_of([&] { m.step(foreign, 1); }) == "state_belongs_to_the_model");
    foreign.release();
    CHECK(law_of_feeds(m, {{&mine, three}, {&foreign, three}}) == "state_is_alive");
}

TEST_CASE("A state that outlives its model is foreign to the next one") {
    state old;
    {
        auto m = loaded();
        old = m.make_state();
        m.step(old, 1);
    }
    auto next = loaded();
    CHECK(law_of([&] { next.step(old, 1); }) == "state_belongs_to_the_model");
    CHECK(old.length() == 1);
}

TEST_CASE("A state stands once in a batch") {
    auto m = loaded();
    state a = m.make_state(), b = m.make_state();
    CHECK(law_of_feeds(m, {{&a, three}, {&b, three}, {&a, three}}) == "batch_names_a_state_once");
    CHECK(a.length() == 0);
    CHECK(b.length() == 0);
}

TEST_CASE("Token ids stay in the vocabulary") {
    auto m = loaded("all@0,1");
    state s = m.make_state();
    int const V = m.config().vocab;
    for (token_id const id : {-1, V, std::numeric_limits<token_id>::max(), std::numeric_limits<token_id>::min()})
        CHECK(law_of([&] { m.step(s, id); }) == "token_is_in_vocabulary");
    CHECK(law_of([&] { m.generate({1, V}); }) == "token_is_in_vocabulary");
    CHECK(s.length() == 0);
    CHECK(law_of([&] { m.step(s, 0), m.step(s, V - 1); }) == "nothing is refused");
}

TEST_CASE("Positions stay within the model's") {
    auto m = loaded();
    int const most = m.config().max_positions;
    CHECK(law_of([&] { m.make_state(most + 1); }) == "positions_fit_the_model");
    CHECK(law_of([&] { m.make_state(-1); }) == "positions_fit_the_model");
    state s = m.make_state();
    ids const full(static_cast<std::size_t>(most), 1);
    m.prefill(s, full, 40);
    CHECK(s.length() == most);
    CHECK(law_of([&] { m.step(s, 1); }) == "positions_fit_the_model");
    CHECK(s.length() == most);
    state t = m.make_state();
    CHECK(law_of([&] { m.prefill(t, ids(full.size() + 1, 1)); }) == "positions_fit_the_model");
    CHECK(t.length() == 0);
    generation_options one, two;
    one.max_new_tokens = 1;
    two.max_new_tokens = 2;
    CHECK(m.generate(full, one).size() == full.size() + 1);  // the last generated token is not fed
    CHECK(law_of([&] { m.generate(full, two); }) == "positions_fit_the_model");
}

TEST_CASE("A state grows, or keeps to the room that it was made with, as the caller chose") {
    auto m = loaded("0@0;1@1,2");
    state grows = m.make_state(2), fixed = m.make_state(5, growth::fixed), none = m.make_state(0, growth::fixed);
    m.prefill(grows, ids(80, 1));
    CHECK(grows.length() == 80);
    m.prefill(fixed, three);
    CHECK(law_of([&] { m.prefill(fixed, three); }) == "state_has_room");
    CHECK(law_of([&] { m.step(none, 1); }) == "state_has_room");
    feed const both[]{{&grows, three}, {&fixed, three}};
    CHECK(law_of([&] { m.forward(both); }) == "state_has_room");
    CHECK(grows.length() == 80);  // a refused batch feeds nobody
    CHECK(fixed.length() == 3);
    m.step(fixed, 4);
    m.step(fixed, 5);
    CHECK(fixed.length() == 5);
    CHECK_THROWS_WITH(m.step(fixed, 6), doctest::Contains("6 positions and was made with fixed room for 5"));
    CHECK(law_of([&] { m.make_state(m.config().max_positions + 1, growth::fixed); }) == "positions_fit_the_model");
}

TEST_CASE("A thousand states are alive at once, and each has the bits that it would have alone") {
    auto m = loaded("0@0;1@1");
    std::vector<state> states;
    std::vector<feed> feeds;
    std::vector<ids> tokens;
    for (int i = 0; i < 1000; ++i) {
        states.push_back(m.make_state());
        tokens.push_back({i % 61, 1 + i % 7});
    }
    for (std::size_t i = 0; i < states.size(); ++i) feeds.push_back({&states[i], std::span<token_id const>(tokens[i]).first(1)});
    m.forward(feeds);
    for (std::size_t i = 0; i < states.size(); ++i) feeds[i].tokens = std::span<token_id const>(tokens[i]).last(1);
    std::span<float const> const logits = m.forward(feeds);
    floats const all(logits.begin(), logits.end());
    auto const V = static_cast<std::size_t>(m.config().vocab);
    for (std::size_t const i : {std::size_t{0}, std::size_t{499}, std::size_t{999}}) {
        floats const alone = rows_of(m, tokens[i]);
        CHECK_EQ(first_difference(std::span(alone).last(V), std::span(all).subspan(i * V, V)), "");
    }
    for (std::size_t i = 0; i < states.size(); i += 2) states[i].release();
    CHECK(m.step(states[1], 1).size() == V);
}

TEST_CASE("A second prompt through the same shards has the bits of a fresh model, with a new state and never with the old one") {
    auto m = loaded("0@0;1@1,2");
    floats const first = rows_of(m, {9, 8, 7, 6}), second = rows_of(m, {5, 4, 3});
    auto fresh = loaded("0@0;1@1,2");
    CHECK_EQ(first_difference(rows_of(fresh, {5, 4, 3}), second), "");
    CHECK_EQ(first_difference(first, rows_of(m, {9, 8, 7, 6})), "");
    state s = m.make_state();
    m.prefill(s, ids{9, 8, 7, 6});
    feed const more{&s, three};  // goes on at position 4: a state knows where it is
    std::span<float const> const continued = m.forward({&more, 1}, rows_wanted::all);
    auto const V = static_cast<std::size_t>(m.config().vocab);
    CHECK_EQ(first_difference(std::span<float const>(rows_of(fresh, {9, 8, 7, 6, 1, 2, 3})).last(3 * V), continued), "");
}

TEST_CASE("A feed without tokens is refused, a batch without feeds is nothing") {
    auto m = loaded("0@0;1@1");
    state s = m.make_state(), t = m.make_state();
    CHECK(law_of_feeds(m, {{&s, {}}}) == "feed_has_tokens");
    CHECK(law_of_feeds(m, {{&t, three}, {&s, {}}}) == "feed_has_tokens");
    CHECK(law_of([&] { m.prefill(s, {}); }) == "feed_has_tokens");
    CHECK(law_of([&] { m.generate(std::initializer_list<token_id>{}); }) == "prompt_has_tokens");
    CHECK(t.length() == 0);
    CHECK(m.forward({}).empty());
}

TEST_CASE("A refused call changes no state: the next one has the bits that it would have had") {
    auto m = loaded("all@0,1:tensor.reduce");
    floats const expected = rows_of(m, {1, 2, 3, 4, 5});
    state s = m.make_state();
    floats got;
    feed const first{&s, three};
    append(got, m.forward({&first, 1}, rows_wanted::all));
    CHECK(law_of([&] { m.step(s, -5); }) == "token_is_in_vocabulary");
    CHECK(law_of_feeds(m, {{&s, three}, {&s, three}}) == "batch_names_a_state_once");
    append(got, m.step(s, 4));
    append(got, m.step(s, 5));
    CHECK_EQ(first_difference(expected, got), "");
}

TEST_CASE("Zero new tokens give the prompt back") {
    auto m = loaded();
    generation_options none;
    none.max_new_tokens = 0;
    CHECK(m.generate(three, none) == three);
    none.max_new_tokens = -1;
    CHECK(law_of([&] { m.generate(three, none); }) == "new_tokens_are_counted");
    none.max_new_tokens = 0;
    none.chunk = -1;
    CHECK(law_of([&] { m.generate(three, none); }) == "chunk_is_counted");
    CHECK(m.generate_batch({}).ids.empty());
}

TEST_CASE("A stop id ends its sequence at the first position, is kept, and ends no other") {
    auto m = loaded();
    generation_options o;
    o.max_new_tokens = 6;
    std::vector<ids> const prompts{three, {4, 5}};
    std::vector<ids> const free = m.generate_batch(prompts, o).ids;
    o.stop_ids = {free[0][3]};
    std::vector<ids> const stopped = m.generate_batch(prompts, o).ids;
    CHECK(stopped[0] == ids(free[0].begin(), free[0].begin() + 4));
    std::size_t const meets = static_cast<std::size_t>(std::find(free[1].begin() + 2, free[1].end(), free[0][3]) - free[1].begin());
    CHECK(stopped[1] == ids(free[1].begin(), free[1].begin() + static_cast<std::ptrdiff_t>(std::min(meets + 1, free[1].size()))));
    // A stop id in the prompt ends nothing.
    o.stop_ids = {3};
    CHECK(m.generate(three, o).size() > 3);
}

TEST_CASE("A stop id that is the first token generated ends its sequence there") {
    auto m = loaded();
    generation_options o;
    o.max_new_tokens = 5;
    ids const free = m.generate(three, o);
    o.stop_ids = {free[3]};
    CHECK(m.generate(three, o) == ids(free.begin(), free.begin() + 4));
    o.stop_ids = {m.config().vocab + 5};  // never generated: ends nothing
    CHECK(m.generate(three, o) == free);
}

TEST_CASE("A batch samples each sequence as if it were alone with its number") {
    auto m = loaded();
    generation_options o;
    o.max_new_tokens = 12;
    o.sample = {.temperature = 1.5f, .top_k = 40, .top_p = 0.95f, .seed = 77};
    std::vector<ids> const prompts{three, three, {9}};
    std::vector<ids> const together = m.generate_batch(prompts, o).ids;
    CHECK(m.generate(three, o) == together[0]);
    CHECK(together[0] != together[1]);  // the same prompt, another number
    CHECK(m.generate_batch(prompts, o).ids == together);
    o.chunk = 1;
    CHECK(m.generate_batch(prompts, o).ids == together);
    auto split = loaded("all@0,1:tensor.reduce");
    CHECK(split.generate_batch(prompts, o).ids == together);
}

TEST_CASE("Closing twice is fine, and any later call is refused") {
    auto m = loaded("all@0,1");
    state s = m.make_state();
    m.step(s, 1);
    m.close();
    m.close();
    CHECK(law_of([&] { m.step(s, 1); }) == "model_is_open");
    CHECK(law_of([&] { m.prefill(s, three); }) == "model_is_open");
    CHECK(law_of([&] { m.forward({}); }) == "model_is_open");
    CHECK(law_of([&] { m.make_state(); }) == "model_is_open");
    CHECK(law_of([&] { m.generate(three); }) == "model_is_open");
    CHECK(law_of([&] { m.parameters(); }) == "model_is_open");
    CHECK(law_of([&] { m.weight_bytes({0}); }) == "model_is_open");
    s.release();
}

TEST_CASE("A model moves with what it has loaded") {
    auto m = loaded("0@0;1@1");
    state s = m.make_state();
    m.step(s, 1);
    auto moved = std::move(m);
    moved.step(s, 2);
    CHECK(s.length() == 2);
    CHECK(moved.graph().stages.size() == 2);
    CHECK(moved.plan() == "0@0;1@1");
}

TEST_CASE("Of two threads that call at once one is served and the other refused by name") {
    auto m = loaded("all@0,1");
    state first = m.make_state(), second = m.make_state();
    ids const some(8, 1);
    std::atomic<int> refused{0}, served{0}, wrong{0};
    std::atomic<bool> go{false}, enough{false};
    auto const call = [&](state& s) {
        while (!go) std::this_thread::yield();
        for (int i = 0; i < 100000 && !enough; ++i) {
            try {
                if (s.length() + 8 > m.config().max_positions) s = state();
                if (s.released()) {
                    m.forward({});
                } else {
                    feed const f{&s, some};
                    m.forward({&f, 1});
                }
                ++served;
            } catch (refusal const& r) {
                if (r.law_name() != "model_serves_one_call")
                    ++wrong;
                else if (++refused > 3)
                    enough = true;
            }
        }
    };
    std::thread a([&] { call(first); }), b([&] { call(second); });
    go = true;
    a.join();
    b.join();
    CHECK(refused > 0);
    CHECK(served > 0);
    CHECK(wrong == 0);
    // And then it serves again.
    state s = m.make_state();
    m.step(s, 1);
    CHECK(s.length() == 1);
}

TEST_CASE("A refused prompt leaves its state as it was, however it is chunked") {
    auto m = loaded();
    state s = m.make_state();
    ids const bad{1, 2, 3, 99999};
    ids const too_long(97, 1);
    for (int const chunk : {0, 1, 3}) {
        CHECK(law_of([&] { m.prefill(s, bad, chunk); }) == "token_is_in_vocabulary");
        CHECK(law_of([&] { m.prefill(s, too_long, chunk); }) == "positions_fit_the_model");
        CHECK(law_of([&] { m.prefill(s, {}, chunk); }) == "feed_has_tokens");
        CHECK(s.length() == 0);
    }
    CHECK(law_of([&] { m.prefill(s, three, -5); }) == "chunk_is_counted");
    CHECK(s.length() == 0);
}

TEST_CASE("A generation has the model to itself, its observer included") {
    auto m = loaded();
    struct meddler final : logits_observer {
        language_model* model = nullptr;
        state* other = nullptr;
        int refused = 0;
        void row(std::size_t, std::int64_t, std::span<float const>) override {
            refused += law_of([this] { model->step(*other, 1); }) == "model_serves_one_call";
        }
    } watching;
    state other = m.make_state();
    watching.model = &m;
    watching.other = &other;
    generation_options quiet{.max_new_tokens = 4}, watched{.max_new_tokens = 4};
    watched.observer = &watching;
    CHECK(m.generate(three, quiet) == m.generate(three, watched));
    CHECK(watching.refused == 6);  // three of the prompt, three generated and fed again
    CHECK(other.length() == 0);
}

TEST_CASE("Closing from an observer ends the generation by name") {
    auto m = loaded("all@0,1");
    struct closer final : logits_observer {
        language_model* model = nullptr;
        void row(std::size_t, std::int64_t, std::span<float const>) override { model->close(); }
    } closing;
    closing.model = &m;
    generation_options o{.max_new_tokens = 4};
    o.observer = &closing;
    CHECK(law_of([&] { m.generate(three, o); }) == "model_is_open");
    m.close();
}

TEST_CASE("Whatever a closed model is asked, it refuses") {
    auto m = loaded();
    state s = m.make_state(64);
    CHECK(law_of([&] { (void)s.kv_bytes(1); }) == "rank_exists");
    CHECK(law_of([&] { (void)s.kv_bytes(-1); }) == "rank_exists");
    m.close();
    CHECK(law_of([&] { m.generate(three, {.max_new_tokens = 0}); }) == "model_is_open");
    CHECK(law_of([&] { (void)m.generate_batch({}, {}); }) == "model_is_open");
    CHECK(law_of([&] { (void)m.counts(); }) == "model_is_open");
    auto moved = loaded();
    auto taken = std::move(moved);
    CHECK(law_of([&] { (void)moved.counts(); }) == "model_is_open");
    CHECK(taken.generate(three, {.max_new_tokens = 1}).size() == 4);
}

TEST_CASE("A width of 1 is a model like any other") {
    for (int const ffn : {1, 2}) {
        random_model const narrow({.name = "narrow", .layers = 1, .hidden = 1, .heads = 1, .kv_heads = 1, .head_dim = 2, .ffn = ffn}, 5);
        auto m = dynamic_causal_lm<>::load(narrow.directory(), plan::parse("all@0"));
        CHECK(m.generate({0, 1}, {.max_new_tokens = 2}).size() == 4);
    }
}
