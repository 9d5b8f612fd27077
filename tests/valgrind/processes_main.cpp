// A host with two worker processes that does all that a program does with a model, small enough to run under valgrind. Exit status 0 where
// the bits are those of one rank. SPDX-License-Identifier: Apache-2.0
#include "support/runs.hpp"

#include <tenon/dynamic_causal_lm.hpp>
#include <tenon/runtime/processes.hpp>

#include <cstdio>
#include <string>
#include <utility>
#include <vector>

using namespace tenon;
using namespace support;

namespace {
runtime::processes const patient{.start_seconds = 300, .hang_seconds = 300};  // valgrind is slow
int failures = 0;

void check(bool holds, std::string const& what) {
    if (holds) return;
    ++failures;
    std::printf("%s\n", what.c_str());
}

void check_model(std::string const& directory, std::string const& text, floats const& expected, ids const& prompt) {
    auto m = dynamic_causal_lm<>::load(directory, plan::parse(text), patient);
    check(first_difference(expected, rows_of(m, prompt)).empty(), text + ": other bits");
    state s = m.make_state();
    m.prefill(s, std::span(prompt).first(2), 1);
    state again = m.restore(m.snapshot(s));
    m.truncate(s, 1);
    m.step(s, prompt[1]);
    m.step(again, prompt[2]);
    check(s.length() == 2 && again.length() == 3 && !m.parameters().empty() && m.counts().ranks.size() == 2,
          text + ": another account of itself");
    check(law_of([&] { m.step(s, -1); }) == "token_is_in_vocabulary", text + ": a token that is none");
    m.close();
}
}  // namespace

int main(int count, char** arguments) {
    if (count != 3) return 2;
    ids const prompt{1, 5, 9, 2};
    std::string const dense = arguments[1], routed = arguments[2];
    for (auto const& [directory, plans] :
         {std::pair{dense, std::vector<std::string>{"all@0,1:tensor.reduce", "0-1@0;2-3@1"}}, {routed, {"all@0,1:tensor+expert"}}}) {
        auto plain = dynamic_causal_lm<>::load(directory, plan::parse("all@0"), runtime::sequential{});
        floats const expected = rows_of(plain, prompt);
        for (std::string const& text : plans) check_model(directory, text, expected, prompt);
    }
    // An exception in a layer, after which the model serves on; and a load that is refused.
    auto m = dynamic_causal_lm<>::load(
        dense, plan::parse("all@0,1"),
        runtime::processes{.start_seconds = 300, .hang_seconds = 300, .fault = {testing::worker_fault_kind::throws, 1, 100}});
    check(law_of([&] {
              for (int i = 0; i < 60; ++i) rows_of(m, prompt);
          }) == "workers_compute",
          "a layer that throws");
    rows_of(m, prompt);
    check(law_of([&] { dynamic_causal_lm<>::load(dense, plan::parse("all@0,1"), runtime::processes{.worker_program = "/nowhere"}); }) ==
              "workers_start",
          "no program");
    std::printf("%d failed checks\n", failures);
    return failures == 0 ? 0 : 1;
}
