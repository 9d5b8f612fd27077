// Hosts that crash again and again, that start all at once, whose stages are slow, whose models are as small as a model can be, and that
// save what another host goes on with: nothing is left behind, nothing is lost, and the bits are those of one rank.
// SPDX-License-Identifier: Apache-2.0
#include "support/minimal_model.hpp"
#include "support/other_host.hpp"
#include "support/runs.hpp"
#include "support/worker_watch.hpp"

#include <doctest/doctest.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <tenon/dynamic_causal_lm.hpp>
#include <tenon/runtime/processes.hpp>

#include <algorithm>
#include <fstream>
#include <memory>
#include <sstream>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

using namespace tenon;
using namespace support;
using fault_kind = testing::worker_fault_kind;

namespace {
ids const prompt{1, 2, 3, 4};
std::string const split = "0@0,1;1@2";  // two groups, three workers

dynamic_causal_lm<> load(std::string const& directory, std::string const& text = split, runtime::processes const& how = {}) {
    return dynamic_causal_lm<>::load(directory, plan::parse(text), how);
}
floats plain_rows(std::string const& directory, ids const& tokens = prompt) {
    auto m = dynamic_causal_lm<>::load(directory, plan::parse("all@0"), runtime::sequential{});
    return rows_of(m, tokens);
}
std::string whole(std::string const& path) {
    std::ostringstream text;
    text << std::ifstream(path, std::ios::binary).rdbuf();
    return text.str();
}

/// Whether a process or a worker of its has something in the folder of named shared memory, open or mapped.
bool uses_named_memory(std::vector<::pid_t> ids_of_all) {
    return std::any_of(ids_of_all.begin(), ids_of_all.end(), [](::pid_t id) {
        std::vector<std::string> const files = files_of(id);
        return std::any_of(files.begin(), files.end(), [](std::string const& f) { return f.starts_with("/dev/shm"); }) ||
               whole("/proc/" + std::to_string(id) + "/maps").find("/dev/shm") != std::string::npos;
    });
}
}  // namespace

TEST_CASE("A hundred hosts that crash one after the other leave no worker, no name and no memory, and the next one starts") {
    random_model const files(tiny(), 1);
    std::string const directory = files.directory();
    floats const expected = plain_rows(directory);
    holdings const before;
    random_bits random(31);
    ::prctl(PR_SET_CHILD_SUBREAPER, 1);  // whoever loses its host becomes a child of this process
    for (int round = 0; round < 100; ++round) {
        CAPTURE(round);
        int told[2];
        REQUIRE(::pipe2(told, O_CLOEXEC) == 0);
        int const moment = round % 4;  // once it is loaded, in a call, at the end of a generation, or whenever it is
        other_host host([&] {
            if (moment == 3) static_cast<void>(::write(told[1], ".", 1));
            auto m = load(directory);
            if (moment == 0) static_cast<void>(::write(told[1], ".", 1));
            for (int i = 0;; ++i) {
                rows_of(m, prompt, 1);
                if (i == (moment == 1 ? 0 : 3)) static_cast<void>(::write(told[1], ".", 1));
            }
            return true;
        });
        char byte;
        REQUIRE(::read(told[0], &byte, 1) == 1);
        if (moment == 3) ::usleep(static_cast<::useconds_t>(random.below(30'000)));
        std::vector<::pid_t> all = children_of(host.id());
        all.push_back(host.id());
        CHECK_FALSE(uses_named_memory(all));
        host.kill();
        CHECK(host.status() == -1);
        CHECK(within(10, [] { return ::waitpid(-1, nullptr, WNOHANG) < 0; }));  // none is left, and none as a zombie
        ::close(told[0]);
        ::close(told[1]);
    }
    ::prctl(PR_SET_CHILD_SUBREAPER, 0);
    CHECK(holdings() == before);
    auto m = load(directory);
    CHECK_EQ(first_difference(expected, rows_of(m, prompt)), "");
}

TEST_CASE("A folder of named shared memory that is full, or none at all, is nobody's need") {
    random_model const files(tiny(), 2);
    std::string const directory = files.directory();
    floats const expected = plain_rows(directory);
    constexpr int not_allowed = 7;
    other_host host([&] {
        if (::unshare(CLONE_NEWUSER | CLONE_NEWNS) != 0 || ::mount("tmpfs", "/dev/shm", "tmpfs", 0, "size=4096") != 0) ::_exit(not_allowed);
        std::ofstream filler("/dev/shm/filler", std::ios::binary);
        std::string const page(4096, 'x');
        while (filler << page << std::flush) {}
        auto m = load(directory);
        return first_difference(expected, rows_of(m, prompt)).empty();
    });
    int const status = host.status();
    bool const allowed = status != not_allowed;
    if (!allowed) MESSAGE("this user may not mount a small folder of its own: nothing checked");
    CHECK((status == 0 || !allowed));
}

TEST_CASE("Twenty hosts that start at once each have workers of their own") {
    random_model const files(tiny(), 3);
    std::string const directory = files.directory();
    floats const expected = plain_rows(directory);
    holdings const before;
    int gate[2];
    REQUIRE(::pipe2(gate, O_CLOEXEC) == 0);
    std::vector<std::unique_ptr<other_host>> hosts;
    for (int i = 0; i < 20; ++i)
        hosts.push_back(std::make_unique<other_host>([&] {
            ::close(gate[1]);
            char byte;
            if (::read(gate[0], &byte, 1) != 0) return false;  // until all are there
            for (int round = 0; round < 2; ++round) {
                auto m = load(directory);
                if (!first_difference(expected, rows_of(m, prompt)).empty() || children().size() != 3) return false;
            }
            return children().empty();
        }));
    ::close(gate[1]);
    for (auto const& host : hosts) CHECK(host->status() == 0);
    ::close(gate[0]);
    CHECK(holdings() == before);
}

TEST_CASE("A slow stage holds the others back: many tokens and many calls, and nothing is dropped or overtaken") {
    geometry g = tiny();
    g.layers = 3;
    g.max_positions = 256;
    random_model const files(g, 4);
    auto plain = dynamic_causal_lm<>::load(files.directory(), plan::parse("all@0"), runtime::sequential{});
    random_bits random(4);
    std::vector<ids> sequences;
    for (int i = 0; i < 6; ++i) sequences.push_back(random_tokens(random, 20 + 5 * i, g.vocab));
    std::vector<floats> const expected = ragged_rows_of(plain, sequences);
    for (int const slow : {0, 1, 2}) {
        CAPTURE(slow);
        auto m = load(files.directory(), "0@0;1@1;2@2", {.hang_seconds = 60, .fault = {fault_kind::slow, slow, 8}});
        std::vector<floats> const got = ragged_rows_of(m, sequences);
        for (std::size_t i = 0; i < expected.size(); ++i) CHECK_EQ(first_difference(expected[i], got[i]), "");
        state one = m.make_state(), same = plain.make_state();
        for (token_id const t : sequences[0]) CHECK_EQ(first_difference(plain.step(same, t), m.step(one, t)), "");
        CHECK(m.counts().ranks[2].hand_overs > 0);
    }
}

TEST_CASE("The smallest models, plans and states work under workers, or are refused as one process refuses them") {
    struct size {
        int layers, heads, kv_heads, head_dim, hidden, ffn, vocab, positions;
    };
    int run = 0, refused = 0;
    for (size const& x : {size{1, 1, 1, 2, 2, 1, 2, 1},
                          {1, 1, 1, 2, 1, 1, 1, 1},
                          {1, 1, 1, 2, 1, 1, 2, 2},
                          {2, 1, 1, 2, 3, 2, 2, 1},
                          {2, 2, 1, 2, 2, 2, 3, 2},
                          {2, 2, 2, 2, 4, 3, 5, 3},
                          {1, 3, 1, 4, 1, 1, 2, 65}})
        for (std::string const text :
             {"all@0", "all@1", "all@0,1", "all@0,1:tensor.reduce", "0@0;1@1", "0@1;1@0", "0@0,1;1@0", "all@0,1,2,3"}) {
            CAPTURE(x.layers);
            CAPTURE(x.hidden);
            CAPTURE(x.positions);
            CAPTURE(text);
            geometry g = tiny();
            g.layers = x.layers, g.heads = x.heads, g.kv_heads = x.kv_heads, g.head_dim = x.head_dim, g.hidden = x.hidden, g.ffn = x.ffn,
            g.vocab = x.vocab, g.max_positions = x.positions;
            random_model const files(g, 5);
            std::string const directory = files.directory();
            std::string const law = law_of([&] { dynamic_causal_lm<>::load(directory, plan::parse(text), runtime::sequential{}); });
            if (law != "nothing is refused") {
                CHECK(law_of([&] { load(directory, text); }) == law);
                ++refused;
                continue;
            }
            ++run;
            auto m = load(directory, text);
            ids const full(static_cast<std::size_t>(x.positions), x.vocab - 1);
            CHECK_EQ(first_difference(plain_rows(directory, full), rows_of(m, full)), "");
            CHECK_EQ(first_difference(plain_rows(directory, full), rows_of(m, full, 1)), "");
            state least = m.make_state(1, growth::fixed), none = m.make_state(0, growth::fixed);
            m.step(least, 0);
            CHECK(law_of([&] { m.step(none, 0); }) == "state_has_room");
            CHECK(law_of([&] { m.step(least, 0); }) == (x.positions == 1 ? "positions_fit_the_model" : "state_has_room"));
            CHECK(law_of([&] { m.prefill(least, {}); }) == "feed_has_tokens");
            state again = m.restore(m.snapshot(least));
            CHECK(again.length() == 1);
            CHECK(m.generate({0}, {.max_new_tokens = 0}) == ids{0});
        }
    CHECK(run >= 20);
    CHECK(refused >= 10);
    MESSAGE(run << " ran, " << refused << " were refused");
}

TEST_CASE("What one host saves another goes on with, whatever the number of workers of either") {
    geometry g = tiny();
    g.layers = 3;
    g.heads = 4;
    g.kv_heads = 2;
    random_model const files(g, 6);
    std::string const directory = files.directory(), saved = files.folder().path("saved.bin"), rows = files.folder().path("rows.bin");
    random_bits random(6);
    ids const tokens = random_tokens(random, 12, g.vocab);
    std::size_t const at = 7;
    floats const all = plain_rows(directory, tokens), expected(all.begin() + static_cast<std::ptrdiff_t>(at) * g.vocab, all.end());
    std::vector<std::string> const plans{"all@0", "all@0,1", "0@0;1@1;2@2", "0@3,2;1-2@0,1:tensor.reduce"};  // 1, 2, 3 and 4 workers
    for (std::string const& from : plans) {
        CAPTURE(from);
        REQUIRE(other_host([&] {
                    auto m = load(directory, from);
                    state s = m.make_state();
                    m.prefill(s, std::span(tokens).first(at), 3);
                    std::vector<std::byte> const bytes = m.snapshot(s);
                    return std::ofstream(saved, std::ios::binary)
                        .write(reinterpret_cast<char const*>(bytes.data()), static_cast<std::streamsize>(bytes.size()))
                        .good();
                }).status() == 0);
        for (std::string const& to : plans) {
            CAPTURE(to);
            CHECK(other_host([&] {
                      auto m = load(directory, to);
                      std::string const bytes = whole(saved);
                      state s = m.restore(std::as_bytes(std::span(bytes)));
                      if (s.length() != static_cast<std::int64_t>(at)) return false;
                      feed const rest{&s, std::span(tokens).subspan(at)};
                      return first_difference(expected, m.forward({&rest, 1}, rows_wanted::all)).empty();
                  }).status() == 0);
        }
    }
}

TEST_CASE("Samples of one prompt differ though no seed is named, and are the same again under any number of workers") {
    random_model const files(tiny(), 7);
    generation_options options;
    options.max_new_tokens = 16;
    options.sample = {.temperature = 2.0f};
    std::vector<ids> const same(5, prompt);
    auto plain = dynamic_causal_lm<>::load(files.directory(), plan::parse("all@0"), runtime::sequential{});
    std::vector<ids> const expected = plain.generate_batch(same, options).ids;
    for (std::size_t i = 0; i < expected.size(); ++i)
        for (std::size_t j = 0; j < i; ++j) CHECK(expected[i] != expected[j]);
    for (std::string const text : {"all@0", "all@0,1", "0@0,1;1@2"}) {
        auto m = load(files.directory(), text);
        CHECK(m.generate_batch(same, options).ids == expected);
    }
}
