// validate() against the brute-force checker of these tests, over random configs and stage lists.
// SPDX-License-Identifier: Apache-2.0
#include "support/checker.hpp"

#include <doctest/doctest.h>
#include <tenon/graph/validate.hpp>
#include <tenon/model/llama.hpp>
#include <array>
#include <random>
#include <string>
#include <vector>

using namespace tenon;
using support::first_broken;
using support::first_of_cuts;

TEST_CASE("validate finds the law that an independent checker finds, and its remedies are lawful") {
    std::mt19937 random(7);
    auto const below = [&random](int n) { return static_cast<int>(random() % static_cast<unsigned>(n)); };
    auto const rarely = [&below](int n) { return below(n) == 0; };
    std::array<int, static_cast<std::size_t>(law::count_)> met{};
    for (int round = 0; round < 20000; ++round) {
        int const kv = 1 + below(6), heads = rarely(20) ? 1 + below(12) : kv * (1 + below(4));
        model_config const c = model::llama({.layers = rarely(60) ? 0 : 1 + below(6), .hidden = rarely(60) ? -below(2) : 1 + below(40), .heads = heads, .kv_heads = kv,
                                             .head_dim = rarely(40) ? 3 : 2, .ffn = rarely(8) ? 1 + below(4) : 8 * (1 + below(40)), .vocab = 1 + below(40)});
        std::vector<std::vector<device_id>> groups;
        std::vector<stage_traits> stages;
        groups.reserve(8);
        for (int first = 0; first < c.layers && !rarely(40);) {
            int const last = first + below(c.layers - first), ranks = rarely(60) ? 0 : 1 + below(rarely(3) ? 8 : 2);
            groups.emplace_back();
            for (int r = 0; r < ranks; ++r) groups.back().push_back({device_kind::cpu, rarely(150) ? 0 : rarely(150) ? -1 : r});
            stage_traits s{.first_layer = rarely(40) ? first + below(5) - 2 : first, .last_layer = rarely(40) ? last + below(5) - 2 : last, .devices = groups.back()};
            int const rule = below(8);
            if (rule == 0) s.cuts = {};
            if (rule > 4) s.cuts = {.tensor = true, .tensor_join = rule == 5 ? join_kind::gather : join_kind::reduce};
            if (rarely(60)) s.cuts = {.expert = true, .expert_width = rarely(2)};
            if (rarely(60)) s.most_ranks = below(3);
            if (rarely(60))
                for (device_id& d : groups.back()) d.kind = device_kind::eigen, s.canonical = false;
            if (rarely(60)) s.crossing.schema = 2;
            if (rarely(60)) s.crossing.element = dtype::bf16;
            stages.push_back(s);
            first = last + 1;
        }
        violation const v = validate(c, stages);
        law const expected = first_broken(c, stages);
        ++met[static_cast<std::size_t>(expected)];
        CAPTURE(round);
        REQUIRE(std::string(name_of(v.which)) == std::string(name_of(expected)));
        if (v.right.what != quantity::ranks) continue;
        std::vector<int> would_do;
        stage_traits const& s = stages[static_cast<std::size_t>(v.stage)];
        for (int ranks = 1; ranks <= s.most_ranks && would_do.size() < most_remedies; ++ranks)
            if (first_of_cuts(c, s, ranks) == law::none) would_do.push_back(ranks);
        std::vector<int> const offered(v.instead.value.begin(), v.instead.value.begin() + v.instead.count);
        REQUIRE(offered == (v.which == law::unsharded_has_one_rank ? std::vector{1} : would_do));
    }
    // The sample reaches every law of a model, a stage and a boundary, and enough lawful graphs.
    CHECK(met[0] > 1000);
    for (law l = law::shape_is_positive; l <= law::boundary_keeps_bits; l = static_cast<law>(static_cast<int>(l) + 1)) {
        CAPTURE(name_of(l));
        if (l != law::shape_fits) CHECK(met[static_cast<std::size_t>(l)] > 0);
    }
}
