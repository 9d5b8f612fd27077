// A model, a split of it written as a type, and generated text. One idea: the split is part of the program, and the bits do
// not depend on it.
// SPDX-License-Identifier: Apache-2.0
//
//   01_hello_graph MODEL_DIRECTORY        the directory of examples/embedded_model
#include <tenon/tenon.hpp>

#include "embedded_model/embedded.hpp"

#include <exception>
#include <iostream>

using namespace tenon;

struct plain : graph<embedded_model, stage<layers<0, embedded_model::last>>> {};

struct split : graph<embedded_model,
    stage<layers<0, embedded_model::half - 1>, device::cpu<0, 1>, shard::tensor<>>,  // two ranks share each layer
    stage<layers<embedded_model::half, embedded_model::last>, device::cpu<2>>> {};                // then a pipeline seam

int main(int argc, char** argv) try {
    if (argc != 2) return std::cerr << "usage: 01_hello_graph MODEL_DIRECTORY\n", 2;
    auto const prompt = tokens_of("It was a ");

    auto alone = causal_lm<plain>::load(argv[1]);
    auto together = causal_lm<split>::load(argv[1], runtime::threads{});
    auto const expected = alone.generate(prompt, {.max_new_tokens = 40});
    auto const tokens = together.generate(prompt, {.max_new_tokens = 40});

    std::cout << split::plan() << ": " << text_of(tokens) << '\n';
    return tokens == expected ? 0 : 1;
} catch (std::exception const& e) {
    std::cerr << e.what() << '\n';
    return 1;
}
