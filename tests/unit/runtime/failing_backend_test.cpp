// A backend that throws in the middle of a call: the caller gets its exception, nobody waits for ever, and the model goes on.
// SPDX-License-Identifier: Apache-2.0
#include <doctest/doctest.h>
#include <tenon/tenon.hpp>

#include <limits>
#include <string>
#include <vector>

#include "support/failing_backend.hpp"
#include "support/random_model.hpp"

using support::calls_until_failure;
using support::failing;

namespace {

std::vector<float> logits(tenon::language_model& lm, tenon::state& s) {
    std::vector<tenon::token_id> const ids{1, 2, 3, 4, 5};
    tenon::feed const f{&s, ids};
    auto const rows = lm.forward({&f, 1});
    return {rows.begin(), rows.end()};
}

}  // namespace

TEST_CASE("What an operation throws reaches the caller under every runtime, and leaves states and model as they were") {
    support::random_model const model(support::geometry{.layers = 3}, 11);
    for (auto const runtime : {tenon::runtime_kind::threads, tenon::runtime_kind::sequential})
        for (std::string const plan : {"all@0", "all@0,1", "0@0,1;1-2@2,3", "0@0;1@1;2@2"}) {
            calls_until_failure = -1;
            auto lm = tenon::dynamic_causal_lm<failing>::load(model.directory(), tenon::plan::parse(plan), runtime);
            tenon::state plain = lm.make_state(), s = lm.make_state();
            std::vector<float> const expected = logits(lm, plain);
            for (int at = 0; at < 3; ++at) {
                calls_until_failure = at;
                CHECK_THROWS_WITH_AS(logits(lm, s), doctest::Contains("the gated unit found none"), tenon::refusal);
                CHECK(s.length() == 0);
            }
            calls_until_failure = -1;
            CHECK(logits(lm, s) == expected);
        }
}

TEST_CASE("A call that fails after a router found nothing but NaN says nothing of the next call") {
    support::geometry g{.layers = 2, .hidden = 64, .ffn = 32};
    g.family = "mixtral";
    g.experts = {.count = 8, .chosen = 2, .width = 32, .normalised = true};
    support::random_model files(g, 97);
    auto& router = files.tensors().at(files.shape().router_name(0)).values;
    router[5 * 64] = std::numeric_limits<float>::infinity();
    files.write();
    auto lm = tenon::dynamic_causal_lm<failing>::load(files.directory(), tenon::plan::parse("all@0"), tenon::runtime::sequential{});
    std::vector<tenon::token_id> all, good;
    for (int t = 0; t < g.vocab; ++t) all.push_back(t);
    for (int t = 0; t < g.vocab && good.empty(); ++t) {
        tenon::state s = lm.make_state();
        try {
            lm.step(s, t);
            good.push_back(t);
        } catch (tenon::refusal const&) {}
    }
    REQUIRE(good.size() == 1);
    tenon::state s = lm.make_state(), a = lm.make_state();
    tenon::feed const bad{&s, all};
    calls_until_failure = 0;
    CHECK_THROWS_WITH_AS(lm.forward({&bad, 1}), doctest::Contains("the gated unit found none"), tenon::refusal);
    calls_until_failure = -1;
    CHECK_NOTHROW(lm.step(a, good[0]));
}
