// Red arms: every deliberate fault must turn parity red under each plan in which it can act, or parity proves nothing.
// SPDX-License-Identifier: Apache-2.0
#include "support/random_model.hpp"
#include "support/runs.hpp"

#include <doctest/doctest.h>
#include <tenon/dynamic_causal_lm.hpp>

#include <string>
#include <vector>

using namespace tenon;
using namespace support;
using testing::fault;

namespace {
struct arm {
    fault what;
    std::string name;
    std::vector<std::string> acts_in;     ///< plans whose parity must fail
    std::vector<std::string> is_mute_in;  ///< plans that have nothing for it to break
};

// Four layers, eight heads over four KV heads: `reduce` is legal at 2, 4 and 8.
std::vector<arm> const arms{
    {fault::swapped_output_slices,
     "swapped_output_slices",
     {"all@0,1", "all@0,1:tensor.reduce", "all@0,1,2,3", "all@0,1,2,3:tensor.reduce", "all@0,1,2,3,4,5,6,7", "0-1@0;2-3@1,2",
      "0@0;1-2@1,2:tensor.reduce;3@0"},
     {"all@0", "0-1@0;2-3@1"}},
    {fault::wrong_join_order,
     "wrong_join_order",
     {"all@0,1,2,3:tensor.reduce", "all@0,1,2,3,4,5,6,7:tensor.reduce", "0-1@0;2-3@1,2,3,4:tensor.reduce"},
     {"all@0", "all@0,1:tensor.reduce", "all@0,1,2,3"}},
    {fault::dropped_peer,
     "dropped_peer",
     {"all@0,1", "all@0,1:tensor.reduce", "all@0,1,2,3", "all@0,1,2,3:tensor.reduce", "all@0,1,2,3,4,5,6,7:tensor.reduce",
      "0@0;1-2@1,2:tensor.reduce;3@0"},
     {"all@0", "0-1@0;2-3@1"}},
    {fault::shifted_seam,
     "shifted_seam",
     {"0-1@0;2-3@1", "0@0;1@1;2@2;3@3", "0@0;1-2@1,2:tensor.reduce;3@0", "0-1@0,1;2-3@2,3"},
     {"all@0", "all@0,1"}},
    {fault::swapped_ranges,
     "swapped_ranges",
     {"0-1@0;2-3@1", "0@0;1@1;2@2;3@3", "0-1@0,1;2-3@2,3", "0-1@0,1:tensor.reduce;2-3@1"},
     {"all@0", "all@0,1", "0-2@0;3@1"}},
    {fault::shifted_kv_heads,
     "shifted_kv_heads",
     {"all@0,1", "all@0,1:tensor.reduce", "all@0,1,2,3", "all@0,1,2,3:tensor.reduce", "all@0,1,2,3,4,5,6,7", "0-1@0;2-3@1,2:tensor.reduce"},
     {"all@0", "0-1@0;2-3@1"}},
    {fault::stale_kv_row, "stale_kv_row", {"all@0", "0-1@0;2-3@1", "all@0,1", "all@0,1,2,3:tensor.reduce"}, {}},
    {fault::idle_rank,
     "idle_rank",
     {"all@0,1", "all@0,1:tensor.reduce", "all@0,1,2,3", "all@0,1,2,3,4,5,6,7:tensor.reduce", "0-1@0;2-3@1,2"},
     {"all@0", "0-1@0;2-3@1"}},
};

// Four layers of eight experts, two of them chosen, every product in segments: `reduce` is legal at 2, 4 and 8.
std::vector<arm> const routed_arms{
    {fault::swapped_gate_up,
     "swapped_gate_up",
     {"all@0,1:expert", "all@0,1,2:expert", "all@0,1:tensor+expert", "all@0,1:expert_width", "all@0,1,2,3:expert_width.reduce",
      "0-1@0;2-3@1,2:expert"},
     {}},
    {fault::dropped_rows,
     "dropped_rows",
     {"all@0,1:expert", "all@0,1,2:expert", "all@0,1:tensor+expert", "all@0,1:expert_width", "all@0,1:expert_width.reduce",
      "all@0,1:tensor+expert_width", "0-1@0;2-3@1,2:expert"},
     {"all@0", "all@0,1:tensor"}},
    {fault::reversed_experts,
     "reversed_experts",
     {"all@0", "all@0,1:expert", "all@0,1,2:expert", "all@0,1:tensor+expert", "all@0,1:expert_width.reduce"},
     {"all@0,1,2,3,4,5,6,7:expert"}},
    {fault::shifted_owner,
     "shifted_owner",
     {"all@0", "all@0,1:expert", "all@0,1,2:expert", "all@0,1,2,3,4,5,6,7:expert", "all@0,1:tensor+expert", "all@0,1:expert_width"},
     {}},
    {fault::swapped_output_slices, "swapped_output_slices", {"all@0,1:tensor+expert", "all@0,1:tensor+expert_width"}, {"all@0,1:expert"}},
    {fault::dropped_peer,
     "dropped_peer",
     {"all@0,1:expert", "all@0,1,2:expert", "all@0,1:tensor+expert", "all@0,1:expert_width", "all@0,1:expert_width.reduce"},
     {"all@0"}},
    {fault::idle_rank, "idle_rank", {"all@0,1:expert", "all@0,1,2:expert", "all@0,1:tensor+expert", "all@0,1:expert_width"}, {"all@0"}},
};

/// How a model is loaded in which an arm is tried.
struct how {
    numeric_profile profile = numeric::canonical_1;
    weights format = weights::stored;
};
load_options with(fault f, how const& h = {}) {
    load_options o;
    o.fault = f;
    o.profile = h.profile;
    o.weights = h.format;
    return o;
}

/// The prompt in one piece, then the rest step by step: prefill and decode.
floats rows_under(random_model const& files, std::string const& text, fault f, runtime_kind runtime, ids const& tokens,
                  how const& h = {}) {
    auto m = dynamic_causal_lm<>::load(files.directory(), plan::parse(text), runtime, with(f, h));
    state s = m.make_state();
    feed const prompt{&s, std::span<token_id const>(tokens).first(tokens.size() - 4)};
    floats rows;
    append(rows, m.forward({&prompt, 1}, rows_wanted::all));
    for (std::size_t i = tokens.size() - 4; i < tokens.size(); ++i) append(rows, m.step(s, tokens[i]));
    return rows;
}

/// Red where an arm acts, on both runtimes, and green where it does not; and green everywhere without it. A profile that rounds activations
/// to bf16 hides most last bits, so that a fault of the order of additions needs more tokens to be seen.
void check_arms(geometry const& g, std::vector<arm> const& list, how const& h = {}, int count = 12) {
    random_model const files(g, 21);
    random_bits random(4);
    ids const tokens = random_tokens(random, count, files.shape().vocab);
    floats const plain = rows_under(files, "all@0", fault::none, runtime_kind::sequential, tokens, h);
    for (arm const& a : list) {
        CAPTURE(a.name);
        for (std::string const& text : a.acts_in) {
            CAPTURE(text);
            REQUIRE_EQ(first_difference(plain, rows_under(files, text, fault::none, runtime_kind::sequential, tokens, h)), "");
            for (runtime_kind const r : {runtime_kind::sequential, runtime_kind::threads})
                CHECK_NE(first_difference(plain, rows_under(files, text, a.what, r, tokens, h)), "");
        }
        for (std::string const& text : a.is_mute_in) {
            CAPTURE(text);
            CHECK_EQ(first_difference(plain, rows_under(files, text, a.what, runtime_kind::sequential, tokens, h)), "");
        }
    }
}
}  // namespace

TEST_CASE("Each fault turns parity red wherever it can act, and nowhere else") {
    for (dtype const type : {dtype::f32, dtype::bf16}) check_arms({.name = "red", .hidden = 64, .type = type}, arms);
}

TEST_CASE("Each fault of routed experts turns parity red wherever it can act, and nowhere else") {
    for (dtype const type : {dtype::f32, dtype::bf16}) {
        geometry g{.name = "red", .hidden = 64, .type = type};
        g.family = "mixtral";
        g.experts = {.count = 8, .chosen = 2, .width = 256, .normalised = true};
        check_arms(g, routed_arms);
    }
}

TEST_CASE("Each fault turns parity red under exact products too, but for the order of additions, which no sum of integers has") {
    how const exact{.profile = numeric::fixed15_1};
    std::vector<arm> ours, routed = routed_arms;
    for (arm const& a : arms)
        if (a.what != fault::wrong_join_order) ours.push_back(a);
    ours.push_back({fault::wrong_join_order, "wrong_join_order", {}, {"all@0,1:tensor.reduce", "all@0,1,2,3:tensor.reduce"}});
    ours.push_back({fault::own_magnitudes,
                    "own_magnitudes",
                    {"all@0,1:tensor.reduce", "all@0,1,2,3:tensor.reduce", "0@0;1-2@1,2:tensor.reduce;3@0"},
                    {"all@0", "all@0,1", "0-1@0;2-3@1"}});
    routed.push_back({fault::own_magnitudes,
                      "own_magnitudes",
                      {"all@0,1:expert_width.reduce", "all@0,1:tensor.reduce+expert_width.reduce"},
                      {"all@0,1:expert", "all@0,1:expert_width"}});
    geometry g{.name = "red", .hidden = 64, .type = dtype::bf16};
    check_arms(g, ours, exact);
    g.family = "mixtral";
    g.experts = {.count = 8, .chosen = 2, .width = 256, .normalised = true};
    check_arms(g, routed, exact);
}

TEST_CASE("Each fault turns parity red under a profile of pairs too, and a load that leaves the profile out is noticed") {
    how const pairs{.profile = numeric::bf16_pair_1};
    std::vector<arm> dense = arms;
    for (arm& a : dense)  // of two layers' last bits rounding leaves nothing
        if (a.what == fault::wrong_join_order) a.acts_in.pop_back();
    check_arms({.name = "red", .hidden = 64, .type = dtype::bf16}, dense, pairs, 200);
    geometry g{.name = "red", .hidden = 64, .type = dtype::bf16};
    g.family = "mixtral";
    g.experts = {.count = 8, .chosen = 2, .width = 256, .normalised = true};
    check_arms(g, routed_arms, pairs, 60);
    random_model const files(g, 24);
    ids const tokens{1, 2, 3, 4, 5, 6};
    CHECK_NE(first_difference(rows_under(files, "all@0", fault::none, runtime_kind::sequential, tokens, pairs),
                              rows_under(files, "all@0", fault::none, runtime_kind::sequential, tokens)),
             "");
}

TEST_CASE("Each fault turns parity red in q8 too") {
    geometry g{.name = "red", .hidden = 64, .head_dim = 32, .type = dtype::bf16};
    check_arms(g, arms, {.format = weights::q8});
    g.family = "mixtral";
    g.experts = {.count = 8, .chosen = 2, .width = 256, .normalised = true};
    check_arms(g, routed_arms, {.format = weights::q8});
}

TEST_CASE("The census notices a rank that did nothing") {
    random_model const files({.name = "idle", .hidden = 64}, 22);
    for (std::string const text : {"all@0,1", "all@0,1,2,3:tensor.reduce"}) {
        CAPTURE(text);
        for (fault const f : {fault::none, fault::idle_rank}) {
            auto m = dynamic_causal_lm<>::load(files.directory(), plan::parse(text), runtime::sequential{}, with(f));
            state s = m.make_state();
            m.step(s, 3);
            census const c = m.counts();
            for (std::size_t r = 0; r + 1 < c.ranks.size(); ++r) CHECK(c.ranks[r].products == 4 * 7 + 1);
            CHECK(c.ranks.back().products == (f == fault::none ? 4 * 7 + 1 : 0));
        }
    }
}

TEST_CASE("The census notices a rank whose layers were skipped") {
    random_model const files({.name = "skipped", .hidden = 64}, 23);
    for (fault const f : {fault::none, fault::shifted_seam}) {
        auto m = dynamic_causal_lm<>::load(files.directory(), plan::parse("0-1@0;2-3@1"), runtime::sequential{}, with(f));
        state s = m.make_state();
        m.step(s, 3);
        CHECK(m.counts().ranks[0].rows == 2);
        CHECK(m.counts().ranks[1].rows == (f == fault::none ? 2 : 1));
    }
}
