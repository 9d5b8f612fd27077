// The profile of exact integer products: the logits of another implementation within its tolerance, and the same bits under every plan, join,
// batch, chunk, instruction set and format of keys and values; what ranks must agree on for that, and what is refused.
// SPDX-License-Identifier: Apache-2.0
#include "support/baseline.hpp"
#include "support/golden.hpp"

#include <doctest/doctest.h>
#include <tenon/device/eigen.hpp>
#include <tenon/device/xtensor.hpp>
#include <tenon/dynamic_causal_lm.hpp>
#include <tenon/model/llama.hpp>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <string>
#include <vector>

using namespace tenon;
using namespace support;

namespace {

std::string const data = TENON_TEST_DATA "/golden/";

load_options exactly(weights w = weights::stored) { return {.weights = w, .profile = numeric::fixed15_1}; }

std::string refusal_text(auto load) {
    try {
        load();
    } catch (refusal const& r) { return r.what(); }
    return "nothing is refused";
}

}  // namespace

TEST_CASE("Logits are those of another implementation within 2e-2, and not the default's") {
    for (std::string const folder : {"llama_mha_f32", "qwen3_bf16"}) {
        CAPTURE(folder);
        golden const g = read_golden(data + folder);
        std::vector<float> const stored = read_npy<float>(data + folder + "/logits_fixed15.npy");
        std::vector<double> const expected(stored.begin(), stored.end());
        auto m = dynamic_causal_lm<>::load(g.directory, plan::parse("all@0,1"), runtime::sequential{}, exactly());
        auto canonical = dynamic_causal_lm<>::load(g.directory, plan::parse("all@0"), runtime::sequential{});
        auto const V = static_cast<std::size_t>(m.config().vocab);
        for (std::size_t i = 0; i < g.prompts.size(); ++i) {
            CAPTURE(i);
            floats const rows = rows_of(m, g.prompts[i]);
            CHECK(largest_distance(std::span<double const>(expected).subspan(g.row_offsets[i] * V, rows.size()), rows) < 2e-2);
            CHECK_NE(first_difference(rows_of(canonical, g.prompts[i]), rows), "");
        }
    }
}

TEST_CASE("Every plan, batch and chunk has the bits of one rank") {
    struct {
        std::string folder;
        plans list;
    } const matrix[]{
        {"llama_mha_f32", {"all@0,1:tensor.reduce", "0-2@0,1:tensor.reduce;3@0,1,2,3"}},
        {"llama_gqa_bf16_sharded", {"0-1@0;2-3@1", "all@0,1", "0@0;1-2@1,2;3@0"}},
        {"qwen2_tied_bf16", {"all@0,1", "all@0,1:tensor.reduce", "0-1@0;2-3@1,0:tensor.reduce"}},  // segments of odd length, a tied head
        {"mistral_swa_bf16", {"all@0,1", "0-1@0;2-3@1"}},                                              // a sliding window
        {"qwen3_fp8", {"all@0,1", "0-1@0;2-3@1"}},                                                // rows decoded in bands
        {"mixtral_bf16_sharded",
         {"all@0,1:expert", "all@0,1:tensor.reduce+expert", "all@0,1:expert_width", "all@0,1:expert_width.reduce",
          "all@0,1:tensor.reduce+expert_width.reduce", "0-1@0;2-3@1,2:expert"}},
        {"qwen3_moe_bf16_sharded", {"all@0,1,2:expert", "0-2@0,1:tensor+expert_width.reduce;3-5@1"}},
    };
    for (auto const& g : matrix) {
        CAPTURE(g.folder);
        baseline const b(data + g.folder, exactly());
        check_plans(b, {"all@0"});
        check_plans(b, g.list, false);
    }
}

TEST_CASE("Every instruction set, number of threads and format of keys and values has the same bits") {
    for (kv_format const kv : {kv_format::f32, kv_format::bf16}) {
        load_options how = exactly();
        how.kv = kv;
        baseline const b(data + "qwen2_tied_bf16", how);
        for (kernel::isa const i : {kernel::isa::portable, kernel::isa::avx2, kernel::isa::avx512, kernel::isa::neon})
            for (int const threads : {1, 3}) {
                if (!kernel::supported(i)) continue;
                CAPTURE(kernel::name_of(i));
                CAPTURE(threads);
                how.isa = kernel::name_of(i);
                how.threads = threads;
                for (std::string const text : {"all@0", "0-1@0;2-3@1,2:tensor.reduce"}) {
                    auto m = dynamic_causal_lm<>::load(b.directory, plan::parse(text), runtime::threads{}, how);
                    check_some(m, b);
                }
            }
    }
}

TEST_CASE("Ranks hold what the cost says, and parameters come back as the numbers that codes stand for, under every plan") {
    for (std::string const folder : {"llama_mha_f32", "qwen2_tied_bf16"}) {
        CAPTURE(folder);
        auto one = dynamic_causal_lm<>::load(data + folder, plan::parse("all@0"), runtime::sequential{}, exactly());
        auto cut = dynamic_causal_lm<>::load(data + folder, plan::parse("0-1@0,1:tensor.reduce;2-3@2"), runtime::sequential{}, exactly(weights::fixed15));
        auto canonical = dynamic_causal_lm<>::load(data + folder, plan::parse("all@0"), runtime::sequential{}, {.weights = weights::f32});
        dtype const stored = folder == "llama_mha_f32" ? dtype::f32 : dtype::bf16;
        dynamic_graph const graph(cut.config(), plan::parse("0-1@0,1:tensor.reduce;2-3@2"));
        for (int r = 0; r < cut.ranks(); ++r) CHECK(cut.weight_bytes(rank_index{r}) == graph.cost(weights::fixed15, stored).weight_bytes(rank_index{r}));
        std::vector<parameter> const ours = one.parameters(), theirs = cut.parameters(), whole = canonical.parameters();
        REQUIRE(ours.size() == whole.size());
        for (std::size_t i = 0; i < ours.size(); ++i) {
            CAPTURE(ours[i].name);
            CHECK((ours[i].name == theirs[i].name && ours[i].data == theirs[i].data));
            if (ours[i].type != dtype::f32 || whole[i].type != dtype::f32 || ours[i].shape.size() != 2) continue;
            auto const columns = static_cast<std::size_t>(ours[i].shape[1]);
            floats a(ours[i].data.size() / 4), b(a.size());
            std::memcpy(a.data(), ours[i].data.data(), a.size() * 4);
            std::memcpy(b.data(), whole[i].data.data(), b.size() * 4);
            bool near = true;
            for (std::size_t at = 0; at < a.size(); at += columns) {  // half a step of a row is 2^-14 of its largest magnitude
                float most = 0.0f;
                for (std::size_t k = 0; k < columns; ++k) most = std::max(most, std::fabs(b[at + k]));
                for (std::size_t k = 0; k < columns; ++k) near = near && std::fabs(a[at + k] - b[at + k]) <= most * 0x1p-14f;
            }
            CHECK(near);
        }
    }
}

TEST_CASE("A snapshot is taken up under every plan of the profile, and by no other profile") {
    std::string const folder = data + "qwen2_tied_bf16";
    auto one = dynamic_causal_lm<>::load(folder, plan::parse("all@0"), runtime::sequential{}, exactly());
    auto cut = dynamic_causal_lm<>::load(folder, plan::parse("0-1@0;2-3@1,2:tensor.reduce"), runtime::sequential{}, exactly());
    auto canonical = dynamic_causal_lm<>::load(folder, plan::parse("all@0"), runtime::sequential{});
    state s = one.make_state();
    one.prefill(s, ids{1, 2, 3, 4, 5});
    std::vector<std::byte> const bytes = one.snapshot(s);
    state here = cut.restore(bytes);
    std::span<float const> const row = one.step(s, 7);
    floats const expected(row.begin(), row.end());
    CHECK_EQ(first_difference(expected, cut.step(here, 7)), "");
    CHECK(refusal_text([&] { canonical.restore(bytes); }).starts_with("snapshot_profile_is_this_one"));
}

TEST_CASE("A profile's name may end before the model does") {
    std::string const folder = data + "llama_mha_f32";
    auto const load = [&] {
        std::string const name = "fixed15_1, but not for long";
        load_options how = exactly();
        how.profile.name = std::string_view(name).substr(0, 9);
        return dynamic_causal_lm<>::load(folder, plan::parse("all@0"), runtime::sequential{}, how);
    };
    auto m = load(), other = dynamic_causal_lm<>::load(folder, plan::parse("all@0,1"), runtime::sequential{}, exactly());
    state s = m.make_state();
    m.step(s, 1);
    CHECK(other.restore(m.snapshot(s)).length() == 1);
}

TEST_CASE("The profile is refused by name where it is not computed, before a weight is read") {
    auto const refused = [](load_options const& how, std::string const& text = "all@0") {
        return refusal_text([&] {
            dynamic_causal_lm<device::cpu, device::xtensor, device::eigen>::load(data + "llama_mha_f32", plan::parse(text), runtime::sequential{}, how);
        });
    };
    CHECK(refused(exactly(), "0-1@cpu.0;2-3@xtensor.0") ==
          "device_computes_profile: xtensor, the backend of stage 1, does not compute numeric profile fixed15_1; canonical_1 would do, or cpu");
    CHECK(refused(exactly(), "all@eigen.0").starts_with("device_computes_profile: eigen"));
    CHECK(refused(exactly(weights::bf16)) ==
          "profile_takes_format: fixed15_1 holds weights in codes of its own, made of what is stored, and not in bf16; weights::stored would do");
    CHECK(refused(exactly(weights::q8)).starts_with("profile_takes_format: "));
    CHECK(refused({.weights = weights::fixed15}) ==
          "profile_takes_format: canonical_1 does not multiply weights in fixed15; weights::stored would do, or fixed15_1");

    dynamic_graph const wide(model::llama({.layers = 1, .hidden = 64, .heads = 2, .kv_heads = 2, .ffn = 65568, .vocab = 8, .max_positions = 8}), plan::parse("all@0"));
    CHECK(refusal_text([&] {
              detail::require_profile(
                  wide.view(), numeric::fixed15_1, weights::fixed15, [](int) { return true; }, [](auto const&, int, int) { return dtype::f32; },
                  [](tensor const& t, int layer, int) { return std::string(name_of(t.what)) + " of layer " + std::to_string(layer); });
          }) ==
          "product_is_exact: fixed15_1 adds up the products of 65536 inputs exactly, and down of layer 0 has 65568; canonical_1 would do");
}
