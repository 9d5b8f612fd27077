// The ranks of a graph, or of one of its stages, and the way in which workers walk them through a call: stage by stage, step by step,
// meeting where a step reads what peers published. Knows no sequences and no options of a call; who the workers are, it is told.
// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <tenon/checkpoint/tensor_source.hpp>
#include <tenon/core/error.hpp>
#include <tenon/detail/deferred.hpp>
#include <tenon/device/backend.hpp>
#include <tenon/device/concept.hpp>
#include <tenon/graph/lower.hpp>
#include <tenon/runtime/loading.hpp>
#include <tenon/runtime/meeting.hpp>
#include <tenon/runtime/options.hpp>
#include <tenon/runtime/rank_program.hpp>
#include <tenon/runtime/thread_crew.hpp>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace tenon::inline v0::detail {

template <class = void>
class basic_machine;
using machine = basic_machine<>;  // lazy: instantiated by who uses it

template <class Lazy>
class basic_machine {
    using rank_program = basic_rank_program<Lazy>;

public:
    using opener = device::backend const* (*)(device_kind, std::string_view isa);

    /// Builds every rank and loads none. `open` gives the backends of the graph's devices. With `only` the machine has that stage alone:
    /// stages and ranks count from it, and what it takes over a batch hands to it.
    basic_machine(graph_view graph, opener open, std::string_view isa, numeric_profile const& profile, testing::fault fault, bool traces,
                  int only = -1)
        : graph_(graph),
          first_(only < 0 ? 0 : static_cast<std::size_t>(only)),
          here_(only < 0 ? graph.stages : graph.stages.subspan(first_, 1)) {
        int rank = 0;
        for (std::size_t s = 0; s < here_.size(); ++s) {
            stage_traits const& stage = here_[s];
            device_kind const on = stage.devices[0].kind;
            device::backend const* const backend = open(on, isa);
            if (backend == nullptr) refuse("device_is_available", "no backend for " + std::string(name_of(on)) + " in this program");
            group& g = stages_.emplace_back();
            for (int m = 0; m < stage.ranks(); ++m, ++rank) {
                ranks_.push_back(std::make_unique<rank_program>(graph, static_cast<int>(first_ + s), m, rank, *backend, profile, fault));
                g.members.push_back(ranks_.back().get());
                g.workers.push_back(worker_of(stage.devices[static_cast<std::size_t>(m)]));
            }
            if (traces) g.members[0]->experts().trace();
            for (rank_program* r : g.members) r->meet(g.members);
            g.steps = g.members[0]->steps();
        }
    }
    basic_machine(basic_machine const&) = delete;
    basic_machine& operator=(basic_machine const&) = delete;

    graph_view graph() const { return graph_; }                     ///< the whole
    std::span<stage_traits const> stages() const { return here_; }  ///< those that the machine has
    int ranks() const { return static_cast<int>(ranks_.size()); }
    int workers() const { return static_cast<int>(devices_.size()); }  ///< one for each distinct device
    std::span<device_id const> devices() const { return devices_; }    ///< of the workers, in order of first appearance
    rank_program& rank(int r) { return *ranks_[static_cast<std::size_t>(r)]; }
    rank_program const& rank(int r) const { return *ranks_[static_cast<std::size_t>(r)]; }
    std::vector<std::unique_ptr<rank_program>> const& all() const { return ranks_; }
    int worker_of_rank(int r) const {
        for (group const& g : stages_) {
            auto const members = static_cast<int>(g.members.size());
            if (r < members) return g.workers[static_cast<std::size_t>(r)];
            r -= members;
        }
        return -1;
    }
    rank_program& root_of(std::size_t stage) const { return *stages_[stage].members[0]; }
    std::span<rank_program* const> members(std::size_t stage) const { return stages_[stage].members; }
    std::span<int const> workers_of(std::size_t stage) const { return stages_[stage].workers; }  ///< by member
    device::backend const& tail_ops() const { return stages_.back().members[0]->ops(); }

    /// Gives every worker's ranks, or those of one worker, so many threads to work with. Where workers do not run at the same time (`in_turn`)
    /// they share them.
    void employ(int threads, bool pinned, bool in_turn, int worker = -1) {
        if (threads <= 1) return;
        static std::atomic<int> taken{0};  // cores, by the models of this process: one after the other, as workers of other processes do
        int const all = threads * (in_turn ? 1 : workers());
        int const first = pinned ? taken.fetch_add(all) : -1;
        for (int w = 0; w < workers(); ++w) {
            if (worker >= 0 && w != worker) continue;
            if (!in_turn || crews_.empty())
                crews_.push_back(std::make_unique<thread_crew>(threads, all, first < 0 || in_turn ? first : first + w * threads));
            for (group& g : stages_)
                for (std::size_t m = 0; m < g.members.size(); ++m)
                    if (g.workers[m] == w) g.members[m]->employ(*crews_.back());
        }
    }

    void keep_kv_in(kv_format f) {
        for (auto const& r : ranks_) r->keep_kv_in(f);
    }

    /// Loads what a worker's ranks own; -1: every rank.
    void load(int worker, load_context const& how) {
        for (std::size_t s = 0; s < stages_.size(); ++s)
            for (std::size_t m = 0; m < stages_[s].members.size(); ++m)
                if (worker < 0 || stages_[s].workers[m] == worker) stages_[s].members[m]->load(graph_, static_cast<int>(first_ + s), how);
    }

    /// Room for a batch. In `shared` where ranks are in several processes; then a worker makes room of its own for its own ranks alone.
    void reserve(batch const& b, arena* shared = nullptr, int worker = -1) {
        for (auto const& r : ranks_) r->publish(b, shared);
        logits_.reserve(b.wanted.size() * static_cast<std::size_t>(graph_.config->vocab), shared);
        for (group& g : stages_)
            for (std::size_t m = 0; m < g.members.size(); ++m)
                if (worker < 0 || g.workers[m] == worker) g.members[m]->reserve(b);
    }
    /// Places alone, as another process sees them.
    void publish(batch const& b, arena& shared) {
        for (auto const& r : ranks_) r->publish(b, &shared);
        logits_.reserve(b.wanted.size() * static_cast<std::size_t>(graph_.config->vocab), &shared);
    }

    /// Copies the first `positions` of a layer of the model out of a sequence's caches, one a rank: keys and values (T, K, D) of all KV
    /// heads. A worker's ranks give the heads that they hold, and leave the others as they are; -1: every rank.
    void read_layer(std::span<sequence_cache> caches, int layer, std::int64_t positions, float* keys, float* values, int worker = -1) {
        int next = 0;  // a head that several ranks hold is read from the first
        each_holder(layer, worker, [&](rank_program const& r, int own_layer, share heads, grouped_attention const& a) {
            if (heads.begin < next) return;
            next = heads.end;
            sequence_cache& c = caches[static_cast<std::size_t>(r.rank())];
            std::ptrdiff_t const row = std::ptrdiff_t{a.kv_heads} * a.head_dim, first = std::ptrdiff_t{heads.begin} * a.head_dim;
            kernel::load_kv(keys + first, values + first, row, c.place(own_layer), heads.size(), a.head_dim, 0, static_cast<int>(positions));
        });
    }
    /// The inverse, into caches with room: every head to each rank that holds it.
    void write_layer(std::span<sequence_cache> caches, int layer, std::int64_t positions, float const* keys, float const* values,
                     int worker = -1) {
        each_holder(layer, worker, [&](rank_program const& r, int own_layer, share heads, grouped_attention const& a) {
            sequence_cache& c = caches[static_cast<std::size_t>(r.rank())];
            std::ptrdiff_t const row = std::ptrdiff_t{a.kv_heads} * a.head_dim, first = std::ptrdiff_t{heads.begin} * a.head_dim;
            kernel::store_kv(c.place(own_layer), 0, heads.size(), a.head_dim, 0, static_cast<int>(positions), keys + first, values + first, row);
        });
    }

    /// Calls `use` with every rank that holds KV heads of a layer of the model, and the layer's number in its stage.
    template <class Use>
    void each_holder(int layer, int worker, Use use) const {
        for (std::size_t s = 0; s < stages_.size(); ++s) {
            int const own_layer = layer - here_[s].first_layer;
            if (own_layer < 0 || layer > here_[s].last_layer) continue;
            for (std::size_t m = 0; m < stages_[s].members.size(); ++m) {
                rank_program const& r = *stages_[s].members[m];
                if (worker >= 0 && stages_[s].workers[m] != worker) continue;
                if (share const heads = r.kv_heads(own_layer); heads.size() > 0)
                    use(r, own_layer, heads, graph_.config->layer(layer).attention);
            }
        }
    }

    /// The residual stream (T, H) that the last stage leaves, after a call.
    float const* residual() const { return stages_.back().members[0]->residual(); }
    /// (wanted rows, V), after a call.
    float const* logits() const { return logits_.data(); }
    float* logits_place() { return logits_.data(); }

    /// Every rank in the caller's thread, step by step.
    void run(batch const& b) {
        for (std::size_t s = 0; s < stages_.size(); ++s) {
            group& g = stages_[s];
            if (first_ + s > 0)
                for (rank_program* r : g.members) take_over(*r, s, b);
            for (step const& x : g.steps)
                for (rank_program* r : g.members) r->run(x, b);
        }
        stages_.back().members[0]->collect_logits(logits_.data(), b);
    }

    /// One worker's way through the stages: it waits for the one before, runs its rank in step with the group, and tells the next.
    /// After a failure nothing more is computed, but everybody still meets, so that nobody waits for ever.
    template <class Place>
    void serve(int worker, batch const& b, Place& place) {
        std::exception_ptr failure;
        auto const attempt = [&place, &failure](auto work) {
            if (place.failed()) return;
            try {
                place.step();
                work();
            } catch (...) {
                failure = std::current_exception();
                place.fail();
            }
        };
        for (std::size_t s = 0; s < stages_.size(); ++s) {
            group& g = stages_[s];
            for (std::size_t m = 0; m < g.members.size(); ++m) {
                if (g.workers[m] != worker) continue;
                if (s > 0) place.await(s - 1, m);
                if (first_ + s > 0) attempt([&] { take_over(*g.members[m], s, b); });
                for (step const& x : g.steps) {
                    attempt([&] { g.members[m]->run(x, b); });
                    if (g.members.size() > 1) place.meet(s, m, x);
                }
                if (m != 0) continue;
                if (s + 1 == stages_.size()) attempt([&] { g.members[0]->collect_logits(logits_.data(), b); });
                place.finish(s);
            }
        }
        if (failure) std::rethrow_exception(failure);
    }

private:
    /// A stage's ranks, and who runs each.
    struct group {
        std::vector<rank_program*> members;
        std::vector<int> workers;
        std::vector<step> steps;
    };

    void take_over(rank_program& to, std::size_t stage, batch const& b) const {
        if (stage > 0)
            to.take_over(root_of(stage - 1), b);
        else
            to.take_over(b.handed, b);
    }

    int worker_of(device_id device) {
        for (std::size_t w = 0; w < devices_.size(); ++w)
            if (devices_[w] == device) return static_cast<int>(w);
        devices_.push_back(device);
        return static_cast<int>(devices_.size()) - 1;
    }

    graph_view graph_;
    std::size_t first_;  ///< in the graph, of the stages here
    std::span<stage_traits const> here_;
    deferred<Lazy, std::vector<device_id>> devices_;
    deferred<Lazy, std::vector<std::unique_ptr<rank_program>>> ranks_;
    deferred<Lazy, std::vector<group>> stages_;
    published<float> logits_;
    deferred<Lazy, std::vector<std::unique_ptr<thread_crew>>> crews_;  // last: their threads end before what they use
};

}  // namespace tenon::inline v0::detail
