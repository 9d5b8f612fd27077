// The plan grammar, and what a plan means for a model.
// SPDX-License-Identifier: Apache-2.0
#include <doctest/doctest.h>
#include <tenon/graph/graph.hpp>
#include <tenon/graph/plan_value.hpp>
#include <tenon/model/llama.hpp>
#include <array>
#include <random>
#include <string>
#include <string_view>
#include <vector>

using namespace tenon;

namespace {
struct six_layers {
    static constexpr auto config = model::llama({.layers = 6, .hidden = 64, .heads = 4, .kv_heads = 2, .ffn = 256, .vocab = 101});
};

/// The plan that a plan becomes once `all`, order and unnamed layers are made explicit.
std::string meaning(std::string_view text) { return dynamic_graph(six_layers::config, plan::parse(text)).plan(); }

violation refusal_of(std::string_view text) {
    try {
        plan::parse(text);
    } catch (graph_error const& e) {
        return e.why();
    }
    return {};
}

struct corner { std::string_view text; law expected = law::none; int character = 0; };

// The corners of the grammar.
constexpr std::array corners{
    corner{"", law::plan_is_not_empty, 0},
    corner{"banana", law::plan_names_layers, 0},
    corner{"al@0", law::plan_names_layers, 0},
    corner{"ALL@0", law::plan_names_layers, 0},
    corner{"@0", law::plan_names_layers, 0},
    corner{"0-@0", law::plan_names_layers, 2},
    corner{"0-x@0", law::plan_names_layers, 2},
    corner{"0@0;all@1", law::plan_names_layers, 4},
    corner{" 0@0", law::plan_names_layers, 0},
    corner{"0 @0", law::plan_names_devices, 1},
    corner{"0@0; 1@0", law::plan_names_layers, 4},
    corner{"0", law::plan_names_devices, 1},
    corner{"all", law::plan_names_devices, 3},
    corner{"all-3@0", law::plan_names_devices, 3},
    corner{"0-1-2@0", law::plan_names_devices, 3},
    corner{"0@", law::plan_names_devices, 2},
    corner{"0@,0", law::plan_names_devices, 2},
    corner{"0@0,,1", law::plan_names_devices, 4},
    corner{"0@0,1,", law::plan_names_devices, 6},
    corner{"0@cpu.", law::plan_names_devices, 6},
    corner{"0@CPU.0", law::plan_names_devices, 2},
    corner{"0@ 0", law::plan_names_devices, 2},
    corner{"-1@0,1", law::plan_number_is_plain, 0},
    corner{"+1@0", law::plan_number_is_plain, 0},
    corner{"0--1@0", law::plan_number_is_plain, 2},
    corner{"0@-1", law::plan_number_is_plain, 2},
    corner{"0@cpu.+1", law::plan_number_is_plain, 6},
    corner{"00@0", law::plan_number_is_plain, 0},
    corner{"0-01@0", law::plan_number_is_plain, 2},
    corner{"0@00", law::plan_number_is_plain, 2},
    corner{"2147483648@0", law::plan_number_fits, 9},
    corner{"0@99999999999999999999999999", law::plan_number_fits, 11},
    corner{"0@cpu", law::plan_kind_is_known, 2},
    corner{"0@cpu0", law::plan_kind_is_known, 2},
    corner{"0@gpu.0", law::plan_kind_is_known, 2},
    corner{"0@0,cpu:none", law::plan_kind_is_known, 4},
    corner{"0@0:", law::plan_rule_is_known, 4},
    corner{"0@0:tensors", law::plan_rule_is_known, 4},
    corner{"0@0: tensor", law::plan_rule_is_known, 4},
    corner{"0@0:tensor ", law::plan_rule_is_known, 4},
    corner{"0@0:Tensor", law::plan_rule_is_known, 4},
    corner{"0@0,1:tensor+", law::plan_rule_is_known, 13},
    corner{"0@0,1:tensor,expert", law::plan_rule_is_known, 6},
    corner{"0@0:none+none", law::plan_rule_is_new, 9},
    corner{"0@0:expert_width+expert_width.reduce", law::plan_rule_is_new, 17},
    corner{"0@0,1:tensor.gather+tensor.reduce", law::plan_rule_is_new, 20},
    corner{"0@0:tensor+none", law::plan_rules_agree, 11},
    corner{"0@0:expert_width+expert", law::plan_rules_agree, 17},
    corner{"0@0:tensor.", law::plan_join_is_known, 11},
    corner{"0@0:tensor.gather.reduce", law::plan_join_is_known, 11},
    corner{"0@0:expert.gather", law::plan_join_is_known, 11},
    corner{"0@0;", law::plan_part_is_not_empty, 4},
    corner{";0@0", law::plan_part_is_not_empty, 0},
    corner{"0@0;;1@0", law::plan_part_is_not_empty, 4},
    corner{"all@0;", law::plan_part_ends, 5},
    corner{"all@0,1;5@0,1", law::plan_part_ends, 7},
    corner{"0@0 ", law::plan_part_ends, 3},
    corner{"0@0\n", law::plan_part_ends, 3},
    corner{"0@0@1", law::plan_part_ends, 3},
    corner{"0@0-1", law::plan_part_ends, 3},
    corner{std::string_view("0@0\0", 4), law::plan_part_ends, 3},
};

/// The same refusal as a constant: the parser is one function.
constexpr violation read_as_constant(std::string_view text) {
    std::array<plan::part, 4> parts{};
    std::array<device_id, 8> devices{};
    return plan::read(text, parts, devices);
}
constexpr bool all_corners_at_compile_time() {
    for (corner const& c : corners) {
        violation const v = read_as_constant(c.text);
        if (v.which != c.expected || v.left != operand{quantity::character, c.character}) return false;
    }
    return true;
}
static_assert(all_corners_at_compile_time());

static_assert(!read_as_constant("0-1@0,1;2-3@2") && !read_as_constant("2147483647@2147483647") && !read_as_constant("all@0"));
static_assert(plan::literal<"0-1@0,1;2-3@2">.parts[1] == plan::part{2, 3, 2, 1, {.by_default = true}});
static_assert(plan::literal<"all@cpu.3:none">.devices[0] == device_id{device_kind::cpu, 3});
static_assert(plan::literal<"all@0,1:tensor.reduce+expert">.parts[0].cuts == rules{.tensor = true, .expert = true, .tensor_join = join_kind::reduce});
}  // namespace

TEST_CASE("every corner of the grammar is refused by name, at its character, at run time as at compile time") {
    for (corner const& c : corners) {
        CAPTURE(c.text);
        violation const v = refusal_of(c.text);
        CHECK(name_of(v.which) == name_of(c.expected));
        CHECK(v.left == operand{quantity::character, c.character});
    }
}

TEST_CASE("a range backwards and a device twice are refused while reading, whatever the kinds are called") {
    CHECK(refusal_of("3-1@0,1") == violation{law::layers_run_forward, 0, {quantity::first_layer, 3}, {quantity::last_layer, 1}, {}});
    CHECK(refusal_of("0@0,0") == violation{law::devices_are_distinct, 0, {quantity::devices, 2}, {quantity::device, 0}, {}});
    CHECK(refusal_of("0@0,cpu.0") == violation{law::devices_are_distinct, 0, {quantity::devices, 2}, {quantity::device, 0}, {}});
    CHECK_FALSE(refusal_of("0@0,1;1@0,1"));
}

TEST_CASE("a layer named twice or outside the model is refused when the plan meets the model") {
    auto const why = [](std::string_view text) {
        try {
            meaning(text);
        } catch (graph_error const& e) {
            return e.why();
        }
        return violation{};
    };
    CHECK(why("0@0,1;0@0,1") == violation{law::plan_layer_is_named_once, 1, {quantity::next_layer, 1}, {quantity::first_layer, 0}, {}});
    CHECK(why("0-200@0,1") == violation{law::layers_within_model, 0, {quantity::layers, 6}, {quantity::last_layer, 200}, only(5)});
    CHECK(why("3-5@0;0-3@1") == violation{law::plan_layer_is_named_once, 0, {quantity::next_layer, 4}, {quantity::first_layer, 3}, {}});
    CHECK(why("0-4@0;5@cpu.1,eigen.2") == violation{law::plan_kinds_agree, 1, {quantity::kind, 1}, {quantity::kind, 3}, {}});
}

TEST_CASE("`all` on one device is the unsharded plan, and ranges may come in any order") {
    CHECK(meaning("all@0") == "0-5@0");
    CHECK(meaning("all@3,1") == "0-5@3,1");
    CHECK(meaning("4-5@2;0@0;1-3@1") == "0@0;1-3@1;4-5@2");
    CHECK(meaning("0-5@cpu.7") == "0-5@7");
    CHECK(meaning("0-5@0,1:tensor.gather") == "0-5@0,1:tensor");
    CHECK(meaning("0-5@0,1:tensor.reduce") == "0-5@0,1:tensor.reduce");
}

TEST_CASE("a layer that no range names stays whole on the first device, where every range begins with it") {
    CHECK(meaning("0-2@0,1;4@0,1") == "0-2@0,1;3@0;4@0,1;5@0");
    CHECK(meaning("4@0,1;1@0") == "0@0;1@0;2-3@0;4@0,1;5@0");
    CHECK(meaning("2@5") == "0-1@5;2@5;3-5@5");
    for (std::string_view const text : {"0-2@0,1;4@1,0", "0@0;2-5@1", "1-2@1;4@0"})
        CHECK_THROWS_WITH_AS(meaning(text), doctest::Contains("plan_layers_are_all_named"), graph_error);
}

TEST_CASE("the constant of a planned graph and the value made at run time mean the same") {
    struct partial : planned<six_layers, "0-2@0,1;4@0,1"> {};
    CHECK(partial::plan() == "0-2@0,1;3@0;4@0,1;5@0");
    CHECK(plan::same(plan::literal<"0-2@0,1;4@0,1">, plan::parse("0-2@0,1;4@0,1")));
    CHECK_FALSE(plan::same(plan::literal<"0-2@0,1;4@0,1">, plan::parse("0-2@0,1;4@0,2")));
    dynamic_graph const g(six_layers::config, plan::parse("0-2@0,1;4@0,1"));
    CHECK(g.ir().nodes.size() == partial::ir().nodes.size());
    for (int r = 0; r < 6; ++r) CHECK(g.cost(weights::bf16).weight_bytes(rank_index{r}) == partial::cost(weights::bf16).weight_bytes(rank_index{r}));
}

TEST_CASE("a printed plan reads back as the same stages, for many random plans") {
    std::mt19937 random(20240607);
    auto const below = [&random](int n) { return static_cast<int>(random() % static_cast<unsigned>(n)); };
    for (int round = 0; round < 2000; ++round) {
        std::vector<std::string> parts;
        for (int first = 0; first < 6;) {
            int const last = first + below(6 - first);
            std::string text = std::to_string(first);
            if (last != first || below(2) == 0) text += "-" + std::to_string(last);
            int const ranks = std::array{1, 1, 2, 4}[static_cast<std::size_t>(below(4))], device = below(1000);
            for (int r = 0; r < ranks; ++r) text += (r == 0 ? "@" : ",") + std::string(below(2) == 0 ? "cpu." : "") + std::to_string(device + r);
            if (ranks > 1) text += std::array{"", ":tensor", ":tensor.gather", ":tensor.reduce"}[static_cast<std::size_t>(below(4))];
            else if (below(4) == 0) text += ":none";
            parts.insert(parts.begin() + below(static_cast<int>(parts.size()) + 1), text);
            first = last + 1;
        }
        std::string text;
        for (std::string const& p : parts) text += (text.empty() ? "" : ";") + p;
        CAPTURE(text);
        std::string const printed = meaning(text);
        REQUIRE(meaning(printed) == printed);
        dynamic_graph const a(six_layers::config, plan::parse(text)), b(six_layers::config, plan::parse(printed));
        REQUIRE(a.view().stages.size() == parts.size());
        for (std::size_t i = 0; i < parts.size(); ++i) {
            stage_traits const& s = a.view().stages[i];
            stage_traits const& t = b.view().stages[i];
            REQUIRE(s.first_layer == t.first_layer);
            REQUIRE(s.last_layer == t.last_layer);
            REQUIRE(effective(s.cuts, s.ranks()) == effective(t.cuts, t.ranks()));
            REQUIRE(std::vector(s.devices.begin(), s.devices.end()) == std::vector(t.devices.begin(), t.devices.end()));
        }
    }
}

TEST_CASE("an owner list is one stage for every run of one device, and a device may come again") {
    auto const of = [](std::initializer_list<int> list) { return dynamic_graph(six_layers::config, plan::owners(list)).plan(); };
    CHECK(of({0, 0, 0, 0, 0, 0}) == "0-5@0");
    CHECK(of({0, 0, 1, 1, 0, 0}) == "0-1@0;2-3@1;4-5@0");
    CHECK(of({3, 1, 3, 1, 3, 1}) == "0@3;1@1;2@3;3@1;4@3;5@1");
}

TEST_CASE("an owner list of another length than the model is refused, even where gaps could be filled") {
    for (auto const& list : {std::vector<int>{0}, std::vector<int>(5, 0), std::vector<int>(7, 0), std::vector<int>{0, 1, 0}})
        CHECK_THROWS_WITH_AS(dynamic_graph(six_layers::config, plan::owners(list)), doctest::Contains("owners_name_every_layer"), graph_error);
    CHECK_THROWS_WITH_AS(plan::owners({}), doctest::Contains("owners_name_every_layer"), graph_error);
    CHECK_THROWS_WITH_AS(plan::owners({0, -1}), doctest::Contains("device_index_is_positive"), graph_error);
}

TEST_CASE("a pipeline has one device a stage, cut evenly or where the caller says") {
    auto const of = [](plan::value const& p) { return dynamic_graph(six_layers::config, p).plan(); };
    CHECK(of(plan::pipeline(2, 6)) == "0-2@0;3-5@1");
    CHECK(of(plan::pipeline(4, 6)) == "0@0;1-2@1;3@2;4-5@3");
    CHECK(of(plan::pipeline(6, 6)) == "0@0;1@1;2@2;3@3;4@4;5@5");
    CHECK(of(plan::pipeline({1}, 6)) == "0@0;1-5@1");
    CHECK(of(plan::pipeline({1, 5}, 6)) == "0@0;1-4@1;5@2");
    for (int stages : {-1, 0, 1, 7}) CHECK_THROWS_WITH_AS(plan::pipeline(stages, 6), doctest::Contains("pipeline_stages_fit"), graph_error);
    for (auto const& cuts : {std::vector{0}, std::vector{6}, std::vector{3, 3}, std::vector{4, 2}, std::vector{-1}, std::vector{2, 7}})
        CHECK_THROWS_WITH_AS(plan::pipeline(cuts, 6), doctest::Contains("pipeline_cuts_increase"), graph_error);
    CHECK_THROWS_WITH_AS(plan::pipeline(std::vector<int>{}, 6), doctest::Contains("pipeline_stages_fit"), graph_error);
}

TEST_CASE("30 layers in 4 stages own every layer exactly once") {
    plan::value const p = plan::pipeline(4, 30);
    int next = 0;
    for (plan::part const& q : p.parts) {
        CHECK(q.first_layer == next);
        next = q.last_layer + 1;
    }
    CHECK(next == 30);
}

namespace {
struct four_layers {
    static constexpr auto config = tenon::model::llama({.layers = 4, .hidden = 64, .heads = 4, .ffn = 64, .vocab = 32});
};
struct by_owners : tenon::owned<four_layers, 0, 1, 1, 0> {};
struct evenly : tenon::pipelined<four_layers, 3> {};
struct where_told : tenon::pipelined_at<four_layers, 1, 3> {};
static_assert(by_owners::plan() == "0@0;1-2@1;3@0" && evenly::plan() == "0@0;1@1;2-3@2" && where_told::plan() == "0@0;1-2@1;3@2");
}  // namespace

TEST_CASE("the builders give a type and a value the same plan") {
    auto const spelled = [](tenon::plan::view p) { return tenon::dynamic_graph(four_layers::config, p).plan(); };
    CHECK(spelled(tenon::plan::owners({0, 1, 1, 0})) == by_owners::plan());
    CHECK(spelled(tenon::plan::pipeline(3, 4)) == evenly::plan());
    CHECK(spelled(tenon::plan::pipeline({1, 3}, 4)) == where_told::plan());
}
