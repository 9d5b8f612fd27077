// Who runs the ranks of a model, as an interface: the engine says what, an executor knows where. And the one whose ranks are all in this
// process.
// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <tenon/detail/deferred.hpp>
#include <tenon/device/backend.hpp>
#include <tenon/kernel/float_environment.hpp>
#include <tenon/runtime/angles.hpp>
#include <tenon/runtime/batch.hpp>
#include <tenon/runtime/census.hpp>
#include <tenon/runtime/loading.hpp>
#include <tenon/runtime/machine.hpp>
#include <tenon/runtime/runtime.hpp>
#include <tenon/runtime/state.hpp>
#include <tenon/runtime/team.hpp>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <string_view>
#include <vector>

namespace tenon::inline v0::detail {

/// A row of which a router could choose by nothing but NaN, and its layer; none where `row` is -1.
struct unroutable_row {
    int layer = -1, row = -1;
};

template <class = void>
class basic_executor;
using executor = basic_executor<>;

/// One call at a time; what a call throws leaves the sequences as they were.
template <class Lazy>
class basic_executor {
public:
    virtual ~basic_executor() = default;

    /// The caches of a new sequence, one a rank, without room.
    virtual std::vector<sequence_cache> new_caches() const = 0;
    /// Room for `positions` in every cache of a sequence.
    virtual void reserve(sequence& s, std::int64_t positions) = 0;
    /// A layer of the model out of a sequence's caches: keys and values (T, K, D) of all its KV heads, T being the sequence's length.
    virtual void read_layer(sequence& s, int layer, float* keys, float* values) = 0;
    /// The inverse, into caches with room for as many.
    virtual void write_layer(sequence& s, int layer, float const* keys, float const* values) = 0;

    /// Runs a batch whose parts and tokens are filled; makes room in the caches of its sequences.
    virtual void forward(batch& b) = 0;
    virtual float const* logits() const = 0;  ///< (wanted rows, V), of the last call
    /// The first row in the lowest layer of the last call, or none.
    virtual unroutable_row take_unroutable() = 0;
    /// What the routed layers of a stage chose in the last call, (T, k) each; kept where routing is traced.
    virtual std::span<std::int32_t const> traced(std::size_t stage) const = 0;

    virtual std::vector<rank_census> counts() = 0;  ///< by rank
    virtual std::int64_t weight_bytes(int rank) = 0;
    virtual void visit_pieces(piece_visitor& visitor) = 0;
    virtual device::backend const& tail_ops() const = 0;  ///< what the tail's root computes with
};

template <class = void>
class basic_local_executor;
using local_executor = basic_local_executor<>;  // lazy: instantiated by who uses it

/// All ranks in this process: in the caller's thread, or a thread for each distinct device.
template <class Lazy>
class basic_local_executor final : public basic_executor<Lazy> {
public:
    /// `only`: of that stage alone.
    basic_local_executor(graph_view graph, typename basic_machine<Lazy>::opener open, load_options const& options, runtime_kind kind,
                         int only = -1)
        : config_(graph.config),
          only_(only),
          machine_(graph, open, options.isa, options.profile, options.fault, options.routing != nullptr, only),
          angles_(*graph.config),
          words_(meeting_words::count(machine_.stages().size(), static_cast<std::size_t>(machine_.workers()))) {
        int const runners = kind == runtime_kind::threads ? machine_.workers() : 1;
        machine_.keep_kv_in(options.kv);
        machine_.employ(options.threads, options.pin_threads, kind != runtime_kind::threads);
        if (kind == runtime_kind::threads) team_ = std::make_unique<thread_team>(runners, runners * options.threads);
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
        if (options.observer != nullptr) progress.total = bytes_to_load(machine_.graph(), source, options.weights, only_);
        struct loading final : thread_team::job {
            basic_machine<Lazy>* machine = nullptr;
            load_context const* how = nullptr;
            void run(int worker) override { machine->load(worker, *how); }
        } job;
        load_context const how{source, options.weights, options.observer != nullptr ? &progress : nullptr, options.fault, options.profile};
        job.machine = &machine_;
        job.how = &how;
        if (team_)
            team_->run(job);
        else
            job.run(-1);
    }

    std::vector<sequence_cache> new_caches() const override {
        std::vector<sequence_cache> caches;
        for (auto const& r : machine_.all()) caches.push_back(r->new_cache());
        return caches;
    }
    void reserve(sequence& s, std::int64_t positions) override {
        for (sequence_cache& c : s.caches) c.reserve(positions);
    }
    void read_layer(sequence& s, int layer, float* keys, float* values) override {
        machine_.read_layer(s.caches, layer, s.length, keys, values);
    }
    void write_layer(sequence& s, int layer, float const* keys, float const* values) override {
        machine_.write_layer(s.caches, layer, s.length, keys, values);
    }

    void forward(batch& b) override {
        for (batch_part const& p : b.parts)
            for (sequence_cache& c : p.caches) c.grow(p.first_position + p.rows, config_->max_positions);
        angles_.fill(b);
        machine_.reserve(b);
        if (b.rows() == 0) return;
        if (!team_) {
            kernel::flush_to_zero_guard const exact;
            return machine_.run(b);
        }
        struct forwarding final : thread_team::job {
            basic_local_executor* self = nullptr;
            batch const* what = nullptr;
            void run(int worker) override {
                meeting_place place({self->words_.data(), static_cast<std::size_t>(self->machine_.workers())}, self->machine_.stages(),
                                    self->call_, self->failed_, nullptr, self->team_->patience_of(worker));
                self->machine_.serve(worker, *what, place);
            }
        } job;
        job.self = this;
        job.what = &b;
        ++call_;
        failed_.store(0, std::memory_order_relaxed);
        team_->run(job);
    }
    float const* logits() const override { return machine_.logits(); }
    float const* residual() const { return machine_.residual(); }  ///< (T, H), that the last stage has left
    unroutable_row take_unroutable() override {
        unroutable_row worst;
        for (auto const& r : machine_.all())
            if (auto const found = r->experts().take_nan_row(); found.row >= 0 && (worst.row < 0 || found.layer < worst.layer))
                worst = {found.layer, found.row};
        return worst;
    }
    std::span<std::int32_t const> traced(std::size_t stage) const override { return machine_.root_of(stage).experts().traced(); }

    std::vector<rank_census> counts() override {
        std::vector<rank_census> all;
        for (auto const& r : machine_.all()) all.push_back(r->counts());
        return all;
    }
    std::int64_t weight_bytes(int rank) override { return machine_.rank(rank).weights().bytes(); }
    void visit_pieces(piece_visitor& visitor) override {
        std::vector<std::byte> room;
        for (auto const& r : machine_.all()) detail::visit_pieces(*r, visitor, room);
    }
    device::backend const& tail_ops() const override { return machine_.tail_ops(); }

private:
    model_config const* config_;
    int only_;
    basic_machine<Lazy> machine_;
    basic_angles<Lazy> angles_;
    deferred<Lazy, std::vector<awaited_word>> words_;
    shared_word failed_{0};  ///< a rank of this call threw
    std::uint32_t call_ = 0;
    deferred<Lazy, std::unique_ptr<thread_team>> team_;  // last: its threads end before what they use
};

}  // namespace tenon::inline v0::detail
