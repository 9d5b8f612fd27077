// What a model has moved and done since it was loaded, counted where it happens.
// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <cstdint>
#include <vector>

namespace tenon::inline v0 {

/// What a rank did for the experts of one layer. A routed row is one token at one of the experts that it chose.
struct expert_census {
    int layer = 0;                     ///< counted through the model
    std::int64_t dispatched_rows = 0;  ///< routed rows that the rank's experts computed, whole or their share of the width
    std::int64_t returned_rows = 0;    ///< routed rows, or their columns, that the rank took from others to combine
    std::int64_t bytes = 0;            ///< read from other ranks between routing and combination
    std::int64_t experts = 0;          ///< experts that had rows, once for each batch
};

/// Counters of one rank.
struct rank_census {
    std::int64_t messages = 0;    ///< reads of another rank's memory
    std::int64_t bytes = 0;       ///< what those reads carried
    std::int64_t gathers = 0;     ///< all-gathers it took part in
    std::int64_t reductions = 0;  ///< all-reduces it took part in
    std::int64_t hand_overs = 0;  ///< residual streams taken over a seam
    std::int64_t products = 0;    ///< matrix products, one for each matrix and batch
    std::int64_t rows = 0;        ///< token rows that its layers have seen, once for each layer
    std::vector<expert_census> experts{};  ///< of the layers of its stage that route, in order
    bool has_experts = false;              ///< whole ones, or a share of their width

    /// Whether it has experts and none of them had a row.
    bool served_no_row() const {
        std::int64_t rows_served = 0;
        for (expert_census const& e : experts) rows_served += e.dispatched_rows;
        return has_experts && rows_served == 0;
    }
};

/// Counters of a model: one entry a rank, in rank order, and their sum. The sum's `experts` has an entry for every layer that routes.
struct census {
    std::vector<rank_census> ranks;
    rank_census total;
};

}  // namespace tenon::inline v0
