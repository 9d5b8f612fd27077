// A loaded model: the ranks of a graph, the threads that serve them, and one call that runs a ragged batch through all stages.
// One engine for every graph, static or dynamic: nothing here depends on a graph's type.
// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <tenon/checkpoint/folder.hpp>
#include <tenon/checkpoint/inventory.hpp>
#include <tenon/core/error.hpp>
#include <tenon/detail/deferred.hpp>
#include <tenon/graph/lower.hpp>
#include <tenon/kernel/float_environment.hpp>
#include <tenon/kernel/kernels.hpp>
#include <tenon/runtime/options.hpp>
#include <tenon/runtime/rank_program.hpp>
#include <tenon/runtime/runtime.hpp>
#include <tenon/runtime/state.hpp>
#include <tenon/runtime/team.hpp>

#include <atomic>
#include <cstddef>
#include <cstdint>
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
    /// `graph` outlives the engine. Headers are checked against the config before a weight is read.
    basic_engine(graph_view graph, checkpoint::folder const& files, load_options const& options, runtime_kind kind)
        : graph_(graph),
          kind_(kind),
          id_(next_id()),
          ops_(&kernel::table_of(isa_named(options.isa))),
          frequencies_(exact_frequencies(*graph.config)),
          report_(checkpoint::check_inventory(files, *graph.config)) {
        kernel::flush_to_zero_guard const exact;
        build(options.fault);
        load(files, options);
    }
    basic_engine(basic_engine const&) = delete;
    basic_engine& operator=(basic_engine const&) = delete;

    graph_view graph() const { return graph_; }
    model_config const& config() const { return *graph_.config; }
    kernel::table const& ops() const { return *ops_; }
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

    state make_state(std::int64_t positions) {
        lease const held(*this);
        return make_state(held, positions);
    }
    state make_state(lease const&, std::int64_t positions) {
        require_open();
        if (positions < 0 || positions > config().max_positions) refuse_positions(positions);
        auto s = std::make_unique<sequence>();
        s->owner = id_;
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
        }
        return c;
    }

    std::vector<parameter> parameters() const {
        lease const held(*this);
        require_open();
        std::vector<parameter> all;
        for (checkpoint::wanted_tensor const& w : checkpoint::inventory_of(config())) {
            parameter p{w.name, dtype::f32, w.shape, {}};
            for (auto const& r : ranks_)
                for (held_tensor const& h : r->weights().held())
                    if (h.of->what == w.what && h.layer == w.layer) put_back(p, h);
            all.push_back(std::move(p));
        }
        return all;
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
    static kernel::rope_frequencies exact_frequencies(model_config const& c) {
        kernel::flush_to_zero_guard const exact;
        return {c.rope, c.kinds[0].attention.head_dim};
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

    void build(testing::fault fault) {
        int rank = 0;
        for (std::size_t s = 0; s < graph_.stages.size(); ++s) {
            stages_.push_back(std::make_unique<group>(graph_.stages[s].ranks()));
            group& g = *stages_.back();
            for (int m = 0; m < graph_.stages[s].ranks(); ++m, ++rank) {
                ranks_.push_back(std::make_unique<rank_program>(graph_, static_cast<int>(s), m, rank, *ops_, fault));
                g.members.push_back(ranks_.back().get());
                g.workers.push_back(worker_of(graph_.stages[s].devices[static_cast<std::size_t>(m)].index));
            }
            for (rank_program* r : g.members) r->meet(g.members);
            g.steps = g.members[0]->steps();
        }
        if (kind_ == runtime_kind::threads) team_ = std::make_unique<thread_team>(static_cast<int>(devices_.size()));
    }

    int worker_of(int device) {
        for (std::size_t w = 0; w < devices_.size(); ++w)
            if (devices_[w] == device) return static_cast<int>(w);
        devices_.push_back(device);
        return static_cast<int>(devices_.size()) - 1;
    }

    /// What a rank will hold of a tensor, over all layers of its stage: the file's element type decides, tensor by tensor.
    std::int64_t bytes_to_hold(tensor const& t, int member, checkpoint::folder const& files, weights format) const {
        stage_traits const& s = graph_.stages[static_cast<std::size_t>(t.stage)];
        bool const of_layers = t.what != role::embed && t.what != role::final_norm && t.what != role::head;
        std::int64_t sum = 0;
        for (int l = of_layers ? s.first_layer : 0; l <= (of_layers ? s.last_layer : 0); ++l)
            if (!of_layers || config().kind_of[static_cast<std::size_t>(l)] == t.kind) {
                dtype const stored = files.find(checkpoint::name_of(t.what, l, config().tied))->type;
                sum += std::int64_t{t.rows_of(member).size()} * t.columns_of(member).size() * held_bytes(t, format, stored, config().tied);
            }
        return sum;
    }

    /// Every worker loads the slices of its own ranks.
    void load(checkpoint::folder const& files, load_options const& options) {
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
        for (tensor const& t : graph_.ir.tensors)
            for (int m = 0; m < t.ranks; ++m)
                if (!(t.what == role::head && config().tied && t.stage == 0)) progress.total += bytes_to_hold(t, m, files, options.weights);
        struct loading final : thread_team::job {
            basic_engine* self = nullptr;
            checkpoint::folder const* files = nullptr;
            load_options const* options = nullptr;
            load_observer* observer = nullptr;
            void run(int worker) override {
                for (std::size_t s = 0; s < self->stages_.size(); ++s)
                    for (std::size_t m = 0; m < self->stages_[s]->members.size(); ++m)
                        if (worker < 0 || self->stages_[s]->workers[m] == worker)
                            self->stages_[s]->members[m]->load(self->graph_, static_cast<int>(s), *files, options->weights, observer);
            }
        } job;
        job.self = this;
        job.files = &files;
        job.options = &options;
        job.observer = options.observer != nullptr ? &progress : nullptr;
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
                    c.reserve(
                        std::min<std::int64_t>(std::max(needed, 2 * c.capacity()), std::max<std::int64_t>(needed, config().max_positions)));
            batch_.parts.push_back({s.caches, first, count, s.length});
            batch_.tokens.insert(batch_.tokens.end(), f.tokens.begin(), f.tokens.end());
            for (int row = which == rows_wanted::all ? 0 : count - 1; row < count; ++row) batch_.wanted.push_back(first + row);
        }
        auto const half = static_cast<std::size_t>(config().kinds[0].attention.head_dim / 2), rows = batch_.tokens.size();
        batch_.cosines.resize(rows * half);
        batch_.sines.resize(rows * half);
        {
            kernel::flush_to_zero_guard const exact;
            for (batch_part const& p : batch_.parts)
                for (int t = 0; t < p.rows; ++t) {
                    std::size_t const at = static_cast<std::size_t>(p.first_row + t) * half;
                    frequencies_.row(p.first_position + t, batch_.cosines.data() + at, batch_.sines.data() + at);
                }
        }
        logits_.reserve(batch_.wanted.size() * static_cast<std::size_t>(config().vocab));
        for (auto const& r : ranks_) r->reserve(batch_);
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
    void serve(int worker) noexcept {
        int const spins = team_->spins();
        for (std::size_t s = 0; s < stages_.size(); ++s) {
            group& g = *stages_[s];
            for (std::size_t m = 0; m < g.members.size(); ++m) {
                if (g.workers[m] != worker) continue;
                if (s > 0) {
                    std::atomic<std::uint32_t> const& before = stages_[s - 1]->finished;
                    for (std::uint32_t seen = before.load(std::memory_order_acquire); seen != call_;
                         seen = before.load(std::memory_order_acquire))
                        wait_for_change(before, seen, spins);
                    g.members[m]->take_over(*stages_[s - 1]->members[0], batch_);
                }
                for (step const& x : g.steps) {
                    g.members[m]->run(x, batch_);
                    if (g.members.size() > 1) g.meeting.arrive_and_wait(spins);
                }
                if (m != 0) continue;
                if (s + 1 == stages_.size()) g.members[0]->collect_logits(logits_.data(), batch_);
                g.finished.store(call_, std::memory_order_release);
                g.finished.notify_all();
            }
        }
    }

    static void put_back(parameter& p, held_tensor const& h) {
        std::int64_t elements = 1;
        for (std::int64_t const extent : p.shape) elements *= extent;
        int const size = bytes_of(h.type);
        p.type = h.type;
        p.data.resize(static_cast<std::size_t>(elements * size));
        std::int64_t const columns = h.matrix.data != nullptr ? p.shape[1] : 1;
        std::byte* const to = p.data.data() + (h.rows.begin * columns + h.columns.begin) * size;
        if (h.matrix.data != nullptr)
            kernel::unpack(to, static_cast<std::ptrdiff_t>(columns * size), h.matrix, 0, h.matrix.rows);
        else
            std::memcpy(to, h.vector, static_cast<std::size_t>(h.rows.size()) * sizeof(float));
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

    graph_view graph_;
    runtime_kind kind_;
    std::uint64_t id_;
    kernel::table const* ops_;
    kernel::rope_frequencies frequencies_;
    checkpoint::inventory_report report_;
    deferred<Lazy, std::vector<int>> devices_;  ///< one a worker, in order of first appearance
    std::vector<std::unique_ptr<rank_program>> ranks_;
    deferred<Lazy, std::vector<std::unique_ptr<group>>> stages_;
    deferred<Lazy, batch> batch_;
    float_scratch logits_;
    std::uint32_t call_ = 0;
    mutable std::atomic<bool> busy_{false};
    mutable std::atomic<std::thread::id> holder_{};      ///< of the lease
    bool closed_ = false;                                ///< read and written under the lease
    deferred<Lazy, std::unique_ptr<thread_team>> team_;  // last: its threads end before what they use
};

}  // namespace detail
}  // namespace tenon::inline v0
