// A measured placement, as a value: which rank owns which expert of which layer. What reads one from text is checkpoint/placement_json.hpp.
// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <string>
#include <vector>

namespace tenon::inline v0 {

/// The ranks that own one layer's experts.
struct layer_placement {
    int layer = 0;              ///< counted through the model, from 0
    std::vector<int> owners{};  ///< (E): of every expert, its rank
    bool operator==(layer_placement const&) const = default;
};

/// Where the experts of a model's routed layers are. What is read from text keeps every law of a map.
struct placement_map {
    int ranks = 0;                          ///< R, 2 to most_ranks_of_a_stage
    int entry_rank = 0;                     ///< the rank that routes, below R
    int experts = 0;                        ///< E of every layer, R to most_experts
    std::vector<layer_placement> layers{};  ///< ascending
    std::string sha256{};                   ///< of the exact text that it was read from; empty when it was not

    /// Whether the experts are in the same places; not whether the texts are the same.
    bool operator==(placement_map const& other) const {
        return ranks == other.ranks && entry_rank == other.entry_rank && experts == other.experts && layers == other.layers;
    }
};

}  // namespace tenon::inline v0
