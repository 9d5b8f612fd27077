// Every published geometry of tests/data/configs under a table of plans: lawful, with the bytes that its own numbers say, or refused by
// the law that they break. The numbers are read by another JSON library and priced here once more; nothing is shared with graph/.
// SPDX-License-Identifier: Apache-2.0
#include <doctest/doctest.h>
#include <nlohmann/json.hpp>
#include <tenon/checkpoint/config_json.hpp>
#include <tenon/graph/plan_value.hpp>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

using namespace tenon;

namespace {
std::string file_text(std::string const& name) {
    std::ostringstream text;
    text << std::ifstream(std::string(TENON_TEST_DATA) + "/configs/" + name).rdbuf();
    return text.str();
}

/// A config.json and its line of INDEX.md.
struct published {
    std::string name, family, text;
    std::int64_t millions = 0;  ///< of weights, biases and q/k norms not counted; rounded

    bool accepted() const {
        std::vector<std::string> const families{"llama", "mistral", "qwen2", "qwen3", "phi3", "mixtral", "qwen3_moe"};
        return std::find(families.begin(), families.end(), family) != families.end();
    }
};

std::vector<published> all_published() {
    std::vector<published> all;
    std::string const index = file_text("INDEX.md");
    std::istringstream lines(index);
    for (std::string line; std::getline(lines, line);) {  // | name | class (model_type) | weights | ...
        std::vector<std::string> cells;
        std::istringstream parts(line);
        for (std::string cell; std::getline(parts, cell, '|');) {
            cell.erase(std::remove(cell.begin(), cell.end(), ' '), cell.end());
            cell.erase(std::remove(cell.begin(), cell.end(), '*'), cell.end());
            cells.push_back(cell);
        }
        if (cells.size() < 6 || cells[1] == "file" || cells[2].empty() || cells[2].back() != ')') continue;
        std::size_t const open = cells[2].find('(');
        std::string const family = cells[2].substr(open + 1, cells[2].size() - open - 2);
        all.push_back({cells[1], family, file_text(cells[1] + ".json"), cells[3] == "-" ? 0 : std::llround(std::stod(cells[3]) * 1000)});
    }
    return all;
}

/// The numbers of a model, as the file has them. Of its layers all route experts, or none: then E is 0.
struct numbers {
    std::int64_t L, H, Q, K, D, F, V, E, J;
    bool tied, biases, head_norms;

    explicit numbers(published const& p) {
        nlohmann::json const c = nlohmann::json::parse(p.text);
        L = c.at("num_hidden_layers"), H = c.at("hidden_size"), Q = c.at("num_attention_heads"), K = c.at("num_key_value_heads");
        F = c.at("intermediate_size"), V = c.at("vocab_size"), D = c.value("head_dim", H / Q);
        tied = c.value("tie_word_embeddings", false), biases = p.family == "qwen2",
        head_norms = p.family == "qwen3" || p.family == "qwen3_moe";
        E = p.family == "mixtral" ? c.at("num_local_experts").get<std::int64_t>() : c.value("num_experts", 0),
        J = c.value("moe_intermediate_size", F);
        if (E > 0) F = 0;
    }
};

/// Layers up to and without `end` on `ranks` ranks: `tensor.reduce` alone, or what a plan says by default.
struct cut_stage {
    int end = 0, ranks = 1;
    bool reduces = false;
};
using cuts = std::vector<cut_stage>;

std::string text_of(cuts const& stages) {
    std::string text;
    int first = 0, device = 0;
    for (cut_stage const& s : stages) {
        text += (text.empty() ? "" : ";") + std::to_string(first) + "-" + std::to_string(s.end - 1);
        for (int r = 0; r < s.ranks; ++r) text += (r == 0 ? "@" : ",") + std::to_string(device++);
        if (s.reduces) text += ":tensor.reduce";
        first = s.end;
    }
    return text;
}

/// Tensor parallel over few and many ranks by both joins, an uneven pipeline, a pipeline of tensor stages.
std::vector<cuts> plans_of(int layers) {
    std::vector<cuts> all{{{1}, {layers / 2 + 3}, {layers}},
                          {{layers / 3, 2}, {layers / 2, 4, true}, {layers - 1}, {layers, 8}},
                          {{layers / 4, 2, true}, {layers, 7}}};
    for (int const ranks : {1, 2, 3, 4, 7, 8, 16})
        for (bool const reduces : {false, true}) all.push_back({{layers, ranks, reduces}});
    return all;
}

int segments_of_units(std::int64_t units) {
    int s = 8;
    while (units % s != 0) s /= 2;
    return s;
}

/// The law that a stage breaks; empty where it is lawful.
std::string broken_by(numbers const& n, cut_stage const& s) {
    std::int64_t const R = s.ranks;
    if (n.Q % R != 0) return "heads_divide_over_ranks";
    if (n.K % R != 0 && R % n.K != 0) return "kv_heads_divide_or_repeat";
    if (std::min(n.H, n.V) < R || (n.F > 0 && n.F < R)) return "every_rank_has_work";
    std::int64_t const blocks = n.F % 32 == 0 ? n.F / 32 : n.F;
    if (s.reduces && (segments_of_units(n.Q) % R != 0 || (n.F > 0 && segments_of_units(blocks) % R != 0))) return "reduce_divides_segments";
    if (!s.reduces && n.E > 0 && n.E < R) return "every_rank_has_work";
    return {};
}

/// Elements over all ranks: matrices cut, experts each on one rank, KV heads repeated where ranks outnumber them; routers, and vectors of
/// the width of the stream, on every rank.
struct held {
    std::int64_t matrices = 0, vectors = 0, cached = 0;  ///< cached: keys and values of a position
};

held held_by(numbers const& n, cuts const& stages) {
    held h;
    int first = 0;
    for (cut_stage const& s : stages) {
        std::int64_t const layers = s.end - first, R = s.ranks, kv_rows = std::max(n.K, R) * n.D;
        h.matrices += layers * (2 * n.H * n.Q * n.D + 2 * n.H * kv_rows + 3 * n.H * n.F + n.E * n.H * (3 * n.J + R));
        h.vectors += layers * (2 * n.H * R + (n.biases ? n.Q * n.D + 2 * kv_rows : 0) + (n.head_norms ? 2 * n.D * R : 0));
        h.cached += layers * 2 * kv_rows;
        first = s.end;
    }
    h.matrices += (n.tied && stages.size() == 1 ? 1 : 2) * n.V * n.H;
    h.vectors += n.H * stages.back().ranks;
    return h;
}

struct outcome {
    int lawful = 0, refused = 0;
};

outcome check(published const& p, model_config const& config) {
    numbers const n(p);
    outcome seen;
    for (cuts const& stages : plans_of(config.layers)) {
        std::string const text = text_of(stages);
        CAPTURE(text);
        std::size_t at = 0;
        while (at < stages.size() && broken_by(n, stages[at]).empty()) ++at;
        try {
            dynamic_graph const graph(config, plan::parse(text));
            REQUIRE_EQ(at, stages.size());
            cost_view const cost = graph.cost(weights::bf16, dtype::bf16);
            held const h = held_by(n, stages);
            std::int64_t bytes = 0, cached = 0;
            for (int r = 0; r < cost.ranks(); ++r) {
                bytes += cost.weight_bytes(rank_index{r});
                cached += cost.kv_bytes_per_position(rank_index{r});
            }
            CHECK_EQ(bytes, 2 * h.matrices + 4 * h.vectors);
            CHECK_EQ(cached, 4 * h.cached);
            ++seen.lawful;
        } catch (graph_error const& e) {
            REQUIRE_LT(at, stages.size());
            CHECK_EQ(e.law_name(), broken_by(n, stages[at]));
            CHECK_EQ(e.why().stage, static_cast<int>(at));
            CHECK_EQ(e.why().right, operand{quantity::ranks, stages[at].ranks});
            ++seen.refused;
        }
    }
    return seen;
}
}  // namespace

TEST_CASE("A published geometry under any plan of a table costs what its numbers say, or is refused by the law that they break") {
    int models = 0;
    outcome all;
    for (published const& p : all_published()) {
        if (!p.accepted()) continue;
        CAPTURE(p.name);
        outcome const seen = check(p, checkpoint::read_config(p.text, p.name));
        all.lawful += seen.lawful, all.refused += seen.refused, ++models;
    }
    MESSAGE(models, " models, ", all.lawful, " lawful plans, ", all.refused, " refused");
    CHECK_EQ(models, 21);
    CHECK_GT(all.lawful, 100);
    CHECK_GT(all.refused, 50);
}

TEST_CASE("A published model has the number of weights that its publisher counts") {
    for (published const& p : all_published()) {
        if (!p.accepted()) continue;
        CAPTURE(p.name);
        numbers const n(p);
        dynamic_graph const graph(checkpoint::read_config(p.text, p.name), plan::parse("all@0"));
        std::int64_t const narrow = graph.cost(weights::bf16, dtype::bf16).weight_bytes(rank_index{0});
        std::int64_t const wide = graph.cost(weights::f32).weight_bytes(rank_index{0});
        // A matrix takes two bytes an element or four, a vector always four. Of the vectors INDEX.md counts the norms of the stream.
        std::int64_t const matrices = (wide - narrow) / 2, vectors = (wide - 4 * matrices) / 4, norms = (2 * n.L + 1) * n.H;
        CHECK_GE(vectors, norms);
        CHECK_EQ(std::llround(static_cast<double>(matrices + norms) / 1e6), p.millions);
    }
}

TEST_CASE("A published model of a family that is not certified is refused by its name") {
    int refused = 0;
    for (published const& p : all_published()) {
        if (p.accepted()) continue;
        CAPTURE(p.name);
        try {
            (void)checkpoint::read_config(p.text, p.name);
            FAIL_CHECK("accepted");
        } catch (refusal const& r) {
            CHECK_EQ(r.law_name(), "architecture_is_certified");
            CHECK(std::string(r.what()).find(p.family) != std::string::npos);
            ++refused;
        }
    }
    CHECK_EQ(refused, 11);
}
