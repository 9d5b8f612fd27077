// What routing moves, counted: exact rows, bytes and experts of every layer and rank, by hand where the router is known and from the routing
// trace where it is not. A rank that serves nobody is noticed.
// SPDX-License-Identifier: Apache-2.0
#include "support/families.hpp"
#include "support/runs.hpp"

#include <doctest/doctest.h>
#include <tenon/dynamic_causal_lm.hpp>
#include <tenon/shard/placement_map.hpp>

#include <map>
#include <set>
#include <string>
#include <tuple>
#include <vector>

using namespace tenon;
using namespace support;

namespace {
constexpr int H = 64;

/// One layer of four experts of which every token chooses 0 and 1.
struct same_choice_for_all {
    same_choice_for_all() {
        floats& router = files.tensors().at(files.shape().router_name(0)).values;
        router.assign(router.size(), 0.0f);
        files.write();
    }
    random_model files{shape(), 81};

    static geometry shape() {
        geometry g{.name = "known", .layers = 1, .hidden = H, .heads = 4, .kv_heads = 2, .ffn = 64, .vocab = 61};
        g.family = "mixtral";
        g.experts = {.count = 4, .chosen = 2, .width = 64, .normalised = true};
        return g;
    }
};

census counted(random_model const& files, std::string const& text, ids const& tokens, load_options how = {}) {
    auto m = dynamic_causal_lm<>::load(files.directory(), plan::parse(text), runtime::sequential{}, how);
    rows_of(m, tokens);
    return m.counts();
}

void check_layer(expert_census const& is, expert_census const& should) {
    CAPTURE(is.layer);
    CHECK(is.layer == should.layer);
    CHECK(is.dispatched_rows == should.dispatched_rows);
    CHECK(is.returned_rows == should.returned_rows);
    CHECK(is.bytes == should.bytes);
    CHECK(is.experts == should.experts);
}

/// Every choice, as the model told it.
struct choices final : routing_observer {
    struct token {
        int layer;
        std::int64_t sequence, position;
        ids experts;
    };
    std::vector<token> seen;
    void routed(int layer, std::int64_t sequence, std::int64_t position, std::span<std::int32_t const> experts) override {
        seen.push_back({layer, sequence, position, ids(experts.begin(), experts.end())});
    }
};
}  // namespace

TEST_CASE("Seven tokens that all choose experts 0 and 1 of 4: whole experts on two ranks") {
    same_choice_for_all const known;
    random_model const& files = known.files;
    ids const tokens{1, 2, 3, 4, 5, 6, 7};
    census const even = counted(files, "all@0,1:expert", tokens);  // 0 and 1 at home
    check_layer(even.ranks[0].experts[0], {.layer = 0, .dispatched_rows = 14, .returned_rows = 0, .bytes = 0, .experts = 2});
    check_layer(even.ranks[1].experts[0], {.layer = 0, .dispatched_rows = 0, .returned_rows = 0, .bytes = 0, .experts = 0});
    CHECK(even.total.bytes == 0);
    CHECK(even.ranks[1].served_no_row());
    CHECK_FALSE(even.ranks[0].served_no_row());

    placement_map away{.ranks = 2, .entry_rank = 0, .experts = 4, .layers = {{0, {0, 1, 0, 1}}}};
    load_options how;
    how.placement = &away;
    census const split = counted(files, "all@0,1:expert", tokens, how);
    check_layer(split.ranks[0].experts[0], {.layer = 0, .dispatched_rows = 7, .returned_rows = 7, .bytes = 7 * H * 4, .experts = 1});
    check_layer(split.ranks[1].experts[0], {.layer = 0, .dispatched_rows = 7, .returned_rows = 0, .bytes = 7 * H * 4, .experts = 1});
    check_layer(split.total.experts[0], {.layer = 0, .dispatched_rows = 14, .returned_rows = 7, .bytes = 2 * 7 * H * 4, .experts = 2});
    CHECK_FALSE(split.ranks[1].served_no_row());

    away.layers[0].owners = {1, 1, 0, 0};  // a row that two experts of a rank want goes there once
    census const both = counted(files, "all@0,1:expert", tokens, how);
    check_layer(both.ranks[0].experts[0], {.layer = 0, .dispatched_rows = 0, .returned_rows = 14, .bytes = 14 * H * 4, .experts = 0});
    check_layer(both.ranks[1].experts[0], {.layer = 0, .dispatched_rows = 14, .returned_rows = 0, .bytes = 7 * H * 4, .experts = 2});
}

TEST_CASE("Seven tokens that all choose experts 0 and 1 of 4: beside a tensor split, and by width") {
    same_choice_for_all const known;
    random_model const& files = known.files;
    ids const tokens{1, 2, 3, 4, 5, 6, 7};
    placement_map away{.ranks = 2, .entry_rank = 0, .experts = 4, .layers = {{0, {0, 1, 0, 1}}}};
    load_options how;
    how.placement = &away;
    // Every rank has the rows already, and takes its half of the columns of what the other's expert gives.
    census const beside = counted(files, "all@0,1:tensor+expert", tokens, how);
    for (std::size_t r : {0U, 1U})
        check_layer(beside.ranks[r].experts[0], {.layer = 0, .dispatched_rows = 7, .returned_rows = 7, .bytes = 7 * (H / 2) * 4, .experts = 1});

    // The other rank takes the rows once; the root takes its partial sums, 14 rows of H.
    census const reduced = counted(files, "all@0,1:expert_width.reduce", tokens);
    check_layer(reduced.ranks[0].experts[0], {.layer = 0, .dispatched_rows = 14, .returned_rows = 14, .bytes = 14 * H * 4, .experts = 2});
    check_layer(reduced.ranks[1].experts[0], {.layer = 0, .dispatched_rows = 14, .returned_rows = 0, .bytes = 7 * H * 4, .experts = 2});

    // Each takes the other's half of 14 widths of 64, and the root the other's half of the columns.
    census const gathered = counted(files, "all@0,1:expert_width", tokens);
    check_layer(gathered.ranks[0].experts[0], {.layer = 0, .dispatched_rows = 14, .returned_rows = 14, .bytes = 14 * 32 * 4 + 14 * (H / 2) * 4, .experts = 2});
    check_layer(gathered.ranks[1].experts[0], {.layer = 0, .dispatched_rows = 14, .returned_rows = 0, .bytes = 7 * H * 4 + 14 * 32 * 4, .experts = 2});
}

TEST_CASE("The census is what the trace says, layer by layer and rank by rank") {
    geometry const g = routed_families()[1];
    random_model const files(g, 82);
    random_bits random(3);
    for (int const ranks : {2, 3, 5}) {
        CAPTURE(ranks);
        choices trace;
        load_options how;
        how.routing = &trace;
        std::string text = "all@0";
        for (int r = 1; r < ranks; ++r) text += "," + std::to_string(r);
        auto m = dynamic_causal_lm<>::load(files.directory(), plan::parse(text + ":expert"), runtime::threads{}, how);
        std::vector<state> states;
        for (int i = 0; i < 3; ++i) states.push_back(m.make_state());
        std::map<std::tuple<int, int>, expert_census> expected;  // by layer and rank
        for (int call = 0; call < 4; ++call) {
            std::vector<ids> tokens;
            for (int i = 0; i < 3; ++i) tokens.push_back(random_tokens(random, 1 + (i + call) % 4, g.vocab));
            std::vector<feed> feeds;
            for (std::size_t i = 0; i < 3; ++i) feeds.push_back({&states[i], tokens[i]});
            trace.seen.clear();
            m.forward(feeds);
            std::set<std::tuple<int, int>> touched;  // layer, expert
            for (choices::token const& t : trace.seen) {
                std::set<int> away;
                REQUIRE(t.experts.size() == 4);
                for (int const e : t.experts) {
                    int const owner = e * ranks / 16;
                    expert_census& count = expected[{t.layer, owner}];
                    ++count.dispatched_rows;
                    count.experts += touched.insert({t.layer, e}).second ? 1 : 0;
                    if (owner == 0) continue;
                    expert_census& root = expected[{t.layer, 0}];
                    ++root.returned_rows;
                    root.bytes += g.hidden * 4;
                    if (away.insert(owner).second) count.bytes += g.hidden * 4;
                }
            }
        }
        census const c = m.counts();
        for (std::size_t r = 0; r < c.ranks.size(); ++r) {
            CAPTURE(r);
            REQUIRE(c.ranks[r].experts.size() == 3);
            for (expert_census const& e : c.ranks[r].experts) {
                expert_census should = expected[{e.layer, static_cast<int>(r)}];
                should.layer = e.layer;
                check_layer(e, should);
            }
        }
    }
}

TEST_CASE("What every rank holds is the graph's constant, and what moves is at most its constants; exactly, where no router decides") {
    std::vector<geometry> shapes = routed_families();
    shapes.push_back(shapes[0]);
    shapes.back().name = "odd width";
    shapes.back().hidden = 65;
    shapes.back().head_dim = 8;
    for (geometry const& g : shapes) {
        CAPTURE(g.name);
        random_model const files(g, 84);
        for (std::string const text : {"all@0", "all@0,1:expert", "all@0,1,2,3:expert", "all@0,1:tensor+expert", "all@0,1:tensor", "all@0,1,2,3:expert_width",
                                       "all@0,1:expert_width.reduce", "all@0,1:tensor+expert_width.reduce", "all@0,1,2,3:tensor.reduce+expert_width", "0-1@0,1:expert;2-3@2,3:tensor+expert"}) {
            CAPTURE(text);
            auto m = dynamic_causal_lm<>::load(files.directory(), plan::parse(text), runtime::sequential{});
            cost_view const cost(m.graph(), weights::stored, g.type);
            for (int r = 0; r < m.ranks(); ++r) CHECK(m.weight_bytes({r}) == cost.weight_bytes(rank_index{r}));
            std::int64_t messages = 0, bytes = 0;
            for (int i = 0; i < static_cast<int>(m.graph().stages.size()); ++i) {
                bool const seam = i + 1 < static_cast<int>(m.graph().stages.size());
                messages += cost.join_messages_per_token(i) + (seam ? cost.seam_messages_per_token(i) : 0);
                bytes += cost.join_bytes_per_token(i) + (seam ? cost.seam_bytes_per_token(i) : 0);
            }
            state s = m.make_state();
            for (int t = 1; t < 6; ++t) {
                rank_census const before = m.counts().total;
                m.step(s, t);
                rank_census const after = m.counts().total;
                bool const decides = text.find("expert_width") == std::string::npos && text.find("expert") != std::string::npos;
                CHECK(after.messages - before.messages <= messages);
                CHECK(after.bytes - before.bytes <= bytes);
                if (decides) continue;
                CHECK(after.messages - before.messages == messages);
                CHECK(after.bytes - before.bytes == bytes);
            }
        }
    }
}

TEST_CASE("The trace names every token once a layer, in order, whatever the split") {
    geometry const g = routed_families()[0];
    random_model const files(g, 83);
    std::vector<std::vector<int>> first;
    for (std::string const text : {"all@0", "all@0,1,2:expert", "all@0,1:tensor+expert", "0-1@0,1:expert_width;2-3@2"}) {
        CAPTURE(text);
        choices trace;
        load_options how;
        how.routing = &trace;
        auto m = dynamic_causal_lm<>::load(files.directory(), plan::parse(text), runtime::threads{}, how);
        ids const one{1, 2, 3}, two{4, 5};
        state a = m.make_state(), b = m.make_state();  // 0 and 1, wherever they stand in a batch
        m.step(b, 9);
        trace.seen.clear();
        feed const feeds[]{{&b, two}, {&a, one}};
        m.forward(feeds);
        std::vector<std::vector<int>> rows;
        for (choices::token const& t : trace.seen) {
            rows.push_back({t.layer, static_cast<int>(t.sequence), static_cast<int>(t.position)});
            rows.back().insert(rows.back().end(), t.experts.begin(), t.experts.end());
        }
        REQUIRE(rows.size() == 4 * 5);
        for (std::size_t i = 0; i < rows.size(); ++i) {
            int const token = static_cast<int>(i % 5);
            CHECK(rows[i][0] == static_cast<int>(i / 5));
            CHECK(rows[i][1] == (token < 2 ? 1 : 0));
            CHECK(rows[i][2] == (token < 2 ? token + 1 : token - 2));  // position 0 of the second was its own step
        }
        if (first.empty()) first = rows;
        CHECK(rows == first);
    }
}
