// A graph as a picture and as data. One idea: what is drawn is the lowered graph that runs, so the picture cannot be out of date.
// SPDX-License-Identifier: Apache-2.0
//
//   05_picture MODEL_DIRECTORY [dot|json|text]      05_picture model dot | dot -Tsvg > graph.svg
#include <tenon/graph/describe.hpp>
#include <tenon/tenon.hpp>

#include "embedded_model/embedded.hpp"

#include <exception>
#include <iostream>
#include <string>
#include <string_view>

using namespace tenon;

int main(int argc, char** argv) try {
    if (argc < 2 || argc > 3) return std::cerr << "usage: 05_picture MODEL_DIRECTORY [dot|json|text]\n", 2;
    std::string_view const format = argc > 2 ? argv[2] : "dot";

    // No weight is needed to draw a graph: a model's description and a plan are enough.
    checkpoint::mapped_file const file(std::string(argv[1]) + "/config.json");
    dynamic_graph const graph(checkpoint::read_config(file.text()), plan::parse("0-1@0,1:tensor.reduce;2-3@2"));
    cost_view const cost = graph.cost(weights::bf16);
    std::string const text = format == "dot" ? to_dot(graph.view(), cost) : format == "json" ? to_json(graph.view(), cost) : to_text(graph.view(), cost);
    std::cout << text;

    // The same stages written as types give the same picture.
    struct same : planned<embedded_model, "0-1@0,1:tensor.reduce;2-3@2"> {};
    bool const equal = to_dot(graph.view(), cost) == to_dot(same::view(), same::cost(weights::bf16));
    return equal && !text.empty() ? 0 : 1;
} catch (std::exception const& e) {
    std::cerr << e.what() << '\n';
    return 1;
}
