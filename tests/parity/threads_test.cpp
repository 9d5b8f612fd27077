// Threads inside a rank change no bit: every family under plans of every kind on teams of 1 to 7, also where they outnumber the cores, for
// prompts long enough that rows, outputs, heads and experts are all shared out; and the refusals of numbers that mean nothing.
// SPDX-License-Identifier: Apache-2.0
#include "support/baseline.hpp"
#include "support/families.hpp"

#include <doctest/doctest.h>
#include <tenon/device/xtensor.hpp>
#include <tenon/dynamic_causal_lm.hpp>

#include <string>
#include <vector>

using namespace tenon;
using namespace support;

namespace {
load_options on_threads(int count, bool pinned = true) {
    load_options how;
    how.threads = count;
    how.pin_threads = pinned;
    return how;
}

void check_threads(geometry g, plans const& list) {
    CAPTURE(g.name);
    g.max_positions = 512;
    random_model const files(g, 77);
    random_bits random(5);
    std::vector<ids> prompts{random_tokens(random, 300, g.vocab)};  // past a block of prepared rows, and what one thread would do alone
    for (int i = 0; i < 9; ++i) prompts.push_back(random_tokens(random, 1 + 3 * i, g.vocab));
    auto plain = dynamic_causal_lm<>::load(files.directory(), plan::parse("all@0"), runtime::sequential{});
    std::vector<floats> rows;
    for (ids const& p : prompts) rows.push_back(rows_of(plain, p));

    auto const check = [&](language_model& m) {
        CHECK_EQ(first_difference(rows[0], rows_of(m, prompts[0])), "");
        CHECK_EQ(first_difference(rows[9], rows_of(m, prompts[9], 1)), "");
        std::vector<floats> const batch = ragged_rows_of(m, std::span<ids const>(prompts).subspan(1));
        for (std::size_t i = 0; i < batch.size(); ++i) CHECK_EQ(first_difference(rows[i + 1], batch[i]), "");
    };
    for (std::string const& text : list)
        for (int const threads : {2, 3, 7}) {
            CAPTURE(text);
            CAPTURE(threads);
            auto serial = dynamic_causal_lm<>::load(files.directory(), plan::parse(text), runtime::sequential{}, on_threads(threads));
            check(serial);
            if (threads == 7) continue;
            auto threaded = dynamic_causal_lm<>::load(files.directory(), plan::parse(text), runtime::threads{}, on_threads(threads, threads == 2));
            check(threaded);
        }
}
}  // namespace

TEST_CASE("Dense families have plain's bits on any number of threads a rank") {
    for (geometry const& g : dense_families()) check_threads(g, {"all@0", "0-1@0,1:tensor.reduce;2-3@1,0:tensor"});
}

TEST_CASE("Routed families have plain's bits on any number of threads a rank") {
    for (geometry const& g : routed_families())
        check_threads(g, {"all@0", "0-1@0,1:expert;2-3@0,1:tensor+expert", "all@0,1:tensor.reduce+expert_width.reduce", "all@0,1:expert_width"});
}

TEST_CASE("Long contexts have plain's bits where threads share the blocks of few KV heads, and sequences of several lengths") {
    geometry g{.name = "long", .hidden = 64, .heads = 6, .kv_heads = 3, .ffn = 96, .vocab = 61};
    g.family = "llama";
    g.head_dim = 24;
    g.max_positions = 1024;
    random_model const files(g, 78);
    random_bits random(6);
    ids const first = random_tokens(random, 910, g.vocab), second = random_tokens(random, 300, g.vocab);
    for (kv_format const format : {kv_format::f32, kv_format::bf16}) {
        auto const decoded = [&](char const* text, int threads) {
            load_options how = on_threads(threads);
            how.kv = format;
            auto m = dynamic_causal_lm<>::load(files.directory(), plan::parse(text), runtime::sequential{}, how);
            state one = m.make_state(), other = m.make_state();
            m.prefill(one, std::span(first).first(900));
            m.prefill(other, std::span(second).first(290));
            floats rows;
            for (std::size_t i = 0; i < 10; ++i) {
                feed const both[]{{&one, std::span(first).subspan(900 + i, 1)}, {&other, std::span(second).subspan(290 + i, 1)}};
                append(rows, m.forward(both, rows_wanted::all));
            }
            return rows;
        };
        floats const plain = decoded("all@0", 1);
        for (int const threads : {2, 3, 4, 7}) CHECK_EQ(first_difference(plain, decoded("all@0", threads)), "");
        CHECK_EQ(first_difference(plain, decoded("all@0,1,2", 2)), "");
    }
}

TEST_CASE("Numbers of threads that mean nothing, and several for a backend that works with one, are refused by name") {
    random_model const files({.name = "small", .layers = 2, .hidden = 64, .kv_heads = 2, .ffn = 96, .vocab = 67}, 3);
    auto const load = [&](load_options const& how) { return dynamic_causal_lm<>::load(files.directory(), plan::parse("all@0"), runtime::sequential{}, how); };
    for (int const count : {0, -1, 1025}) CHECK_THROWS_WITH_AS(load(on_threads(count)), doctest::Contains("threads_are_available"), refusal);
    using reference = dynamic_causal_lm<device::xtensor, device::cpu>;
    CHECK_THROWS_WITH_AS(reference::load(files.directory(), plan::parse("all@0"), runtime::sequential{}, on_threads(2)),
                         doctest::Contains("device_has_threads"), refusal);
    CHECK_NOTHROW(reference::load(files.directory(), plan::parse("all@0"), runtime::sequential{}, on_threads(1)));
}
