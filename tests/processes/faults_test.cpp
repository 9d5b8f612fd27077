// A worker that throws, exits, is killed, stops, talks nonsense or is slow, at every moment of its life: one error that names it, nobody left,
// and a host that goes on.
// SPDX-License-Identifier: Apache-2.0
#include "support/minimal_model.hpp"
#include "support/runs.hpp"
#include "support/worker_watch.hpp"

#include <doctest/doctest.h>
#include <tenon/dynamic_causal_lm.hpp>
#include <tenon/runtime/processes.hpp>

#include <chrono>
#include <cmath>
#include <optional>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

using namespace tenon;
using namespace support;
using fault_kind = testing::worker_fault_kind;

namespace {
using model_of_processes = dynamic_causal_lm<>;

ids const prompt{1, 2, 3, 4};
std::string const split = "0@0,1;1@2";  // two groups: workers 0 and 1, then 2

model_of_processes load(random_model const& files, runtime::processes const& how = {}, std::string const& text = split) {
    return model_of_processes::load(files.directory(), plan::parse(text), how);
}

floats plain_rows(random_model const& files) {
    auto m = dynamic_causal_lm<>::load(files.directory(), plan::parse("all@0"), runtime::sequential{});
    return rows_of(m, prompt);
}

/// What a call refuses with: its law and its whole text.
struct refused {
    std::string law{}, text{};
};
template <class Call>
std::optional<refused> refusal_of(Call call) {
    try {
        call();
    } catch (refusal const& r) { return refused{r.law_name(), r.what()}; }
    return {};
}

/// Loads with a fault, then steps one state until something is refused. The model, where it was loaded, and the state stay for more.
struct run_until_refused {
    std::optional<model_of_processes> model{};
    state sequence{};
    std::optional<refused> what{};

    run_until_refused(random_model const& files, runtime::processes const& how) {
        what = refusal_of([&] {
            model.emplace(load(files, how));
            sequence = model->make_state();
        });
        for (int i = 0; i < 60 && !what; ++i) what = refusal_of([&] { model->step(sequence, 1); });
    }
};

bool mentions(std::string const& text, std::string_view words) { return text.find(words) != std::string::npos; }
}  // namespace

TEST_CASE("Whatever a worker does wrong, and whenever: one error says who, where and why; all are ended; the host goes on") {
    struct wrong { fault_kind what; std::string law, words; };
    random_model const files(tiny(), 1);
    floats const expected = plain_rows(files);
    holdings const before;
    for (wrong const& w : {wrong{fault_kind::exits, "workers_live", "the worker has exited with status 3"}, {fault_kind::killed, "workers_live", "the worker was ended by signal 9"},
                           {fault_kind::garbage, "workers_live", "the worker talks nonsense"}, {fault_kind::stops, "workers_live", "and this one is stopped"}})
        for (auto const& [worker, name] : {std::pair{1, "rank 1 on cpu.1, layers 0-0: "}, {2, "rank 2 on cpu.2, layers 1-1: "}})
            // Before anything is built, at the first and a later slice of the load, in the first call, in a later one.
            for (std::int64_t const steps : {0, 1, 6, 15, 100}) {
                CAPTURE(w.words);
                CAPTURE(worker);
                CAPTURE(steps);
                runtime::processes how{.fault = {w.what, worker, steps}};
                if (w.what == fault_kind::stops) how.hang_seconds = 0.3;
                run_until_refused run(files, how);
                REQUIRE(run.what.has_value());
                CHECK(run.what->law == w.law);
                CHECK(mentions(run.what->text, name));
                CHECK(mentions(run.what->text, w.words));
                CHECK(children() == before.processes);  // before the model is closed
                CHECK(run.model.has_value() == (steps >= 15));
                if (!run.model) continue;
                auto& m = *run.model;
                for (auto const& again :
                     {refusal_of([&] { m.step(run.sequence, 1); }), refusal_of([&] { m.make_state(); }), refusal_of([&] { m.make_state(9); }),
                      refusal_of([&] { m.generate({1, 2}); }), refusal_of([&] { m.parameters(); }), refusal_of([&] { m.counts(); }),
                      refusal_of([&] { m.weight_bytes({0}); })}) {
                    REQUIRE(again.has_value());
                    CHECK(again->law == "workers_live");
                    CHECK(mentions(again->text, name));
                    CHECK(mentions(again->text, w.words));
                }
                if (run.sequence.length() > 0) CHECK(law_of([&] { m.snapshot(run.sequence); }) == "workers_live");
                m.close();
                m.close();
                CHECK(law_of([&] { m.step(run.sequence, 1); }) == "model_is_open");
            }
    CHECK(holdings() == before);
    auto m = load(files);
    CHECK_EQ(first_difference(expected, rows_of(m, prompt)), "");
}

TEST_CASE("An exception in a layer has the worker's words, and the model and its states are as they were") {
    random_model const files(tiny(), 2);
    floats const expected = plain_rows(files);
    holdings const before;
    for (int const worker : {0, 1, 2})
        for (std::int64_t const steps : {0, 1, 6, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 100}) {
            CAPTURE(worker);
            CAPTURE(steps);
            run_until_refused run(files, {.fault = {fault_kind::throws, worker, steps}});
            REQUIRE(run.what.has_value());
            CHECK(run.what->law == "workers_compute");
            CHECK(mentions(run.what->text, "rank " + std::to_string(worker) + " on cpu." + std::to_string(worker) + ", layers "));
            CHECK(mentions(run.what->text, "a deliberate fault at step " + std::to_string(steps)));
            if (!run.model) continue;
            std::int64_t const held = run.sequence.length();
            run.model->step(run.sequence, 1);
            CHECK(run.sequence.length() == held + 1);
            CHECK_EQ(first_difference(expected, rows_of(*run.model, prompt)), "");
        }
    CHECK(holdings() == before);
}

TEST_CASE("What one worker refuses while it loads is refused as the threads refuse it") {
    random_model files(tiny(), 3);
    files.tensors().at("lm_head.weight").values[20] = std::nanf("");
    files.write();
    holdings const before;
    auto const threaded = refusal_of([&] { dynamic_causal_lm<>::load(files.directory(), plan::parse(split), runtime::threads{}); });
    auto const apart = refusal_of([&] { load(files); });
    REQUIRE((threaded && apart));
    CHECK(threaded->law == apart->law);
    CHECK(threaded->text == apart->text);
    CHECK(holdings() == before);
}

TEST_CASE("A slow worker is no hang: every step counts, and every slice that is loaded") {
    struct slow { std::string what; int layers; std::int64_t from; };
    for (slow const& x : {slow{"a load", 10, 0}, {"a call", 40, 2 + 40 * 9}}) {
        CAPTURE(x.what);
        geometry deep = tiny();
        deep.layers = x.layers + 1;
        random_model const files(deep, 4);
        floats const expected = plain_rows(files);
        double const hang_seconds = 0.8;
        auto const begin = std::chrono::steady_clock::now();
        auto m = load(files, {.hang_seconds = hang_seconds, .fault = {fault_kind::slow, 1, x.from}}, "0@0;1-" + std::to_string(x.layers) + "@1");
        floats const rows = rows_of(m, prompt);
        CHECK(std::chrono::steady_clock::now() - begin > std::chrono::duration<double>(hang_seconds));
        CHECK_EQ(first_difference(expected, rows), "");
    }
}

TEST_CASE("A worker that has died is no reason to wait: close and destructor return at once") {
    random_model const files(tiny(), 5);
    holdings const before;
    for (bool const closed : {true, false}) {
        auto m = std::make_optional(load(files));
        std::vector<::pid_t> const workers = children();
        REQUIRE(workers.size() == before.processes.size() + 3);
        for (::pid_t const id : workers) ::kill(id, SIGKILL);
        for (::pid_t const id : workers) CHECK(within(10, [id] { return is_gone(id); }));
        auto const begin = std::chrono::steady_clock::now();
        if (closed) m->close();
        m.reset();
        CHECK(std::chrono::steady_clock::now() - begin < std::chrono::seconds(5));
        CHECK(holdings() == before);
    }
    auto m = std::make_optional(load(files));
    for (::pid_t const id : children()) ::kill(id, SIGSTOP);  // these do not hear that it is over
    m.reset();
    CHECK(holdings() == before);
}

TEST_CASE("A worker that is killed from outside at any moment gives a refusal or the right bits, and leaves nothing") {
    random_model const files(tiny(), 6);
    floats const expected = plain_rows(files);
    holdings const before;
    random_bits random(20240229);
    int loaded = 0, refused_runs = 0;
    for (int round = 0; round < 200; ++round) {
        CAPTURE(round);
        auto const delay = std::chrono::microseconds(random.below(round % 2 == 0 ? 15'000 : 60'000));
        auto const which = static_cast<std::size_t>(random.below(2));
        std::thread killer([&] {
            std::this_thread::sleep_for(delay);
            std::vector<::pid_t> const workers = children();
            if (which < workers.size()) ::kill(workers[which], SIGKILL);
        });
        auto const what = refusal_of([&] {
            auto m = load(files, {}, "all@0,1");
            ++loaded;
            for (int i = 0; i < 20; ++i) {
                floats const rows = rows_of(m, prompt, 1);
                CHECK_EQ(first_difference(expected, rows), "");
            }
        });
        killer.join();
        refused_runs += what.has_value();
        if (what) CHECK((what->law == "workers_live" || what->law == "workers_start"));
        CHECK(holdings() == before);
    }
    MESSAGE(loaded << " of 200 were loaded, " << refused_runs << " were refused");
    CHECK(refused_runs > 20);
}

TEST_CASE("Who visits a worker's slices may throw: the conversation stays whole") {
    random_model const files(tiny(), 7);
    using devices = device::backends<device::cpu>;
    checkpoint::folder const folder(files.directory());
    dynamic_graph const graph(checkpoint::read_config(folder.config_text(), "config.json"), plan::parse(split), devices::available);
    runtime::processes const how{};
    runtime::processes::starter<devices> const starter(how);
    auto const ranks = starter.start(graph.view(), folder, {}, &devices::open, {});
    struct visitor final : detail::piece_visitor {
        int seen = 0, most = 1'000'000;
        void piece(detail::held_piece const&) override {
            if (++seen > most) throw std::out_of_range("enough");
        }
    } patient, impatient;
    ranks->visit_pieces(patient);
    impatient.most = 2;
    for (int i = 0; i < 3; ++i) {
        impatient.seen = 0;
        CHECK_THROWS_AS(ranks->visit_pieces(impatient), std::out_of_range);
        CHECK(impatient.seen == 3);
        CHECK(ranks->counts().size() == 3);
        visitor after;
        ranks->visit_pieces(after);
        CHECK(after.seen == patient.seen);
    }
}
