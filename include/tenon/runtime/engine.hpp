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
#include <tenon/kernel/float_environment.hpp>
#include <tenon/kernel/rope_frequencies.hpp>
#include <tenon/runtime/options.hpp>
#include <tenon/runtime/rank_program.hpp>
#include <tenon/runtime/runtime.hpp>
#include <tenon/runtime/state.hpp>
#include <tenon/runtime/team.hpp>

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

    /// `graph` outlives the engine; `open` gives the backends of its devices. Headers are checked against the config before a weight
    /// is read.
    basic_engine(graph_view graph, checkpoint::folder const& files, checkpoint::block_scaling scaling, opener open,
                 load_options const& options, runtime_kind kind)
        : graph_(graph), kind_(kind), id_(next_id()), report_(checkpoint::check_inventory(files, *graph.config, scaling)) {
        kernel::flush_to_zero_guard const exact;
        for (int k = 0; k < config().kind_count; ++k)
            frequencies_.emplace_back(config().rope, config().kinds[static_cast<std::size_t>(k)].attention.head_dim);
        checkpoint::tensor_source const source(files, config(), scaling);
        build(open, options);
        require_formats(source, options.weights);
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
                    for (auto const& part : w.parts)
                        if (h.of->what == part.what && h.layer == w.layer) put_back(p, h, part.first_row, r->ops());
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

    /// What a rank will hold of a tensor, over all layers of its stage: the file's element type decides, tensor by tensor.
    std::int64_t bytes_to_hold(tensor const& t, int member, checkpoint::tensor_source const& source, weights format) const {
        stage_traits const& s = graph_.stages[static_cast<std::size_t>(t.stage)];
        bool const of_layers = t.what != role::embed && t.what != role::final_norm && t.what != role::head;
        std::int64_t sum = 0;
        for (int l = of_layers ? s.first_layer : 0; l <= (of_layers ? s.last_layer : 0); ++l)
            if (!of_layers || config().kind_of[static_cast<std::size_t>(l)] == t.kind) {
                dtype const stored = source.type_of(t, l);
                sum += std::int64_t{t.rows_of(member).size()} * t.columns_of(member).size() * held_bytes(t, format, stored, config().tied);
            }
        return sum;
    }

    /// Refuses, before a weight is read, a matrix in a format that the backend of its stage cannot hold.
    void require_formats(checkpoint::tensor_source const& source, weights format) const {
        for (tensor const& t : graph_.ir.tensors) {
            stage_traits const& s = graph_.stages[static_cast<std::size_t>(t.stage)];
            if (!t.is_matrix() || t.what == role::embed) continue;  // a table is looked up, not multiplied; a tied one is the head's too
            bool const of_layers = t.what != role::head;
            for (int l = of_layers ? s.first_layer : 0; l <= (of_layers ? s.last_layer : 0); ++l) {
                if (of_layers && config().kind_of[static_cast<std::size_t>(l)] != t.kind) continue;
                bool const narrow = held_bytes(t, format, source.type_of(t, l), config().tied) == 2;
                device::backend const& on = stages_[static_cast<std::size_t>(t.stage)]->members[0]->ops();
                if (!on.holds(narrow ? kernel::panel_format::bf16 : kernel::panel_format::f32))
                    refuse("device_holds_format", std::string(on.name()) + " does not hold " + source.name_of(t, l) + " in " +
                                                      (narrow ? "bf16; " : "f32; ") +
                                                      (takes_weight_format(t.what, config().tied) ? "weights::" : "a checkpoint in ") +
                                                      (narrow ? "f32 would do" : "bf16 would do"));
            }
        }
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
        for (tensor const& t : graph_.ir.tensors)
            for (int m = 0; m < t.ranks; ++m)
                if (!(t.what == role::head && config().tied && t.stage == 0))
                    progress.total += bytes_to_hold(t, m, source, options.weights);
        struct loading final : thread_team::job {
            basic_engine* self = nullptr;
            checkpoint::tensor_source const* source = nullptr;
            load_options const* options = nullptr;
            load_observer* observer = nullptr;
            void run(int worker) override {
                for (std::size_t s = 0; s < self->stages_.size(); ++s)
                    for (std::size_t m = 0; m < self->stages_[s]->members.size(); ++m)
                        if (worker < 0 || self->stages_[s]->workers[m] == worker)
                            self->stages_[s]->members[m]->load(self->graph_, static_cast<int>(s), *source, options->weights, observer);
            }
        } job;
        job.self = this;
        job.source = &source;
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

    /// Writes a slice into its tensor; `first_row` is where its role begins there.
    static void put_back(parameter& p, held_tensor const& h, std::int64_t first_row, device::backend const& ops) {
        std::int64_t elements = 1;
        for (std::int64_t const extent : p.shape) elements *= extent;
        int const size = bytes_of(h.type);
        p.type = h.type;
        p.data.resize(static_cast<std::size_t>(elements * size));
        std::int64_t const columns = h.matrix.data != nullptr ? p.shape[1] : 1;
        std::byte* const to = p.data.data() + ((first_row + h.rows.begin) * columns + h.columns.begin) * size;
        if (h.matrix.data != nullptr)
            ops.unpack(to, static_cast<std::ptrdiff_t>(columns * size), h.matrix, 0, h.matrix.rows);
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
    deferred<Lazy, std::vector<kernel::rope_frequencies>> frequencies_;  ///< by kind of layer
    checkpoint::inventory_report report_;
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
