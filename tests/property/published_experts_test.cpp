// The experts of eight published models under a table of plans, with the verdict of every plan worked out by hand from the published
// numbers. A plan is read once while this compiles and once while it runs; both moments give that verdict and the same violation.
// SPDX-License-Identifier: Apache-2.0
#include <doctest/doctest.h>
#include <array>
#include <cstddef>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <tenon/checkpoint/config_json.hpp>
#include <tenon/graph/graph.hpp>
#include <tenon/graph/plan_value.hpp>
#include <tenon/model/kinds.hpp>
#include <tenon/model/llama.hpp>
#include <tenon/model/mixtral.hpp>
#include <tenon/model/qwen3_moe.hpp>
#include <utility>

using namespace tenon;

namespace {

constexpr std::array rank_counts{1, 2, 3, 4, 8, 16, 32, 64};
constexpr std::array<std::string_view, 8> rule_names{"",
                                                     "expert",
                                                     "expert.exact",
                                                     "expert_width",
                                                     "expert_width.reduce",
                                                     "tensor+expert",
                                                     "tensor+expert_width.gather",
                                                     "tensor.reduce+expert"};

/// A letter a rank count of `rank_counts`, a line a rule of `rule_names` on `all`; then a letter for each of the `pipelines` below.
///
///   .  lawful     h  heads_divide_over_ranks        w  every_rank_has_work         c  rule_cuts_something
///                 k  kv_heads_divide_or_repeat      x  experts_divide_over_ranks   s  reduce_divides_segments
///
/// The segments of a width are the largest power of two up to 8 that divides width / 32. Laws are met in the order h, k, w, s of `tensor`,
/// a dense kind of layer first, then those of the experts.
struct verdicts {
    std::array<std::string_view, 8> by_rule{};
    std::string_view pipelines{};
};

/// A model without a certified adapter: its experts, shared expert and dense first layers, on a plain attention of as many heads.
constexpr model_config on_plain_attention(model::llama_shape const& shape, routed_experts const& experts, int dense_layers) {
    return model::with_experts(model::llama(shape), experts, [dense_layers](int layer) { return layer >= dense_layers; });
}

struct mixtral_8x7b {
    static constexpr std::string_view file = "Mixtral-8x7B";
    static constexpr auto config = model::mixtral({.layers = 32,
                                                   .hidden = 4096,
                                                   .heads = 32,
                                                   .kv_heads = 8,
                                                   .experts = 8,
                                                   .experts_per_token = 2,
                                                   .expert_width = 14336,
                                                   .vocab = 32000,
                                                   .max_positions = 32768});
    // 8 experts; 32 heads (8 segments) over 8 KV heads; 14336 = 32 x 448, 8 segments.
    static constexpr verdicts expected{{"..h..wwh",   // tensor+expert
                                        ".....www",   // 8 experts
                                        "..x..www",   // 8 = 3 x 2 + 2
                                        "........",   // 14336 and 4096
                                        "..s..sss",   // 8 segments
                                        "..h..wwh",   // 16 and 32 divide or repeat all heads, and are more than 8 experts
                                        "..h....h",   // heads alone
                                        "..h..ssh"},  // 8 segments of heads; no dense width
                                       "..."};
};

struct qwen3_30b_a3b {
    static constexpr std::string_view file = "Qwen3-30B-A3B";
    static constexpr auto config = model::qwen3_moe({.layers = 48,
                                                     .hidden = 2048,
                                                     .heads = 32,
                                                     .kv_heads = 4,
                                                     .head_dim = 128,
                                                     .ffn = 6144,
                                                     .experts = 128,
                                                     .experts_per_token = 8,
                                                     .expert_width = 768,
                                                     .normalised = true,
                                                     .vocab = 151936,
                                                     .max_positions = 40960,
                                                     .rope_theta = 1e6});
    // 128 experts; 32 heads over 4 KV heads; 768 = 32 x 24, 8 segments.
    static constexpr verdicts expected{{"..h....h", "........", "..x.....", "........", "..s..sss", "..h....h", "..h....h", "..h..ssh"},
                                       "..."};
};

struct deepseek_v3 {
    static constexpr std::string_view file = "DeepSeek-V3";
    static constexpr int dense_layers = 3;
    static constexpr auto config =
        on_plain_attention({.layers = 61, .hidden = 7168, .heads = 128, .kv_heads = 128, .head_dim = 128, .ffn = 18432, .vocab = 129280},
                           {.count = 256,
                            .chosen = 8,
                            .width = 2048,
                            .shared_width = 2048,
                            .scoring = expert_scoring::sigmoid,
                            .correction = true,
                            .groups = 8,
                            .chosen_groups = 4,
                            .normalised = true,
                            .sum_epsilon = 1e-20,
                            .scale = 2.5},
                           dense_layers);
    // 256 experts; 128 heads; 18432 = 32 x 576 and 2048 = 32 x 64, 8 segments each.
    static constexpr verdicts expected{{"..h.....", "........", "..x.....", "........", "..s..sss", "..h.....", "..h.....", "..h..sss"},
                                       ".c."};
};

struct deepseek_v2_lite {
    static constexpr std::string_view file = "DeepSeek-V2-Lite";
    static constexpr int dense_layers = 1;
    static constexpr auto config =
        on_plain_attention({.layers = 27, .hidden = 2048, .heads = 16, .kv_heads = 16, .head_dim = 128, .ffn = 10944, .vocab = 102400},
                           {.count = 64, .chosen = 6, .width = 1408, .shared_width = 2816}, dense_layers);
    // 64 experts; 16 heads; 10944 = 32 x 342, 2 segments; 1408 = 32 x 44, 4; 2816 = 32 x 88, 8.
    static constexpr verdicts expected{{"..h...hh", "........", "..x.....", "........", "..s.ssss", "..h...hh", "..h...hh", "..hssshh"},
                                       ".cs"};
};

struct kimi_k2 {
    static constexpr std::string_view file = "Kimi-K2";
    static constexpr int dense_layers = 1;
    static constexpr auto config =
        on_plain_attention({.layers = 61, .hidden = 7168, .heads = 64, .kv_heads = 64, .head_dim = 128, .ffn = 18432, .vocab = 163840},
                           {.count = 384,
                            .chosen = 8,
                            .width = 2048,
                            .shared_width = 2048,
                            .scoring = expert_scoring::sigmoid,
                            .correction = true,
                            .normalised = true,
                            .sum_epsilon = 1e-20,
                            .scale = 2.827},
                           dense_layers);
    // 384 = 3 x 128 experts; 64 heads; 8 segments everywhere.
    static constexpr verdicts expected{{"..h.....", "........", "........", "........", "..s..sss", "..h.....", "..h.....", "..h..sss"},
                                       ".c."};
};

struct glm_4_5 {
    static constexpr std::string_view file = "GLM-4.5";
    static constexpr int dense_layers = 3;
    static constexpr auto config =
        on_plain_attention({.layers = 92, .hidden = 5120, .heads = 96, .kv_heads = 8, .head_dim = 128, .ffn = 12288, .vocab = 151552},
                           {.count = 160,
                            .chosen = 8,
                            .width = 1536,
                            .shared_width = 1536,
                            .scoring = expert_scoring::sigmoid,
                            .correction = true,
                            .normalised = true,
                            .sum_epsilon = 1e-20,
                            .scale = 2.5},
                           dense_layers);
    // 160 = 5 x 32 experts; 96 = 3 x 32 heads over 8 KV heads; 12288 = 32 x 384 and 1536 = 32 x 48, 8 segments each.
    static constexpr verdicts expected{{"..k....h", "........", "..x....x", "........", "..s..sss", "..k....h", "..k....h", "..k..ssh"},
                                       ".c."};
};

struct gpt_oss_20b {
    static constexpr std::string_view file = "gpt-oss-20b";
    static constexpr int dense_layers = 0;
    static constexpr auto config =
        on_plain_attention({.layers = 24, .hidden = 2880, .heads = 64, .kv_heads = 8, .head_dim = 64, .vocab = 201088},
                           {.count = 32, .chosen = 4, .width = 2880, .normalised = true}, dense_layers);
    // 32 experts; 64 heads over 8 KV heads; 2880 = 32 x 90, 2 segments.
    static constexpr verdicts expected{{"..h....w", ".......w", "..x....w", "........", "..ssssss", "..h....w", "..h.....", "..h..sss"},
                                       "..s"};
};

struct kimi_linear_48b {
    static constexpr std::string_view file = "Kimi-Linear-48B-A3B";
    static constexpr int dense_layers = 1;
    static constexpr auto config =
        on_plain_attention({.layers = 27, .hidden = 2304, .heads = 32, .kv_heads = 32, .head_dim = 128, .ffn = 9216, .vocab = 163840},
                           {.count = 256,
                            .chosen = 8,
                            .width = 1024,
                            .shared_width = 1024,
                            .scoring = expert_scoring::sigmoid,
                            .correction = true,
                            .normalised = true,
                            .sum_epsilon = 1e-20,
                            .scale = 2.446},
                           dense_layers);
    // 256 experts; 32 heads; 9216 = 32 x 288 and 1024 = 32 x 32, 8 segments each.
    static constexpr verdicts expected{{"..h....h", "........", "..x.....", "........", "..s..sss", "..h....h", "..h....h", "..h..ssh"},
                                       ".c."};
};

constexpr char letter_of(violation const& v) {
    switch (v.which) {
        case law::none: return '.';
        case law::heads_divide_over_ranks: return 'h';
        case law::kv_heads_divide_or_repeat: return 'k';
        case law::every_rank_has_work: return 'w';
        case law::experts_divide_over_ranks: return 'x';
        case law::reduce_divides_segments: return 's';
        case law::rule_cuts_something: return 'c';
        default: return '?';
    }
}

/// Layers up to and without `end` on devices 0, 1, ... as many as `ranks`.
struct piece {
    int end = 0, ranks = 1;
    std::string_view rule{};
};

/// The first layer whole and the rest by experts; the first layer by experts, too, which is dense in five models; halves by two rules.
constexpr std::array<std::array<piece, 2>, 3> pipelines(int layers) {
    return {{{{{1, 1, "none"}, {layers, 8, "expert"}}},
             {{{1, 2, "expert"}, {layers, 2, "expert"}}},
             {{{layers / 2, 8, "tensor+expert"}, {layers, 8, "expert_width.reduce"}}}}};
}

/// The text of a plan, in a constant expression and of any length up to 512.
struct plan_text {
    std::array<char, 512> text{};
    std::size_t used = 0;

    constexpr plan_text& operator<<(std::string_view s) {
        for (char const c : s) text[used++] = c;
        return *this;
    }
    constexpr plan_text& operator<<(int value) {
        if (value > 9) *this << value / 10;
        text[used++] = static_cast<char>('0' + value % 10);
        return *this;
    }
    constexpr plan_text& on(int ranks, std::string_view rule) {
        for (int r = 0; r < ranks; ++r) *this << (r == 0 ? "@" : ",") << r;
        return rule.empty() ? *this : *this << ":" << rule;
    }
};
constexpr plan_text text_of(std::size_t rule, std::size_t count) {
    plan_text t;
    return (t << "all").on(rank_counts[count], rule_names[rule]);
}
constexpr plan_text text_of(std::array<piece, 2> const& p) {
    plan_text t;
    (t << 0 << "-" << p[0].end - 1).on(p[0].ranks, p[0].rule);
    return (t << ";" << p[0].end << "-" << p[1].end - 1).on(p[1].ranks, p[1].rule);
}

/// The same as a template argument, as if it had been written there.
template <std::size_t N>
constexpr plan::spelled<N + 1> spelled(plan_text const& t) {
    char text[N + 1]{};
    for (std::size_t i = 0; i < N; ++i) text[i] = t.text[i];
    return text;
}
template <std::size_t Rule, std::size_t Count>
constexpr auto const& flat_literal = plan::literal<spelled<text_of(Rule, Count).used>(text_of(Rule, Count))>;
template <int Layers, std::size_t Pipeline>
constexpr auto const& piped_literal =
    plan::literal<spelled<text_of(pipelines(Layers)[Pipeline]).used>(text_of(pipelines(Layers)[Pipeline]))>;

/// What a graph type says of a plan while it compiles.
constexpr violation verdict_of(model_config const& c, plan::view p) {
    std::array<device_id, 64> devices{};
    std::array<stage_traits, 8> stages{};
    std::array<int, 4> scratch{};
    std::size_t count = 0;
    std::span<device_id> const settled = std::span(devices).first(p.devices.size());
    if (violation const v = plan::settle_devices(p, device_kind::cpu, settled)) return v;
    if (violation const v = plan::resolve(p, settled, device::backends<device::cpu>::available, c.layers, scratch, stages, count)) return v;
    return validate(c, std::span(stages).first(count));
}
template <class Model, std::size_t Rule, std::size_t Count>
constexpr violation flat_verdict = verdict_of(Model::config, flat_literal<Rule, Count>);
template <class Model, std::size_t Pipeline>
constexpr violation piped_verdict = verdict_of(Model::config, piped_literal<Model::config.layers, Pipeline>);

template <std::size_t Rule, class Model, std::size_t... Count>
constexpr bool rule_as_expected(std::index_sequence<Count...>) {
    return ((letter_of(flat_verdict<Model, Rule, Count>) == Model::expected.by_rule[Rule][Count]) && ...);
}
template <class Model, std::size_t... Rule>
constexpr bool rules_as_expected(std::index_sequence<Rule...>) {
    return (rule_as_expected<Rule, Model>(std::make_index_sequence<rank_counts.size()>{}) && ...);
}
template <class Model, std::size_t... Pipeline>
constexpr bool pipelines_as_expected(std::index_sequence<Pipeline...>) {
    return ((letter_of(piped_verdict<Model, Pipeline>) == Model::expected.pipelines[Pipeline]) && ...);
}
template <class Model>
constexpr bool as_expected() {
    static_assert(rules_as_expected<Model>(std::make_index_sequence<rule_names.size()>{}));
    static_assert(pipelines_as_expected<Model>(std::make_index_sequence<3>{}));
    return true;
}

template <class... Models>
struct model_list {
    static_assert((as_expected<Models>() && ...));
    template <class Visit>
    static void each(Visit visit) {
        (visit.template operator()<Models>(), ...);
    }
};
using published_models =
    model_list<mixtral_8x7b, qwen3_30b_a3b, deepseek_v3, deepseek_v2_lite, kimi_k2, glm_4_5, gpt_oss_20b, kimi_linear_48b>;

nlohmann::json published(std::string_view file) {
    return nlohmann::json::parse(std::ifstream(std::string(TENON_TEST_DATA) + "/configs/" + std::string(file) + ".json"));
}

/// What a plan that arrives as text is refused with; nothing where it is not.
violation refusal_of(model_config const& c, std::string_view text) {
    try {
        dynamic_graph const g(c, plan::parse(text));
    } catch (graph_error const& e) { return e.why(); }
    return {};
}

struct tally {
    int lawful = 0, refused = 0;
};
void check(tally& seen, model_config const& c, plan_text const& text, plan::view literal, violation const& while_compiling, char expected) {
    std::string const spelled(text.text.data(), text.used);
    CAPTURE(spelled);
    CHECK(plan::same(literal, plan::parse(spelled)));
    violation const now = refusal_of(c, spelled);
    CHECK(now == while_compiling);
    CHECK(letter_of(now) == expected);
    ++(now ? seen.refused : seen.lawful);
}

template <class Model, std::size_t Rule, std::size_t... Count>
void check_rule(tally& seen, std::index_sequence<Count...>) {
    (check(seen, Model::config, text_of(Rule, Count), flat_literal<Rule, Count>, flat_verdict<Model, Rule, Count>,
           Model::expected.by_rule[Rule][Count]),
     ...);
}
template <class Model, std::size_t... Rule>
void check_rules(tally& seen, std::index_sequence<Rule...>) {
    (check_rule<Model, Rule>(seen, std::make_index_sequence<rank_counts.size()>{}), ...);
}
template <class Model, std::size_t... Pipeline>
void check_pipelines(tally& seen, std::index_sequence<Pipeline...>) {
    (check(seen, Model::config, text_of(pipelines(Model::config.layers)[Pipeline]), piped_literal<Model::config.layers, Pipeline>,
           piped_verdict<Model, Pipeline>, Model::expected.pipelines[Pipeline]),
     ...);
}

}  // namespace

TEST_CASE("The experts of a published model under any plan of a table are refused or not, as worked out by hand, at either time") {
    tally seen;
    published_models::each([&]<class Model>() {
        CAPTURE(Model::file);
        check_rules<Model>(seen, std::make_index_sequence<rule_names.size()>{});
        check_pipelines<Model>(seen, std::make_index_sequence<3>{});
    });
    CHECK(seen.lawful + seen.refused == 8 * (8 * 8 + 3));
    CHECK(seen.refused == 140);
}

TEST_CASE("Both certified models are described as their config.json is read") {
    for (auto const& [file, config] : {std::pair{mixtral_8x7b::file, mixtral_8x7b::config}, {qwen3_30b_a3b::file, qwen3_30b_a3b::config}})
        CHECK(checkpoint::read_config(published(file).dump(), file) == config);
}

TEST_CASE("The numbers of the other models are those of their config.json") {
    published_models::each([]<class Model>() {
        CAPTURE(Model::file);
        nlohmann::json const json = published(Model::file);
        auto const first_of = [&json](std::initializer_list<char const*> names) {
            for (char const* const name : names)
                if (json.contains(name)) return json.at(name).template get<int>();
            return 0;
        };
        model_config const& c = Model::config;
        block_kind const& last = c.layer(c.layers - 1);
        CHECK(c.layers == json.at("num_hidden_layers"));
        CHECK(c.hidden == json.at("hidden_size"));
        CHECK(c.vocab == json.at("vocab_size"));
        CHECK(last.attention.heads == json.at("num_attention_heads"));
        CHECK(last.attention.kv_heads == json.at("num_key_value_heads"));
        CHECK(last.experts.count == first_of({"n_routed_experts", "num_local_experts", "num_experts"}));
        CHECK(last.experts.chosen == first_of({"num_experts_per_tok", "num_experts_per_token"}));
        CHECK(last.experts.width == first_of({"moe_intermediate_size", "intermediate_size"}));
        CHECK(last.experts.shared_width == last.experts.width * first_of({"n_shared_experts", "num_shared_experts"}));
        int const groups = first_of({"n_group", "num_expert_group"});
        CHECK(last.experts.groups == (groups == 0 ? 1 : groups));
        if (groups > 0) CHECK(last.experts.chosen_groups == json.at("topk_group"));
        if (last.experts.scale != 1.0) CHECK(last.experts.scale == json.at("routed_scaling_factor"));
        int const dense = first_of({"first_k_dense_replace"});
        for (int l = 0; l < c.layers; ++l) CHECK((c.layer(l).experts.count > 0) == (l >= dense));
        if (dense > 0) CHECK(c.layer(0).ffn.width == json.at("intermediate_size"));
    });
}
