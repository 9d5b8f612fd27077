// What one rank of a group does for a routed FFN: it routes tokens, runs its experts on the rows that were routed to them, and combines what
// comes back. Each expert's weights are read once a batch, and only routed rows move. Knows no attention and no residual stream.
// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <tenon/core/config.hpp>
#include <tenon/core/share.hpp>
#include <tenon/detail/deferred.hpp>
#include <tenon/device/backend.hpp>
#include <tenon/graph/stage.hpp>
#include <tenon/runtime/batch.hpp>
#include <tenon/runtime/buffer.hpp>
#include <tenon/runtime/census.hpp>
#include <tenon/runtime/exact_join.hpp>
#include <tenon/runtime/fault.hpp>
#include <tenon/runtime/join_tree.hpp>
#include <tenon/runtime/rank_weights.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <vector>

namespace tenon::inline v0::detail {

template <class = void>
class basic_expert_program;

/// Experts are whole on one rank of the group each, or every rank holds a share of all their widths. Where `tensor` cuts the stage, every
/// rank routes and combines the columns of the residual that it joins; where it does not, the root alone routes, hands rows out and combines.
///
/// Four steps, between which the ranks of the group meet: `route`, `serve`, `join_widths` (where widths are gathered, or their products are
/// exact sums), `combine`.
/// Extents: T rows, k of E experts chosen, J an expert's width, H hidden.
template <class Lazy>
class basic_expert_program {
public:
    basic_expert_program(model_config const& config, stage_traits const& stage, int member, device::backend const& ops,
                         numeric_profile const& profile, testing::fault fault, rank_census& counts)
        : config_(&config),
          stage_(stage),
          ops_(&ops),
          counts_(&counts),
          cuts_(effective(config, stage, stage.ranks())),
          fault_(fault),
          member_(member),
          ranks_(stage.ranks()),
          exact_(ops, profile) {
        for (int l = 0; l < stage.layer_count(); ++l) {
            bool const routes = static_cast<bool>(experts_of(l));
            place_in_census_.push_back(routes ? static_cast<int>(counts.experts.size()) : -1);
            if (routes) counts.experts.push_back({.layer = stage.first_layer + l});
        }
        counts.has_experts = !counts.experts.empty() && (cuts_.expert || cuts_.expert_width || member == 0);
    }
    basic_expert_program(basic_expert_program const&) = delete;
    basic_expert_program& operator=(basic_expert_program const&) = delete;

    void meet(std::span<basic_expert_program* const> group) { group_ = group; }  ///< peers in rank order, itself included
    void trace() { traces_ = true; }                                           ///< keep what every layer of a batch chose
    void employ(device::crew& threads) { crew_ = &threads; }                   ///< those of its rank

    /// Whether a rank's widths are of use to its peers before they are multiplied.
    bool joins_widths() const { return gathers_widths() || sums_exactly(); }

    /// Room for what peers read of T rows; in `shared` where they are in other processes.
    void publish(int rows, arena* shared) {
        extents const most = extents_of(rows);
        if (most.experts == 0) return;
        count_ = rows;
        if (routes_here()) {
            entries_.reserve(most.slots, shared);
            first_.reserve(most.experts + 1, shared);
            base_.reserve(most.experts, shared);
        }
        gate_.reserve(most.inner, shared);
        auto const H = static_cast<std::size_t>(config_->hidden);
        if (sums_exactly()) return exact_.publish(most.slots, H, shared);
        returned_.reserve(most.slots * (gathers_widths() ? static_cast<std::size_t>(own_columns().size()) : H), shared);
    }

    /// Room for the rest; nothing in a step allocates.
    void reserve(int rows) {
        auto const [E, chosen, slots, rest, wide] = extents_of(rows);
        auto const T = static_cast<std::size_t>(rows), H = static_cast<std::size_t>(config_->hidden);
        if (E == 0) return;
        traced_.clear();
        bad_layer_ = bad_row_ = -1;  // of a call that failed elsewhere
        if (routes_here()) {
            scores_.reserve(T * E);
            score_.reserve(E);
            experts_.resize(slots);
            gates_.reserve(slots);
            places_.resize(slots);
            cursor_.resize(E);
            parts_.resize(chosen);
            zeros_.reserve(H);
            if (traces_) traced_.reserve(slots * static_cast<std::size_t>(stage_.layer_count()));
        } else {
            taken_.reserve(T * H);
            is_taken_.resize(T);
        }
        gathered_.reserve((std::max)(T, at_once(slots)) * H);
        up_.reserve(rest);
        list_.reserve(2 * (std::min)(E, slots));
        if (gathers_widths()) whole_.reserve(T * wide);
        if (by_width() && !gathers_widths()) {
            summed_.reserve(chosen * H);
            stack_.reserve(static_cast<std::size_t>(tree_depth(ranks_)) * H);
        }
        if (sums_exactly()) exact_.reserve(slots, H);
        scratch_.reserve(ops_->multiply_all_scratch_floats(static_cast<int>((std::max)(T, at_once(slots))), static_cast<int>((std::max)(H, wide)),
                                                           crew_->size()));
    }

    /// Chooses the experts of every row and sorts the rows by expert.  x (T, H), which stays as it is until `combine` is done
    void route(int layer, layer_weights const& w, float const* x, int rows) {
        routed_experts const& e = experts_of(layer);
        int const E = e.count, k = e.chosen;
        multiply({scores_.data(), E, &w.matrix(role::router), x, config_->hidden, rows});
        int const bad = ops_->route({.how = &e,
                                     .scores = scores_.data(),
                                     .correction = w.vector(role::correction),
                                     .scratch = score_.data(),
                                     .experts = experts_.data(),
                                     .gates = gates_.data(),
                                     .rows = rows});
        if (bad >= 0 && bad_row_ < 0) {
            bad_layer_ = stage_.first_layer + layer;
            bad_row_ = bad;
        }
        sort_rows(layer, E, k, rows);
        if (traces_) traced_.insert(traced_.end(), experts_.begin(), experts_.begin() + std::ptrdiff_t{rows} * k);
    }

    /// Runs the experts of this rank, or its share of all of them, on the rows that were routed to them.
    ///
    ///   rows  (T, H)  what the router routed; the root's, of which the rows are copied, where the root alone routes
    void serve(int layer, layer_weights const& w, float const* rows) {
        basic_expert_program const& table = router();
        expert_census& count = census_of(layer);
        int const H = config_->hidden;
        float const* const x = routes_here() ? rows : take_rows(table, rows, w, count);
        // Few rows, and all experts' products are one piece of work for the rank's threads; many, and each expert's fill the cache by themselves.
        bool const together = static_cast<std::size_t>(table.first_[w.experts.size()]) <= most_at_once;
        list_.clear();
        for (std::size_t e = 0; e < w.experts.size(); ++e) {
            int const first = table.first_[e], n = table.first_[e + 1] - first;
            expert_weights const& expert = w.experts[e];
            if (expert.gate.data == nullptr || n == 0 || idle()) continue;
            count.dispatched_rows += n;
            ++count.experts;
            int const J = expert.gate.rows;
            std::ptrdiff_t const at = together || joins_widths() ? std::ptrdiff_t{first} * J : 0;
            float const* const own = rows_of(x, table.entries_.data() + first, n, together ? std::ptrdiff_t{first} * H : 0);
            list_.push_back({gate_.data() + at, J, &expert.gate, own, H, n});
            list_.push_back({up_.data() + (together ? at : 0), J, &expert.up, own, H, n});
            if (!together) finish_experts(table, w, e);
        }
        if (together) finish_experts(table, w, 0);
    }

    /// Gathers the width of every routed row from all ranks and computes this rank's columns of what the experts give; or, of exact products,
    /// its share of their sums.
    void join_widths(int layer, layer_weights const& w) {
        if (sums_exactly()) return add_up(layer, w);
        basic_expert_program const& table = router();
        expert_census& count = census_of(layer);
        int const J = experts_of(layer).width;
        share const own = own_columns();
        for (int p = 0; p < ranks_; ++p) count_read(count, p, std::int64_t{table.first_[w.experts.size()]} * share_of(J, p, ranks_).size());
        ++counts_->gathers;
        for (std::size_t e = 0; e < w.experts.size(); ++e) {
            std::ptrdiff_t const first = table.first_[e], n = table.first_[e + 1] - first;
            if (n == 0 || idle()) continue;
            for (int p = 0; p < ranks_; ++p) {
                share const part = share_of(J, p, ranks_);
                for (std::ptrdiff_t i = 0; i < n; ++i)
                    copy(whole_.data() + i * J + part.begin, peer(p).gate_.data() + (first + i) * part.size(), part.size(), p);
            }
            multiply({returned_.data() + first * own.size(), own.size(), &w.experts[e].down, whole_.data(), J, static_cast<int>(n)});
        }
    }

    /// The routed output of every row: this rank's columns under `tensor`, else all of them.  out (T, columns)
    void combine(int layer, layer_weights const& w, float* out) {
        expert_census& count = census_of(layer);
        std::ptrdiff_t const k = experts_of(layer).chosen;
        share const columns = routed_columns();
        if (by_width() && !gathers_widths()) {
            for (int p = 0; p < ranks_; ++p) count_read(count, p, count_ * k * columns.size() * (exact_ ? 2 : 1));
            ++counts_->reductions;
        } else if (by_width() && !is_cut()) {
            for (int p = 0; p < ranks_; ++p) count_read(count, p, count_ * k * share_of(config_->hidden, p, ranks_).size());
            ++counts_->gathers;
        }
        if (by_width()) count.returned_rows += count_ * k * (is_cut() && gathers_widths() ? 0 : ranks_ - 1);
        for (std::ptrdiff_t t = 0; t < count_; ++t) {
            float* const row = out + t * columns.size();
            if (!by_width()) {
                for (std::ptrdiff_t s = 0; s < k; ++s) parts_[static_cast<std::size_t>(s)] = part_from_owner(layer, t * k + s, columns, count);
                combine_row(layer, t, row, columns.size());
            } else if (!gathers_widths()) {
                for (std::ptrdiff_t s = 0; s < k; ++s) parts_[static_cast<std::size_t>(s)] = sum_of_partials(w, t * k + s, s, columns);
                combine_row(layer, t, row, columns.size());
            } else {
                for (int p = is_cut() ? member_ : 0; p < (is_cut() ? member_ + 1 : ranks_); ++p) {
                    share const of_peer = share_of(config_->hidden, p, ranks_);
                    for (std::ptrdiff_t s = 0; s < k; ++s)
                        parts_[static_cast<std::size_t>(s)] =
                            dropped(p) ? zeros_.data() : peer(p).returned_.data() + place(t * k + s) * of_peer.size();
                    combine_row(layer, t, row + (is_cut() ? 0 : of_peer.begin), of_peer.size());
                }
            }
        }
    }

    /// What the root's table tells the others.
    template <class Visit>
    void publish_tables(int layer, Visit visit) {
        routed_experts const& e = experts_of(layer);
        visit(publication{first_.data(), 1, std::int64_t{e.count} + 1});
        visit(publication{base_.data(), 1, e.count});
        visit(publication{entries_.data(), count_, e.chosen});
    }
    /// What `serve` and `join_widths` leave for others, by the routing table of `here`.
    template <class Visit>
    void publications(step s, basic_expert_program const& here, Visit visit) {
        basic_expert_program const& table = here.router();
        routed_experts const& e = experts_of(s.layer);
        std::int64_t const slots = count_ * e.chosen, H = config_->hidden;
        if (s.what == step_kind::join_widths) {
            if (sums_exactly()) return visit(exact_.sums(slots, is_cut()));
            if (!is_cut()) visit(publication{returned_.data(), slots, own_columns().size(), false, true});
            return;
        }
        if (sums_exactly()) return visit(exact_.magnitudes(slots));
        if (gathers_widths()) return visit(publication{gate_.data(), slots, share_of(e.width, member_, ranks_).size()});
        std::int64_t rows = by_width() ? slots : 0;
        for (int i = 0; !by_width() && i < e.count; ++i)
            if (owner(s.layer, i) == member_) rows += table.first_[static_cast<std::size_t>(i) + 1] - table.first_[static_cast<std::size_t>(i)];
        if (rows > 0) visit(publication{returned_.data(), rows, H, is_cut(), !is_cut()});
    }

    /// The first row, and its layer, of which every score was NaN since this was last asked; -1 where there is none.
    struct nan_row {
        int layer = -1, row = -1;
    };
    nan_row take_nan_row() {
        nan_row const found{bad_layer_, bad_row_};
        bad_layer_ = bad_row_ = -1;
        return found;
    }
    /// What the layers of the batch chose, one after the other: (T, k) each.
    std::span<std::int32_t const> traced() const { return traced_; }

private:
    static constexpr std::size_t most_at_once = 128;                 ///< routed rows of a layer whose experts are computed together
    static constexpr std::ptrdiff_t values_worth_sharing = 1 << 14;  ///< below, one thread is done before another has begun
    static constexpr std::size_t at_once(std::size_t slots) { return (std::min)(slots, most_at_once); }

    /// The most of everything, over the layers of the stage.
    struct extents {
        std::size_t experts = 0, chosen = 0, slots = 0, inner = 0, width = 0;
    };
    extents extents_of(int rows) const {
        extents most;
        auto const T = static_cast<std::size_t>(rows);
        for (int l = 0; l < stage_.layer_count(); ++l) {
            routed_experts const& e = experts_of(l);
            auto const k = static_cast<std::size_t>(e.chosen), J = static_cast<std::size_t>(e.width);
            auto const own = by_width() ? static_cast<std::size_t>(share_of(e.width, member_, ranks_).size()) : J;
            most.experts = (std::max)(most.experts, static_cast<std::size_t>(e.count));
            most.chosen = (std::max)(most.chosen, k);
            most.slots = (std::max)(most.slots, T * k);
            most.inner = (std::max)(most.inner, (joins_widths() ? T * k : (std::max)(T, at_once(T * k))) * own);
            most.width = (std::max)(most.width, J);
        }
        return most;
    }
    routed_experts const& experts_of(int layer) const { return config_->layer(stage_.first_layer + layer).experts; }
    bool is_cut() const { return cuts_.tensor && ranks_ > 1; }
    bool by_width() const { return cuts_.expert_width && ranks_ > 1; }
    bool gathers_widths() const { return by_width() && cuts_.width_join == join_kind::gather; }
    bool sums_exactly() const { return by_width() && cuts_.width_join == join_kind::reduce && exact_; }
    bool routes_here() const { return is_cut() || member_ == 0; }
    bool idle() const { return fault_ == testing::fault::idle_rank && ranks_ > 1 && member_ == ranks_ - 1; }
    bool dropped(int p) const {
        return (fault_ == testing::fault::dropped_rows || fault_ == testing::fault::dropped_peer) && ranks_ > 1 && p == ranks_ - 1;
    }
    int owner(int layer, int e) const {
        return cuts_.expert && ranks_ > 1 ? owner_of(stage_, layer, e, experts_of(layer).count) : 0;
    }
    share own_columns() const { return share_of(config_->hidden, member_, ranks_); }
    share routed_columns() const { return is_cut() ? own_columns() : share{0, config_->hidden}; }
    basic_expert_program& peer(int p) const { return *group_[static_cast<std::size_t>(p)]; }
    basic_expert_program const& router() const { return routes_here() ? *this : *group_[0]; }
    expert_census& census_of(int layer) {
        return counts_->experts[static_cast<std::size_t>(place_in_census_[static_cast<std::size_t>(layer)])];
    }
    void count_read(expert_census& count, int from, std::int64_t floats) {
        if (from == member_ || floats == 0) return;
        ++counts_->messages;
        counts_->bytes += 4 * floats;
        count.bytes += 4 * floats;
    }
    void copy(float* to, float const* from, std::ptrdiff_t count, int peer) const {
        if (dropped(peer))
            std::memset(to, 0, static_cast<std::size_t>(count) * sizeof(float));
        else
            std::memcpy(to, from, static_cast<std::size_t>(count) * sizeof(float));
    }
    void multiply(device::product const& p) { multiply_all({&p, 1}); }
    void multiply_all(std::span<device::product const> list) {
        ops_->multiply_all(list, scratch_.data(), *crew_);
        counts_->products += static_cast<std::int64_t>(list.size());
    }

    /// Computes the pairs of gate and up that `list_` has, of experts from `first` on, and what comes after them.
    void finish_experts(basic_expert_program const& table, layer_weights const& w, std::size_t first) {
        multiply_all(list_);
        int const H = config_->hidden;
        std::size_t e = first, downs = 0;
        for (std::size_t i = 0; i < list_.size(); i += 2, ++e) {
            device::product const gate = list_[i];
            std::ptrdiff_t const J = gate.y_stride;
            float const* const up = list_[i + 1].y;
            crew_->share(gate.rows, values_worth_sharing / J + 1, [&](std::ptrdiff_t begin, std::ptrdiff_t end) {
                ops_->swiglu(gate.y + begin * J, gate.y + begin * J, up + begin * J, static_cast<std::size_t>((end - begin) * J));
            });
            while (&w.experts[e].gate != gate.w) ++e;
            if (sums_exactly())
                exact_.measure(gate.y, gate.w->rows, table.first_[e], gate.rows);
            else if (!gathers_widths())
                list_[downs++] = {returned_.data() + std::ptrdiff_t{table.base_[e]} * H, H, &w.experts[e].down, gate.y, J, gate.rows};
        }
        multiply_all(std::span<device::product const>(list_).first(downs));
        list_.clear();
    }

    /// `entries_`: the rows by expert, ids ascending, rows ascending; `first_`: where an expert's begin; `places_`: where row t's s-th choice
    /// is; `base_`: where an expert's begin among those of its owner.
    void sort_rows(int layer, int E, int k, int rows) {
        for (int e = 0; e <= E; ++e) first_[static_cast<std::size_t>(e)] = 0;
        for (std::ptrdiff_t i = 0; i < std::ptrdiff_t{rows} * k; ++i) ++first_[at(experts_, i) + 1];
        std::array<std::int32_t, most_ranks_of_a_stage> next{};
        for (int e = 0; e < E; ++e) {
            auto const i = static_cast<std::size_t>(e);
            std::int32_t const n = first_[i + 1];
            cursor_[i] = first_[i];
            first_[i + 1] = first_[i] + n;
            std::int32_t& on_owner = next[static_cast<std::size_t>(owner(layer, e))];
            base_[i] = on_owner;
            on_owner += n;
        }
        for (std::ptrdiff_t i = 0; i < std::ptrdiff_t{rows} * k; ++i) {
            std::int32_t const to = cursor_[at(experts_, i)]++;
            places_[static_cast<std::size_t>(i)] = to;
            entries_[static_cast<std::size_t>(to)] = static_cast<std::int32_t>(i / k);
        }
    }
    static std::size_t at(std::vector<std::int32_t> const& ids, std::ptrdiff_t i) {
        return static_cast<std::size_t>(ids[static_cast<std::size_t>(i)]);
    }

    /// Copies from the root what was routed here, every row once.
    float const* take_rows(basic_expert_program const& table, float const* rows, layer_weights const& w, expert_census& count) {
        std::ptrdiff_t const H = config_->hidden;
        std::fill(is_taken_.begin(), is_taken_.end(), char{0});
        for (std::size_t e = 0; e < w.experts.size(); ++e) {
            if (w.experts[e].gate.data == nullptr) continue;
            for (std::int32_t i = table.first_[e]; i < table.first_[e + 1]; ++i) {
                std::ptrdiff_t const t = table.entries_[static_cast<std::size_t>(i)];
                char& taken = is_taken_[static_cast<std::size_t>(t)];
                if (taken != 0) continue;
                taken = 1;
                std::memcpy(taken_.data() + t * H, rows + t * H, static_cast<std::size_t>(H) * sizeof(float));
                count_read(count, 0, H);
            }
        }
        return taken_.data();
    }

    /// The rows of one expert side by side, from `to` on where they have to be copied.
    float const* rows_of(float const* x, std::int32_t const* which, int n, std::ptrdiff_t to) {
        std::ptrdiff_t const H = config_->hidden;
        if (n == 1) return x + which[0] * H;
        float* const rows = gathered_.data() + to;
        crew_->share(n, values_worth_sharing / H + 1, [&](std::ptrdiff_t begin, std::ptrdiff_t end) {
            for (std::ptrdiff_t i = begin; i < end; ++i) std::memcpy(rows + i * H, x + which[i] * H, static_cast<std::size_t>(H) * sizeof(float));
        });
        return rows;
    }

    std::ptrdiff_t place(std::ptrdiff_t slot) const { return places_[static_cast<std::size_t>(slot)]; }
    float const* part_from_owner(int layer, std::ptrdiff_t slot, share columns, expert_census& count) {
        auto const e = at(experts_, slot);
        int const p = owner(layer, static_cast<int>(e));
        if (p != member_) ++count.returned_rows;
        count_read(count, p, columns.size());
        if (dropped(p)) return zeros_.data();
        return peer(p).returned_.data() + (base_[e] + place(slot) - first_[e]) * std::ptrdiff_t{config_->hidden} + columns.begin;
    }
    float const* sum_of_partials(layer_weights const& w, std::ptrdiff_t slot, std::ptrdiff_t s, share columns) {
        float* const out = summed_.data() + s * columns.size();
        if (exact_) {
            exact_.finish(out, w.experts[at(experts_, slot)].down, place(slot), columns, ranks_, exact_peers());
            return out;
        }
        std::ptrdiff_t const from = place(slot) * config_->hidden + columns.begin;
        add_tree(*ops_, out, stack_.data(), ranks_, static_cast<std::size_t>(columns.size()),
                 [&](int p) { return dropped(p) ? zeros_.data() : peer(p).returned_.data() + from; });
        return out;
    }
    auto exact_peers() const {
        return [this](int p) { return dropped(p) ? nullptr : &peer(p).exact_; };
    }
    void add_up(int layer, layer_weights const& w) {
        basic_expert_program const& table = router();
        expert_census& count = census_of(layer);
        int const slots = table.first_[w.experts.size()];
        exact_.agree(slots, ranks_, fault_ == testing::fault::own_magnitudes && member_ == ranks_ - 1 ? member_ : -1, exact_peers());
        for (int p = 0; p < ranks_; ++p) count_read(count, p, slots);
        for (std::size_t e = 0; e < w.experts.size(); ++e) {
            std::ptrdiff_t const first = table.first_[e], n = table.first_[e + 1] - first;
            if (n == 0 || idle()) continue;
            kernel::packed_matrix const& down = w.experts[e].down;
            exact_.add_up(down, gate_.data() + first * down.columns, first, static_cast<int>(n), scratch_.data(), *crew_);
            ++counts_->products;
        }
    }
    void combine_row(int layer, std::ptrdiff_t row, float* out, int columns) {
        routed_experts const& e = experts_of(layer);
        ops_->combine({.out = out,
                       .parts = parts_.data(),
                       .gates = gates_.data() + row * e.chosen,
                       .experts = experts_.data() + row * e.chosen,
                       .chosen = e.chosen,
                       .count = e.count,
                       .n = static_cast<std::size_t>(columns)});
    }

    model_config const* config_;
    stage_traits stage_;
    device::backend const* ops_;
    device::crew* crew_ = nullptr;
    rank_census* counts_;
    rules cuts_;
    testing::fault fault_;
    int member_, ranks_;
    basic_exact_join<Lazy> exact_;
    bool traces_ = false;
    std::span<basic_expert_program* const> group_{};
    deferred<Lazy, std::vector<int>> place_in_census_;  ///< by layer of the stage; -1 where it is dense

    // What a rank that routes knows of the batch.
    std::ptrdiff_t count_ = 0;
    float_scratch scores_, score_, gates_;
    deferred<Lazy, std::vector<std::int32_t>> experts_, places_, cursor_, traced_;
    published<std::int32_t> entries_, first_, base_;
    int bad_layer_ = -1, bad_row_ = -1;

    // What a rank computes.
    float_scratch taken_, gathered_, up_, whole_, summed_, stack_, zeros_, scratch_;
    published<float> gate_, returned_;  ///< the widths of routed rows, and what the experts give, row by row
    deferred<Lazy, std::vector<char>> is_taken_;
    deferred<Lazy, std::vector<float const*>> parts_;
    deferred<Lazy, std::vector<device::product>> list_;
};

}  // namespace tenon::inline v0::detail
