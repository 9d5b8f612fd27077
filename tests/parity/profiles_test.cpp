// Numeric profiles beyond the default: a law has the same bits under every plan, batch, chunk and instruction set, one without keeps its
// tolerance; each is what was asked for and nothing else; and what one profile made no other takes up.
// SPDX-License-Identifier: Apache-2.0
#include "support/baseline.hpp"
#include "support/golden.hpp"

#include <doctest/doctest.h>
#include <tenon/device/eigen.hpp>
#include <tenon/device/xtensor.hpp>
#include <tenon/dynamic_causal_lm.hpp>
#include <tenon/stage_host.hpp>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

using namespace tenon;
using namespace support;

namespace {

std::string const data = TENON_TEST_DATA "/golden/";

/// What a profile that multiplies by bf16 activations is held to: the largest distance to the reference, as a share of the largest logit.
constexpr double bound = 0.02;

load_options under(numeric_profile const& p, weights w = weights::stored, std::string_view isa = "auto") {
    return {.weights = w, .profile = p, .isa = isa};
}

struct golden_plans {
    std::string folder;
    weights format;
    plans list;
};
// Segments of odd length: qwen2_tied_bf16's down products, 8 of 7, a head held once with the table; a reduced join cuts them.
std::vector<golden_plans> const matrix_of_pairs{
    {"llama_gqa_bf16_sharded", weights::stored, {"0-1@0;2-3@1", "all@0,1", "0@0;1-2@1,2;3@0"}},
    {"qwen2_tied_bf16", weights::stored, {"all@0,1", "all@0,1:tensor.reduce", "0-1@0;2-3@1,0:tensor.reduce"}},
    {"llama_mha_f32", weights::bf16, {"all@0,1:tensor.reduce", "0-2@0,1:tensor.reduce;3@0,1,2,3"}},
    {"mixtral_bf16_sharded", weights::stored, {"all@0,1:expert", "all@0,1:tensor+expert", "all@0,1:expert_width.reduce", "0-1@0;2-3@1,2:expert"}},
    {"qwen3_moe_bf16_sharded", weights::stored, {"all@0,1,2:expert", "0-2@0,1:tensor+expert_width;3-5@1"}},
};

}  // namespace

TEST_CASE("A profile of pairs has the same bits under every plan, batch, chunk and instruction set, and they are not the default's") {
    for (golden_plans const& g : matrix_of_pairs) {
        CAPTURE(g.folder);
        baseline const b(data + g.folder, under(numeric::bf16_pair_1, g.format));
        baseline const canonical(data + g.folder, under(numeric::canonical_1, g.format));
        CHECK_NE(first_difference(canonical.rows[0], b.rows[0]), "");
        check_plans(b, {"all@0"});
        check_plans(b, g.list, false);
        for (kernel::isa const i : {kernel::isa::portable, kernel::isa::avx2, kernel::isa::avx512, kernel::isa::neon}) {
            if (!kernel::supported(i)) continue;
            CAPTURE(kernel::name_of(i));
            auto m = dynamic_causal_lm<>::load(b.directory, plan::parse(g.list.front()), runtime::sequential{},
                                               under(numeric::bf16_pair_1, g.format, kernel::name_of(i)));
            check_some(m, b);
        }
    }
}

TEST_CASE("A profile of bf16 activations stays within its tolerance of the reference") {
    for (golden_plans const& g : matrix_of_pairs) {
        CAPTURE(g.folder);
        golden const reference = read_golden(data + g.folder);
        double most = 0.0;
        for (double const x : reference.logits) most = std::max(most, std::fabs(x));
        auto m = dynamic_causal_lm<>::load(reference.directory, plan::parse(g.list.front()), runtime::sequential{}, under(numeric::bf16_pair_1, g.format));
        auto const V = static_cast<std::size_t>(m.config().vocab);
        for (std::size_t i = 0; i < reference.prompts.size(); ++i) {
            std::span<double const> const expected =
                std::span<double const>(reference.logits).subspan(reference.row_offsets[i] * V, reference.prompts[i].size() * V);
            CHECK(largest_distance(expected, rows_of(m, reference.prompts[i])) < bound * most);
        }
    }
}

TEST_CASE("A snapshot of one profile is taken up by no other") {
    std::string const folder = data + "llama_gqa_bf16_sharded";
    auto const load = [&](numeric_profile const& p, std::string const& text) {
        return dynamic_causal_lm<>::load(folder, plan::parse(text), runtime::sequential{}, under(p));
    };
    auto pairs = load(numeric::bf16_pair_1, "all@0"), again = load(numeric::bf16_pair_1, "0-1@0;2-3@1,2"), canonical = load(numeric::canonical_1, "all@0"),
         fast = load(numeric::fast, "all@0");
    ids const tokens{1, 2, 3, 4, 5};
    state s = pairs.make_state();
    pairs.prefill(s, tokens);
    std::vector<std::byte> const bytes = pairs.snapshot(s);
    CHECK(law_of([&] { canonical.restore(bytes); }) == "snapshot_profile_is_this_one");
    CHECK(law_of([&] { fast.restore(bytes); }) == "snapshot_profile_is_this_one");
    state here = again.restore(bytes);
    std::span<float const> const expected = pairs.step(s, 7);
    CHECK_EQ(first_difference(expected, again.step(here, 7)), "");
    state c = canonical.make_state();
    canonical.prefill(c, tokens);
    CHECK(law_of([&] { pairs.restore(canonical.snapshot(c)); }) == "snapshot_profile_is_this_one");
}

TEST_CASE("A bundle of one profile is taken by no stage of another, and a model cut over two hosts has the bits of one") {
    std::string const folder = data + "qwen2_tied_bf16";
    plan::value const cut = plan::parse("0-1@0;2-3@1");
    auto const host = [&](int stage, numeric_profile const& p) {
        return dynamic_stage_host<>::load(folder, cut, stage, runtime::sequential{}, under(p));
    };
    auto head = host(0, numeric::bf16_pair_1), tail = host(1, numeric::bf16_pair_1), other = host(1, numeric::canonical_1);
    auto whole = dynamic_causal_lm<>::load(folder, plan::parse("all@0"), runtime::sequential{}, under(numeric::bf16_pair_1));
    ids const tokens{5, 6, 7};
    state s = head.make_state(), t = tail.make_state(), u = other.make_state();
    state *const ts[]{&t}, *const us[]{&u};
    feed const f{&s, tokens};
    boundary::bundle const passed = head.forward({&f, 1}).bundle;
    CHECK(passed.profile == "bf16_pair_1");
    CHECK(tail.takes()->profile == "bf16_pair_1");
    CHECK(law_of([&] { other.forward(passed, us); }) == "bundle_profile_is_the_stages");
    CHECK_EQ(first_difference(rows_of(whole, tokens), tail.forward(passed, ts, {.rows = rows_wanted::all}).tail.logits), "");
}

TEST_CASE("A profile is refused by name where it is not computed, before a weight is read") {
    auto const refused = [](std::string const& folder, load_options const& how, std::string const& text = "all@0") -> std::string {
        try {
            dynamic_causal_lm<device::cpu, device::xtensor, device::eigen>::load(data + folder, plan::parse(text), runtime::sequential{}, how);
        } catch (refusal const& r) { return r.what(); }
        return "nothing is refused";
    };
    std::string const bf16 = "llama_gqa_bf16_sharded";
    CHECK(refused(bf16, under({.name = "canonical_2"})) ==
          "profile_is_known: numeric profile \"canonical_2\" is unknown; canonical_1, bf16_pair_1, fixed15_1 or fast would do");
    numeric_profile four = numeric::canonical_1;
    four.segments = 4;
    CHECK(refused(bf16, under(four)).starts_with("profile_is_known: numeric profile canonical_1 is given with constants that are not its own"));
    CHECK(refused(bf16, under(numeric::bf16_pair_1), "all@xtensor.0") ==
          "device_computes_profile: xtensor, the backend of stage 0, does not compute numeric profile bf16_pair_1; canonical_1 would do, or cpu");
    CHECK(refused(bf16, under(numeric::bf16_pair_1), "0-1@cpu.0;2-3@xtensor.0").starts_with("device_computes_profile: xtensor, the backend of stage 1"));
    CHECK(refused(bf16, under(numeric::bf16_pair_1), "all@eigen.0").starts_with("device_computes_profile: eigen"));
    for (std::string const text : {"all@0", "0-1@cpu.0;2-3@xtensor.0", "all@eigen.0"})
        for (weights const w : {weights::stored, weights::f32, weights::bf16}) CHECK(refused(bf16, under(numeric::fast, w), text) == "nothing is refused");
    CHECK(refused("llama_mha_f32", under(numeric::bf16_pair_1)) ==
          "profile_takes_format: bf16_pair_1 multiplies weights in bf16, and model.layers.0.self_attn.q_proj.weight would be held in f32; "
          "weights::bf16 would do, or canonical_1");
    CHECK(refused(bf16, under(numeric::bf16_pair_1, weights::f32)).starts_with("profile_takes_format: "));
    CHECK(refused("llama_mha_f32", under(numeric::bf16_pair_1, weights::bf16)) == "nothing is refused");
}

TEST_CASE("Weights come back under a profile as they are held, and a tied table is looked up as ever") {
    for (std::string const folder : {"qwen2_tied_bf16", "mixtral_bf16_sharded"}) {
        CAPTURE(folder);
        auto pairs = dynamic_causal_lm<>::load(data + folder, plan::parse("all@0,1"), runtime::sequential{}, under(numeric::bf16_pair_1));
        auto canonical = dynamic_causal_lm<>::load(data + folder, plan::parse("all@0"), runtime::sequential{});
        std::vector<parameter> const ours = pairs.parameters(), theirs = canonical.parameters();
        REQUIRE(ours.size() == theirs.size());
        for (std::size_t i = 0; i < ours.size(); ++i) CHECK((ours[i].type == theirs[i].type && ours[i].data == theirs[i].data));
    }
}
