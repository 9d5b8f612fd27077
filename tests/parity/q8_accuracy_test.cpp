// What q8 costs in accuracy: nats a byte on text that the embedded model was not trained on, and the tokens that goldens go on with. Prints
// what it finds; docs/numerics.md tells it.
// SPDX-License-Identifier: Apache-2.0
#include "../../examples/embedded_model/embedded.hpp"
#include "support/golden.hpp"
#include "support/runs.hpp"

#include <doctest/doctest.h>
#include <tenon/dynamic_causal_lm.hpp>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

using namespace tenon;
using namespace support;

namespace {
dynamic_causal_lm<> load(std::string const& directory, weights format) {
    return dynamic_causal_lm<>::load(directory, plan::parse("all@0"), runtime::sequential{}, {.weights = format});
}

/// Of the token that follows each row of logits, in binary64.
double nats(floats const& rows, ids const& followers) {
    std::size_t const V = rows.size() / followers.size();
    double sum = 0.0;
    for (std::size_t t = 0; t < followers.size(); ++t) {
        float const* const row = rows.data() + t * V;
        double const largest = static_cast<double>(*std::max_element(row, row + V));
        double total = 0.0;
        for (std::size_t i = 0; i < V; ++i) total += std::exp(static_cast<double>(row[i]) - largest);
        sum += largest + std::log(total) - static_cast<double>(row[followers[t]]);
    }
    return sum;
}

/// Consecutive windows of 512 predicted bytes, each from an empty cache; what is left after the last whole one is not counted.
double nats_per_byte(language_model& m, ids const& text) {
    constexpr std::ptrdiff_t window = 512;
    double sum = 0.0;
    std::ptrdiff_t count = 0;
    for (std::ptrdiff_t at = 0; at + window < static_cast<std::ptrdiff_t>(text.size()); at += window) {
        auto const from = text.begin() + at;
        sum += nats(rows_of(m, ids(from, from + window)), ids(from + 1, from + 1 + window));
        count += window;
    }
    return sum / static_cast<double>(count);
}

std::size_t same_at_first(ids const& a, ids const& b) {
    return static_cast<std::size_t>(std::mismatch(a.begin(), a.end(), b.begin(), b.end()).first - a.begin());
}
}  // namespace

TEST_CASE("q8 loses less than a thousandth of a nat a byte on held-out text") {
    std::ifstream file(TENON_EMBEDDED_MODEL "/../held_out.txt", std::ios::binary);
    ids const text = tokens_of(std::string((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>()));
    REQUIRE(text.size() > 10000);
    auto wide = load(TENON_EMBEDDED_MODEL, weights::f32), quantised = load(TENON_EMBEDDED_MODEL, weights::q8);
    double const in_f32 = nats_per_byte(wide, text), in_q8 = nats_per_byte(quantised, text);
    MESSAGE("held-out text: f32 " << in_f32 << ", q8 " << in_q8 << " nats a byte; perplexity " << std::exp(in_f32) << " and "
                                  << std::exp(in_q8));
    CHECK(std::fabs(in_f32 - 1.0722) < 0.0001);  // as the model's page says, by PyTorch
    CHECK(std::fabs(in_q8 - in_f32) < 0.001);

    std::size_t agreed = 0, all = 0;
    for (std::string const prompt : {"It was a ", "She had been ", "\"My dear ", "The party ", "Captain Wentworth "}) {
        ids const from = tokens_of(prompt);
        generation_options const how{.max_new_tokens = 100};
        ids const a = wide.generate(from, how), b = quantised.generate(from, how);
        agreed += same_at_first(a, b) - from.size();
        all += a.size() - from.size();
    }
    MESSAGE("greedy: " << agreed << " of " << all << " tokens before the first that differs");
}

TEST_CASE("goldens in q8 stay near their binary64 reference") {
    for (std::string const name : {"llama_mha_f32", "llama_gqa_bf16_sharded", "mistral_swa_bf16", "qwen3_bf16", "qwen3_fp8"}) {
        CAPTURE(name);
        golden const g = read_golden(std::string(TENON_TEST_DATA "/golden/") + name);
        auto m = load(g.directory, weights::q8);
        auto const V = static_cast<std::size_t>(m.config().vocab);
        double error = 0.0, size = 0.0;
        std::size_t agreed = 0, all = 0;
        for (std::size_t p = 0; p < g.prompts.size(); ++p) {
            floats const rows = rows_of(m, g.prompts[p]);
            for (std::size_t i = 0; i < rows.size(); ++i) {
                double const expected = g.logits[g.row_offsets[p] * V + i];
                error += (static_cast<double>(rows[i]) - expected) * (static_cast<double>(rows[i]) - expected);
                size += expected * expected;
            }
            ids const made = m.generate(g.prompts[p], {.max_new_tokens = g.new_tokens});
            agreed += same_at_first(g.greedy[p], ids(made.begin() + static_cast<std::ptrdiff_t>(g.prompts[p].size()), made.end()));
            all += g.greedy[p].size();
        }
        MESSAGE(name << ": relative error of logits " << std::sqrt(error / size) << "; greedy: " << agreed << " of " << all
                     << " tokens before the first that differs");
        CHECK(std::sqrt(error / size) < 0.04);
    }
}
