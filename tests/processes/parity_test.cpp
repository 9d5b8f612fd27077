// Worker processes give what threads give: the bits of every row, and all that a model says of itself, over a matrix of families, cuts, joins,
// formats and devices. Plain, on one rank in the caller's thread, is what both are held against.
// SPDX-License-Identifier: Apache-2.0
#include "support/families.hpp"
#include "support/golden_models.hpp"
#include "support/random_model.hpp"
#include "support/runs.hpp"

#include <doctest/doctest.h>
#include <tenon/causal_lm.hpp>
#include <tenon/device/eigen.hpp>
#include <tenon/device/xtensor.hpp>
#include <tenon/dynamic_causal_lm.hpp>
#include <tenon/runtime/processes.hpp>
#include <tenon/shard/placement_map.hpp>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <limits>
#include <span>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

using namespace tenon;
using namespace support;

namespace {
using plans = std::vector<std::string>;

/// What every token chose, as a router's observer is told.
struct choices final : routing_observer {
    std::vector<std::tuple<int, std::int64_t, std::int64_t, ids>> seen;
    void routed(int layer, std::int64_t sequence, std::int64_t position, std::span<std::int32_t const> experts) override {
        seen.emplace_back(layer, sequence, position, ids(experts.begin(), experts.end()));
    }
};

std::array<std::int64_t, 7> numbers_of(rank_census const& c) { return {c.messages, c.bytes, c.gathers, c.reductions, c.hand_overs, c.products, c.rows}; }
std::vector<std::array<std::int64_t, 5>> experts_of(rank_census const& c) {
    std::vector<std::array<std::int64_t, 5>> all;
    for (expert_census const& e : c.experts) all.push_back({e.layer, e.dispatched_rows, e.returned_rows, e.bytes, e.experts});
    return all;
}

/// Five sequences of different lengths, one of them longer than a block of the cache.
std::vector<ids> sequences_for(int vocab) {
    random_bits random(42);
    std::vector<ids> list;
    for (int i = 0; i < 5; ++i) list.push_back(random_tokens(random, i == 2 ? 70 : 1 + (i * 5) % 13, vocab));
    return list;
}

/// All that a model gives and says of itself.
struct observed {
    floats whole, chunked;
    std::vector<floats> ragged;
    std::vector<ids> generated;
    std::vector<std::int64_t> weight_bytes, kv_bytes;
    std::vector<std::byte> snapshot;
    std::vector<parameter> parameters;
    census counts;

    explicit observed(language_model& m) {
        std::vector<ids> const sequences = sequences_for(m.config().vocab);
        whole = rows_of(m, sequences[2]);
        chunked = rows_of(m, sequences[2], 30);
        ragged = ragged_rows_of(m, sequences);
        std::vector<ids> const prompts(sequences.begin(), sequences.begin() + 2);
        generated = m.generate_batch(prompts, {.max_new_tokens = 5}).ids;
        for (ids const& drawn : m.generate_batch(prompts, {.max_new_tokens = 5, .sample = {.temperature = 0.9f, .seed = 3}}).ids) generated.push_back(drawn);
        state s = m.make_state(3), longer = m.make_state(100);
        m.prefill(s, sequences[3], 4);
        for (int r = 0; r < m.ranks(); ++r) {
            weight_bytes.push_back(m.weight_bytes({r}));
            for (state const* of : {&s, &longer}) kv_bytes.push_back(of->kv_bytes(r));
        }
        snapshot = m.snapshot(s);
        m.truncate(s, 1);
        append(whole, m.step(s, 5));
        state again = m.restore(snapshot);
        append(whole, m.step(again, 5));
        parameters = m.parameters();
        counts = m.counts();
    }
};

void check_equal(observed const& expected, observed const& got) {
    CHECK_EQ(first_difference(expected.whole, got.whole), "");
    CHECK_EQ(first_difference(expected.chunked, got.chunked), "");
    for (std::size_t i = 0; i < expected.ragged.size(); ++i) CHECK_EQ(first_difference(expected.ragged[i], got.ragged[i]), "");
    CHECK(expected.generated == got.generated);
    CHECK(expected.weight_bytes == got.weight_bytes);
    CHECK(expected.kv_bytes == got.kv_bytes);
    CHECK(expected.snapshot == got.snapshot);
    REQUIRE(expected.parameters.size() == got.parameters.size());
    for (std::size_t i = 0; i < got.parameters.size(); ++i) {
        CAPTURE(got.parameters[i].name);
        CHECK(expected.parameters[i].name == got.parameters[i].name);
        CHECK(expected.parameters[i].shape == got.parameters[i].shape);
        CHECK(expected.parameters[i].format == got.parameters[i].format);
        CHECK((expected.parameters[i].type == got.parameters[i].type && expected.parameters[i].data == got.parameters[i].data));
    }
    REQUIRE(expected.counts.ranks.size() == got.counts.ranks.size());
    for (std::size_t r = 0; r < got.counts.ranks.size(); ++r) {
        CAPTURE(r);
        CHECK(numbers_of(expected.counts.ranks[r]) == numbers_of(got.counts.ranks[r]));
        CHECK(experts_of(expected.counts.ranks[r]) == experts_of(got.counts.ranks[r]));
    }
    CHECK(experts_of(expected.counts.total) == experts_of(got.counts.total));
}

/// `Model` under threads and under processes, and plain's rows for both.
template <class Model = dynamic_causal_lm<>>
void check_plans(std::string const& directory, plans const& list, load_options how = {}) {
    load_options alone = how;
    alone.placement = nullptr;
    auto plain = Model::load(directory, plan::parse("all@0"), runtime::sequential{}, alone);
    floats const rows = rows_of(plain, sequences_for(plain.config().vocab)[2]);
    for (std::string const& text : list) {
        CAPTURE(text);
        choices of_threads, of_processes;
        how.routing = &of_threads;
        auto threaded = Model::load(directory, plan::parse(text), runtime::threads{}, how);
        how.routing = &of_processes;
        auto apart = Model::load(directory, plan::parse(text), runtime::processes{}, how);
        observed const expected(threaded), got(apart);
        CHECK_EQ(first_difference(rows, std::span(got.whole).first(rows.size())), "");
        check_equal(expected, got);
        CHECK(of_threads.seen == of_processes.seen);
        CHECK(of_processes.seen.empty() == got.counts.total.experts.empty());
    }
}

std::string const goldens = TENON_TEST_DATA "/golden/";
}  // namespace

TEST_CASE("The goldens have under processes what they have under threads") {
    for (std::string const name : {"llama_mha_f32", "llama_gqa_bf16_sharded", "mistral_swa_bf16", "qwen2_tied_bf16", "qwen3_fp8"}) {
        CAPTURE(name);
        check_plans(goldens + name, {"all@0", "0@0;1-3@1,0"});
    }
    check_plans(goldens + "llama_mha_f32", {"all@0,1:tensor.reduce"});
    for (std::string const name : {"qwen3_moe_f32", "mixtral_bf16_sharded"}) {
        CAPTURE(name);
        check_plans(goldens + name, {"all@0,1:tensor+expert", "0-1@0;2-3@1,2:expert"});
    }
}

TEST_CASE("Every dense family has it under pipelines, gathers, reduces, compositions and one device in several stages") {
    std::vector<plans> const lists{{"0-1@0;2-3@1", "all@0,1,2,3:tensor.reduce"},
                                   {"0@0;1-2@1,2:tensor.reduce;3@0", "0@1;1@0;2@1;3@0"},
                                   {"all@0,1,2,3", "0-1@0,1;2-3@2,3"},
                                   {"0@0;1@1;2@2;3@3", "0-1@0,1:tensor.reduce;2-3@1,0:tensor.gather"},
                                   {"all@0,1", "0-2@0,1,2,3;3@1"}};
    std::size_t next = 0;
    for (geometry const& g : dense_families()) {
        CAPTURE(g.name);
        random_model const files(g, 15);
        check_plans(files.directory(), lists[next++ % lists.size()]);
    }
}

TEST_CASE("Eight workers, and ranks that do not divide widths or the vocabulary evenly") {
    random_model const wide(dense_families()[0], 16), six({.name = "six heads", .hidden = 78, .heads = 6, .kv_heads = 3, .head_dim = 10, .ffn = 77, .vocab = 65}, 9);
    check_plans(wide.directory(), {"all@0,1,2,3,4,5,6,7:tensor.reduce"});
    check_plans(six.directory(), {"0@0,1,2;1-3@0"});
}

TEST_CASE("Every routed family has it with whole experts, experts' widths, either beside heads, and its routers choose the same") {
    std::vector<plans> const lists{{"all@0,1:expert", "all@0,1:tensor+expert_width.reduce"},
                                   {"all@0,1,2:expert", "0-1@0,1:tensor+expert;2-3@1"},
                                   {"all@0,1:expert_width", "0@0;1-3@2,1,0:expert"}};
    std::size_t next = 0;
    for (geometry const& g : routed_families()) {
        CAPTURE(g.name);
        random_model const files(g, 17);
        check_plans(files.directory(), lists[next++ % lists.size()]);
    }
}

TEST_CASE("A placement map puts experts on the same workers' ranks") {
    random_model const files(routed_families()[0], 18);
    placement_map map{.ranks = 2, .entry_rank = 0, .experts = 8};
    for (int l = 0; l < 4; ++l) map.layers.push_back({l, {1, 0, 0, 0, l % 2, 0, 1, 0}});
    load_options how;
    how.placement = &map;
    check_plans(files.directory(), {"all@0,1:tensor+expert"}, how);
}

TEST_CASE("Every format of the weights") {
    geometry narrow = dense_families()[2];
    narrow.type = dtype::f16;
    random_model const files(narrow, 19);
    for (weights const w : {weights::f32, weights::bf16, weights::q8}) {
        CAPTURE(name_of(w));
        load_options how;
        how.weights = w;
        check_plans(files.directory(), {"all@0,1"}, how);
    }
}

TEST_CASE("Other backends, and several in one graph: a hook for every list of them") {
    random_model const dense(dense_families()[3], 20), routed(routed_families()[0], 20);
    check_plans<dynamic_causal_lm<device::xtensor, device::cpu>>(dense.directory(), {"0-1@cpu.0;2-3@xtensor.0,1"});
    check_plans<dynamic_causal_lm<device::eigen>>(dense.directory(), {"all@0,1:tensor.reduce"});
    check_plans<dynamic_causal_lm<device::xtensor>>(routed.directory(), {"all@0,1:tensor+expert"});
}

namespace {
template <class Model>
struct halves : graph<Model, stage<layers<0, 1>, device::cpu<0, 1>, shard::tensor<>>, stage<layers<2, 3>, device::cpu<1>>> {};
}  // namespace

TEST_CASE("A graph that is a type loads its workers too") {
    using split = halves<llama_gqa_bf16>;
    std::string const folder = goldens + std::string(llama_gqa_bf16::folder);
    auto threaded = causal_lm<split>::load(folder);
    auto apart = causal_lm<split>::load(folder, runtime::processes{});
    observed const expected(threaded), got(apart);
    check_equal(expected, got);
}

TEST_CASE("An observer of the load is told the same slices and bytes, and may end the load") {
    struct observer final : load_observer {
        std::vector<std::string> names;
        std::int64_t done = 0, total = 0;
        std::size_t most = std::numeric_limits<std::size_t>::max();
        void loaded(std::string_view name, std::int64_t bytes_done, std::int64_t bytes_total) override {
            CHECK(bytes_done > done);
            names.emplace_back(name);
            done = bytes_done;
            total = bytes_total;
            if (names.size() == most) throw std::out_of_range("enough");
        }
    } of_threads, of_processes, impatient;
    auto const load = [](observer& o, auto const& runtime) {
        load_options how;
        how.observer = &o;
        return dynamic_causal_lm<>::load(goldens + "llama_mha_f32", plan::parse("0-1@0,1;2-3@2"), runtime, how);
    };
    load(of_threads, runtime::threads{});
    load(of_processes, runtime::processes{});
    for (observer* o : {&of_threads, &of_processes}) {
        CHECK(o->done == o->total);
        std::sort(o->names.begin(), o->names.end());
    }
    CHECK(of_threads.names == of_processes.names);
    CHECK(of_threads.total == of_processes.total);
    impatient.most = 3;
    CHECK_THROWS_AS(load(impatient, runtime::processes{}), std::out_of_range);
    CHECK(impatient.names.size() == 3);
}

TEST_CASE("A call that a router refuses leaves its states and the model as they were") {
    random_model files(routed_families()[0], 21);
    files.tensors().at(files.shape().router_name(0)).values[0] = std::numeric_limits<float>::infinity();  // times an input of either sign
    files.write();
    auto plain = dynamic_causal_lm<>::load(files.directory(), plan::parse("all@0"), runtime::sequential{});
    auto const is_refused = [&plain](state& s, token_id token) { return law_of([&] { plain.step(s, token); }) == "router_scores_are_numbers"; };
    ids fine;
    token_id bad = -1;
    state known = plain.make_state();
    for (token_id t = 0; t < 61; ++t) is_refused(known, t) ? static_cast<void>(bad = t) : fine.push_back(t);
    REQUIRE((bad >= 0 && fine.size() > 3));
    state again = plain.make_state();
    plain.prefill(again, std::span(fine).first(2));
    while (!is_refused(again, bad)) {
        plain.truncate(again, 2);
        REQUIRE(--bad >= 0);
    }
    std::span<float const> const rows = plain.prefill(again, std::span(fine).subspan(2, 1));
    for (std::string const text : {"all@0,1:expert", "0-1@0;2-3@1,2:tensor+expert"}) {
        CAPTURE(text);
        auto m = dynamic_causal_lm<>::load(files.directory(), plan::parse(text), runtime::processes{});
        state s = m.make_state();
        m.prefill(s, std::span(fine).first(2));
        for (int i = 0; i < 2; ++i) {
            CHECK(law_of([&] { m.step(s, bad); }) == "router_scores_are_numbers");
            CHECK(s.length() == 2);
        }
        CHECK_EQ(first_difference(rows, m.prefill(s, std::span(fine).subspan(2, 1))), "");
    }
}

TEST_CASE("A profile reaches the workers: the bits are those of one rank under it") {
    std::string const folder = TENON_TEST_DATA "/golden/mixtral_bf16_sharded";
    load_options const pairs{.profile = numeric::bf16_pair_1};
    auto plain = dynamic_causal_lm<>::load(folder, plan::parse("all@0"), runtime::sequential{}, pairs);
    auto canonical = dynamic_causal_lm<>::load(folder, plan::parse("all@0"), runtime::sequential{});
    ids const tokens = sequences_for(plain.config().vocab)[2];
    floats const rows = rows_of(plain, tokens);
    CHECK_NE(first_difference(rows_of(canonical, tokens), rows), "");
    for (std::string const text : {"all@0,1:tensor+expert", "0-1@0;2-3@1,0:expert"}) {
        CAPTURE(text);
        auto m = dynamic_causal_lm<>::load(folder, plan::parse(text), runtime::processes{}, pairs);
        CHECK_EQ(first_difference(rows, rows_of(m, tokens, 30)), "");
        state s = m.make_state();
        m.prefill(s, std::span(tokens).first(9));
        state here = plain.restore(m.snapshot(s));
        CHECK_EQ(first_difference(plain.step(here, 3), m.step(s, 3)), "");
        CHECK(law_of([&] { canonical.restore(m.snapshot(s)); }) == "snapshot_profile_is_this_one");
    }
    load_options const exact{.profile = numeric::fixed15_1};  // magnitudes and sums of 64 bits go between processes
    auto whole = dynamic_causal_lm<>::load(folder, plan::parse("all@0"), runtime::sequential{}, exact);
    floats const exact_rows = rows_of(whole, tokens);
    for (std::string const text : {"all@0,1:tensor.reduce+expert_width.reduce", "0-1@0,1:expert_width.reduce;2-3@1,0:tensor+expert"}) {
        CAPTURE(text);
        auto m = dynamic_causal_lm<>::load(folder, plan::parse(text), runtime::processes{}, exact);
        CHECK_EQ(first_difference(exact_rows, rows_of(m, tokens, 30)), "");
    }
    CHECK(law_of([&] { dynamic_causal_lm<>::load(folder, plan::parse("all@0,1"), runtime::processes{}, {.weights = weights::f32, .profile = numeric::bf16_pair_1}); }) ==
          "profile_takes_format");
}
