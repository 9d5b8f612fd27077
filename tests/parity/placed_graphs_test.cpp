// Graph types that say where experts are: in a table, exactly evenly, or by a map that they wait for. Each has plain's bits, and each rank what
// the type says.
// SPDX-License-Identifier: Apache-2.0
#include "support/golden_models.hpp"
#include "support/random_model.hpp"
#include "support/runs.hpp"

#include <doctest/doctest.h>
#include <tenon/causal_lm.hpp>

#include <string>

using namespace tenon;
using namespace support;

namespace {
using model_type = support::qwen3_moe_f32;
std::string const folder = TENON_TEST_DATA "/golden/qwen3_moe_f32";

struct plain : graph<model_type, stage<layers<0, 3>>> {};
struct tabled : graph<model_type, stage<layers<0, 3>, device::cpu<0, 1>, shard::expert<placement::table<1, 0, 1, 1, 1, 1, 1, 0>>>> {};
struct tabled_beside_heads
    : graph<model_type, stage<layers<0, 1>, device::cpu<0, 1>, shard::both<shard::tensor<>, shard::expert<placement::table<0, 1, 1, 0, 1, 0, 0, 1>>>>,
            stage<layers<2, 3>, device::cpu<2, 0>, shard::expert<placement::exact>>> {};
struct waiting : graph<model_type, stage<layers<0, 3>, device::cpu<0, 1>, shard::expert<placement::at_load>>> {};

constexpr std::int64_t expert_bytes = 3 * 64 * 8 * 4 * 4;  // gate, up and down of 64 by 8 in float32, in four layers
static_assert(tabled::cost(weights::f32).weight_bytes(rank_index{1}) == 6 * expert_bytes);
static_assert(waiting::cost(weights::f32).weight_bytes(rank_index{1}) == 7 * expert_bytes);  // the most that a map can give

template <class Graph>
void check_bits(load_options const& how = {}) {
    auto whole = causal_lm<plain>::load(folder, runtime::sequential{});
    auto m = causal_lm<Graph>::load(folder, runtime::threads{}, how);
    random_bits random(3);
    for (int const length : {1, 7, 20}) {
        ids const tokens = random_tokens(random, length, 128);
        for (std::size_t const chunk : {std::size_t{0}, std::size_t{3}}) CHECK_EQ(first_difference(rows_of(whole, tokens), rows_of(m, tokens, chunk)), "");
    }
}
}  // namespace

TEST_CASE("Experts placed by a table, or exactly evenly, give plain's bits") {
    check_bits<tabled>();
    check_bits<tabled_beside_heads>();
    auto m = causal_lm<tabled>::load(folder);
    CHECK(m.weight_bytes({1}) == 6 * expert_bytes);
}

TEST_CASE("A graph that waits for a map is refused without one, and gives plain's bits with any") {
    CHECK_THROWS_WITH_AS(causal_lm<waiting>::load(folder), doctest::Contains("placement_is_given"), graph_error);
    for (std::vector<int> const& owners : {std::vector<int>{0, 0, 0, 0, 1, 1, 1, 1}, {1, 1, 1, 1, 1, 1, 1, 0}, {0, 1, 0, 1, 0, 1, 0, 1}}) {
        placement_map map{.ranks = 2, .entry_rank = 0, .experts = 8, .layers = {{0, owners}, {1, owners}, {2, owners}, {3, owners}}};
        load_options how;
        how.placement = &map;
        check_bits<waiting>(how);
    }
}
