// Bit for bit against plain: every cut, both joins, their compositions, both runtimes, ragged batches, chunks, instruction sets and
// weight formats, on the goldens, the embedded model and random checkpoints where `reduce` is legal at 2, 4 and 8 ranks. What every
// rank holds and moves equals the constants of its graph.
// SPDX-License-Identifier: Apache-2.0
#include "support/baseline.hpp"
#include "support/families.hpp"
#include "support/random_model.hpp"
#include "support/runs.hpp"

#include <doctest/doctest.h>
#include <tenon/causal_lm.hpp>
#include <tenon/dynamic_causal_lm.hpp>
#include <tenon/model/llama.hpp>

#include <fstream>
#include <string>
#include <vector>

using namespace tenon;
using namespace support;

namespace {
/// Every way to cut `layers` layers into a pipeline.
plans pipelines(int layers) {
    plans list;
    for (int mask = 0; mask < 1 << (layers - 1); ++mask) {
        std::string text;
        int first = 0, device = 0;
        for (int l = 0; l < layers; ++l)
            if (l + 1 == layers || (mask >> l & 1) != 0) {
                text += (text.empty() ? "" : ";") + std::to_string(first) + "-" + std::to_string(l) + "@" + std::to_string(device++);
                first = l + 1;
            }
        list.push_back(text);
    }
    return list;
}
plans tensors(std::string const& join, int most = 8) {
    plans list;
    std::string devices = "0";
    for (int ranks = 2; ranks <= most; ++ranks) {
        devices += "," + std::to_string(ranks - 1);
        if (ranks == 2 || ranks == 4 || ranks == 8) list.push_back("all@" + devices + ":tensor." + join);
    }
    return list;
}
// Of four layers: pipelines of groups, groups of different sizes and joins, one device in several stages, a group between plain ends.
plans const compositions_gather{"0-1@0,1;2-3@2,3", "0@0;1-2@1,2;3@0", "0-2@0,1,2,3;3@4", "0-1@1,0;2-3@0,1,2,3"};
plans const compositions_reduce{"0-1@0,1:tensor.reduce;2-3@2,3:tensor.reduce", "0-1@0,1:tensor.reduce;2-3@3,2,1,0:tensor.gather",
                                "0@0;1-2@1,2,3,4:tensor.reduce;3@0", "0@0,1,2,3,4,5,6,7:tensor.reduce;1@0;2-3@1,0:tensor.reduce",
                                "0@0;1@1,2,3,0:tensor.reduce;2@1;3@2,3:tensor.gather"};

std::vector<geometry> random_geometries() {
    std::vector<geometry> list;
    list.push_back({.name = "F32, grouped heads, biases", .kv_heads = 4, .vocab = 101, .attention_bias = true, .mlp_bias = true});
    list.push_back({.name = "BF16, tied, llama3",
                    .hidden = 64,
                    .kv_heads = 2,
                    .ffn = 512,
                    .vocab = 131,
                    .type = dtype::bf16,
                    .tied = true,
                    .rope = scaling::llama3});
    list.push_back({.name = "F16, explicit head width, linear",
                    .hidden = 96,
                    .kv_heads = 8,
                    .head_dim = 16,
                    .ffn = 256,
                    .vocab = 67,
                    .type = dtype::f16,
                    .rope = scaling::linear});
    return list;
}

load_options stored_as(weights w) {
    load_options o;
    o.weights = w;
    return o;
}

std::string const goldens = TENON_TEST_DATA "/golden/";
}  // namespace

TEST_CASE("A pipeline of any cut has plain's bits") {
    for (geometry const& g : random_geometries()) {
        CAPTURE(g.name);
        random_model const files(g, 5);
        baseline const b(files.directory());
        check_plans(b, pipelines(4));
        for (std::initializer_list<int> const owners : {std::initializer_list<int>{0, 1, 0, 1}, {0, 0, 1, 0}, {2, 1, 1, 2}}) {
            auto m = dynamic_causal_lm<>::load(b.directory, plan::owners(owners));
            check_some(m, b);
        }
    }
}

TEST_CASE("A gathered tensor split has plain's bits on 2, 4 and 8 ranks") {
    for (geometry const& g : random_geometries()) {
        CAPTURE(g.name);
        random_model const files(g, 6);
        check_plans(baseline(files.directory()), tensors("gather"));
    }
}

TEST_CASE("A reduced tensor split has plain's bits on 2, 4 and 8 ranks") {
    for (geometry const& g : random_geometries()) {
        CAPTURE(g.name);
        random_model const files(g, 7);
        check_plans(baseline(files.directory()), tensors("reduce"));
    }
}

TEST_CASE("Compositions of pipeline and tensor splits have plain's bits") {
    for (geometry const& g : random_geometries()) {
        CAPTURE(g.name);
        random_model const files(g, 8);
        baseline const b(files.directory());
        check_plans(b, compositions_gather, false);
        check_plans(b, compositions_reduce, false);
    }
}

TEST_CASE("Ranks that do not divide widths or the vocabulary evenly have plain's bits") {
    random_model const files({.name = "six heads", .hidden = 78, .heads = 6, .kv_heads = 3, .head_dim = 10, .ffn = 77, .vocab = 65}, 9);
    check_plans(baseline(files.directory()), {"all@0", "all@0,1,2", "0-1@0;2-3@1,2,3", "0@0,1,2;1-3@0"});
}

TEST_CASE("The goldens have plain's bits under every plan that is legal for them") {
    baseline const f32(goldens + "llama_mha_f32"), bf16(goldens + "llama_gqa_bf16_sharded");
    for (baseline const* const b : {&f32, &bf16}) {
        check_plans(*b, pipelines(4), false);
        check_plans(*b, tensors("gather"), false);
        check_plans(*b, compositions_gather, false);
    }
    check_plans(f32, tensors("reduce", 2));
}

TEST_CASE("Every dense family has plain's bits, whole blocks of the matrix") {
    for (geometry const& g : dense_families()) {
        CAPTURE(g.name);
        random_model const files(g, 15);
        baseline const b(files.directory());
        check_plans(b, pipelines(4), false);
        check_plans(b, tensors("gather"));
        check_plans(b, tensors("reduce"), false);
        check_plans(b, compositions_gather, false);
        check_plans(b, compositions_reduce, false);
    }
}

TEST_CASE("The goldens of the other families have plain's bits") {
    for (std::string const name : {"mistral_nemo_f16", "mistral_swa_bf16", "qwen2_tied_bf16", "qwen3_bf16", "qwen3_fp8"}) {
        CAPTURE(name);
        baseline const b(goldens + name);
        check_plans(b, {"0-1@0;2-3@1", "0@0;1@1;2@2;3@3", "all@0,1", "0@0;1-2@1,2;3@0"}, false);
        if (name != "qwen2_tied_bf16") check_plans(b, {"all@0,1,2,3"}, false);
    }
}

TEST_CASE("The embedded model has plain's bits") {
    std::string const folder = TENON_EMBEDDED_MODEL;
    if (!std::ifstream(folder + "/model.safetensors")) {
        MESSAGE("there is no embedded model here: nothing checked");
        return;
    }
    baseline const b(folder);
    check_plans(b, tensors("gather"), false);
    check_plans(b, tensors("reduce"), false);
    check_plans(b, {"0-1@0;2-3@1", "0@0;1@1;2@2;3@3", compositions_reduce[0], compositions_gather[1]}, false);
}

TEST_CASE("Every instruction set gives the same bits, for every format of the weights") {
    for (geometry const& g : random_geometries()) {
        CAPTURE(g.name);
        random_model const files(g, 10);
        for (weights const w : {weights::stored, weights::f32, weights::bf16}) {
            CAPTURE(name_of(w));
            baseline b(files.directory(), stored_as(w));  // in portable code
            for (kernel::isa const i : {kernel::isa::portable, kernel::isa::avx2, kernel::isa::avx512, kernel::isa::neon}) {
                if (!kernel::supported(i)) continue;
                CAPTURE(kernel::name_of(i));
                b.how.isa = kernel::name_of(i);
                for (std::string const text : {"all@0", "0-1@0,1:tensor.reduce;2-3@2,3,4,5:tensor.gather"}) {
                    CAPTURE(text);
                    auto m = dynamic_causal_lm<>::load(b.directory, plan::parse(text), runtime::sequential{}, b.how);
                    check_some(m, b);
                }
            }
        }
    }
}

TEST_CASE("Weights that BF16 holds exactly have the same bits in every format, and F32 ones do not") {
    random_model const exact({.name = "bf16", .type = dtype::bf16}, 11), wide({.name = "f32"}, 11);
    baseline const b(exact.directory()), w(wide.directory());
    auto const format_is_the_same = [](baseline const& expected, weights format) {
        auto m = dynamic_causal_lm<>::load(expected.directory, plan::parse("all@0"), runtime::sequential{}, stored_as(format));
        return first_difference(expected.rows[3], rows_of(m, expected.sequences[3])).empty();
    };
    CHECK(format_is_the_same(b, weights::f32));
    CHECK(format_is_the_same(b, weights::bf16));
    CHECK(format_is_the_same(w, weights::f32));
    CHECK_FALSE(format_is_the_same(w, weights::bf16));
}

TEST_CASE("A cache grows past blocks of 64 positions and keeps the bits") {
    random_model const files({.name = "long", .layers = 2, .hidden = 64, .heads = 4, .kv_heads = 2, .ffn = 64}, 12);
    auto plain = dynamic_causal_lm<>::load(files.directory(), plan::parse("all@0"), runtime::sequential{});
    random_bits random(3);
    ids const long_sequence = random_tokens(random, 200, plain.config().vocab);
    floats const expected = rows_of(plain, long_sequence);
    for (std::string const text : {"all@0", "all@0,1:tensor.reduce", "0@0;1@1"}) {
        CAPTURE(text);
        auto m = dynamic_causal_lm<>::load(files.directory(), plan::parse(text));
        for (std::size_t const chunk : sizes{1, 7, 63, 64, 65, 128}) {
            CAPTURE(chunk);
            CHECK_EQ(first_difference(expected, rows_of(m, long_sequence, chunk)), "");
        }
    }
}

TEST_CASE("What every rank holds and moves equals the graph's constants") {
    std::vector<geometry> shapes = random_geometries();
    for (geometry const& g : dense_families()) shapes.push_back(g);
    for (geometry const& g : shapes) {
        CAPTURE(g.name);
        random_model const files(g, 13);
        plans all = pipelines(4);
        for (plans const& more : {tensors("gather"), tensors("reduce"), compositions_gather, compositions_reduce})
            all.insert(all.end(), more.begin(), more.end());
        for (weights const w : {weights::stored, weights::f32, weights::bf16})
            for (std::string const& text : all) {
                CAPTURE(text);
                CAPTURE(name_of(w));
                auto m = dynamic_causal_lm<>::load(files.directory(), plan::parse(text), runtime::sequential{}, stored_as(w));
                cost_view const cost(m.graph(), w, g.type);
                REQUIRE(m.ranks() == cost.ranks());
                state s = m.make_state(70);
                for (int r = 0; r < m.ranks(); ++r) {
                    CHECK(m.weight_bytes({r}) == cost.weight_bytes(rank_index{r}));
                    CHECK(s.kv_bytes(r) == cost.kv_bytes(rank_index{r}, 70));
                }
                std::int64_t messages = 0, bytes = 0, joins = 0, seams = 0;
                auto const stages = static_cast<int>(m.graph().stages.size());
                for (int i = 0; i < stages; ++i) {
                    messages += cost.join_messages_per_token(i);
                    bytes += cost.join_bytes_per_token(i);
                    joins += cost.joins(i);
                    if (i + 1 == stages) continue;
                    messages += cost.seam_messages_per_token(i);
                    bytes += cost.seam_bytes_per_token(i);
                    seams += cost.seam_messages_per_token(i);
                }
                m.step(s, 1);
                census const one = m.counts();
                CHECK(one.total.messages == messages);
                CHECK(one.total.bytes == bytes);
                CHECK(one.total.hand_overs == seams);
                CHECK((joins > 0) == (one.total.gathers + one.total.reductions > 0));
                // Many tokens in one call: as many bytes a token.
                ids const five{1, 2, 3, 4, 5};
                feed const f{&s, five};
                m.forward({&f, 1}, rows_wanted::all);
                CHECK(m.counts().total.bytes == 6 * bytes);
                CHECK(s.length() == 6);
            }
    }
}

namespace {
struct wide {
    static constexpr auto config = model::llama({.layers = 4,
                                                 .hidden = 128,
                                                 .heads = 8,
                                                 .kv_heads = 4,
                                                 .ffn = 256,
                                                 .vocab = 101,
                                                 .max_positions = 256,
                                                 .attention_bias = true,
                                                 .mlp_bias = true});
};
struct wide_reduced : graph<wide, stage<layers<0, 1>, device::cpu<0, 1, 2, 3>, shard::tensor<join::reduce>>,
                            stage<layers<2, 3>, device::cpu<4, 5>, shard::tensor<join::gather>>> {
    static_assert(cost(weights::f32).kv_bytes_per_position(rank_index{0}) == 2 * 2 * 4 * 16);
};
struct wide_planned : planned<wide, "0@0;1-2@1,2:tensor.reduce;3@0"> {};
}  // namespace

TEST_CASE("Graphs written as types have plain's bits and hold what their constants say") {
    random_model const files(random_geometries()[0], 14);
    baseline const b(files.directory());
    auto const check_static = [&b]<class Graph>(std::type_identity<Graph>) {
        auto threaded = causal_lm<Graph>::load(b.directory);
        check_some(threaded, b);
        auto serial = causal_lm<Graph>::load(b.directory, runtime::sequential{});
        check_everything(serial, b);
        constexpr auto cost = Graph::cost(weights::stored);
        state const s = serial.make_state(1);
        for (int r = 0; r < cost.ranks(); ++r) {
            CHECK(serial.weight_bytes({r}) == cost.weight_bytes(rank_index{r}));
            CHECK(s.kv_bytes(r) == cost.kv_bytes(rank_index{r}, 1));
        }
    };
    check_static(std::type_identity<wide_reduced>{});
    check_static(std::type_identity<wide_planned>{});
}
