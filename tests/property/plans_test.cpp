// Random small checkpoints of every family under random plans: a legal plan gives plain's bits, an illegal one is refused by the law
// that the brute-force checker names.
// SPDX-License-Identifier: Apache-2.0
#include "support/checker.hpp"
#include "support/random_model.hpp"
#include "support/runs.hpp"

#include <doctest/doctest.h>
#include <tenon/dynamic_causal_lm.hpp>

#include <string>
#include <vector>

using namespace tenon;
using namespace support;

namespace {
constexpr int geometries = 40, plans_of_each = 12;

geometry random_geometry(random_bits& random) {
    std::vector<std::string> const families{"llama", "mistral", "qwen2", "qwen3", "phi3"};
    std::vector<dtype> const types{dtype::f32, dtype::bf16, dtype::f16};
    geometry g;
    g.name = g.family = families[static_cast<std::size_t>(random.below(5))];
    g.type = types[static_cast<std::size_t>(random.below(3))];
    g.layers = 1 + random.below(4);
    g.kv_heads = 1 + random.below(4);
    g.heads = g.kv_heads * (1 + random.below(4));
    g.head_dim = 2 * (1 + random.below(8));
    g.hidden = 1 + random.below(70);
    g.ffn = random.below(3) == 0 ? 32 * (1 + random.below(8)) : 1 + random.below(70);
    g.vocab = 3 + random.below(60);
    g.tied = random.below(2) == 0;
    if (g.family == "llama") g.attention_bias = random.below(2) == 0, g.mlp_bias = random.below(2) == 0;
    if (g.family == "qwen3") g.attention_bias = random.below(2) == 0;
    if (g.family != "llama" && random.below(2) == 0) g.window = 1 + random.below(9);
    if (g.family == "qwen2" || g.family == "qwen3") g.first_window_layer = random.below(g.layers);
    return g;
}

/// A plan that covers the layers, in pieces of random length on random groups; most groups are small.
struct random_plan {
    std::string text{};
    std::vector<std::vector<device_id>> devices{};
    std::vector<stage_traits> stages{};

    random_plan(random_bits& random, int layers) {
        devices.reserve(static_cast<std::size_t>(layers));
        for (int first = 0; first < layers;) {
            int const last = first + random.below(layers - first), ranks = random.below(3) == 0 ? 1 : 1 + random.below(8), start = random.below(3);
            text += (text.empty() ? "" : ";") + std::to_string(first) + "-" + std::to_string(last) + "@";
            devices.emplace_back();
            for (int r = 0; r < ranks; ++r) {
                devices.back().push_back({device_kind::cpu, (start + r) % 8});
                text += (r == 0 ? "" : ",") + std::to_string((start + r) % 8);
            }
            stage_traits s{.first_layer = first, .last_layer = last, .devices = devices.back()};
            if (int const join = random.below(4); join > 0) {
                bool const reduce = join == 1;
                text += reduce ? ":tensor.reduce" : ":tensor.gather";
                s.cuts = {.tensor = true, .tensor_join = reduce ? join_kind::reduce : join_kind::gather};
            }
            stages.push_back(s);
            first = last + 1;
        }
    }
};
}  // namespace

TEST_CASE("Any legal plan has plain's bits, any illegal one is refused by the law that a brute-force checker names") {
    random_bits random(2026);
    int legal = 0, illegal = 0;
    for (int i = 0; i < geometries; ++i) {
        random_model const files(random_geometry(random), random());
        CAPTURE(files.config());
        auto plain = dynamic_causal_lm<>::load(files.directory(), plan::parse("all@0"), runtime::sequential{});
        ids const tokens = random_tokens(random, 1 + random.below(14), files.shape().vocab);
        floats const expected = rows_of(plain, tokens);
        for (int j = 0; j < plans_of_each; ++j) {
            random_plan const p(random, files.shape().layers);
            CAPTURE(p.text);
            law const broken = first_broken(plain.config(), p.stages);
            if (broken == law::none) {
                ++legal;
                runtime_kind const runtime = j % 4 == 0 ? runtime_kind::threads : runtime_kind::sequential;
                auto m = dynamic_causal_lm<>::load(files.directory(), plan::parse(p.text), runtime);
                REQUIRE_EQ(first_difference(expected, rows_of(m, tokens, static_cast<std::size_t>(random.below(5)))), "");
                continue;
            }
            ++illegal;
            REQUIRE_EQ(law_of([&] { (void)dynamic_causal_lm<>::load(files.directory(), plan::parse(p.text)); }), std::string(name_of(broken)));
        }
    }
    CHECK(legal > geometries * 2);
    CHECK(illegal > geometries * 2);
}
