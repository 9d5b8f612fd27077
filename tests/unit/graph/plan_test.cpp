// The plan grammar, and what a plan means for a model.
// SPDX-License-Identifier: Apache-2.0
#include <doctest/doctest.h>
#include <tenon/graph/graph.hpp>
#include <tenon/graph/plan_value.hpp>
#include <tenon/model/kinds.hpp>
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

/// The same, with eight experts in layers 2, 3 and 5.
struct six_routed {
    static constexpr auto config = model::with_experts(six_layers::config, {.count = 8, .chosen = 2, .width = 256}, {2, 3, 5});
};

/// The plan that a plan becomes once `all`, order and unnamed layers are made explicit.
std::string meaning(std::string_view text, model_config const& config = six_layers::config) { return dynamic_graph(config, plan::parse(text)).plan(); }

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
    corner{"0@0:expert.", law::plan_join_is_known, 11},
    corner{"0@0:expert.even", law::plan_join_is_known, 11},
    corner{"0@0:expert.exact.exact", law::plan_join_is_known, 11},
    corner{"0@0:tensor.exact", law::plan_join_is_known, 11},
    corner{"0@0:none.exact", law::plan_join_is_known, 9},
    corner{"0@0:expert_width.exact", law::plan_join_is_known, 17},
    corner{"0@0:experts", law::plan_rule_is_known, 4},
    corner{"0@0:expert.exact+expert", law::plan_rule_is_new, 17},
    corner{"0@0:expert.exact+expert_width", law::plan_rules_agree, 17},
    corner{"0@0:expert+tensor+none", law::plan_rules_agree, 18},
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
static_assert(plan::literal<"all@0,1:expert">.parts[0].cuts == rules{.expert = true});
static_assert(plan::literal<"all@0,1:expert.exact">.parts[0].cuts == rules{.expert = true, .exact = true});
static_assert(plan::literal<"all@0,1:expert_width">.parts[0].cuts == plan::literal<"all@0,1:expert_width.gather">.parts[0].cuts);
static_assert(plan::literal<"all@0,1:expert_width.reduce+tensor">.parts[0].cuts == rules{.tensor = true, .expert_width = true, .width_join = join_kind::reduce});
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

namespace {
struct routed_by_default : graph<six_routed, stage<layers<0, 1>, device::cpu<0, 1>>, stage<layers<2, 5>, device::cpu<0, 1>>> {};
struct routed_by_words : graph<six_routed, stage<layers<0, 1>, device::cpu<0, 1>, shard::tensor<>>,
                               stage<layers<2, 5>, device::cpu<0, 1>, shard::both<shard::tensor<>, shard::expert<>>>> {};
struct routed_from_text : planned<six_routed, "0-1@0,1;2-5@0,1"> {};
struct routed_on_one : graph<six_routed, stage<layers<0, 5>>> {};

constexpr rules rules_of(graph_view g, std::size_t stage) { return effective(*g.config, g.stages[stage], g.stages[stage].ranks()); }
static_assert(rules_of(routed_by_default::view(), 0) == rules{.tensor = true});
static_assert(rules_of(routed_by_default::view(), 1) == rules{.tensor = true, .expert = true});
static_assert(rules_of(routed_from_text::view(), 0) == rules{.tensor = true});
static_assert(rules_of(routed_from_text::view(), 1) == rules{.tensor = true, .expert = true});
static_assert(rules_of(routed_on_one::view(), 0) == rules{});
static_assert(routed_by_default::plan() == "0-1@0,1;2-5@0,1" && routed_by_words::plan() == "0-1@0,1:tensor;2-5@0,1:tensor+expert");

/// A stage says `expert` however its experts are placed: a table, or the map that is awaited, travels beside the plan.
template <class Placement>
struct placed : graph<six_routed, stage<layers<0, 1>>, stage<layers<2, 5>, device::cpu<0, 1>, shard::expert<Placement>>> {};
static_assert(placed<placement::even>::plan() == "0-1@0;2-5@0,1:expert" && placed<placement::exact>::plan() == "0-1@0;2-5@0,1:expert.exact");
static_assert(placed<placement::at_load>::plan() == "0-1@0;2-5@0,1:expert");
static_assert(placed<placement::table<0, 0, 0, 1, 1, 0, 0, 0>>::plan() == "0-1@0;2-5@0,1:expert");

/// Every member of a graph's IR, for comparing two.
bool lowered_alike(graph_view a, graph_view b) {
    if (a.ir.nodes.size() != b.ir.nodes.size() || a.ir.tensors.size() != b.ir.tensors.size()) return false;
    for (std::size_t i = 0; i < a.ir.nodes.size(); ++i)
        if (a.ir.nodes[i].what != b.ir.nodes[i].what || a.ir.nodes[i].elements != b.ir.nodes[i].elements) return false;
    for (std::size_t i = 0; i < a.ir.tensors.size(); ++i)
        if (a.ir.tensors[i].what != b.ir.tensors[i].what || a.ir.tensors[i].split != b.ir.tensors[i].split) return false;
    return true;
}
}  // namespace

TEST_CASE("several ranks and no rule mean `tensor`, and `expert` where experts are routed, in a graph type and in a plan") {
    CHECK(lowered_alike(routed_by_default::view(), routed_by_words::view()));
    CHECK(lowered_alike(routed_by_default::view(), routed_from_text::view()));
    dynamic_graph const plain(six_routed::config, plan::parse("0-1@0,1;2-5@0,1")), spelled(six_routed::config, plan::parse("0-1@0,1:tensor;2-5@0,1:expert+tensor"));
    CHECK(lowered_alike(routed_by_default::view(), plain.view()));
    CHECK(lowered_alike(routed_by_default::view(), spelled.view()));
    CHECK(plain.plan() == routed_by_default::plan());
    CHECK(spelled.plan() == routed_by_words::plan());
    dynamic_graph const tensor_alone(six_routed::config, plan::parse("0-1@0,1:tensor;2-5@0,1:tensor"));
    CHECK_FALSE(lowered_alike(routed_by_default::view(), tensor_alone.view()));
}

TEST_CASE("rules for experts are printed in one order, with what is not plain") {
    auto const routed = [](std::string_view text) { return meaning(text, six_routed::config); };
    CHECK(routed("all@0,1") == "0-5@0,1");
    CHECK(routed("all@0,1:expert") == "0-5@0,1:expert");
    CHECK(routed("all@0,1:expert.exact+tensor.reduce") == "0-5@0,1:tensor.reduce+expert.exact");
    CHECK(routed("all@0,1:expert_width.gather") == "0-5@0,1:expert_width");
    CHECK(routed("all@0,1:expert_width.reduce+tensor.gather") == "0-5@0,1:tensor+expert_width.reduce");
    CHECK(routed("2-3@0,1:expert") == "0-1@0;2-3@0,1:expert;4-5@0");
}

namespace {
/// A plan that covers six layers in pieces of random length on random groups, each with one of `choices` where it has several ranks.
template <class Random, std::size_t N>
std::vector<std::string> random_parts(Random below, std::array<std::string_view, N> const& choices, model_config const& config) {
    std::vector<std::string> parts;
    for (int first = 0; first < 6;) {
        int const last = first + below(6 - first);
        std::string text = std::to_string(first);
        if (last != first || below(2) == 0) text += "-" + std::to_string(last);
        int const ranks = std::array{1, 1, 2, 4}[static_cast<std::size_t>(below(4))], device = below(1000);
        for (int r = 0; r < ranks; ++r) text += (r == 0 ? "@" : ",") + std::string(below(2) == 0 ? "cpu." : "") + std::to_string(device + r);
        std::string_view rule = choices[static_cast<std::size_t>(below(static_cast<int>(N)))];
        if (rule.find("expert") != std::string_view::npos && !routes_experts(config, {.first_layer = first, .last_layer = last})) rule = "";
        if (ranks > 1) text += rule;
        else if (below(4) == 0) text += ":none";
        parts.insert(parts.begin() + below(static_cast<int>(parts.size()) + 1), text);
        first = last + 1;
    }
    return parts;
}

constexpr std::array<std::string_view, 4> dense_choices{"", ":tensor", ":tensor.gather", ":tensor.reduce"};
constexpr std::array<std::string_view, 9> routed_choices{"",
                                                         ":tensor.reduce",
                                                         ":expert",
                                                         ":expert.exact",
                                                         ":expert_width.gather",
                                                         ":expert_width.reduce",
                                                         ":expert+tensor.gather",
                                                         ":tensor.reduce+expert.exact",
                                                         ":expert_width.reduce+tensor.reduce"};

template <std::size_t N>
void printed_reads_back(model_config const& config, std::array<std::string_view, N> const& choices, unsigned seed) {
    std::mt19937 random(seed);
    auto const below = [&random](int n) { return static_cast<int>(random() % static_cast<unsigned>(n)); };
    for (int round = 0; round < 2000; ++round) {
        std::vector<std::string> const parts = random_parts(below, choices, config);
        std::string text;
        for (std::string const& p : parts) text += (text.empty() ? "" : ";") + p;
        CAPTURE(text);
        std::string const printed = meaning(text, config);
        REQUIRE(meaning(printed, config) == printed);
        dynamic_graph const a(config, plan::parse(text)), b(config, plan::parse(printed));
        REQUIRE(a.view().stages.size() == parts.size());
        for (std::size_t i = 0; i < parts.size(); ++i) {
            stage_traits const& s = a.view().stages[i];
            stage_traits const& t = b.view().stages[i];
            REQUIRE(s.first_layer == t.first_layer);
            REQUIRE(s.last_layer == t.last_layer);
            REQUIRE(rules_of(a.view(), i) == rules_of(b.view(), i));
            REQUIRE(std::vector(s.devices.begin(), s.devices.end()) == std::vector(t.devices.begin(), t.devices.end()));
        }
    }
}
}  // namespace

TEST_CASE("a printed plan reads back as the same stages, for many random plans of dense and of routed layers") {
    printed_reads_back(six_layers::config, dense_choices, 20240607);
    printed_reads_back(six_routed::config, routed_choices, 20240608);
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
