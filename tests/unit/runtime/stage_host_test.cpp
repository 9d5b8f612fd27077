// Stages alone: chains of hosts have plain's bits, each holds its own weights, and what a stage is not to be handed is refused by name.
// SPDX-License-Identifier: Apache-2.0
#include "support/families.hpp"
#include "support/golden_models.hpp"
#include "support/random_model.hpp"
#include "support/runs.hpp"

#include <doctest/doctest.h>
#include <tenon/boundary/frame.hpp>
#include <tenon/causal_lm.hpp>
#include <tenon/device/eigen.hpp>
#include <tenon/dynamic_causal_lm.hpp>
#include <tenon/stage_host.hpp>

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

using namespace tenon;
using namespace support;

namespace {
using host = dynamic_stage_host<>;

random_model const& dense() {
    static random_model const f({.name = "dense", .hidden = 64, .heads = 8, .kv_heads = 4, .ffn = 96, .vocab = 61, .max_positions = 96}, 7);
    return f;
}
random_model const& routed() {
    static random_model const f(routed_families()[1], 8);
    return f;
}

/// Every stage of a plan alone, one handing to the next what it gives: as a value, or packed and unpacked.
class chain {
public:
    template <class Runtime>
    chain(std::string const& directory, std::string const& text, Runtime runtime, bool packs, load_options const& how = {}) : packs_(packs) {
        for (int s = 0, stages = 1; s < stages; ++s) {
            hosts_.push_back(host::load(directory, plan::parse(text), s, runtime, how));
            stages = hosts_[0].stages();
        }
    }

    std::vector<host>& hosts() { return hosts_; }
    int vocab() const { return hosts_[0].config().vocab; }
    void make_states(std::size_t count) {
        states_.clear();
        for (host& h : hosts_) {
            states_.emplace_back();
            for (std::size_t i = 0; i < count; ++i) states_.back().push_back(h.make_state());
        }
    }
    state& of(std::size_t stage, std::size_t i) { return states_[stage][i]; }

    /// Sequences `who` get their tokens.
    boundary::tail_output call(std::vector<std::size_t> const& who, std::vector<std::span<token_id const>> const& tokens, stage_call const& how) {
        std::vector<feed> feeds;
        for (std::size_t f = 0; f < who.size(); ++f) feeds.push_back({&states_[0][who[f]], tokens[f]});
        bool const alone = hosts_.size() == 1;
        stage_output out = hosts_[0].forward(feeds, alone ? how : stage_call{});
        for (std::size_t s = 1; s < hosts_.size(); ++s) {
            REQUIRE_FALSE(out.is_tail);
            boundary::bundle const b = packs_ ? boundary::unpack(boundary::pack(out.bundle)) : std::move(out.bundle);
            std::vector<state*> states;
            for (std::size_t const i : who) states.push_back(&states_[s][i]);
            out = hosts_[s].forward(b, states, s + 1 == hosts_.size() ? how : stage_call{});
        }
        REQUIRE(out.is_tail);
        return std::move(out.tail);
    }
    /// As support's rows_of and ragged_rows_of.
    floats rows_of(ids const& tokens, std::size_t chunk) {
        make_states(1);
        floats rows;
        if (chunk == 0) chunk = tokens.size();
        for (std::size_t at = 0; at < tokens.size(); at += chunk)
            append(rows, call({0}, {std::span<token_id const>(tokens).subspan(at, std::min(chunk, tokens.size() - at))}, {.rows = rows_wanted::all}).logits);
        return rows;
    }
    std::vector<floats> ragged_rows_of(std::span<ids const> sequences) {
        make_states(sequences.size());
        std::vector<floats> rows(sequences.size());
        for (std::size_t round = 0, busy = 1; busy > 0; ++round) {
            std::vector<std::size_t> who;
            std::vector<std::span<token_id const>> tokens;
            busy = 0;
            for (std::size_t i = 0; i < sequences.size(); ++i) {
                std::size_t const fed = static_cast<std::size_t>(of(0, i).length()), left = sequences[i].size() - fed;
                busy += left > 0;
                std::size_t const n = std::min(left, (i * 5 + round * 3 + 1) % 8);
                if (n == 0) continue;
                who.push_back(i);
                tokens.push_back(std::span<token_id const>(sequences[i]).subspan(fed, n));
            }
            boundary::tail_output const out = call(who, tokens, {.rows = rows_wanted::all});
            for (std::size_t r = 0; r < out.rows(); ++r) {
                floats& to = rows[who[static_cast<std::size_t>(out.sequences[r])]];
                CHECK(out.positions[r] == static_cast<std::int64_t>(to.size()) / out.vocab);
                append(to, out.row(r));
            }
        }
        return rows;
    }

private:
    std::vector<host> hosts_;
    std::vector<std::vector<state>> states_;
    bool packs_;
};

struct expectation {
    std::vector<ids> sequences{};
    std::vector<floats> rows{};
};
expectation expected_of(random_model const& files) {
    auto plain = dynamic_causal_lm<>::load(files.directory(), plan::parse("all@0"), runtime::sequential{}, {.isa = "portable"});
    expectation e;
    random_bits random(3);
    for (int i = 0; i < 5; ++i) e.sequences.push_back(random_tokens(random, i == 0 ? 70 : 1 + (i * 5) % 13, plain.config().vocab));
    for (ids const& s : e.sequences) e.rows.push_back(support::rows_of(plain, s));
    return e;
}

template <class Runtime>
void check_chain(random_model const& files, expectation const& e, std::string const& text, Runtime runtime, bool packs) {
    CAPTURE(text);
    CAPTURE(packs);
    chain c(files.directory(), text, runtime, packs);
    for (std::size_t const chunk : {0U, 7U, 1U}) CHECK_EQ(first_difference(e.rows[3], c.rows_of(e.sequences[3], chunk)), "");
    CHECK_EQ(first_difference(e.rows[0], c.rows_of(e.sequences[0], 33)), "");
    std::vector<floats> const ragged = c.ragged_rows_of(e.sequences);
    for (std::size_t i = 0; i < e.rows.size(); ++i) CHECK_EQ(first_difference(e.rows[i], ragged[i]), "");
}

struct split : graph<llama_mha_f32, stage<layers<0, 1>, device::cpu<0>>, stage<layers<2, 3>, device::cpu<1, 2>, shard::tensor<>>> {};
std::string const golden_folder = std::string(TENON_TEST_DATA) + "/golden/llama_mha_f32";

/// A middle stage in the middle of its work: layers 1 and 2 of four, with two sequences that hold three and five positions.
struct middle {
    host first = host::load(dense().directory(), plan::parse("0@0;1-2@1,2;3@3"), 0, runtime::sequential{});
    host second = host::load(dense().directory(), plan::parse("0@0;1-2@1,2;3@3"), 1, runtime::sequential{});
    host third = host::load(dense().directory(), plan::parse("0@0;1-2@1,2;3@3"), 2, runtime::sequential{});
    std::vector<state> heads{}, own{};
    std::vector<state*> states{};

    middle() {
        for (int i = 0; i < 2; ++i) heads.push_back(first.make_state()), own.push_back(second.make_state());
        for (state& s : own) states.push_back(&s);
        second.forward(next(ids{1, 2, 3}, ids{4, 5, 6, 7, 8}), states);
    }
    /// What the head sends for more tokens.
    boundary::bundle next(ids const& a, ids const& b) {
        feed const feeds[]{{&heads[0], a}, {&heads[1], b}};
        return first.forward(feeds).bundle;
    }
    void require_untouched() const {
        CHECK(own[0].length() == 3);
        CHECK(own[1].length() == 5);
    }
};
ids const three{1, 2, 3}, two{9, 8};
}  // namespace

TEST_CASE("Chains of two, three and four hosts have plain's bits") {
    expectation const e = expected_of(dense());
    for (char const* const text : {"all@0", "0-1@0;2-3@1", "0@0;1-2@1;3@2", "0@0;1@1;2@0;3@1", "0-1@0,1:tensor;2-3@2,3:tensor.gather", "0@0;1-3@0,1,2,3", "0@0,1;1-2@0;3@1,0"}) {
        check_chain(dense(), e, text, runtime::sequential{}, false);
        check_chain(dense(), e, text, runtime::threads{}, true);
    }
}

TEST_CASE("Chains whose stages route experts have plain's bits") {
    expectation const e = expected_of(routed());
    for (char const* const text : {"0-1@0;2-3@1", "0@0;1-2@0,1;3@1,0", "0@0;1-3@0,1,2:expert", "0-1@0,1:expert;2-3@2,3:tensor.reduce+expert_width.reduce"}) {
        check_chain(routed(), e, text, runtime::sequential{}, true);
        check_chain(routed(), e, text, runtime::threads{}, false);
    }
}

TEST_CASE("A deliberate fault in one stage alone changes the bits") {
    expectation const e = expected_of(dense());
    for (testing::fault const f : {testing::fault::dropped_peer, testing::fault::shifted_seam, testing::fault::stale_kv_row}) {
        chain c(dense().directory(), "0@0;1-3@0,1:tensor", runtime::sequential{}, false, {.fault = f});
        CHECK_NE(first_difference(e.rows[3], c.rows_of(e.sequences[3], 1)), "");
    }
}

TEST_CASE("Hosts of a graph type choose the tokens that its causal_lm chooses, greedily and drawn") {
    static_assert(std::is_same_v<stage_host<split, 0>::output, boundary::bundle>);
    static_assert(std::is_same_v<stage_host<split, 1>::output, boundary::tail_output>);
    auto whole = causal_lm<split>::load(golden_folder);
    auto head = stage_host<split, 0>::load(golden_folder);
    auto tail = stage_host<split, 1>::load(golden_folder, runtime::sequential{});
    CHECK(head.role() == "head");
    CHECK(tail.role() == "tail");
    CHECK(tail.ranks() == 2);
    std::vector<ids> const prompts{{1, 2, 3, 4, 5}, {7}, {9, 10, 11}};
    for (sampling const how : {sampling{}, sampling{.temperature = 0.9f, .top_k = 40, .top_p = 0.9f, .seed = 11}}) {
        generation const expected = whole.generate_batch(prompts, {.max_new_tokens = 12, .sample = how});
        for (bool const named : {false, true}) {  // sequence numbers of the caller's: the batch runs in reverse
            std::vector<std::uint64_t> numbers;
            std::vector<ids> got;
            std::vector<state> a, b;
            std::vector<state*> of_tail;
            for (std::size_t i = 0; i < prompts.size(); ++i) {
                std::size_t const n = named ? prompts.size() - 1 - i : i;
                numbers.push_back(n);
                got.push_back(prompts[n]);
                a.push_back(head.make_state());
                b.push_back(tail.make_state());
            }
            for (state& s : b) of_tail.push_back(&s);
            for (int step = 0; step < 12; ++step) {
                std::vector<feed> feeds;
                for (std::size_t i = 0; i < got.size(); ++i)
                    feeds.push_back({&a[i], std::span<token_id const>(got[i]).subspan(static_cast<std::size_t>(a[i].length()))});
                boundary::bundle const passed = head.forward(feeds);
                stage_call call{.sample = how};
                if (named) call.sequences = numbers;
                boundary::tail_output const out = tail.forward(passed, of_tail, call);
                CHECK(out.contract == how);
                CHECK(out.rows() == got.size());
                for (std::size_t i = 0; i < got.size(); ++i) got[i].push_back(out.chosen[i]);
            }
            for (std::size_t i = 0; i < got.size(); ++i) CHECK(got[i] == expected.ids[numbers[i]]);
        }
    }
}

TEST_CASE("A stage that is head and tail takes tokens and gives rows") {
    auto plain = dynamic_causal_lm<>::load(dense().directory(), plan::parse("all@0"));
    auto all = host::load(dense().directory(), plan::parse("all@0,1"), 0);
    CHECK(all.role() == "whole model");
    CHECK(all.takes() == nullptr);
    CHECK(all.gives() == nullptr);
    state s = all.make_state();
    feed const f{&s, three};
    boundary::tail_output const out = all.forward({&f, 1}, {.sample = sampling{}}).tail;
    CHECK(out.chosen[0] == plain.generate(three, {.max_new_tokens = 1}).back());
    boundary::bundle const b{};
    CHECK(law_of([&] { all.forward(b, {}); }) == "head_takes_tokens");
}

TEST_CASE("A bundle has every row, un-normalised, and says where each belongs") {
    middle m;
    boundary::bundle const b = m.second.forward(m.next(two, ids{1}), m.states).bundle;
    CHECK(b.adapter == "llama");
    CHECK(b.next_layer == 3);
    CHECK_FALSE(b.normalized);
    CHECK(b.shape == boundary::shape_of(3, 1, 64));
    CHECK(b.row_offsets == std::vector<std::int64_t>{0, 2, 3});
    CHECK(b.positions == std::vector<std::int64_t>{3, 4, 5});
    CHECK(b.residual.size() == 3 * 64);
    CHECK(m.own[0].length() == 5);
    CHECK(m.own[1].length() == 6);
    CHECK_FALSE(boundary::find_fault(b, *m.second.gives()));
    CHECK(*m.second.gives() == *m.third.takes());
}

TEST_CASE("An empty batch passes every stage") {
    middle m;
    boundary::bundle b = m.first.forward(std::span<feed const>{}).bundle;
    CHECK(b.row_offsets == std::vector<std::int64_t>{0});
    b = m.second.forward(b, {}).bundle;
    boundary::tail_output const out = m.third.forward(b, {}, {.sample = sampling{}}).tail;
    CHECK(out.rows() == 0);
    CHECK(out.chosen.empty());
}

TEST_CASE("Each host holds its own weights, reads no others, and its states the keys and values of its layers alone") {
    for (auto const& [files, text] : {std::pair<random_model const*, std::string>{&dense(), "0@0,1;1-2@0;3@1,0"}, {&routed(), "0@0;1-2@0,1;3@1,2,0:expert"}}) {
        auto whole = dynamic_causal_lm<>::load(files->directory(), plan::parse(text));
        state all = whole.make_state(1);
        int rank = 0;
        for (int s = 0; s < 3; ++s) {
            struct : load_observer {
                std::vector<std::string> names;
                std::int64_t done = 0, total = 0;
                void loaded(std::string_view name, std::int64_t d, std::int64_t t) override { names.emplace_back(name), done = d, total = t; }
            } seen;
            auto h = host::load(files->directory(), plan::parse(text), s, {.observer = &seen});
            state part = h.make_state(1);
            std::int64_t sum = 0;
            for (int r = 0; r < h.ranks(); ++r, ++rank) {
                CHECK(h.weight_bytes(rank_index{r}) == whole.weight_bytes(rank_index{rank}));
                CHECK(part.kv_bytes(r) == all.kv_bytes(rank));
                sum += h.weight_bytes(rank_index{r});
            }
            CHECK(law_of([&] { (void)h.weight_bytes(rank_index{h.ranks()}); }) == "rank_exists");
            CHECK(seen.done == sum);
            CHECK(seen.total == sum);
            for (std::string const& name : seen.names) {
                if (name.find("model.layers.") != 0) {
                    CHECK(name == (s == 0 ? "model.embed_tokens.weight" : name == "lm_head.weight" ? "lm_head.weight" : "model.norm.weight"));
                    CHECK(s != 1);
                    continue;
                }
                int const layer = std::stoi(name.substr(13));
                CHECK(layer >= h.traits().first_layer);
                CHECK(layer <= h.traits().last_layer);
            }
        }
        CHECK(rank == whole.ranks());
    }
}

TEST_CASE("What is not for the role is refused by name, and the states stay as they were") {
    middle m;
    boundary::bundle const b = m.next(two, two);
    boundary::bundle_view const view = b;
    state s = m.first.make_state();
    feed const one{&s, three}, own{&m.own[0], three};
    std::span<feed const> const tokens(&one, 1), of_middle(&own, 1);
    CHECK(law_of([&] { m.second.forward(of_middle); }) == "stage_takes_a_bundle");
    CHECK(law_of([&] { m.third.forward(of_middle); }) == "stage_takes_a_bundle");
    CHECK(law_of([&] { m.second.forward(stage_input{.tokens = of_middle, .bundle = &view, .states = m.states}); }) == "stage_takes_a_bundle");
    CHECK(law_of([&] { m.second.forward(stage_input{}); }) == "stage_takes_a_bundle");
    CHECK(law_of([&] { m.first.forward(b, {}); }) == "head_takes_tokens");
    CHECK(law_of([&] { m.first.forward(stage_input{.tokens = tokens, .bundle = &view}); }) == "head_takes_tokens");
    CHECK(law_of([&] { m.first.forward(stage_input{}); }) == "head_takes_tokens");
    CHECK(law_of([&] { m.first.forward(tokens, {.sample = sampling{}}); }) == "tail_alone_samples");
    CHECK(law_of([&] { m.second.forward(b, m.states, {.sample = sampling{}}); }) == "tail_alone_samples");
    CHECK(law_of([&] { (void)host::load(dense().directory(), plan::parse("0-1@0;2-3@1"), 2); }) == "stage_exists");
    CHECK(law_of([&] { (void)host::load(dense().directory(), plan::parse("0-1@0;2-3@1"), -1); }) == "stage_exists");
    CHECK(s.length() == 0);
    m.require_untouched();
}

TEST_CASE("A bundle that is not the stage's is refused by the first rule it breaks, and the states stay as they were") {
    struct row {
        char const* law;
        std::function<void(boundary::bundle&)> change;
    };
    using bundle = boundary::bundle;
    row const table[]{
        {"bundle_adapter_is_certified", [](bundle& b) { b.adapter = "gemma"; }},
        {"bundle_adapter_is_the_stages", [](bundle& b) { b.adapter = "mistral"; }},
        {"bundle_schema_is_the_stages", [](bundle& b) { b.schema = 0; }},
        {"bundle_schema_is_the_stages", [](bundle& b) { b.schema = 2; }},
        {"bundle_tensor_is_the_stages", [](bundle& b) { b.tensor = "hidden_states"; }},
        {"bundle_is_not_normalized", [](bundle& b) { b.normalized = true; }},
        {"bundle_layer_is_the_stages", [](bundle& b) { --b.next_layer; }},
        {"bundle_layer_is_the_stages", [](bundle& b) { ++b.next_layer; }},
        {"bundle_profile_is_the_stages", [](bundle& b) { b.profile = "canonical_2"; }},
        {"bundle_shape_is_the_stages", [](bundle& b) { b.shape.extents[1] = 63; }},
        {"bundle_rank_is_the_stages", [](bundle& b) { b.shape = {3, {5, 1, 64, 0}}; }},
        {"bundle_rank_is_the_stages", [](bundle& b) { b.shape = {1, {320, 0, 0, 0}}; }},
        {"bundle_dtype_is_the_stages", [](bundle& b) { b.element = dtype::bf16; }},
        {"bundle_streams_are_the_stages", [](bundle& b) { b.streams = 2; }},
        {"bundle_row_offsets_cover_the_rows", [](bundle& b) { b.row_offsets.back() = 4; }},
        {"bundle_positions_are_the_rows", [](bundle& b) { b.positions.pop_back(); }},
        {"bundle_positions_are_the_rows", [](bundle& b) { b.positions.push_back(8); }},
        {"bundle_positions_follow_on", [](bundle& b) { b.positions[1] = 5; }},
        {"bundle_positions_fit_the_model", [](bundle& b) { b.positions[0] = 96, b.positions[1] = 97, b.positions[2] = 98; }},
        {"bundle_payload_is_the_shapes", [](bundle& b) { b.residual.pop_back(); }},
        {"bundle_payload_is_the_shapes", [](bundle& b) { b.residual.push_back(0.0f); }},
        {"bundle_values_are_finite", [](bundle& b) { b.residual[100] = std::numeric_limits<float>::quiet_NaN(); }},
        {"bundle_positions_continue_the_states", [](bundle& b) { b.positions = {2, 3, 4, 5, 6}; }},
        {"bundle_positions_continue_the_states", [](bundle& b) { b.positions = {3, 4, 5, 6, 7}; }},
        {"bundle_sequences_are_the_states", [](bundle& b) { b.row_offsets = {0, 5}, b.positions = {3, 4, 5, 6, 7}; }},
    };
    middle m;
    boundary::bundle const good = m.next(three, two);
    for (row const& r : table) {
        boundary::bundle b = good;
        r.change(b);
        CHECK_EQ(law_of([&] { m.second.forward(b, m.states); }), r.law);
        m.require_untouched();
    }
    CHECK_EQ(law_of([&] { m.third.forward(good, m.states); }), "state_belongs_to_the_model");
    m.second.forward(good, m.states);
    CHECK(m.own[0].length() == 6);
}

TEST_CASE("Aliases and the other byte order are taken, and an infinity where nobody looks") {
    middle m;
    boundary::bundle b = m.next(three, two);
    auto const run = [&](boundary::bundle_view const& view, stage_call const& how = {}) {
        boundary::bundle const out = m.second.forward(view, m.states, how).bundle;
        m.second.truncate(m.own[0], 3);
        m.second.truncate(m.own[1], 5);
        return out;
    };
    boundary::bundle const expected = run(b);
    for (char const* const alias : {"LlamaForCausalLM", " dense_llama ", "LLAMA"}) {
        b.adapter = alias;
        CHECK(boundary::bundle_view(run(b)) == boundary::bundle_view(expected));
    }
    std::vector<std::byte> turned{std::byte{0}};  // so that the numbers are aligned to nothing
    for (float const x : b.residual)
        for (auto bytes = std::bit_cast<std::array<std::byte, 4>>(x); std::byte const one : {bytes[3], bytes[2], bytes[1], bytes[0]}) turned.push_back(one);
    boundary::bundle_view other = b;
    other.order = boundary::native_order == boundary::byte_order::little ? boundary::byte_order::big : boundary::byte_order::little;
    other.residual = std::span<std::byte const>(turned).subspan(1);
    CHECK(boundary::bundle_view(run(other)) == boundary::bundle_view(expected));
    CHECK(boundary::bundle_view(run(boundary::unpack(boundary::pack(other)))) == boundary::bundle_view(expected));
    b.residual[0] = std::numeric_limits<float>::infinity();
    CHECK(law_of([&] { run(b); }) == "bundle_values_are_finite");
    CHECK(law_of([&] { run(b, {.values = boundary::finiteness::off}); }) == "nothing is refused");
}

TEST_CASE("States of another host, released ones, twins and full ones are refused") {
    middle m;
    boundary::bundle const b = m.next(three, two);
    auto other = host::load(dense().directory(), plan::parse("0@0;1-2@1,2;3@3"), 1);
    state foreign = other.make_state(), gone = m.second.make_state(), full = m.second.make_state(2, growth::fixed);
    gone.release();
    std::vector<state*> list = m.states;
    auto const law_with = [&](state* s) {
        list[0] = s;
        return law_of([&] { m.second.forward(b, list); });
    };
    CHECK(law_with(&foreign) == "state_belongs_to_the_model");
    CHECK(law_with(&m.heads[0]) == "state_belongs_to_the_model");
    CHECK(law_with(&gone) == "state_is_alive");
    CHECK(law_with(nullptr) == "state_is_alive");
    CHECK(law_with(m.states[1]) == "batch_names_a_state_once");
    feed const wrong{&m.own[0], three};
    CHECK(law_of([&] { m.first.forward({&wrong, 1}); }) == "state_belongs_to_the_model");
    auto whole = dynamic_causal_lm<>::load(dense().directory(), plan::parse("all@0"));
    CHECK(law_of([&] { whole.forward({&wrong, 1}); }) == "state_belongs_to_the_model");
    m.require_untouched();

    state fresh = m.first.make_state();
    feed const f{&fresh, three};
    boundary::bundle const long_one = m.first.forward({&f, 1}).bundle;
    state* const one[]{&full};
    CHECK(law_of([&] { m.second.forward(long_one, one); }) == "state_has_room");
    CHECK(full.length() == 0);
}

TEST_CASE("A tail whose row is of NaN alone, or whose sampling contract means nothing, leaves its states as they were") {
    middle m;
    state s = m.third.make_state();
    state* const one[]{&s};
    boundary::bundle b{.adapter = "llama", .next_layer = 3, .shape = boundary::shape_of(1, 1, 64)};
    b.row_offsets = {0, 1};
    b.positions = {0};
    b.residual.assign(64, std::numeric_limits<float>::quiet_NaN());
    CHECK(law_of([&] { m.third.forward(b, one, {.sample = sampling{}, .values = boundary::finiteness::off}); }) == "logits_are_numbers");
    CHECK(s.length() == 0);
    b.residual.assign(64, 0.5f);
    CHECK(law_of([&] { m.third.forward(b, one, {.sample = sampling{.temperature = -1.0f}}); }) == "temperature_is_positive");
    std::uint64_t const numbers[]{0, 1};
    CHECK(law_of([&] { m.third.forward(b, one, {.sample = sampling{}, .sequences = numbers}); }) == "sampling_names_every_sequence");
    CHECK(s.length() == 0);
    CHECK(m.third.forward(b, one, {.sample = sampling{}}).tail.chosen.size() == 1);
    CHECK(s.length() == 1);
}

TEST_CASE("After a refusal further on, the stages before it go back by truncation") {
    expectation const e = expected_of(dense());
    chain c(dense().directory(), "0-1@0;2-3@1", runtime::sequential{}, false);
    c.make_states(1);
    std::span<token_id const> const tokens(e.sequences[1]);
    c.call({0}, {tokens.first(2)}, {});
    feed const f{&c.of(0, 0), tokens.subspan(2, 3)};
    boundary::bundle b = c.hosts()[0].forward({&f, 1}).bundle;
    b.schema = 2;
    state* const states[]{&c.of(1, 0)};
    CHECK(law_of([&] { c.hosts()[1].forward(b, states); }) == "bundle_schema_is_the_stages");
    c.hosts()[0].truncate(c.of(0, 0), 2);
    floats const rows = c.call({0}, {tokens.subspan(2)}, {.rows = rows_wanted::all}).logits;
    CHECK_EQ(first_difference(std::span<float const>(e.rows[1]).subspan(2 * static_cast<std::size_t>(c.vocab())), rows), "");
}

TEST_CASE("A host that was closed or moved away is refused; routing is told of its own layers") {
    struct : routing_observer {
        std::vector<int> layers;
        void routed(int layer, std::int64_t, std::int64_t, std::span<std::int32_t const>) override { layers.push_back(layer); }
    } seen;
    auto h = host::load(routed().directory(), plan::parse("0-1@0;2-3@1"), 0, {.routing = &seen});
    state s = h.make_state();
    feed const f{&s, two};
    h.forward({&f, 1});
    CHECK(seen.layers == std::vector<int>{1, 1});  // layer 0 is dense
    host moved = std::move(h);
    CHECK(law_of([&] { h.forward({&f, 1}); }) == "model_is_open");
    moved.close();
    moved.close();
    CHECK(law_of([&] { moved.forward({&f, 1}); }) == "model_is_open");
    CHECK(law_of([&] { (void)moved.make_state(); }) == "model_is_open");
}

TEST_CASE("Arithmetic that is a backend's own is a profile of its own") {
    plan::value const cut = plan::parse("0-1@0;2-3@1");
    auto a = dynamic_stage_host<device::eigen>::load(dense().directory(), cut, 0, runtime::sequential{});
    auto b = dynamic_stage_host<device::eigen>::load(dense().directory(), cut, 1, runtime::sequential{});
    auto canonical = host::load(dense().directory(), cut, 1, runtime::sequential{});
    auto whole = dynamic_causal_lm<device::eigen>::load(dense().directory(), plan::parse("all@0"), runtime::sequential{});
    state s = a.make_state(), t = b.make_state(), u = canonical.make_state();
    state *const ts[]{&t}, *const us[]{&u};
    feed const f{&s, three};
    boundary::bundle const passed = a.forward({&f, 1}).bundle;
    CHECK(passed.profile == "eigen");
    CHECK(law_of([&] { canonical.forward(passed, us); }) == "bundle_profile_is_the_stages");
    CHECK_EQ(first_difference(support::rows_of(whole, three), b.forward(passed, ts, {.rows = rows_wanted::all}).tail.logits), "");
}
