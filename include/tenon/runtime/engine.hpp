// A loaded model: the ranks of a graph, the threads that serve them, and one call that runs a ragged batch through all stages.
// One engine for every graph, static or dynamic: nothing here depends on a graph's type.
// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <tenon/checkpoint/block_scaling.hpp>
#include <tenon/checkpoint/folder.hpp>
#include <tenon/checkpoint/inventory.hpp>
#include <tenon/checkpoint/tensor_source.hpp>
#include <tenon/core/error.hpp>
#include <tenon/detail/deferred.hpp>
#include <tenon/device/backend.hpp>
#include <tenon/device/concept.hpp>
#include <tenon/graph/lower.hpp>
#include <tenon/graph/placed.hpp>
#include <tenon/kernel/float_environment.hpp>
#include <tenon/kernel/rope_frequencies.hpp>
#include <tenon/runtime/loading.hpp>
#include <tenon/runtime/options.hpp>
#include <tenon/runtime/rank_program.hpp>
#include <tenon/runtime/runtime.hpp>
#include <tenon/runtime/state.hpp>
#include <tenon/runtime/team.hpp>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace tenon::inline v0 {

namespace detail {

// A template with nothing to choose: a program that includes this without loading a model does not pay for instantiating it.
template <class Lazy>
class basic_engine {
    using rank_program = basic_rank_program<Lazy>;

public:
    using opener = device::backend const* (*)(device_kind, std::string_view isa);

    /// `graph` outlives the engine; `open` gives the backends of its devices. A placement map is checked against the graph, and headers
    /// against the config, before a weight is read.
    basic_engine(graph_view graph, checkpoint::folder const& files, checkpoint::block_scaling scaling, opener open,
                 load_options const& options, runtime_kind kind)
        : placed_(place_experts(graph, options.placement)),
          graph_(placed_.view()),
          kind_(kind),
          id_(next_id()),
          report_(checkpoint::check_inventory(files, *graph.config, scaling)),
          routing_(options.routing) {
        kernel::flush_to_zero_guard const exact;
        for (int k = 0; k < config().kind_count; ++k)
            frequencies_.emplace_back(config().rope, config().kinds[static_cast<std::size_t>(k)].attention.head_dim);
        checkpoint::tensor_source const source(files, config(), scaling);
        layout_ = source.layout();
        build(open, options);
        require_formats(graph_, source, options.weights, [this](int stage) -> device::backend const& {
            return stages_[static_cast<std::size_t>(stage)]->members[0]->ops();
        });
        load(source, options);
    }
    basic_engine(basic_engine const&) = delete;
    basic_engine& operator=(basic_engine const&) = delete;

    graph_view graph() const { return graph_; }
    model_config const& config() const { return *graph_.config; }
    /// What the tail's root computes with; it samples too.
    device::backend const& ops() const {
        require_open();
        return stages_.back()->members[0]->ops();
    }
    checkpoint::inventory_report const& report() const { return report_; }
    int ranks() const { return static_cast<int>(ranks_.size()); }
    std::int64_t weight_bytes(int rank) const {
        lease const held(*this);
        return at(rank).weights().bytes();
    }

    /// The right to use the model, until the end of a scope: one caller at a time, a whole generation long.
    class lease {
    public:
        explicit lease(basic_engine const& of) : of_(of) {
            if (of.busy_.exchange(true, std::memory_order_acquire))
                refuse("model_serves_one_call", "another call is running; one call at a time would do");
            of.holder_.store(std::this_thread::get_id(), std::memory_order_relaxed);
        }
        lease(lease const&) = delete;
        lease& operator=(lease const&) = delete;
        ~lease() {
            of_.holder_.store({}, std::memory_order_relaxed);
            of_.busy_.store(false, std::memory_order_release);
        }

    private:
        basic_engine const& of_;
    };

    state make_state(std::int64_t positions, growth room) {
        lease const held(*this);
        return make_state(held, positions, room);
    }
    state make_state(lease const&, std::int64_t positions, growth room) {
        require_open();
        if (positions < 0 || positions > config().max_positions) refuse_positions(positions);
        auto s = std::make_unique<sequence>();
        s->owner = id_;
        s->number = states_made_++;
        s->room = room == growth::fixed ? positions : config().max_positions;
        for (auto const& r : ranks_) {
            s->caches.push_back(r->new_cache());
            s->caches.back().reserve(positions);
        }
        return state(std::move(s));
    }

    /// Refuses by name what a call may not be given, before anything runs.
    void check(lease const&, std::span<feed const> feeds) const {
        require_open();
        for (std::size_t i = 0; i < feeds.size(); ++i) {
            state const* const s = feeds[i].sequence;
            if (s == nullptr || s->released())
                refuse("state_is_alive", "state " + std::to_string(i) + " of the batch is empty or has been released");
            if (s->sequence_->owner != id_)
                refuse("state_belongs_to_the_model", "state " + std::to_string(i) + " of the batch was made by another model");
            for (std::size_t j = 0; j < i; ++j)
                if (feeds[j].sequence == s)
                    refuse("batch_names_a_state_once",
                           "states " + std::to_string(j) + " and " + std::to_string(i) + " of the batch are one");
            if (feeds[i].tokens.empty())
                refuse("feed_has_tokens", "state " + std::to_string(i) + " of the batch gets no token; 1 or more would do");
            std::int64_t const after = s->length() + static_cast<std::int64_t>(feeds[i].tokens.size());
            if (after > config().max_positions) refuse_positions(after);
            if (after > s->sequence_->room)
                refuse("state_has_room", "state " + std::to_string(i) + " of the batch would hold " + std::to_string(after) +
                                             " positions and was made with fixed room for " + std::to_string(s->sequence_->room) +
                                             "; growth::grows would do");
            for (token_id const id : feeds[i].tokens)
                if (id < 0 || id >= config().vocab)
                    refuse("token_is_in_vocabulary",
                           "token id " + std::to_string(id) + "; 0 to " + std::to_string(config().vocab - 1) + " would do");
        }
    }

    /// Feeds every state its new tokens and returns rows of logits, in the order of the batch: (rows, V), valid until the next call.
    std::span<float const> forward(std::span<feed const> feeds, rows_wanted which) {
        lease const held(*this);
        return forward(held, feeds, which);
    }
    std::span<float const> forward(lease const& held, std::span<feed const> feeds, rows_wanted which) {
        check(held, feeds);
        prepare(feeds, which);
        run();
        require_scores();
        if (routing_ != nullptr) tell_routing(feeds);
        for (feed const& f : feeds) f.sequence->sequence_->length += static_cast<std::int64_t>(f.tokens.size());
        return {logits_.data(), batch_.wanted.size() * static_cast<std::size_t>(config().vocab)};
    }

    census take_census() const {
        lease const held(*this);
        require_open();
        census c;
        for (auto const& r : ranks_) {
            rank_census const& n = r->counts();
            c.ranks.push_back(n);
            c.total.messages += n.messages;
            c.total.bytes += n.bytes;
            c.total.gathers += n.gathers;
            c.total.reductions += n.reductions;
            c.total.hand_overs += n.hand_overs;
            c.total.products += n.products;
            c.total.rows += n.rows;
            for (expert_census const& e : n.experts) add_to(c.total.experts, e);
        }
        return c;
    }

    std::vector<parameter> parameters() const {
        lease const held(*this);
        require_open();
        return gather_parameters(config(), layout_, ranks_);
    }

    /// Ends the threads and frees the weights, after a call that is still running. Idempotent.
    void close() noexcept {
        if (holder_.load(std::memory_order_relaxed) == std::this_thread::get_id()) {  // from an observer: the call ends first
            closed_ = true;
            return;
        }
        while (busy_.exchange(true, std::memory_order_acquire)) std::this_thread::yield();
        closed_ = true;
        team_.reset();
        ranks_.clear();
        busy_.store(false, std::memory_order_release);
    }

private:
    static std::uint64_t next_id() {
        static std::atomic<std::uint64_t> count{0};
        return ++count;
    }
    rank_program const& at(int rank) const {
        require_open();
        if (rank < 0 || rank >= ranks()) refuse("rank_exists", "rank " + std::to_string(rank) + " of " + std::to_string(ranks()));
        return *ranks_[static_cast<std::size_t>(rank)];
    }
    void require_open() const {
        if (closed_) refuse("model_is_open", "the model has been closed");
    }
    [[noreturn]] void refuse_positions(std::int64_t positions) const {
        refuse("positions_fit_the_model",
               std::to_string(positions) + " positions; the model has " + std::to_string(config().max_positions));
    }

    void build(opener open, load_options const& options) {
        int rank = 0;
        for (std::size_t s = 0; s < graph_.stages.size(); ++s) {
            device_kind const on = graph_.stages[s].devices[0].kind;
            device::backend const* const backend = open(on, options.isa);
            if (backend == nullptr) refuse("device_is_available", "no backend for " + std::string(name_of(on)) + " in this program");
            stages_.push_back(std::make_unique<group>(graph_.stages[s].ranks()));
            group& g = *stages_.back();
            for (int m = 0; m < graph_.stages[s].ranks(); ++m, ++rank) {
                ranks_.push_back(std::make_unique<rank_program>(graph_, static_cast<int>(s), m, rank, *backend, options.fault));
                g.members.push_back(ranks_.back().get());
                if (m == 0 && routing_ != nullptr) g.members[0]->experts().trace();
                g.workers.push_back(worker_of(graph_.stages[s].devices[static_cast<std::size_t>(m)]));
            }
            for (rank_program* r : g.members) r->meet(g.members);
            g.steps = g.members[0]->steps();
        }
        if (kind_ == runtime_kind::threads) team_ = std::make_unique<thread_team>(static_cast<int>(devices_.size()));
    }

    int worker_of(device_id device) {
        for (std::size_t w = 0; w < devices_.size(); ++w)
            if (devices_[w] == device) return static_cast<int>(w);
        devices_.push_back(device);
        return static_cast<int>(devices_.size()) - 1;
    }

    /// Every worker loads the slices of its own ranks.
    void load(checkpoint::tensor_source const& source, load_options const& options) {
        struct forwarder final : load_observer {
            load_observer* to = nullptr;
            std::int64_t done = 0, total = 0;
            std::mutex one_at_a_time;
            void loaded(std::string_view name, std::int64_t bytes, std::int64_t) override {
                std::lock_guard const lock(one_at_a_time);
                done += bytes;
                to->loaded(name, done, total);
            }
        } progress;
        progress.to = options.observer;
        if (options.observer != nullptr) progress.total = bytes_to_load(graph_, source, options.weights);
        struct loading final : thread_team::job {
            basic_engine* self = nullptr;
            load_context const* how = nullptr;
            void run(int worker) override {
                for (std::size_t s = 0; s < self->stages_.size(); ++s)
                    for (std::size_t m = 0; m < self->stages_[s]->members.size(); ++m)
                        if (worker < 0 || self->stages_[s]->workers[m] == worker)
                            self->stages_[s]->members[m]->load(self->graph_, static_cast<int>(s), *how);
            }
        } job;
        load_context const how{source, options.weights, options.observer != nullptr ? &progress : nullptr, options.fault};
        job.self = this;
        job.how = &how;
        if (team_)
            team_->run(job);
        else
            job.run(-1);
    }

    /// Everything that can fail happens here, before a rank runs.
    void prepare(std::span<feed const> feeds, rows_wanted which) {
        batch_.parts.clear();
        batch_.tokens.clear();
        batch_.wanted.clear();
        for (feed const& f : feeds) {
            sequence& s = *f.sequence->sequence_;
            int const first = batch_.rows(), count = static_cast<int>(f.tokens.size());
            std::int64_t const needed = s.length + count;
            for (sequence_cache& c : s.caches)
                if (needed > c.capacity())
                    c.reserve(std::min<std::int64_t>((std::max)(needed, 2 * c.capacity()),
                                                     std::max<std::int64_t>(needed, config().max_positions)));
            batch_.parts.push_back({s.caches, first, count, s.length});
            batch_.tokens.insert(batch_.tokens.end(), f.tokens.begin(), f.tokens.end());
            for (int row = which == rows_wanted::all ? 0 : count - 1; row < count; ++row) batch_.wanted.push_back(first + row);
        }
        for (std::size_t k = 0; k < frequencies_.size(); ++k)
            if (rotation_of(config(), k) == k) rotate(batch_.rotations[k], frequencies_[k], config().kinds[k].attention.head_dim / 2);
        logits_.reserve(batch_.wanted.size() * static_cast<std::size_t>(config().vocab));
        for (auto const& r : ranks_) r->reserve(batch_);
    }

    void rotate(rotation& r, kernel::rope_frequencies const& frequencies, int pairs) {
        auto const half = static_cast<std::size_t>(pairs);
        r.cosines.resize(batch_.tokens.size() * half);
        r.sines.resize(batch_.tokens.size() * half);
        kernel::flush_to_zero_guard const exact;
        for (batch_part const& p : batch_.parts)
            for (int t = 0; t < p.rows; ++t) {
                std::size_t const at = static_cast<std::size_t>(p.first_row + t) * half;
                frequencies.row(p.first_position + t, r.cosines.data() + at, r.sines.data() + at);
            }
    }

    static void add_to(std::vector<expert_census>& total, expert_census const& e) {
        auto at = std::lower_bound(total.begin(), total.end(), e.layer, [](expert_census const& x, int layer) { return x.layer < layer; });
        if (at == total.end() || at->layer != e.layer) at = total.insert(at, expert_census{.layer = e.layer});
        at->dispatched_rows += e.dispatched_rows;
        at->returned_rows += e.returned_rows;
        at->bytes += e.bytes;
        at->experts += e.experts;
    }

    /// The sequence of the batch that a row belongs to.
    std::size_t part_of_row(int row) const {
        std::size_t i = 0;
        while (row >= batch_.parts[i].first_row + batch_.parts[i].rows) ++i;
        return i;
    }

    /// A row of scores without a number chooses nothing: the call is refused, and its states stay as they were.
    void require_scores() {
        typename basic_expert_program<Lazy>::nan_row worst;
        for (auto const& r : ranks_)
            if (auto const found = r->experts().take_nan_row(); found.row >= 0 && (worst.row < 0 || found.layer < worst.layer)) worst = found;
        if (worst.row < 0) return;
        std::size_t const i = part_of_row(worst.row);
        batch_part const& p = batch_.parts[i];
        refuse("router_scores_are_numbers",
               "layer " + std::to_string(worst.layer) + ": all " + std::to_string(config().layer(worst.layer).experts.count) +
                   " scores of state " + std::to_string(i) + " at position " + std::to_string(p.first_position + worst.row - p.first_row) +
                   " are NaN; an expert needs one that is a number");
    }

    void tell_routing(std::span<feed const> feeds) {
        for (auto const& g : stages_) {
            std::span<std::int32_t const> all = g->members[0]->experts().traced();
            stage_traits const& s = graph_.stages[static_cast<std::size_t>(&g - stages_.data())];
            for (int l = s.first_layer; l <= s.last_layer; ++l) {
                auto const k = static_cast<std::size_t>(config().layer(l).experts ? config().layer(l).experts.chosen : 0);
                if (k == 0) continue;
                for (std::size_t i = 0; i < batch_.parts.size(); ++i)
                    for (int t = 0; t < batch_.parts[i].rows; ++t, all = all.subspan(k))
                        routing_->routed(l, feeds[i].sequence->sequence_->number, batch_.parts[i].first_position + t, all.first(k));
            }
        }
    }

    void run() {
        if (batch_.rows() == 0) return;
        if (!team_) {
            kernel::flush_to_zero_guard const exact;
            for (std::size_t s = 0; s < stages_.size(); ++s) run_stage(s);
            return;
        }
        struct forwarding final : thread_team::job {
            basic_engine* self = nullptr;
            void run(int worker) override { self->serve(worker); }
        } job;
        job.self = this;
        ++call_;
        failed_.store(false, std::memory_order_relaxed);
        team_->run(job);
    }

    void run_stage(std::size_t s) {
        group& g = *stages_[s];
        if (s > 0)
            for (rank_program* r : g.members) r->take_over(*stages_[s - 1]->members[0], batch_);
        for (step const& x : g.steps)
            for (rank_program* r : g.members) r->run(x, batch_);
        if (s + 1 == stages_.size()) g.members[0]->collect_logits(logits_.data(), batch_);
    }

    /// One worker's way through the stages: it waits for the one before, runs its rank in step with the group, and tells the next.
    /// After a failure nothing more is computed, but everybody still meets, so that nobody waits for ever.
    void serve(int worker) {
        int const spins = team_->spins();
        std::exception_ptr failure;
        auto const attempt = [this, &failure](auto work) {
            if (failed_.load(std::memory_order_acquire)) return;
            try {
                work();
            } catch (...) {
                failure = std::current_exception();
                failed_.store(true, std::memory_order_release);
            }
        };
        for (std::size_t s = 0; s < stages_.size(); ++s) {
            group& g = *stages_[s];
            for (std::size_t m = 0; m < g.members.size(); ++m) {
                if (g.workers[m] != worker) continue;
                if (s > 0) {
                    std::atomic<std::uint32_t> const& before = stages_[s - 1]->finished;
                    for (std::uint32_t seen = before.load(std::memory_order_acquire); seen != call_;
                         seen = before.load(std::memory_order_acquire))
                        wait_for_change(before, seen, spins);
                    attempt([&] { g.members[m]->take_over(*stages_[s - 1]->members[0], batch_); });
                }
                for (step const& x : g.steps) {
                    attempt([&] { g.members[m]->run(x, batch_); });
                    if (g.members.size() > 1) g.meeting.arrive_and_wait(spins);
                }
                if (m != 0) continue;
                if (s + 1 == stages_.size()) attempt([&] { g.members[0]->collect_logits(logits_.data(), batch_); });
                g.finished.store(call_, std::memory_order_release);
                g.finished.notify_all();
            }
        }
        if (failure) std::rethrow_exception(failure);
    }

    /// A stage's ranks, and where they meet.
    struct group {
        explicit group(int size) : meeting(size) {}
        std::vector<rank_program*> members;
        std::vector<int> workers;
        std::vector<step> steps;
        spin_barrier meeting;
        alignas(64) std::atomic<std::uint32_t> finished{0};  ///< the last call that its root has finished
    };

    basic_placed_graph<Lazy> placed_;
    graph_view graph_;
    runtime_kind kind_;
    std::uint64_t id_;
    std::int64_t states_made_ = 0;
    deferred<Lazy, std::vector<kernel::rope_frequencies>> frequencies_;  ///< by kind of layer
    checkpoint::inventory_report report_;
    checkpoint::expert_layout layout_ = checkpoint::expert_layout::apart;
    routing_observer* routing_;
    deferred<Lazy, std::vector<device_id>> devices_;  ///< one a worker, in order of first appearance
    std::vector<std::unique_ptr<rank_program>> ranks_;
    deferred<Lazy, std::vector<std::unique_ptr<group>>> stages_;
    deferred<Lazy, batch> batch_;
    float_scratch logits_;
    std::uint32_t call_ = 0;
    std::atomic<bool> failed_{false};  ///< a rank of this call threw
    mutable std::atomic<bool> busy_{false};
    mutable std::atomic<std::thread::id> holder_{};      ///< of the lease
    bool closed_ = false;                                ///< read and written under the lease
    deferred<Lazy, std::unique_ptr<thread_team>> team_;  // last: its threads end before what they use
};

}  // namespace detail
}  // namespace tenon::inline v0
