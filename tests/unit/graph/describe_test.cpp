// A graph described: the table's lines, the JSON read back by another library, the picture's edges.
// SPDX-License-Identifier: Apache-2.0
#include <doctest/doctest.h>
#include <nlohmann/json.hpp>
#include <tenon/graph/describe.hpp>
#include <tenon/graph/graph.hpp>
#include <tenon/model/llama.hpp>
#include <algorithm>
#include <string>

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
    CHECK(count(text, '\n') == 2 + 1 + (1 + 3) + 1 + (1 + 2) + 1 + (1 + 3));
    CHECK(text.find(" \n") == std::string::npos);
    CHECK(text.find(std::to_string(costs.weight_bytes(rank_index{1}))) != std::string::npos);
    CHECK(text.find("weights  f32, checkpoint F32") != std::string::npos);
    CHECK(text.find("seam 0 to 1") != std::string::npos);
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
