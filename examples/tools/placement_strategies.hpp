// Where the experts of one layer go: the traffic that a routing trace shows, three strategies, and what a placement is worth under that
// traffic. Plain integers, so that the same traffic gives the same placement anywhere. Knows no files and no maps.
// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <span>
#include <tuple>
#include <utility>
#include <vector>

namespace tools {

/// The rank of each of a layer's E experts.
using owner_list = std::vector<int>;

/// What the tokens of one layer chose. A routed row is one token at one of its experts; a pair is two experts of one token.
class layer_traffic {
public:
    explicit layer_traffic(int experts) : rows_of_(static_cast<std::size_t>(experts)) {}

    /// The choice of one token: ids, ascending.
    void add(std::span<std::int32_t const> chosen) {
        pairs_of_.resize(rows_of_.size() * (rows_of_.size() - 1) / 2);  // not before: a layer without tokens has none to hold
        for (std::size_t i = 0; i < chosen.size(); ++i) {
            ++rows_of_[static_cast<std::size_t>(chosen[i])];
            for (std::size_t j = 0; j < i; ++j) ++pairs_of_[below(chosen[j], chosen[i])];
        }
        rows_ += static_cast<std::int64_t>(chosen.size());
        pairs_ += static_cast<std::int64_t>(chosen.size() * (chosen.size() - 1) / 2);
    }

    int experts() const { return static_cast<int>(rows_of_.size()); }
    std::int64_t rows() const { return rows_; }
    std::int64_t pairs() const { return pairs_; }
    std::int64_t rows_of(int expert) const { return rows_of_[static_cast<std::size_t>(expert)]; }
    /// Tokens that chose both of two experts.
    std::int64_t pairs_of(int a, int b) const { return a == b || pairs_of_.empty() ? 0 : pairs_of_[a < b ? below(a, b) : below(b, a)]; }

    /// The experts that most tokens chose first; equal ones by their ids.
    std::vector<int> busiest_first() const {
        std::vector<int> order(rows_of_.size());
        std::iota(order.begin(), order.end(), 0);
        std::sort(order.begin(), order.end(), [this](int a, int b) { return std::pair(-rows_of(a), a) < std::pair(-rows_of(b), b); });
        return order;
    }

private:
    /// The place of a pair a < b in the triangle below the diagonal.
    static std::size_t below(std::int32_t a, std::int32_t b) {
        auto const row = static_cast<std::size_t>(b);
        return row * (row - 1) / 2 + static_cast<std::size_t>(a);
    }

    std::vector<std::int64_t> rows_of_, pairs_of_;
    std::int64_t rows_ = 0, pairs_ = 0;
};

/// What a placement makes of a layer's traffic.
struct placement_worth {
    std::int64_t fullest = 0;   ///< routed rows of the rank that has most
    std::int64_t together = 0;  ///< pairs whose experts are on one rank
};

inline placement_worth worth_of(layer_traffic const& traffic, std::span<int const> owners, int ranks) {
    placement_worth worth;
    std::vector<std::int64_t> rows(static_cast<std::size_t>(ranks));
    for (int e = 0; e < traffic.experts(); ++e) {
        int const owner = owners[static_cast<std::size_t>(e)];
        rows[static_cast<std::size_t>(owner)] += traffic.rows_of(e);
        for (int other = 0; other < e; ++other)
            if (owners[static_cast<std::size_t>(other)] == owner) worth.together += traffic.pairs_of(other, e);
    }
    worth.fullest = *std::max_element(rows.begin(), rows.end());
    return worth;
}

/// Expert e of E on rank floor(e R / E), as without a map.
inline owner_list even_split(int experts, int ranks) {
    owner_list owners;
    for (std::int64_t e = 0; e < experts; ++e) owners.push_back(static_cast<int>(e * ranks / experts));
    return owners;
}

/// Experts on ranks, of which every one gets floor(E / R) experts and E mod R of them one more: the memory of the even split.
class expert_seats {
public:
    expert_seats(layer_traffic const& traffic, int ranks)
        : traffic_(&traffic), owners_(static_cast<std::size_t>(traffic.experts()), -1), ranks_(static_cast<std::size_t>(ranks)),
          fewest_(traffic.experts() / ranks), larger_left_(traffic.experts() % ranks) {}

    int ranks() const { return static_cast<int>(ranks_.size()); }
    int owner(int expert) const { return owners_[static_cast<std::size_t>(expert)]; }
    std::int64_t rows(int rank) const { return at(rank).rows; }
    int experts(int rank) const { return at(rank).experts; }
    owner_list const& owners() const { return owners_; }

    /// Whether one expert more can be put on a rank.
    bool has_room(int rank) const { return experts(rank) < fewest_ + (larger_left_ > 0 ? 1 : 0); }

    void put(int expert, int rank) {
        if (experts(rank) == fewest_) --larger_left_;
        ++at(rank).experts;
        at(rank).rows += traffic_->rows_of(expert);
        owners_[static_cast<std::size_t>(expert)] = rank;
    }
    void take(int expert) {
        int const rank = owner(expert);
        --at(rank).experts;
        if (experts(rank) == fewest_) ++larger_left_;
        at(rank).rows -= traffic_->rows_of(expert);
        owners_[static_cast<std::size_t>(expert)] = -1;
    }

private:
    struct seat {
        std::int64_t rows = 0;
        int experts = 0;
    };
    seat& at(int rank) { return ranks_[static_cast<std::size_t>(rank)]; }
    seat const& at(int rank) const { return ranks_[static_cast<std::size_t>(rank)]; }

    layer_traffic const* traffic_;
    owner_list owners_;
    std::vector<seat> ranks_;
    int fewest_, larger_left_;
};

/// Balanced loads: the busiest expert first, each to the rank with the fewest routed rows, then experts, then the lowest index. Never a
/// fuller rank than the even split's, which is taken where this order does worse.
/// Source: Graham 1969, "Bounds on multiprocessing timing anomalies" (longest processing time first); the seats are ours.
inline owner_list by_frequency(layer_traffic const& traffic, int ranks) {
    expert_seats seats(traffic, ranks);
    for (int const expert : traffic.busiest_first()) {
        int best = -1;
        for (int r = 0; r < ranks; ++r)
            if (seats.has_room(r) && (best < 0 || std::pair(seats.rows(r), seats.experts(r)) < std::pair(seats.rows(best), seats.experts(best)))) best = r;
        seats.put(expert, best);
    }
    owner_list even = even_split(traffic.experts(), ranks);
    return worth_of(traffic, even, ranks).fullest < worth_of(traffic, seats.owners(), ranks).fullest ? even : seats.owners();
}

/// Moves experts between ranks while that brings pairs together, and no rank above `bound` routed rows.
class pair_search {
public:
    pair_search(layer_traffic const& traffic, int ranks, std::int64_t bound)
        : traffic_(&traffic), seats_(traffic, ranks), bound_(bound),
          pairs_with_(static_cast<std::size_t>(traffic.experts()) * static_cast<std::size_t>(ranks)) {}

    /// Experts as they lie.
    void start_from(owner_list const& owners) {
        for (int e = 0; e < traffic_->experts(); ++e) put(e, owners[static_cast<std::size_t>(e)]);
    }

    /// The busiest expert first, each to the rank that it shares most pairs with; equal ones by fewest rows, experts, lowest index. False
    /// when an expert fits on no rank.
    bool start_from_pairs() {
        for (int const expert : traffic_->busiest_first()) {
            int best = -1;
            for (int r = 0; r < seats_.ranks(); ++r)
                if (seats_.has_room(r) && seats_.rows(r) + traffic_->rows_of(expert) <= bound_ && (best < 0 || rather(expert, r) < rather(expert, best))) best = r;
            if (best < 0) return false;
            put(expert, best);
        }
        return true;
    }

    /// Takes every move and exchange that brings pairs together, in the order of the ids, until there is none. It ends: pairs are counted.
    owner_list const& improve() {
        for (bool changed = true; changed;) {
            changed = false;
            for (int a = 0; a < traffic_->experts(); ++a) {
                for (int r = 0; r < seats_.ranks(); ++r) changed = moves(a, r) || changed;
                for (int b = 0; b < a; ++b) changed = exchanges(a, b) || changed;
            }
        }
        return seats_.owners();
    }

private:
    std::int64_t& pairs_with(int expert, int rank) {
        return pairs_with_[static_cast<std::size_t>(expert) * static_cast<std::size_t>(seats_.ranks()) + static_cast<std::size_t>(rank)];
    }
    std::tuple<std::int64_t, std::int64_t, int> rather(int expert, int rank) { return {-pairs_with(expert, rank), seats_.rows(rank), seats_.experts(rank)}; }

    void put(int expert, int rank) {
        seats_.put(expert, rank);
        for (int e = 0; e < traffic_->experts(); ++e) pairs_with(e, rank) += traffic_->pairs_of(e, expert);
    }
    void take(int expert) {
        int const rank = seats_.owner(expert);
        seats_.take(expert);
        for (int e = 0; e < traffic_->experts(); ++e) pairs_with(e, rank) -= traffic_->pairs_of(e, expert);
    }

    bool moves(int expert, int to) {
        int const from = seats_.owner(expert);
        bool const fits = from != to && seats_.experts(from) > seats_.experts(to) && seats_.rows(to) + traffic_->rows_of(expert) <= bound_;
        if (!fits || pairs_with(expert, to) <= pairs_with(expert, from)) return false;
        take(expert);
        put(expert, to);
        return true;
    }

    bool exchanges(int a, int b) {
        int const of_a = seats_.owner(a), of_b = seats_.owner(b);
        std::int64_t const more = traffic_->rows_of(a) - traffic_->rows_of(b);  // that the rank of b gets
        if (of_a == of_b || seats_.rows(of_b) + more > bound_ || seats_.rows(of_a) - more > bound_) return false;
        std::int64_t const gain = pairs_with(a, of_b) - pairs_with(a, of_a) + pairs_with(b, of_a) - pairs_with(b, of_b) - 2 * traffic_->pairs_of(a, b);
        if (gain <= 0) return false;
        take(a);
        take(b);
        put(a, of_b);
        put(b, of_a);
        return true;
    }

    layer_traffic const* traffic_;
    expert_seats seats_;
    std::int64_t bound_;
    std::vector<std::int64_t> pairs_with_;  ///< (E, R): tokens that chose an expert and another of a rank
};

/// Pairs together, and no rank above the bound: the best of what `pair_search` makes of the balanced placement, of the even split where
/// that keeps the bound, and of experts gathered around the busiest. Never fewer pairs together than either of the first two has. The
/// balanced placement must keep the bound. Equal pairs: the emptier fullest rank, then that order.
/// Source of the exchanges: Kernighan, Lin 1970, "An efficient heuristic procedure for partitioning graphs"; one at a time here.
inline owner_list by_coactivation(layer_traffic const& traffic, int ranks, std::int64_t bound) {
    std::vector<pair_search> searches;
    for (owner_list const& start : {by_frequency(traffic, ranks), even_split(traffic.experts(), ranks)})
        if (worth_of(traffic, start, ranks).fullest <= bound) searches.emplace_back(traffic, ranks, bound).start_from(start);
    pair_search gathered(traffic, ranks, bound);
    if (gathered.start_from_pairs()) searches.push_back(std::move(gathered));
    owner_list best;
    placement_worth of_best{};
    for (pair_search& search : searches) {
        owner_list const& owners = search.improve();
        placement_worth const worth = worth_of(traffic, owners, ranks);
        if (!best.empty() && std::pair(-worth.together, worth.fullest) >= std::pair(-of_best.together, of_best.fullest)) continue;
        best = owners;
        of_best = worth;
    }
    return best;
}

}  // namespace tools
