// Routed experts, bit for bit against plain: whole experts on 1, 2, 3, 4 and 8 ranks, their widths on 1, 2 and 4, both with tensor splits
// and pipelines, on every canonical device; and routers that are unfair: ties, scores one bit apart, an expert or a rank without a row.
// SPDX-License-Identifier: Apache-2.0
#include "support/baseline.hpp"
#include "support/families.hpp"

#include <doctest/doctest.h>
#include <tenon/device/eigen.hpp>
#include <tenon/device/xtensor.hpp>
#include <tenon/dynamic_causal_lm.hpp>
#include <tenon/shard/placement_map.hpp>

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
    return text + (rules.empty() ? "" : ":" + rules);
}
plans on(std::initializer_list<int> ranks, std::initializer_list<std::string> rules) {
    plans list;
    for (int const r : ranks)
        for (std::string const& rule : rules) list.push_back(on(r, rule));
    return list;
}

// Of four layers: groups of different sizes and rules, one device in several stages, experts between plain ends.
plans const compositions{"0-1@0,1:expert;2-3@2,3,4:expert",
                         "0@0;1-2@1,2,0:expert;3@0",
                         "0-1@0,1:tensor+expert;2-3@1,0:expert_width.reduce",
                         "0@0,1:tensor.reduce;1-2@0,1:expert;3@1,0:tensor.reduce+expert",
                         "0-1@0,1,2,3:tensor.reduce+expert_width.reduce;2-3@0,1:tensor+expert_width",
                         "0-1@0,1:expert;2@0,1:tensor;3@1,2:expert_width"};

/// The rows of an (E, H) router of every layer that routes.
template <class Change>
void change_routers(random_model& files, Change change) {
    geometry const& g = files.shape();
    for (int l = 0; l < g.layers; ++l)
        if (g.routes(l)) change(files.tensors().at(g.router_name(l)).values, static_cast<std::size_t>(g.hidden));
    files.write();
}
void make_all_scores_equal(random_model& files) {
    change_routers(files, [](floats& router, std::size_t) { router.assign(router.size(), 0.0f); });
}
void make_neighbours_equal(random_model& files) {
    change_routers(files, [](floats& router, std::size_t H) {
        for (std::size_t e = 1; e < router.size() / H; e += 2)
            for (std::size_t i = 0; i < H; ++i) router[e * H + i] = router[(e - 1) * H + i];
    });
}
void move_every_second_by_one_bit(random_model& files) {
    make_neighbours_equal(files);
    change_routers(files, [](floats& router, std::size_t H) {
        for (std::size_t e = 1; e < router.size() / H; e += 2)
            router[e * H] = std::nextafter(router[e * H], e % 4 == 1 ? std::numeric_limits<float>::infinity() : 0.0f);
    });
}

std::int64_t rows_of_rank(census const& c, std::size_t rank) {
    std::int64_t sum = 0;
    for (expert_census const& e : c.ranks[rank].experts) sum += e.dispatched_rows;
    return sum;
}
}  // namespace

TEST_CASE("Whole experts on 1, 2, 3, 4 and 8 ranks have plain's bits") {
    for (geometry const& g : routed_families()) {
        CAPTURE(g.name);
        random_model const files(g, 61);
        baseline const b(files.directory());
        check_plans(b, on({1, 2, 3}, {"expert"}));
        check_plans(b, on({4, 8}, {"expert"}), false);
    }
}

TEST_CASE("A share of every expert's width on 1, 2 and 4 ranks has plain's bits under both joins") {
    for (geometry const& g : routed_families()) {
        CAPTURE(g.name);
        random_model const files(g, 62);
        baseline const b(files.directory());
        check_plans(b, on({1, 2}, {"expert_width", "expert_width.reduce"}));
        check_plans(b, on({4}, {"expert_width", "expert_width.reduce"}), false);
    }
}

TEST_CASE("Experts cut beside heads on the same ranks have plain's bits") {
    for (geometry const& g : routed_families()) {
        CAPTURE(g.name);
        random_model const files(g, 63);
        baseline const b(files.directory());
        check_plans(b, on({2, 4, 8}, {"", "tensor", "tensor.reduce", "tensor+expert", "tensor.reduce+expert"}), false);
        check_plans(b, on({2, 4}, {"tensor+expert_width", "tensor+expert_width.reduce", "tensor.reduce+expert_width", "tensor.reduce+expert_width.reduce"}), false);
    }
}

TEST_CASE("Pipelines of stages that cut experts in different ways have plain's bits") {
    for (geometry const& g : routed_families()) {
        CAPTURE(g.name);
        random_model const files(g, 64);
        check_plans(baseline(files.directory()), compositions, false);
    }
}

TEST_CASE("Experts held as bf16 have plain's bits") {
    random_model const files(routed_families()[1], 65);
    load_options how;
    how.weights = weights::bf16;
    check_plans(baseline(files.directory(), how), {"all@0,1,2:expert", "all@0,1:expert_width.reduce", "all@0,1:tensor+expert"}, false);
}

TEST_CASE("Widths and expert counts that ranks do not divide have plain's bits") {
    geometry g{.name = "odd", .layers = 2, .hidden = 78, .heads = 6, .kv_heads = 3, .head_dim = 10, .ffn = 77, .vocab = 65};
    g.family = "qwen3_moe";
    g.experts = {.count = 13, .chosen = 5, .width = 37, .normalised = true};
    random_model const files(g, 66);
    check_plans(baseline(files.directory()), {"all@0,1,2:expert", "all@0,1,2,3,4,5,6:expert", "all@0,1,2:expert_width", "all@0,1,2:tensor+expert",
                                              "all@0,1,2:tensor+expert_width", "0@0,1:expert;1@0,1,2,3,4:expert_width"}, false);
}

TEST_CASE("xtensor has the bits of cpu for routed models, whole, split and mixed with it") {
    for (geometry const& g : routed_families()) {
        CAPTURE(g.name);
        random_model const files(g, 67);
        baseline const b(files.directory());
        for (std::string const text : {"all@0", "all@0,1,2:expert", "all@0,1:expert_width.reduce", "all@0,1:tensor+expert", "0-1@cpu.0,cpu.1:expert;2-3@xtensor.0,1:expert",
                                       "0-1@0,1:expert_width;2-3@cpu.0,cpu.1:tensor.reduce+expert_width.reduce"}) {
            CAPTURE(text);
            auto m = dynamic_causal_lm<device::xtensor, device::cpu>::load(files.directory(), plan::parse(text));
            check_chunk(m, b, 3, 0);
            check_batch(m, b, 2);
        }
    }
}

TEST_CASE("eigen has its own bits under every split of experts") {
    random_model const files(routed_families()[1], 68);
    auto whole = dynamic_causal_lm<device::eigen>::load(files.directory(), plan::parse("all@0"), runtime::sequential{});
    random_bits random(1);
    std::vector<ids> sequences;
    std::vector<floats> rows;
    for (int i = 0; i < 5; ++i) sequences.push_back(random_tokens(random, 3 + i * 4, files.shape().vocab));
    for (ids const& s : sequences) rows.push_back(rows_of(whole, s));
    for (std::string const text : {"all@0", "all@0,1,2:expert", "all@0,1:expert_width", "all@0,1:expert_width.reduce", "all@0,1:tensor+expert"}) {
        CAPTURE(text);
        auto m = dynamic_causal_lm<device::eigen>::load(files.directory(), plan::parse(text));
        std::vector<floats> const got = ragged_rows_of(m, sequences);
        for (std::size_t i = 0; i < rows.size(); ++i) CHECK_EQ(first_difference(rows[i], got[i]), "");
    }
}

TEST_CASE("Routers that tie everywhere, at the boundary, or differ by one bit choose the same experts on every rank and device") {
    geometry g = routed_families()[1];
    plans const split{"all@0", "all@0,1,2:expert", "all@0,1,2,3:tensor+expert", "all@0,1:expert_width", "all@0,1:tensor.reduce+expert_width.reduce"};
    for (int const chosen : {1, 3, 4}) {
        g.experts.chosen = chosen;
        CAPTURE(chosen);
        for (auto const unfair : {&make_all_scores_equal, &make_neighbours_equal, &move_every_second_by_one_bit}) {
            random_model files(g, 69);
            unfair(files);
            baseline const b(files.directory());
            check_plans(b, split, false);
            auto m = dynamic_causal_lm<device::xtensor>::load(files.directory(), plan::parse("all@0,1,2:expert"));
            check_chunk(m, b, 3, 0);
        }
    }
}

TEST_CASE("One expert may get every row, and a whole rank none") {
    geometry g = routed_families()[1];
    g.experts.chosen = 1;
    random_model files(g, 70);
    make_all_scores_equal(files);  // so that expert 0 is everyone's
    baseline const b(files.directory());
    for (std::string const text : {"all@0,1,2,3:expert", "all@0,1,2,3:tensor+expert"}) {
        CAPTURE(text);
        auto m = dynamic_causal_lm<>::load(files.directory(), plan::parse(text));
        check_some(m, b);
        census const c = m.counts();
        CHECK(rows_of_rank(c, 0) > 0);
        CHECK_FALSE(c.ranks[0].served_no_row());
        for (std::size_t r : {1U, 2U, 3U}) {
            CHECK(rows_of_rank(c, r) == 0);
            CHECK(c.ranks[r].served_no_row());
        }
    }
}

TEST_CASE("Every expert may be chosen, and a model may have one expert alone") {
    for (int const count : {1, 5}) {
        geometry g{.name = "all chosen", .layers = 2, .hidden = 64, .heads = 4, .kv_heads = 2, .ffn = 64, .vocab = 61};
        g.family = "mixtral";
        g.experts = {.count = count, .chosen = count, .width = 64, .normalised = true};
        random_model const files(g, 71);
        plans list = on({1, 2}, {"expert_width", "tensor+expert_width.reduce"});
        if (count > 1) list.push_back("all@0,1,2:expert");
        check_plans(baseline(files.directory()), list, false);
    }
}

TEST_CASE("Wherever a map puts the experts, the bits are plain's and the census is another") {
    geometry const g = routed_families()[1];  // layer 0 is dense
    random_model const files(g, 72);
    baseline const b(files.directory());
    placement_map even, skewed;
    even.ranks = skewed.ranks = 2;
    even.experts = skewed.experts = 16;
    for (int const layer : {1, 2, 3}) {
        even.layers.push_back({layer, {0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1}});
        std::vector<int> owners(16, 1);
        owners[static_cast<std::size_t>(layer)] = 0;  // one expert at home, fifteen away
        skewed.layers.push_back({layer, owners});
    }
    for (std::string const text : {"all@0,1:expert", "all@0,1:tensor+expert"}) {
        CAPTURE(text);
        auto const counted = [&](placement_map const* map) {
            load_options how;
            how.placement = map;
            auto m = dynamic_causal_lm<>::load(files.directory(), plan::parse(text), runtime::threads{}, how);
            check_everything(m, b);
            return m.counts();
        };
        census const without = counted(nullptr), by_even = counted(&even), by_skewed = counted(&skewed);
        for (std::size_t r : {0U, 1U}) {
            CHECK(rows_of_rank(without, r) == rows_of_rank(by_even, r));
            CHECK(without.ranks[r].bytes == by_even.ranks[r].bytes);
        }
        CHECK(rows_of_rank(by_even, 0) + rows_of_rank(by_even, 1) == rows_of_rank(by_skewed, 0) + rows_of_rank(by_skewed, 1));
        CHECK(rows_of_rank(by_skewed, 1) > 10 * rows_of_rank(by_skewed, 0));
        if (text == "all@0,1:expert") CHECK(by_skewed.total.bytes > by_even.total.bytes);
    }
}
