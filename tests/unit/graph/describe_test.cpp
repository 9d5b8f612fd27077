// A graph described: the table's lines, the JSON read back by another library, the picture's edges.
// SPDX-License-Identifier: Apache-2.0
#include <doctest/doctest.h>
#include <nlohmann/json.hpp>
#include <tenon/graph/describe.hpp>
#include <tenon/graph/graph.hpp>
#include <tenon/graph/placed.hpp>
#include <tenon/graph/plan_value.hpp>
#include <tenon/model/kinds.hpp>
#include <tenon/model/llama.hpp>
#include <algorithm>
#include <array>
#include <string>
#include <string_view>
#include <utility>

using namespace tenon;

namespace {
struct small {
    static constexpr auto config = model::llama({.layers = 4, .hidden = 64, .heads = 4, .kv_heads = 2, .ffn = 96, .vocab = 101});
};
struct split : graph<small, stage<layers<0, 1>, device::cpu<0, 1>>, stage<layers<2, 3>, device::cpu<0>>> {};
constexpr auto costs = split::cost(weights::f32);

auto count(std::string const& text, char c) { return std::count(text.begin(), text.end(), c); }
}  // namespace

TEST_CASE("JSON has the graph's own figures, by rank, device and seam") {
    auto const json = nlohmann::json::parse(to_json(split::view(), costs));
    CHECK(json["plan"] == std::string(split::plan()));
    CHECK(json["weights"] == "f32");
    REQUIRE(json["stages"].size() == 2);
    CHECK(json["stages"][0]["role"] == "head");
    CHECK(json["stages"][1]["role"] == "tail");
    CHECK(json["stages"][0]["rules"] == nlohmann::json{"tensor.gather"});
    CHECK(json["stages"][1]["rules"] == nlohmann::json{"none"});
    CHECK(json["stages"][0]["join_bytes_per_token"] == costs.join_bytes_per_token(0));
    int rank = 0;
    for (auto const& stage : json["stages"])
        for (auto const& r : stage["ranks"]) {
            CHECK(r["rank"] == rank);
            CHECK(r["weight_bytes"] == costs.weight_bytes(rank_index{rank}));
            CHECK(r["kv_bytes_per_position"] == costs.kv_bytes_per_position(rank_index{rank}));
            CHECK(r["flops_per_token"] == costs.flops_per_token(rank_index{rank}));
            ++rank;
        }
    CHECK(rank == 3);
    REQUIRE(json["devices"].size() == 2);
    CHECK(json["devices"][0]["ranks"] == nlohmann::json{0, 2});
    CHECK(json["devices"][0]["weight_bytes"] == costs.weight_bytes(device_index{0}));
    REQUIRE(json["seams"].size() == 1);
    CHECK(json["seams"][0]["next_layer"] == 2);
    CHECK(json["seams"][0]["bytes_per_token"] == costs.seam_bytes_per_token(0));
}

TEST_CASE("a JSON string is escaped so that it reads back as it was") {
    std::string const hard = std::string("quote \" backslash \\ tab \t nul ") + '\0' + "\x1f é";
    CHECK(nlohmann::json::parse(tenon::detail::quoted(hard)) == hard);
}

TEST_CASE("a table has one line a rank, a device, a stage's joins and a seam, and no spaces at the end of a line") {
    std::string const text = to_text(split::view(), costs);
    CHECK(count(text, '\n') == 4 + 1 + (1 + 3) + 1 + (1 + 2) + 1 + (1 + 3));
    CHECK(text.find(" \n") == std::string::npos);
    CHECK(text.find(std::to_string(costs.weight_bytes(rank_index{1}))) != std::string::npos);
    CHECK(text.find("weights  f32, checkpoint F32\nprofile  canonical_1\nKV       f32\n") != std::string::npos);
    CHECK(to_text(split::view(), costs, numeric::bf16_pair_1).find("\nprofile  bf16_pair_1\n") != std::string::npos);
    CHECK(nlohmann::json::parse(to_json(split::view(), costs))["profile"] == "canonical_1");
    CHECK(text.find("seam 0 to 1") != std::string::npos);
}

TEST_CASE("keys and values are priced in the format that is named, and in f32 where none is") {
    auto const wide = nlohmann::json::parse(to_json(split::view(), costs));
    auto const narrow = nlohmann::json::parse(to_json(split::view(), costs, numeric::canonical_1, kv_format::bf16));
    CHECK(wide["kv"] == "f32");
    CHECK(narrow["kv"] == "bf16");
    for (int rank = 0; rank < 3; ++rank) {
        std::size_t const stage = rank < 2 ? 0 : 1, member = rank < 2 ? static_cast<std::size_t>(rank) : 0;
        auto const bytes = [&](auto const& json) { return json["stages"][stage]["ranks"][member]["kv_bytes_per_position"]; };
        CHECK(bytes(narrow) == costs.kv_bytes_per_position(rank_index{rank}, kv_format::bf16));
        CHECK(bytes(wide).template get<int>() == 2 * bytes(narrow).template get<int>());
    }
    for (std::size_t d : {0U, 1U}) CHECK(wide["devices"][d]["kv_bytes_per_position"].get<int>() == 2 * narrow["devices"][d]["kv_bytes_per_position"].get<int>());
    std::string const text = to_text(split::view(), costs, numeric::canonical_1, kv_format::bf16);
    CHECK(text.find("\nKV       bf16\n") != std::string::npos);
    CHECK(text.find(" " + std::to_string(costs.kv_bytes_per_position(rank_index{2}, kv_format::bf16)) + " ") != std::string::npos);
    CHECK(text.find(" " + std::to_string(costs.kv_bytes_per_position(rank_index{2})) + " ") == std::string::npos);
}

TEST_CASE("a picture has a cluster a stage, joins and seams on its edges, and balanced brackets") {
    std::string const dot = to_dot(split::view(), costs);
    CHECK(count(dot, '{') == count(dot, '}'));
    CHECK(dot.find("cluster_0") != std::string::npos);
    CHECK(dot.find("cluster_1") != std::string::npos);
    CHECK(dot.find("project q x2") != std::string::npos);
    CHECK(dot.find("gather 256 B") != std::string::npos);
    CHECK(dot.find("seam, 1 x 256 B = 256 B") != std::string::npos);
}

namespace {
/// Two dense layers, then two that route: eight experts, two of a token, and a shared one.
struct routed {
    static constexpr auto config = model::with_experts(small::config, {.count = 8, .chosen = 2, .width = 96, .shared_width = 64}, {2, 3});
};
struct routed_split : graph<routed, stage<layers<0, 2>, device::cpu<0, 1>>,
                            stage<layers<3, 3>, device::cpu<0, 1, 2>, shard::expert<placement::table<0, 0, 0, 1, 1, 2, 2, 2>>>> {};
constexpr auto routed_costs = routed_split::cost(weights::f32);

std::string rules_under(std::string_view plan, std::size_t stage = 0) {
    dynamic_graph const g(routed::config, plan::parse(plan));
    return nlohmann::json::parse(to_json(g.view(), g.cost(weights::f32)))["stages"][stage]["rules"].dump();
}
}  // namespace

TEST_CASE("the rules of a routed stage are named with their joins, those of the default too") {
    CHECK(rules_under("all@0") == R"(["none"])");
    CHECK(rules_under("all@0,1") == R"(["tensor.gather","expert"])");
    CHECK(rules_under("all@0,1:tensor") == R"(["tensor.gather"])");
    CHECK(rules_under("all@0,1:expert") == R"(["expert"])");
    CHECK(rules_under("all@0,1:expert.exact") == R"(["expert.exact"])");
    CHECK(rules_under("all@0,1,2:expert_width") == R"(["expert_width.gather"])");
    CHECK(rules_under("0-1@0,1;2-3@0,1:expert") == R"(["tensor.gather"])");
    CHECK(rules_under("0-1@0;2-3@0,1:expert.exact+tensor.reduce", 1) == R"(["tensor.reduce","expert.exact"])");
}

TEST_CASE("a table of a routed graph has what each rank holds of its experts, and what they move at most") {
    auto const json = nlohmann::json::parse(to_json(routed_split::view(), routed_costs));
    CHECK(json["plan"] == "0-2@0,1;3@0,1,2:expert");
    CHECK(json["stages"][1]["rules"] == nlohmann::json{"expert"});
    // A peer holds its experts alone: two and three, of 3 x 96 x 64 elements each, and does a quarter of that for a token.
    for (auto const& [rank, experts] : {std::pair{1, 2}, {2, 3}}) {
        auto const& peer = json["stages"][1]["ranks"][static_cast<std::size_t>(rank)];
        CHECK(peer["weight_bytes"] == 4 * experts * 3 * 96 * 64);
        CHECK(peer["flops_per_token"] == 2 * experts * 3 * 96 * 64 * 2 / 8);
        CHECK(peer["kv_bytes_per_position"] == 0);
    }
    // Two rows go out and two come back, whatever is chosen; the root alone reads what crosses the seam.
    CHECK(json["stages"][1]["joins"] == 2);
    CHECK(json["stages"][1]["join_messages_per_token"] == 4);
    CHECK(json["stages"][1]["join_bytes_per_token"] == 4 * 64 * 4);
    CHECK(json["seams"][0]["messages_per_token"] == 1);
    std::string const text = to_text(routed_split::view(), routed_costs);
    CHECK(text.find("tensor.gather+expert") != std::string::npos);
    CHECK(text.find("3       tail  expert") != std::string::npos);
    CHECK(text.find("0-2@0,1;3@0,1,2:expert\n") != std::string::npos);
    CHECK(text.find(" \n") == std::string::npos);
    CHECK(count(text, '\n') == 4 + 1 + (1 + 5) + 1 + (1 + 3) + 1 + (1 + 3));
}

TEST_CASE("a placed graph is described with its map's owners") {
    static constexpr std::array layers{2, 3};
    static constexpr std::array<int, 16> owners{0, 0, 0, 0, 0, 0, 0, 1, 0, 1, 1, 1, 1, 1, 1, 1};
    dynamic_graph const g(routed::config, plan::parse("0-1@0;2-3@0,1:expert"));
    graph_view const evenly = g.view();
    placed_graph const placed(evenly, {2, 0, 8, layers, owners});
    auto const bytes_of_peer = [](graph_view v) {
        return nlohmann::json::parse(to_json(v, {v, weights::f32, dtype::f32}))["stages"][1]["ranks"][1]["weight_bytes"].get<int>();
    };
    CHECK(bytes_of_peer(evenly) == 4 * (4 + 4) * 3 * 96 * 64);
    CHECK(bytes_of_peer(placed.view()) == 4 * (1 + 7) * 3 * 96 * 64);
}

TEST_CASE("a picture of a routed stage has its router, its experts and their combination, and the rows that the root hands out") {
    std::string const dot = to_dot(routed_split::view(), routed_costs);
    CHECK(count(dot, '{') == count(dot, '}'));
    for (std::string_view const box : {"[label=\"route\"]", "[label=\"experts\"]", "[label=\"combine\"]", "[label=\"project shared_gate\"]", "[label=\"project shared_down\"]"})
        CHECK(dot.find(box) != std::string::npos);
    CHECK(dot.find("expert on cpu.0 cpu.1 cpu.2") != std::string::npos);
    CHECK(dot.find("gather 512 B") != std::string::npos);
    CHECK(dot.find("seam, 1 x 256 B = 256 B") != std::string::npos);
}
