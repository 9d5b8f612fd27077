// Maps that are read, every refusal with its words, and what is written back.
// SPDX-License-Identifier: Apache-2.0
#include "support.hpp"

#include <tenon/checkpoint/placement_json.hpp>

#include <doctest/doctest.h>
#include <string>
#include <string_view>
#include <vector>

using namespace checkpoint_test;
using tenon::placement_map;
using tenon::read_placement_map;

namespace {

// A valid map of two layers, four experts and two ranks; the layers backwards.
constexpr std::string_view valid = R"({"format": "tenon-expert-placement", "version": 1, "ranks": 2, "entry_rank": 0, "expert_count": 4, )"
                                   R"("layers": [{"layer": 7, "assignment": [0, 1, 1, 1]}, {"layer": 3, "assignment": [1, 0, 0, 1]}]})";

placement_map const expected{2, 0, 4, {{3, {1, 0, 0, 1}}, {7, {0, 1, 1, 1}}}, {}};

// The valid map with its one piece `from` replaced.
std::string with(std::string_view from, std::string_view to) {
    std::size_t const at = valid.find(from);
    REQUIRE(at != std::string_view::npos);
    REQUIRE(valid.find(from, at + 1) == std::string_view::npos);
    return std::string(valid).replace(at, from.size(), to);
}

std::string refused(std::string_view text) {
    return refusal_of([text] { read_placement_map(text, "map.json"); });
}

struct mutation {
    std::string_view from, to, says;
};

// One change each, and the whole sentence.
constexpr mutation mutations[]{
    {R"("format": "tenon-expert-placement", )", "",
     "placement_format_is_given: map.json: format is missing; \"tenon-expert-placement\" or \"memra-ep-map-v1\" would do"},
    {R"("tenon-expert-placement")", R"("tenon-expert-placements")",
     "placement_format_is_known: map.json: format = \"tenon-expert-placements\"; \"tenon-expert-placement\" or \"memra-ep-map-v1\" would "
     "do"},
    {R"("tenon-expert-placement")", R"("memra-ep-map-v2")",
     "placement_format_is_known: map.json: format = \"memra-ep-map-v2\"; \"tenon-expert-placement\" or \"memra-ep-map-v1\" would do"},
    {R"("tenon-expert-placement")", "null",
     "placement_format_is_known: map.json: format = null; \"tenon-expert-placement\" or \"memra-ep-map-v1\" would do"},
    {R"("tenon-expert-placement")", R"(["tenon-expert-placement"])",
     "placement_format_is_known: map.json: format = an array; \"tenon-expert-placement\" or \"memra-ep-map-v1\" would do"},
    {R"("tenon-expert-placement")", R"("memra-ep-map-v1")",
     "placement_alias_has_no_version: map.json: version = 1 with format \"memra-ep-map-v1\"; no version, or format "
     "\"tenon-expert-placement\" would do"},
    {R"("version": 1, )", "",
     "placement_version_is_known: map.json: version is missing with format \"tenon-expert-placement\"; 1 would do"},
    {R"("version": 1)", R"("version": 2)", "placement_version_is_known: map.json: version = 2; 1 would do"},
    {R"("version": 1)", R"("version": 0)", "placement_version_is_known: map.json: version = 0; 1 would do"},
    {R"("version": 1)", R"("version": 1.0)",
     "placement_number_is_whole: map.json: version = 1.0; a whole number in digits alone, 1, would do"},
    {R"("version": 1)", R"("version": "1")",
     "placement_number_is_whole: map.json: version = \"1\"; a whole number in digits alone, 1, would do"},
    {R"("ranks": 2, )", "",
     "placement_field_is_present: map.json: ranks missing; each of entry_rank, expert_count, layers, ranks would do"},
    {R"("ranks": 2, "entry_rank": 0, )", "",
     "placement_field_is_present: map.json: entry_rank, ranks missing; each of entry_rank, expert_count, layers, ranks would do"},
    {R"("expert_count": 4, )", "",
     "placement_field_is_present: map.json: expert_count missing; each of entry_rank, expert_count, layers, ranks would do"},
    {R"("layers")", R"("traces")",
     "placement_field_is_present: map.json: layers missing; each of entry_rank, expert_count, layers, ranks would do"},
    {R"("layer": 7, )", "", "placement_field_is_present: map.json: layers[0]: layer missing; each of layer would do"},
    {R"("ranks": 2)", R"("ranks": 2, "balance": 1.1)",
     "placement_key_is_known: map.json: the key \"balance\" is unknown; entry_rank, expert_count, format, layers, params, ranks, stats, "
     "strategy, traces, version would do"},
    {R"("layer": 7)", R"("layer": 7, "rows": 5)",
     "placement_key_is_known: map.json: layers[0]: the key \"rows\" is unknown; assignment, layer would do"},
    {R"("ranks": 2)", R"("ranks": 1)", "placement_has_several_ranks: map.json: ranks = 1; 2 to 64 would do"},
    {R"("ranks": 2)", R"("ranks": 0)", "placement_has_several_ranks: map.json: ranks = 0; 2 to 64 would do"},
    {R"("ranks": 2)", R"("ranks": 65)", "placement_ranks_fit: map.json: ranks = 65; 2 to 64 would do"},
    {R"("ranks": 2)", R"("ranks": 9223372036854775807)", "placement_ranks_fit: map.json: ranks = 9223372036854775807; 2 to 64 would do"},
    {R"("ranks": 2)", R"("ranks": 5)", "every_rank_has_work: map.json: expert_count = 4, ranks = 5; expert_count = 5 to 1024 would do"},
    {R"("expert_count": 4)", R"("expert_count": 0)", "placement_has_experts: map.json: expert_count = 0; 2 to 1024 would do"},
    {R"("expert_count": 4)", R"("expert_count": 1)",
     "every_rank_has_work: map.json: expert_count = 1, ranks = 2; expert_count = 2 to 1024 would do"},
    {R"("expert_count": 4)", R"("expert_count": 1025)", "placement_experts_fit: map.json: expert_count = 1025; 2 to 1024 would do"},
    {R"("expert_count": 4)", R"("expert_count": 5)",
     "placement_names_every_expert: map.json: layers[0].assignment of layer 7 has 4 entries; a rank for each of the 5 experts would do"},
    {R"("entry_rank": 0)", R"("entry_rank": 2)",
     "placement_entry_rank_exists: map.json: entry_rank = 2, ranks = 2; entry_rank = 0 to 1 would do"},
    {R"([{"layer": 7, "assignment": [0, 1, 1, 1]}, {"layer": 3, "assignment": [1, 0, 0, 1]}])", "[]",
     "placement_has_layers: map.json: layers is empty; an entry for every layer that routes experts would do"},
    {R"([{"layer": 7, "assignment": [0, 1, 1, 1]}, {"layer": 3, "assignment": [1, 0, 0, 1]}])", "{}",
     "placement_field_has_type: map.json: layers = an object; an array of objects would do"},
    {R"({"layer": 3, "assignment": [1, 0, 0, 1]})", "[1, 0, 0, 1]",
     "placement_field_has_type: map.json: layers[1] = an array; an object of assignment and layer would do"},
    {R"("layer": 3)", R"("layer": 7)",
     "placement_layer_is_named_once: map.json: layers[1].layer = 7, as layers[0].layer is; an entry for each layer once would do"},
    {R"("layer": 3)", R"("layer": 256)", "placement_layers_fit: map.json: layers[1].layer = 256; 0 to 255 would do"},
    {R"("layer": 3, "assignment": [1, 0, 0, 1])", R"("layer": 3)",
     "placement_layer_has_assignment: map.json: layers[1]: assignment is missing from layer 3; a rank for each of the 4 experts would do"},
    {"[1, 0, 0, 1]", "null",
     "placement_field_has_type: map.json: layers[1].assignment = null; an array with a rank for each of the 4 experts would do"},
    {"[1, 0, 0, 1]", "[1, 0, 0]",
     "placement_names_every_expert: map.json: layers[1].assignment of layer 3 has 3 entries; a rank for each of the 4 experts would do"},
    {"[1, 0, 0, 1]", "[1, 0, 0, 1, 1]",
     "placement_names_every_expert: map.json: layers[1].assignment of layer 3 has 5 entries; a rank for each of the 4 experts would do"},
    {"[1, 0, 0, 1]", "[]",
     "placement_names_every_expert: map.json: layers[1].assignment of layer 3 has 0 entries; a rank for each of the 4 experts would do"},
    {"[1, 0, 0, 1]", "[1, 0, 2, 1]", "placement_rank_exists: map.json: layers[1].assignment[2] = 2; 0 to 1 would do"},
    {"[1, 0, 0, 1]", "[0, 0, 0, 0]",
     "every_rank_has_work: map.json: layers[1].assignment gives rank 1 no expert; an expert or more for each of the 2 ranks would do"},
    {"[1, 0, 0, 1]", "[1, 1, 1, 1]",
     "every_rank_has_work: map.json: layers[1].assignment gives rank 0 no expert; an expert or more for each of the 2 ranks would do"},
    {R"("ranks": 2)", R"("ranks": 2, "ranks": 2)",
     "json_keys_are_unique: map.json: byte 72 of 206 begins a second value of the duplicate key \"ranks\"; the first is at byte 60, one of "
     "them would do"},
    {R"("layer": 3)", R"("layer": 3, "layer": 3)",
     "json_keys_are_unique: map.json: byte 174 of 206 begins a second value of the duplicate key \"layer\"; the first is at byte 162, one "
     "of them would do"},
};

}  // namespace

TEST_CASE("a map is read, its layers ascend, and its receipt is the digest of the exact text") {
    placement_map const map = read_placement_map(valid);
    CHECK(map == expected);
    CHECK(map.sha256 == tenon::checkpoint::sha256_of(valid));
    std::string const spaced = " " + std::string(valid) + "\n";
    CHECK(read_placement_map(spaced) == map);
    CHECK(read_placement_map(spaced).sha256 == tenon::checkpoint::sha256_of(spaced));
    CHECK(read_placement_map(spaced).sha256 != map.sha256);
    CHECK(read_placement_map(with(R"("entry_rank": 0)", R"("entry_rank": 1)")).entry_rank == 1);
    CHECK(read_placement_map(with(R"("ranks")", R"("\u0072anks")")) == map);
}

TEST_CASE("the alias is the same format without a version") {
    std::string const alias = with(R"("tenon-expert-placement", "version": 1)", R"("memra-ep-map-v1")");
    CHECK(read_placement_map(alias) == expected);
}

TEST_CASE("what rides along is not read, whatever it is, and braces in strings are text") {
    for (std::string_view const rides :
         {R"("strategy": "}]", "traces": ["[{", "\"}"], "params": {"balance": 1.1}, "stats": null)",
          R"("strategy": {"ranks": 9, "layers": []}, "traces": 7, "params": "{", "stats": [[[{"layer": 7}]]])", R"("stats": 1e999)"})
        CHECK(read_placement_map(with(R"("ranks": 2)", R"("ranks": 2, )" + std::string(rides))) == expected);
}

TEST_CASE("every refusal has its name, the numbers, and what would do") {
    for (mutation const& m : mutations) {
        CAPTURE(m.from);
        CAPTURE(m.to);
        CHECK(refused(with(m.from, m.to)) == m.says);
    }
}

TEST_CASE("a number is an unsigned whole number, spelled so, wherever one stands") {
    struct place {
        std::string_view from, name, before, after, remedy;
    };
    constexpr place places[]{
        {R"("ranks": 2)", "ranks", R"("ranks": )", "", "2 to 64"},
        {R"("entry_rank": 0)", "entry_rank", R"("entry_rank": )", "", "below ranks"},
        {R"("expert_count": 4)", "expert_count", R"("expert_count": )", "", "2 to 1024"},
        {R"("layer": 3)", "layers[1].layer", R"("layer": )", "", "0 to 255"},
        {"[1, 0, 0, 1]", "layers[1].assignment[3]", "[1, 0, 0, ", "]", "0 to 1"},
    };
    for (place const& p : places)
        for (std::string_view const value : {"1.0", "1e0", "1E0", "\"1\"", "-1", "-0", "0.5", "true", "false", "null", "[]", "{}",
                                             "9223372036854775808", "18446744073709551617", "1e999", "[1]"}) {
            std::string const text = with(p.from, std::string(p.before).append(value).append(p.after));
            std::string const shown = value == "[]" || value == "[1]" ? "an array" : value == "{}" ? "an object" : std::string(value);
            CHECK(refused(text) == "placement_number_is_whole: map.json: " + std::string(p.name) + " = " + shown +
                                       "; a whole number in digits alone, " + std::string(p.remedy) + ", would do");
        }
    CHECK(refused(with("[1, 0, 0, 1]", "[1, 0, 0, 9223372036854775807]")) ==
          "placement_rank_exists: map.json: layers[1].assignment[3] = 9223372036854775807; 0 to 1 would do");
    CHECK(refused(with(R"("layer": 3)", R"("layer": 9223372036854775807)")) ==
          "placement_layers_fit: map.json: layers[1].layer = 9223372036854775807; 0 to 255 would do");
    CHECK(law_of([] { read_placement_map(with(R"("ranks": 2)", R"("ranks": 02)")); }) == "json_is_well_formed");
    CHECK(law_of([] { read_placement_map(with(R"("ranks": 2)", R"("ranks": +2)")); }) == "json_is_well_formed");
}

TEST_CASE("what is no JSON object is no map") {
    for (std::string_view const text : {"[]", "1", "null", "\"tenon-expert-placement\""})
        CHECK(law_of([text] { read_placement_map(text); }) == "placement_is_an_object");
    CHECK(refused("[]") == "placement_is_an_object: map.json: the text is an array; an object would do");
    CHECK(refused("{}") ==
          "placement_format_is_given: map.json: format is missing; \"tenon-expert-placement\" or \"memra-ep-map-v1\" would do");
    CHECK(law_of([] { read_placement_map(""); }) == "json_is_well_formed");
    for (std::size_t cut = 1; cut < valid.size(); ++cut) {  // however nesting is left unbalanced
        CHECK(law_of([cut] { read_placement_map(valid.substr(0, cut)); }) == "json_is_well_formed");
        CHECK(law_of([cut] { read_placement_map(valid.substr(cut)); }) != "nothing is refused");
    }
    for (std::string_view const more : {"}", "]", "{", ",", "1", "\""})
        CHECK(law_of([more] { read_placement_map(std::string(valid).append(more)); }) == "json_is_well_formed");
    std::string const deep = with(R"("ranks": 2)", R"("ranks": 2, "stats": )" + std::string(64, '[') + std::string(64, ']'));
    CHECK(law_of([&] { read_placement_map(deep); }) == "json_nesting_fits");
    CHECK(law_of([] { read_placement_map(with("\"version\"", "\"vers\xFFion\"")); }) == "json_is_utf8");
}

TEST_CASE("the largest map is read, and one layer more is refused") {
    placement_map map{64, 63, 1024, {}, {}};
    std::vector<int> owners;
    for (int e = 0; e < map.experts; ++e) owners.push_back(e % map.ranks);
    for (int layer = 0; layer < 256; ++layer) map.layers.push_back({layer, owners});
    std::string const text = render(map);
    CHECK(read_placement_map(text) == map);
    std::string more = text;
    more.insert(more.find("\n  ],"), R"(, {"layer": 256, "assignment": []})");
    CHECK(refused(more) == "placement_layers_fit: map.json: layers has 257 entries; at most 256 would do");
    CHECK(read_placement_map(render(placement_map{2, 1, 2, {{255, {1, 0}}}, {}})).layers[0].owners == std::vector<int>{1, 0});
}

TEST_CASE("a rendered map has sorted keys, a layer a line, and reads back as itself") {
    CHECK(render(expected) == R"({
  "entry_rank": 0,
  "expert_count": 4,
  "format": "tenon-expert-placement",
  "layers": [
    {"assignment": [1, 0, 0, 1], "layer": 3},
    {"assignment": [0, 1, 1, 1], "layer": 7}
  ],
  "ranks": 2,
  "version": 1
}
)");
    std::string const noted = render(
        expected, {.strategy = R"("frequency")", .traces = R"(["}", "a"])", .params = R"({"balance": 1.1})", .stats = R"({"rows": 96})"});
    CHECK(noted == R"({
  "entry_rank": 0,
  "expert_count": 4,
  "format": "tenon-expert-placement",
  "layers": [
    {"assignment": [1, 0, 0, 1], "layer": 3},
    {"assignment": [0, 1, 1, 1], "layer": 7}
  ],
  "params": {"balance": 1.1},
  "ranks": 2,
  "stats": {"rows": 96},
  "strategy": "frequency",
  "traces": ["}", "a"],
  "version": 1
}
)");
    for (std::string const& text : {render(expected), noted, std::string(valid)}) {
        placement_map const map = read_placement_map(text);
        CHECK(map == expected);
        CHECK(render(map) == render(expected));
    }
    placement_map other = expected;
    other.sha256 = "of another text";
    CHECK(other == expected);
    other.layers[1].owners[0] = 1;
    CHECK(other != expected);
}

TEST_CASE("what the reader would refuse is not written") {
    auto const law = [](placement_map const& map) { return law_of([&map] { render(map); }); };
    CHECK(law({}) == "placement_has_several_ranks");
    CHECK(law({2, 0, 4, {}, {}}) == "placement_has_layers");
    CHECK(law({2, 2, 4, {{3, {1, 0, 0, 1}}}, {}}) == "placement_entry_rank_exists");
    CHECK(law({2, -1, 4, {{3, {1, 0, 0, 1}}}, {}}) == "placement_number_is_whole");
    CHECK(law({2, 0, 4, {{3, {1, 0, 0}}}, {}}) == "placement_names_every_expert");
    CHECK(law({2, 0, 4, {{3, {1, 0, 0, 2}}}, {}}) == "placement_rank_exists");
    CHECK(law({2, 0, 4, {{3, {0, 0, 0, 0}}}, {}}) == "every_rank_has_work");
    CHECK(law({2, 0, 4, {{3, {1, 0, 0, 1}}, {3, {1, 0, 0, 1}}}, {}}) == "placement_layer_is_named_once");
    CHECK(law({2, 0, 4, {{7, {1, 0, 0, 1}}, {3, {1, 0, 0, 1}}}, {}}) == "placement_layers_ascend");
    for (std::string_view const notes : {"frequency", "1, \"stats\": 2", "{", "1}", "\"\xFF\""}) {
        std::string const text = refusal_of([notes] { render(expected, {.strategy = notes}); });
        CHECK_MESSAGE(contains(text, ": strategy of the map to be written: byte "), text);
    }
}

TEST_CASE("a file is mapped and named in what it is refused for") {
    scratch_folder const scratch;
    scratch.write("map.json", valid);
    CHECK(tenon::read_placement_file(scratch.path("map.json")) == expected);
    CHECK(tenon::read_placement_file(scratch.path("map.json")).sha256 == tenon::checkpoint::sha256_of(valid));
    scratch.write("map.json", with(R"("ranks": 2)", R"("ranks": 1)"));
    CHECK(refusal_of([&] { tenon::read_placement_file(scratch.path("map.json")); }) ==
          "placement_has_several_ranks: " + scratch.path("map.json") + ": ranks = 1; 2 to 64 would do");
    scratch.write("map.json", "");
    CHECK(law_of([&] { tenon::read_placement_file(scratch.path("map.json")); }) == "json_is_well_formed");
    CHECK(law_of([&] { tenon::read_placement_file(scratch.path("absent")); }) == "file_opens");
    CHECK(law_of([&] { tenon::read_placement_file(""); }) == "file_opens");
}
