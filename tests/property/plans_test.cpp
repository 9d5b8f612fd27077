// Random small checkpoints of every family under random plans and placement maps: a legal one gives plain's bits, an illegal one is refused
// by the law that the brute-force checker names.
// SPDX-License-Identifier: Apache-2.0
#include "support/checker.hpp"
#include "support/random_model.hpp"
#include "support/runs.hpp"

#include <doctest/doctest.h>
#include <tenon/checkpoint/placement_json.hpp>
#include <tenon/dynamic_causal_lm.hpp>

#include <algorithm>
#include <array>
#include <string>
#include <vector>

using namespace tenon;
using namespace support;

namespace {
constexpr int geometries = 64, plans_of_each = 30;

/// Experts in all layers or in some, of any width; a mixtral's width is its FFN's.
void choose_experts(random_bits& random, geometry& g) {
    g.experts.count = random.below(4) == 0 ? 1 + random.below(4) : 4 + random.below(9);
    g.experts.chosen = 1 + random.below(std::min(g.experts.count, 4));
    g.experts.width = g.is_mixtral() ? g.ffn : random.below(3) == 0 ? 32 * (1 + random.below(8)) : 1 + random.below(40);
    g.experts.normalised = g.is_mixtral() || random.below(2) == 0;
    g.stacked = !g.is_mixtral() && random.below(3) == 0;
    if (g.is_mixtral()) return;
    g.sparse_step = 1 + random.below(2);
    if (random.below(3) == 0) g.dense_layers.push_back(random.below(g.layers));
}

geometry random_geometry(random_bits& random) {
    std::vector<std::string> const families{"llama", "mistral", "qwen2", "qwen3", "phi3", "mixtral", "qwen3_moe", "qwen3_moe"};
    std::vector<dtype> const types{dtype::f32, dtype::bf16, dtype::f16};
    geometry g;
    g.name = g.family = families[static_cast<std::size_t>(random.below(8))];
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
    if (g.norms_heads()) g.attention_bias = random.below(2) == 0;
    if (g.family != "llama" && random.below(2) == 0) g.window = 1 + random.below(9);
    if (g.family == "qwen2" || g.family == "qwen3") g.first_window_layer = random.below(g.layers);
    if (g.is_mixtral() || g.family == "qwen3_moe") choose_experts(random, g);
    return g;
}

/// A set of rules as a plan spells it, and as a value. The plan's default is among them three times.
struct spelled_rules {
    std::string_view text{};
    rules cuts{};
};
constexpr join_kind reduce = join_kind::reduce;
constexpr std::array dense_rules{spelled_rules{"", {.by_default = true}},
                                 spelled_rules{":tensor.reduce", {.tensor = true, .tensor_join = reduce}},
                                 spelled_rules{":tensor.gather", {.tensor = true}}, spelled_rules{":tensor", {.tensor = true}}};
constexpr std::array routed_rules{
    spelled_rules{"", {.by_default = true}},
    spelled_rules{"", {.by_default = true}},
    spelled_rules{":tensor.reduce", {.tensor = true, .tensor_join = reduce}},
    spelled_rules{":expert", {.expert = true}},
    spelled_rules{":expert", {.expert = true}},
    spelled_rules{":expert.exact", {.expert = true, .exact = true}},
    spelled_rules{":expert_width", {.expert_width = true}},
    spelled_rules{":expert_width.reduce", {.expert_width = true, .width_join = reduce}},
    spelled_rules{":tensor+expert", {.tensor = true, .expert = true}},
    spelled_rules{":expert+tensor.reduce", {.tensor = true, .expert = true, .tensor_join = reduce}},
    spelled_rules{":tensor.gather+expert_width.reduce", {.tensor = true, .expert_width = true, .width_join = reduce}},
    spelled_rules{":tensor.reduce+expert_width", {.tensor = true, .expert_width = true, .tensor_join = reduce}}};

/// A plan that covers the layers, in pieces of random length on random groups; most groups are small.
struct random_plan {
    std::string text{};
    std::vector<std::vector<device_id>> devices{};
    std::vector<stage_traits> stages{};

    random_plan(random_bits& random, int layers, bool routes) {
        devices.reserve(static_cast<std::size_t>(layers));
        for (int first = 0; first < layers;) {
            int const last = first + random.below(layers - first), most = routes && random.below(4) > 0 ? 4 : 8;
            int const ranks = random.below(3) == 0 ? 1 : 1 + random.below(most), start = random.below(3);
            text += (text.empty() ? "" : ";") + std::to_string(first) + "-" + std::to_string(last) + "@";
            devices.emplace_back();
            for (int r = 0; r < ranks; ++r) {
                devices.back().push_back({device_kind::cpu, (start + r) % 8});
                text += (r == 0 ? "" : ",") + std::to_string((start + r) % 8);
            }
            spelled_rules const chosen = routes || random.below(12) == 0 ? routed_rules[static_cast<std::size_t>(random.below(12))]
                                                                         : dense_rules[static_cast<std::size_t>(random.below(4))];
            text += chosen.text;
            stages.push_back(
                {.first_layer = first, .last_layer = last, .devices = devices.back(), .cuts = chosen.cuts, .placement = placing::open});
            first = last + 1;
        }
    }
};

/// A map for the first stage that takes one, as for all; rows as good as always sound, else with a hole or a rank too many or idle.
struct random_map {
    placement_map map{};
    std::vector<int> layers{}, owners{};
    placement_view view{};

    random_map(random_bits& random, model_config const& c, std::vector<stage_traits> const& stages) {
        map.ranks = 2, map.experts = 2;
        for (stage_traits const& s : stages) {
            if (!leaves_it_to_a_map(c, s)) continue;
            map.ranks = s.ranks();
            for (int const layer : routed_layers(c, s)) {
                map.experts = c.layer(s.first_layer + layer).experts.count;
                map.layers.push_back({s.first_layer + layer, random_row(random)});
            }
        }
        if (random.below(20) == 0) map.entry_rank = 1;
        for (layer_placement const& row : map.layers) {
            layers.push_back(row.layer);
            owners.insert(owners.end(), row.owners.begin(), row.owners.end());
        }
        view = {map.ranks, map.entry_rank, map.experts, layers, owners};
    }

private:
    std::vector<int> random_row(random_bits& random) const {
        std::vector<int> row;
        for (int e = 0; e < map.experts; ++e) row.push_back(e < map.ranks ? e : random.below(map.ranks));
        for (int e = map.experts - 1; e > 0; --e)
            std::swap(row[static_cast<std::size_t>(e)], row[static_cast<std::size_t>(random.below(e + 1))]);
        int& one = row[static_cast<std::size_t>(random.below(map.experts))];
        if (int const fault = random.below(20); fault == 0)
            one = -1;
        else if (fault == 1)
            one = map.ranks;
        else if (fault == 2)
            std::replace(row.begin(), row.end(), map.ranks - 1, 0);
        return row;
    }
};
}  // namespace

TEST_CASE("Any legal plan and placement has plain's bits, any illegal one is refused by the law that a brute-force checker names") {
    random_bits random(2026);
    int legal = 0, illegal = 0, routed = 0, mapped = 0, unmappable = 0;
    for (int i = 0; i < geometries; ++i) {
        geometry const shape = random_geometry(random);
        random_model const files(shape, random());
        CAPTURE(files.config());
        auto plain = dynamic_causal_lm<>::load(files.directory(), plan::parse("all@0"), runtime::sequential{});
        ids const tokens = random_tokens(random, 1 + random.below(14), files.shape().vocab);
        floats const expected = rows_of(plain, tokens);
        bool const routes = files.shape().experts.count > 0;
        for (int j = 0; j < plans_of_each; ++j) {
            random_plan const p(random, files.shape().layers, routes);
            CAPTURE(p.text);
            law broken = first_broken(plain.config(), p.stages);
            random_map const made(random, plain.config(), p.stages);
            bool const maps = broken == law::none && random.below(made.layers.empty() ? 12 : 2) == 0;
            if (maps) broken = first_of_map(plain.config(), p.stages, &made.view);
            load_options options{};
            if (maps) options.placement = &made.map;
            if (broken == law::none) {
                ++legal, routed += routes, mapped += maps;
                runtime_kind const runtime = j % 4 == 0 ? runtime_kind::threads : runtime_kind::sequential;
                auto m = dynamic_causal_lm<>::load(files.directory(), plan::parse(p.text), runtime, options);
                REQUIRE_EQ(first_difference(expected, rows_of(m, tokens, static_cast<std::size_t>(random.below(5)))), "");
                continue;
            }
            ++illegal, unmappable += maps;
            auto const load = [&] { (void)dynamic_causal_lm<>::load(files.directory(), plan::parse(p.text), runtime::threads{}, options); };
            REQUIRE_EQ(law_of(load), std::string(name_of(broken)));
        }
    }
    MESSAGE(legal, " legal, ", routed, " of them with experts, ", mapped, " with a map; ", illegal, " illegal, ", unmappable,
            " of them by a map");
    CHECK(legal > geometries * 2);
    CHECK(illegal > geometries * 2);
    CHECK(routed > geometries);
    CHECK(mapped > 20);
    CHECK(unmappable > 20);
}
