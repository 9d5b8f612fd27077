// q8 has plain's bits under every plan, batch, chunking, runtime and canonical device, as any other format has; and what it refuses when a
// model is loaded.
// SPDX-License-Identifier: Apache-2.0
#include "support/families.hpp"
#include "support/random_model.hpp"
#include "support/runs.hpp"

#include <doctest/doctest.h>
#include <tenon/causal_lm.hpp>
#include <tenon/device/eigen.hpp>
#include <tenon/device/xtensor.hpp>
#include <tenon/dynamic_causal_lm.hpp>
#include <tenon/kernel/isa.hpp>
#include <tenon/model/llama.hpp>

#include <cmath>
#include <limits>
#include <span>
#include <string>
#include <vector>

using namespace tenon;
using namespace support;

namespace {
load_options in_q8(std::string_view isa = "auto") { return {.weights = weights::q8, .isa = isa}; }

template <template <int...> class Device = device::cpu, template <int...> class... More, class Files>
dynamic_causal_lm<Device, More...> load(Files const& files, std::string const& text, runtime_kind runtime = runtime_kind::sequential,
                                        std::string_view isa = "auto") {
    return dynamic_causal_lm<Device, More...>::load(files.directory(), plan::parse(text), runtime, in_q8(isa));
}

/// Eight heads of 32 over four KV heads: every product cuts into 8 segments of whole blocks, so that `reduce` is legal on 2, 4 and 8 ranks.
std::vector<geometry> families() {
    std::vector<geometry> all;
    for (geometry g : dense_families()) {
        if (g.is_fused()) g.hidden = 256;  // its heads are hidden / heads wide
        if (!g.is_fused()) g.head_dim = 32;
        all.push_back(g);
    }
    for (geometry g : routed_families()) {
        g.head_dim = 32;
        all.push_back(g);
    }
    return all;
}

std::vector<std::string> plans_of(geometry const& g) {
    if (g.experts.count == 0)
        return {"all@0,1",
                "all@0,1:tensor.reduce",
                "all@0,1,2,3:tensor.reduce",
                "all@0,1,2,3,4,5,6,7:tensor.reduce",
                "all@0,1,2,3,4,5,6,7",
                "0@0;1@1;2@2;3@3",
                "0@0;1-2@1,2:tensor.reduce;3@0,1,2,3"};
    return {"all@0,1:tensor.reduce",
            "all@0,1,2:expert",
            "all@0,1:tensor+expert",
            "all@0,1:expert_width",
            "all@0,1,2,3:expert_width.reduce",
            "all@0,1:tensor.reduce+expert_width.reduce",
            "0-1@0;2-3@1,2:expert"};
}

/// Sequences of several lengths, one longer than a block of the cache, and what plain gives for each alone.
struct baseline {
    std::vector<ids> sequences;
    std::vector<floats> rows;
    explicit baseline(language_model& m) {
        random_bits random(42);
        for (int const length : {70, 6, 1, 11, 3}) sequences.push_back(random_tokens(random, length, m.config().vocab));
        for (ids const& s : sequences) rows.push_back(rows_of(m, s));
    }
};

void check_same(language_model& m, baseline const& b) {
    for (std::size_t const chunk : {std::size_t{0}, std::size_t{7}, std::size_t{1}})
        CHECK_EQ(first_difference(b.rows[3], rows_of(m, b.sequences[3], chunk)), "");
    CHECK_EQ(first_difference(b.rows[0], rows_of(m, b.sequences[0], 30)), "");
    std::vector<floats> const ragged = ragged_rows_of(m, b.sequences);
    for (std::size_t i = 0; i < ragged.size(); ++i) CHECK_EQ(first_difference(b.rows[i], ragged[i]), "");
}

struct described {
    static constexpr auto config =
        model::llama({.layers = 4, .hidden = 64, .heads = 8, .kv_heads = 2, .ffn = 256, .vocab = 61, .max_positions = 256});
};
struct split : planned<described, "all@0,1,2,3:tensor.reduce"> {};
}  // namespace

TEST_CASE("every family in q8 has plain's bits under every plan, batch and chunking, on both runtimes") {
    for (geometry const& g : families()) {
        CAPTURE(g.name);
        random_model const files(g, 31);
        auto plain = load(files, "all@0");
        baseline const b(plain);
        check_same(plain, b);
        for (std::string const& text : plans_of(g))
            for (runtime_kind const r : {runtime_kind::sequential, runtime_kind::threads}) {
                CAPTURE(text);
                auto m = load(files, text, r);
                check_same(m, b);
            }
    }
}

TEST_CASE("q8 is another arithmetic than the formats that it is made from, and near to them") {
    for (geometry const& g : families()) {
        CAPTURE(g.name);
        random_model const files(g, 32);
        auto exact = dynamic_causal_lm<>::load(files.directory(), plan::parse("all@0"));
        auto m = load(files, "all@0");
        ids const tokens{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12};
        floats const expected = rows_of(exact, tokens), got = rows_of(m, tokens);
        double error = 0.0, size = 0.0;
        for (std::size_t i = 0; i < got.size(); ++i) {
            error += std::pow(static_cast<double>(expected[i]) - static_cast<double>(got[i]), 2);
            size += std::pow(static_cast<double>(expected[i]), 2);
        }
        CHECK(error > 0.0);
        if (g.experts.count == 0) CHECK(std::sqrt(error / size) < 0.05);  // a near tie of a router chooses another expert
    }
}

TEST_CASE("every instruction set and xtensor give one model in q8 the same bits, and mix in one plan") {
    for (geometry const& g : {families()[0], families()[2], families()[5]}) {
        CAPTURE(g.name);
        random_model const files(g, 33);
        auto plain = load(files, "all@0", runtime_kind::sequential, "portable");
        baseline const b(plain);
        for (kernel::isa const i : {kernel::isa::avx2, kernel::isa::avx512, kernel::isa::neon}) {
            if (!kernel::supported(i)) continue;
            CAPTURE(kernel::name_of(i));
            auto m = load(files, "all@0", runtime_kind::sequential, kernel::name_of(i));
            check_same(m, b);
        }
        for (std::string const text : {"all@xtensor.0", "0-1@0;2-3@xtensor.0,xtensor.1:tensor.reduce"}) {
            CAPTURE(text);
            auto m = load<device::cpu, device::xtensor>(files, text);
            CHECK_EQ(first_difference(b.rows[3], rows_of(m, b.sequences[3], 4)), "");
        }
    }
}

TEST_CASE("a snapshot of a model in q8 goes on under another plan, and not in another format") {
    random_model const files(families()[0], 34);
    auto plain = load(files, "all@0");
    ids const tokens{5, 4, 3, 2, 1};
    state s = plain.make_state();
    plain.prefill(s, tokens);
    std::vector<std::byte> const bytes = plain.snapshot(s);
    plain.step(s, 7);
    std::span<float const> const expected = plain.step(s, 8);
    floats const next(expected.begin(), expected.end());
    auto parted = load(files, "0-1@0,1:tensor.reduce;2-3@2");
    state t = parted.restore(bytes);
    parted.step(t, 7);
    CHECK_EQ(first_difference(next, parted.step(t, 8)), "");
    auto stored = dynamic_causal_lm<>::load(files.directory(), plan::parse("all@0"));
    CHECK(law_of([&] { stored.restore(bytes); }) == "snapshot_weight_format_is_the_models");
}

TEST_CASE("a matrix that q8 cannot hold is refused when a model is loaded, by its name, under a plan and a graph type") {
    geometry g{.name = "odd", .hidden = 64, .heads = 4, .kv_heads = 2, .ffn = 80, .vocab = 61};
    random_model const odd(g, 35);
    CHECK_THROWS_WITH_AS(
        load(odd, "0-1@0;2-3@1"),
        "blocks_divide_inputs: tensor model.layers.0.mlp.down_proj.weight of 80 inputs, in blocks of 32: a matrix held in q8 has whole "
        "blocks of inputs; stage 0: inputs = 80, inputs of a block = 32",
        graph_error);
    g.ffn = 256;
    g.heads = 8;
    random_model const files(g, 36);
    CHECK_THROWS_WITH_AS(
        load(files, "0-1@0;2-3@0,1,2,3:tensor.reduce"),
        "reduce_divides_segments: tensor model.layers.2.self_attn.o_proj.weight of 64 inputs, in blocks of 32: join::reduce needs a "
        "rank count that divides the segments of every product it cuts; join::gather does not; stage 1: segments = 2, ranks = 4; "
        "ranks = 1 or 2 would do; join::gather would do on 4 ranks",
        graph_error);
    auto const load_static = [&](weights w) { causal_lm<split>::load(files.directory(), runtime::sequential{}, {.weights = w}); };
    CHECK(law_of([&] { load_static(weights::bf16); }) == "nothing is refused");
    CHECK(law_of([&] { load_static(weights::q8); }) == "reduce_divides_segments");
    CHECK_THROWS_WITH_AS((load<device::eigen>(files, "all@0")), doctest::Contains("device_holds_format: eigen does not hold"), refusal);
}

TEST_CASE("weights without a half-precision scale are refused with tensor, row and block") {
    for (float const wrong : {9e6f, std::numeric_limits<float>::infinity(), std::nanf("")}) {
        random_model files({.name = "large", .hidden = 64, .heads = 4, .kv_heads = 4, .ffn = 256, .vocab = 61}, 37);
        files.tensors()["model.layers.1.mlp.down_proj.weight"].values[3 * 256 + 200] = wrong;
        files.write();
        std::string const where = "q8_holds_weights: tensor model.layers.1.mlp.down_proj.weight, row 3, block 6: input 200 ";
        CHECK_THROWS_WITH_AS(load(files, "all@0"), doctest::Contains(where.c_str()), refusal);
        CHECK_THROWS_WITH_AS(load(files, "all@0,1:tensor.reduce"), doctest::Contains(where.c_str()), refusal);
        CHECK(law_of([&] { dynamic_causal_lm<>::load(files.directory(), plan::parse("all@0")); }) == "nothing is refused");
    }
}
