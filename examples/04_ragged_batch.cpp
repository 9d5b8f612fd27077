// Several sequences of different lengths in one call, prompts fed in pieces. One idea: a row of logits has the bits that it has
// alone, whatever shares the batch with it and however its prompt was cut.
// SPDX-License-Identifier: Apache-2.0
//
//   04_ragged_batch MODEL_DIRECTORY
#include <tenon/tenon.hpp>

#include "embedded_model/embedded.hpp"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstring>
#include <exception>
#include <iostream>
#include <span>
#include <vector>

using namespace tenon;

struct split : graph<embedded_model, stage<layers<0, embedded_model::last>, device::cpu<0, 1>>> {};

int main(int argc, char** argv) try {
    if (argc != 2) return std::cerr << "usage: 04_ragged_batch MODEL_DIRECTORY\n", 2;
    auto lm = causal_lm<split>::load(argv[1]);
    auto const V = static_cast<std::size_t>(lm.config().vocab);
    std::array const prompts{tokens_of("Emma Woodhouse, handsome, clever, and "), tokens_of("No"), tokens_of("It is a truth universally ")};

    // Each alone, all at once. The logits belong to the model until the next call, so they are copied.
    std::vector<std::vector<float>> expected;
    for (auto const& prompt : prompts) {
        state s = lm.make_state();
        std::span<float const> const row = lm.prefill(s, prompt);
        expected.emplace_back(row.begin(), row.end());
    }

    // The three together: first all but the last token of each, three at a time, then one call that feeds the last tokens.
    std::array<state, 3> states{lm.make_state(), lm.make_state(), lm.make_state()};
    std::vector<feed> batch;
    for (std::size_t at = 0; at < 40; at += 3) {
        batch.clear();
        for (std::size_t i = 0; i < prompts.size(); ++i) {
            std::span<token_id const> const head(prompts[i].data(), prompts[i].size() - 1);
            if (at < head.size()) batch.push_back({&states[i], head.subspan(at, std::min<std::size_t>(3, head.size() - at))});
        }
        if (!batch.empty()) lm.forward(batch);
    }
    batch.clear();
    for (std::size_t i = 0; i < prompts.size(); ++i) batch.push_back({&states[i], {&prompts[i].back(), 1}});
    std::span<float const> const rows = lm.forward(batch);  // (3, V)

    for (std::size_t i = 0; i < prompts.size(); ++i) {
        bool const same = std::memcmp(rows.data() + i * V, expected[i].data(), V * sizeof(float)) == 0;
        std::cout << "sequence " << i << ", " << states[i].length() << " positions: " << (same ? "the bits it has alone" : "OTHER BITS") << '\n';
        if (!same) return 1;
    }
    return 0;
} catch (std::exception const& e) {
    std::cerr << e.what() << '\n';
    return 1;
}
