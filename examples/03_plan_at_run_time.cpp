// A split that arrives as text. One idea: the laws that a graph type is checked against while it compiles are the ones a plan is
// checked against when it is loaded, by the same names.
// SPDX-License-Identifier: Apache-2.0
//
//   03_plan_at_run_time MODEL_DIRECTORY [PLAN]
#include <tenon/tenon.hpp>

#include "embedded_model/embedded.hpp"

#include <exception>
#include <iostream>
#include <string>
#include <string_view>

using namespace tenon;

/// Tries a plan that is wrong; true when it is refused by that law.
bool refused(std::string const& directory, std::string_view text, law expected) {
    try {
        (void)dynamic_causal_lm<>::load(directory, plan::parse(text), runtime::sequential{});
    } catch (graph_error const& e) {
        std::cout << text << "\n    " << e.what() << '\n';  // name, rule, numbers, and the numbers that would do
        return e.why().which == expected;
    }
    return false;
}

int main(int argc, char** argv) try {
    if (argc < 2 || argc > 3) return std::cerr << "usage: 03_plan_at_run_time MODEL_DIRECTORY [PLAN]\n", 2;
    std::string const directory = argv[1];
    std::string_view const text = argc > 2 ? argv[2] : "0@0,1:tensor.reduce;1-3@2";

    auto lm = dynamic_causal_lm<device::cpu>::load(directory, plan::parse(text), runtime::threads{});
    std::cout << lm.plan() << ": " << text_of(lm.generate(tokens_of("She was "), {.max_new_tokens = 24})) << '\n';

    bool good = refused(directory, "0-3@0,1,2:tensor", law::heads_divide_over_ranks);
    good = refused(directory, "0-1@0;3@1", law::plan_layers_are_all_named) && good;
    good = refused(directory, "0-1@0;1-3@1", law::plan_layer_is_named_once) && good;
    good = refused(directory, "all@0,1:tensors", law::plan_rule_is_known) && good;
    return good ? 0 : 1;
} catch (std::exception const& e) {
    std::cerr << e.what() << '\n';
    return 1;
}
