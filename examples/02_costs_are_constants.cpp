// What a split costs, before anything runs. One idea: bytes and operations of every rank and seam are constants of the graph, so
// a budget is a static_assert.
// SPDX-License-Identifier: Apache-2.0
//
//   02_costs_are_constants MODEL_DIRECTORY
#include <tenon/graph/describe.hpp>
#include <tenon/tenon.hpp>

#include "embedded_model/embedded.hpp"

#include <exception>
#include <iostream>

using namespace tenon;

// A budget can stand inside the graph, so that nobody cuts it past the memory of a device ...
struct split : graph<embedded_model,
    stage<layers<0, embedded_model::half - 1>, device::cpu<0, 1>, shard::tensor<join::reduce>>,
    stage<layers<embedded_model::half, embedded_model::last>, device::cpu<2>>> {
    static_assert(cost(weights::bf16).weight_bytes(device_index{0}) < 1'000'000);
    static_assert(cost(weights::f32).kv_bytes(device_index{2}, embedded_model::config.max_positions) <= 4'000'000);
};

// ... or wherever the constants are needed. One token's residual stream is `hidden` floats; one rank reads it at the seam.
constexpr cost_view held = split::cost(weights::stored, dtype::bf16);
static_assert(held.ranks() == 3);
static_assert(held.seam_bytes_per_token(0) == 4 * embedded_model::config.hidden);
static_assert(held.weight_bytes(rank_index{0}) == held.weight_bytes(rank_index{1}), "half of each matrix, and every norm");

int main(int argc, char** argv) try {
    if (argc != 2) return std::cerr << "usage: 02_costs_are_constants MODEL_DIRECTORY\n", 2;
    std::cout << to_text(split::view(), held);

    // The constants are the truth: what was computed above is what a rank holds after loading.
    auto const lm = causal_lm<split>::load(argv[1], runtime::sequential{});
    for (int r = 0; r < lm.ranks(); ++r)
        if (lm.weight_bytes(rank_index{r}) != held.weight_bytes(rank_index{r})) return std::cerr << "rank " << r << " holds something else\n", 1;
    return 0;
} catch (std::exception const& e) {
    std::cerr << e.what() << '\n';
    return 1;
}
