// A map without a row for the last layer.
// SPDX-License-Identifier: Apache-2.0
// expect: broken_law<tenon::(v0::)?law::placement_covers_the_layers, tenon::(v0::)?at_stage<1>, tenon::(v0::)?has<tenon::(v0::)?quantity::layer, 3>, tenon::(v0::)?has<tenon::(v0::)?quantity::map_rows, 0>, tenon::(v0::)?would_do<1> ?>
#include <tenon/graph/graph.hpp>
#include <tenon/graph/placed.hpp>
#include <tenon/model/mixtral.hpp>

using namespace tenon;

struct mixture { static constexpr auto config = model::mixtral({.layers = 4, .hidden = 64, .heads = 4, .kv_heads = 2, .experts = 8, .experts_per_token = 2, .expert_width = 96, .vocab = 101}); };
struct split : graph<mixture, stage<layers<0, 0>, device::cpu<0>>, stage<layers<1, 3>, device::cpu<0, 1>, shard::expert<placement::at_load>>> {};

constexpr std::array layers_of_map{1, 2, 3};
constexpr std::array<int, 24> owners{0, 0, 0, 0, 1, 1, 1, 1, 0, 1, 0, 1, 0, 1, 0, 1, 1, 1, 1, 1, 0, 0, 0, 0};

#ifdef REPAIRED
constexpr violation met = validate_placement(mixture::config, split::view().stages, placement_view{2, 0, 8, layers_of_map, owners});
#else
constexpr violation met = validate_placement(mixture::config, split::view().stages, placement_view{2, 0, 8, std::span(layers_of_map).first(2), std::span(owners).first(16)});
#endif
static_assert(sizeof(tenon::detail::judge<met>::verdict) != 0);
