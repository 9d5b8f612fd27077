// A violation as a sentence.
// SPDX-License-Identifier: Apache-2.0
#include <doctest/doctest.h>
#include <tenon/core/explain.hpp>
#include <string>
#include <type_traits>

using namespace tenon;

namespace {
violation heads(remedies instead) { return {law::heads_divide_over_ranks, 1, {quantity::heads, 30}, {quantity::ranks, 4}, instead}; }
}

TEST_CASE("a sentence has the law, the stage, the numbers and what would do") {
    remedies three{};
    for (int const ranks : {1, 2, 3}) three.add(ranks);
    CHECK(explain(heads(three)) == "heads_divide_over_ranks: heads divide evenly over a stage's ranks; stage 1: heads = 30, ranks = 4; ranks = 1, 2 or 3 would do");
    CHECK(explain(heads(only(2))) == "heads_divide_over_ranks: heads divide evenly over a stage's ranks; stage 1: heads = 30, ranks = 4; ranks = 2 would do");
    CHECK(explain(heads({})) == "heads_divide_over_ranks: heads divide evenly over a stage's ranks; stage 1: heads = 30, ranks = 4");
}

TEST_CASE("a law of plans names the part and the character") {
    CHECK(explain({law::plan_number_is_plain, 1, {quantity::character, 10}, {}, {}}) ==
          "plan_number_is_plain: a number in a plan has digits alone, without a sign or a leading zero; part 1: character = 10");
}

TEST_CASE("an unbroken law is one sentence") { CHECK(explain({}) == "none: every law holds"); }

TEST_CASE("a graph_error is a refusal that keeps its violation") {
    static_assert(std::is_base_of_v<refusal, graph_error> && std::is_base_of_v<std::runtime_error, refusal>);
    graph_error const e(heads(only(2)));
    CHECK(e.why() == heads(only(2)));
    CHECK(e.law_name() == "heads_divide_over_ranks");
    CHECK(std::string(e.what()) == explain(heads(only(2))));
    CHECK_THROWS_AS(detail::require(heads({})), graph_error);
    CHECK_NOTHROW(detail::require({}));
}

TEST_CASE("remedies beyond the room for them are left out, the first ones stay") {
    remedies r{};
    for (int v = 1; v <= 20; ++v) r.add(v);
    CHECK(r.count == most_remedies);
    CHECK(r.value.front() == 1);
    CHECK(r.value.back() == most_remedies);
}
