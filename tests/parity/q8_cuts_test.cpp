// Splits that would cut a block of q8, on checkpoints: refused while config.json alone has been read, by the tensor, its width, the block and
// the ranks; and the splits that the refusal offers, which have plain's bits.
// SPDX-License-Identifier: Apache-2.0
#include "support/described_model.hpp"
#include "support/random_model.hpp"
#include "support/runs.hpp"

#include <doctest/doctest.h>
#include <tenon/causal_lm.hpp>
#include <tenon/dynamic_causal_lm.hpp>
#include <tenon/model/qwen3_moe.hpp>
#include <tenon/runtime/processes.hpp>
#include <tenon/stage_host.hpp>

#include <string>
#include <string_view>
#include <vector>

using namespace tenon;
using namespace support;

namespace {
constexpr std::string_view join_needs =
    ": join::reduce needs a rank count that divides the segments of every product it cuts; join::gather does not; ";

dynamic_causal_lm<> load(std::string const& directory, std::string const& text) {
    return dynamic_causal_lm<>::load(directory, plan::parse(text), runtime::sequential{}, {.weights = weights::q8});
}

std::string all_on(int ranks, std::string const& rule) {
    std::string text = "all@0";
    for (int r = 1; r < ranks; ++r) text += "," + std::to_string(r);
    return text + ":" + rule;
}

/// What a call is refused with; "nothing is refused" without.
template <class Call>
std::string refused(Call&& call) {
    try {
        call();
    } catch (refusal const& r) { return r.what(); }
    return "nothing is refused";
}

ids const tokens{3, 1, 4, 1, 5, 9, 2, 6};

void check_splits(random_model const& files, std::vector<std::string> const& list) {
    auto plain = load(files.directory(), "all@0");
    floats const expected = rows_of(plain, tokens);
    for (std::string const& text : list) {
        CAPTURE(text);
        auto m = load(files.directory(), text);
        CHECK_EQ(first_difference(expected, rows_of(m, tokens, 3)), "");
    }
}

/// Experts of 320 inputs, ten blocks; the gate and up rows of one file tensor are 640.
geometry narrow_experts() {
    geometry g{.name = "experts of 320", .layers = 2, .hidden = 64, .heads = 8, .kv_heads = 8, .head_dim = 32, .ffn = 256, .vocab = 61};
    g.family = "qwen3_moe";
    g.stacked = true;
    g.experts = {.count = 4, .chosen = 2, .width = 320, .normalised = true};
    return g;
}

/// Routed experts of four blocks, and a shared one that a certified architecture would not have.
geometry shared_of(int width) {
    geometry g = narrow_experts();
    g.stacked = false;
    g.experts.width = 128;
    g.experts.shared_width = width;
    return g;
}
constexpr model_config with_experts_of(int width) {
    return model::qwen3_moe({.layers = 2, .hidden = 64, .heads = 8, .kv_heads = 8, .head_dim = 32, .ffn = 256, .experts = 4, .experts_per_token = 2,
                             .expert_width = width, .normalised = true, .vocab = 61, .max_positions = 256, .rms_epsilon = 1e-5});
}
model_config with_shared(int width) {
    return model::with_experts(with_experts_of(128), {.count = 4, .chosen = 2, .width = 128, .shared_width = width, .normalised = true}, [](int) { return true; });
}

struct experts_of_80 {
    static constexpr auto config = with_experts_of(80);
};
struct apart : planned<experts_of_80, "0@0;1@0,1,2,3:tensor+expert_width"> {};
}  // namespace

TEST_CASE("Experts of ten blocks are refused over four and eight ranks by every way in, from their config alone") {
    scratch_folder const alone;  // no weights at all: a load that looked for one would say so
    alone.write("config.json", random_model(narrow_experts(), 51).config());
    plan::value const over_four = plan::parse("0@0;1@0,1,2,3:expert_width.reduce");
    load_options const in_q8{.weights = weights::q8};
    std::string const of = "reduce_divides_segments: tensor expert_down of 320 inputs, in blocks of 32" + std::string(join_needs),
                      expected = of + "stage 1: segments = 2, ranks = 4; ranks = 1 or 2 would do; join::gather would do on 4 ranks";
    CHECK(refused([&] { dynamic_causal_lm<>::load(alone.path(), over_four, runtime::threads{}, in_q8); }) == expected);
    CHECK(refused([&] { dynamic_causal_lm<>::load(alone.path(), over_four, runtime::processes{}, in_q8); }) == expected);
    CHECK(refused([&] { dynamic_stage_host<>::load(alone.path(), over_four, 0, in_q8); }) == expected);
    CHECK(refused([&] { load(alone.path(), all_on(8, "expert_width.reduce")); }) ==
          of + "stage 0: segments = 2, ranks = 8; ranks = 1 or 2 would do; join::gather would do on 8 ranks");
    CHECK(refused([&] { dynamic_causal_lm<>::load(alone.path(), over_four); }) ==
          "reduce_divides_segments" + std::string(join_needs) + "stage 1: segments = 2, ranks = 4; ranks = 1 or 2 would do; join::gather would do on 4 ranks");
}

TEST_CASE("Experts of ten blocks have plain's bits over what the refusal offers, and where 320 rows are cut that no block spans") {
    check_splits(random_model(narrow_experts(), 52),
                 {all_on(2, "expert_width.reduce"), all_on(2, "expert_width"), all_on(4, "expert_width"), all_on(8, "expert_width"),
                  all_on(2, "tensor.reduce+expert_width.reduce"), all_on(8, "tensor+expert_width"), all_on(3, "expert")});
}

TEST_CASE("A fused gate and up of 640 rows is refused or split as two tensors of 320") {
    random_model const files({.name = "fused", .layers = 2, .hidden = 256, .heads = 8, .kv_heads = 8, .ffn = 320, .vocab = 61, .family = "phi3"}, 53);
    for (int const ranks : {4, 8})
        CHECK(refused([&] { load(files.directory(), all_on(ranks, "tensor.reduce")); }) ==
              "reduce_divides_segments: tensor down of 320 inputs, in blocks of 32" + std::string(join_needs) + "stage 0: segments = 2, ranks = " +
                  std::to_string(ranks) + "; ranks = 1 or 2 would do; join::gather would do on " + std::to_string(ranks) + " ranks");
    check_splits(files, {all_on(2, "tensor.reduce"), all_on(2, "tensor"), all_on(4, "tensor"), all_on(8, "tensor")});
}

TEST_CASE("A shared expert that alone cannot be cut, or held, is named, and nothing that its neighbours hold") {
    auto const load_shared = [](int width, random_model const& files, std::string const& text) {
        return described_model::load(with_shared(width), files.directory(), text, runtime_kind::sequential, {.weights = weights::q8});
    };
    random_model const eleven_blocks(shared_of(352), 54), half_a_block(shared_of(80), 55);
    CHECK(refused([&] { load_shared(352, eleven_blocks, all_on(4, "tensor.reduce+expert")); }) ==
          "reduce_divides_segments: tensor shared_down of 352 inputs, in blocks of 32" + std::string(join_needs) +
              "stage 0: segments = 1, ranks = 4; ranks = 1 would do; join::gather would do on 4 ranks");
    auto plain = load_shared(352, eleven_blocks, "all@0");
    floats const expected = rows_of(plain, tokens);
    for (std::string const& text : {all_on(4, "tensor+expert"), all_on(4, "expert_width.reduce"), all_on(4, "tensor+expert_width.reduce"), all_on(8, "tensor")}) {
        CAPTURE(text);
        auto m = load_shared(352, eleven_blocks, text);
        CHECK_EQ(first_difference(expected, rows_of(m, tokens, 3)), "");
    }
    for (std::string const& text : {std::string("all@0"), all_on(4, "tensor+expert"), all_on(4, "tensor.reduce+expert")}) {
        CAPTURE(text);
        CHECK(refused([&] { load_shared(80, half_a_block, text); }) ==
              "blocks_divide_inputs: tensor model.layers.0.mlp.shared_experts.down_proj.weight of 80 inputs, in blocks of 32: a matrix held in q8 has whole "
              "blocks of inputs; stage 0: inputs = 80, inputs of a block = 32");
    }
}

TEST_CASE("A graph type of experts that are no whole blocks is loaded in other formats, and refused in q8 by the first of them") {
    geometry g = narrow_experts();
    g.stacked = false;
    g.experts.width = 80;
    random_model const files(g, 57);
    auto const load_apart = [&](weights w) { causal_lm<apart>::load(files.directory(), runtime::sequential{}, {.weights = w}); };
    CHECK(refused([&] { load_apart(weights::bf16); }) == "nothing is refused");
    CHECK(refused([&] { load_apart(weights::q8); }) ==
          "blocks_divide_inputs: tensor model.layers.0.mlp.experts.0.down_proj.weight of 80 inputs, in blocks of 32: a matrix held in q8 has whole blocks of "
          "inputs; stage 0: inputs = 80, inputs of a block = 32");
}

TEST_CASE("18432 inputs, 576 blocks: over 32 ranks a sum over ranks is refused, and a gathered split has plain's bits") {
    geometry g{.name = "wide experts", .layers = 1, .hidden = 32, .heads = 4, .kv_heads = 4, .head_dim = 32, .ffn = 64, .vocab = 61};
    g.family = "qwen3_moe";
    g.experts = {.count = 2, .chosen = 1, .width = 18432};
    random_model const files(g, 56);
    CHECK(refused([&] { load(files.directory(), all_on(32, "expert_width.reduce")); }) ==
          "reduce_divides_segments: tensor expert_down of 18432 inputs, in blocks of 32" + std::string(join_needs) +
              "stage 0: segments = 8, ranks = 32; ranks = 1, 2, 4 or 8 would do; join::gather would do on 32 ranks");
    check_splits(files, {all_on(32, "expert_width"), all_on(8, "expert_width.reduce")});
}
