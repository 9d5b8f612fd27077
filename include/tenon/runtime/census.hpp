// What a model has moved and done since it was loaded, counted where it happens.
// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <cstdint>
#include <vector>

namespace tenon::inline v0 {

/// Counters of one rank.
struct rank_census {
    std::int64_t messages = 0;    ///< reads of another rank's memory
    std::int64_t bytes = 0;       ///< what those reads carried
    std::int64_t gathers = 0;     ///< all-gathers it took part in
    std::int64_t reductions = 0;  ///< all-reduces it took part in
    std::int64_t hand_overs = 0;  ///< residual streams taken over a seam
    std::int64_t products = 0;    ///< matrix products, one for each matrix and batch
    std::int64_t rows = 0;        ///< token rows that its layers have seen, once for each layer
};

/// Counters of a model: one entry a rank, in rank order, and their sum.
struct census {
    std::vector<rank_census> ranks;
    rank_census total;
};

}  // namespace tenon::inline v0
