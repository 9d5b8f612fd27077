// A loaded model: what a call may be given, one call at a time, and what it gives back. Who runs the ranks is the executor's affair.
// One engine for every graph, static or dynamic: nothing here depends on a graph's type.
// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <tenon/checkpoint/block_scaling.hpp>
#include <tenon/checkpoint/folder.hpp>
#include <tenon/checkpoint/inventory.hpp>
#include <tenon/checkpoint/model_digest.hpp>
#include <tenon/checkpoint/tensor_source.hpp>
#include <tenon/core/error.hpp>
#include <tenon/detail/deferred.hpp>
#include <tenon/device/backend.hpp>
#include <tenon/device/concept.hpp>
#include <tenon/graph/placed.hpp>
#include <tenon/graph/spell.hpp>
#include <tenon/runtime/executor.hpp>
#include <tenon/runtime/loading.hpp>
#include <tenon/runtime/options.hpp>
#include <tenon/runtime/profile.hpp>
#include <tenon/runtime/runtime.hpp>
#include <tenon/runtime/snapshot.hpp>
#include <tenon/runtime/state.hpp>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

namespace tenon::inline v0 {

namespace detail {

/// Starts the ranks of a model elsewhere: what a runtime is that is not of this process.
class rank_starter {
public:
    using opener = device::backend const* (*)(device_kind, std::string_view isa);

    /// The ranks, loaded. `graph` outlives them.
    virtual std::unique_ptr<executor> start(graph_view graph, checkpoint::folder const& files, checkpoint::block_scaling scaling,
                                            opener open, load_options const& options) const = 0;

protected:
    ~rank_starter() = default;
};

/// Calls `load` with what starts the ranks of a runtime, or nullptr where they are in this process.
template <class Devices, class Runtime, class Load>
auto with_starter(Runtime const& runtime, Load load) {
    if constexpr (runtime::elsewhere<Runtime, Devices>) {
        typename Runtime::template starter<Devices> const elsewhere(runtime);
        if constexpr (requires { elsewhere.run(load); })
            return elsewhere.run(load);
        else
            return load(&elsewhere);
    } else {
        static_cast<void>(runtime);
        return load(nullptr);
    }
}

// A template with nothing to choose: a program that includes this without loading a model does not pay for instantiating it.
template <class Lazy>
class basic_engine {
public:
    using opener = rank_starter::opener;

    /// `graph` outlives the engine; `open` gives the backends of its devices. A placement map is checked against the graph, and headers
    /// against the config, before a weight is read. The ranks are where `elsewhere` starts them, or else in this process. The files stay
    /// mapped, for the digest of a snapshot. With `only`, the ranks are those of that stage alone.
    basic_engine(graph_view graph, checkpoint::folder files, checkpoint::block_scaling scaling, opener open, load_options const& options,
                 runtime_kind kind, rank_starter const* elsewhere = nullptr, int only = -1)
        : placed_(place_experts(graph, options.placement)),
          graph_(placed_.view()),
          here_(only < 0 ? graph_.stages : graph_.stages.subspan(static_cast<std::size_t>(only), 1)),
          id_(next_id()),
          files_(std::make_unique<checkpoint::folder>(std::move(files))),
          scaling_(scaling),
          weight_format_(format_under(numeric::known(options.profile), options.weights)),
          kv_format_(options.kv),
          profile_(numeric::known(options.profile)),
          helpers_(kind == runtime_kind::sequential ? 1 : std::thread::hardware_concurrency()),
          report_(checkpoint::check_inventory(*files_, *graph.config, scaling)),
          routing_(options.routing) {
        checkpoint::tensor_source const source(*files_, config(), scaling);
        layout_ = source.layout();
        auto const backend_of = [&](int stage) -> device::backend const& {
            device_kind const on = graph_.stages[static_cast<std::size_t>(stage)].devices[0].kind;
            device::backend const* const backend = open(on, options.isa);
            if (backend == nullptr) refuse("device_is_available", "no backend for " + std::string(name_of(on)) + " in this program");
            return *backend;
        };
        require_threads(graph_, options.threads, backend_of, only);
        require_kv_format(graph_, options.kv, backend_of, only);
        require_profile(
            graph_, profile_, weight_format_, [&](int stage) { return computes(backend_of(stage), profile_); },
            [&](tensor const& t, int layer, int e) { return source.type_of(t, layer, e); },
            [&](tensor const& t, int layer, int e) { return source.name_of(t, layer, e); }, only);
        require_formats(graph_, source, weight_format_, backend_of, only);
        load_options how = options;
        how.weights = weight_format_;
        how.profile = profile_;
        if (elsewhere != nullptr) {
            executor_ = elsewhere->start(graph_, *files_, scaling, open, how);
        } else {
            auto local = std::make_unique<basic_local_executor<Lazy>>(graph_, open, how, kind, only);
            local->load(source, how);
            executor_ = std::move(local);
        }
        files_->forget();
    }
    basic_engine(basic_engine const&) = delete;
    basic_engine& operator=(basic_engine const&) = delete;

    graph_view graph() const { return graph_; }
    model_config const& config() const { return *graph_.config; }
    /// What the tail's root computes with; it samples too.
    device::backend const& ops() const {
        require_open();
        return executor_->tail_ops();
    }
    checkpoint::inventory_report const& report() const { return report_; }
    int ranks() const {
        int sum = 0;
        for (stage_traits const& s : here_) sum += s.ranks();
        return sum;
    }
    std::int64_t weight_bytes(int rank) const {
        lease const held(*this);
        require_open();
        if (rank < 0 || rank >= ranks()) refuse("rank_exists", "rank " + std::to_string(rank) + " of " + std::to_string(ranks()));
        return executor_->weight_bytes(rank);
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
        s->caches = executor_->new_caches();
        executor_->reserve(*s, positions);
        return state(std::move(s));
    }

    /// A sequence as bytes.
    std::vector<std::byte> snapshot(state const& of) {
        lease const held(*this);
        sequence& s = own(of);
        std::string const config_digest = checkpoint::config_digest(config());
        struct sink {
            std::string text;
            void put(char c) { text += c; }
        } plan{};
        spell_plan(graph_.stages, device_kind::cpu, plan);
        snapshot_identity identity = identity_of(config_digest);
        identity.weights = weights_digest();
        identity.plan = plan.text;
        return write_snapshot(identity, config(), s.length,
                              [&](int layer, float* keys, float* values) { executor_->read_layer(s, layer, keys, values); });
    }
    /// The sequence that bytes hold, or nothing is made.
    state restore(std::span<std::byte const> bytes, std::int64_t positions, growth room) {
        lease const held(*this);
        require_open();
        if (positions < 0 || positions > config().max_positions) refuse_positions(positions);
        std::string const config_digest = checkpoint::config_digest(config());
        snapshot_view const v = read_snapshot(bytes, identity_of(config_digest), config());
        if (room == growth::fixed && positions < v.positions)
            refuse("state_has_room", "the snapshot holds " + std::to_string(v.positions) + " positions; fixed room for " +
                                         std::to_string(positions) + " is asked for");
        require_same("snapshot_weights_are_the_models", "the digest of the weights", v.identity.weights, weights_digest());
        state made = make_state(held, (std::max)(positions, v.positions), room);
        sequence& s = *made.sequence_;
        s.length = v.positions;
        std::vector<float> keys, values;
        for (int l = 0; l < config().layers && s.length > 0; ++l) {
            snapshot_layer const& from = v.layers[static_cast<std::size_t>(l)];
            keys.resize(from.keys.size() / static_cast<std::size_t>(bytes_of(kv_format_)));
            values.resize(keys.size());
            auto* const widen = kv_format_ == kv_format::f32 ? &copy_f32 : static_cast<decltype(&copy_f32)>(&widen_bf16);
            widen(keys.data(), from.keys.data(), keys.size());
            widen(values.data(), from.values.data(), values.size());
            executor_->write_layer(s, l, keys.data(), values.data());
        }
        return made;
    }
    /// Forgets all but the first positions of a sequence.
    void truncate(state& of, std::int64_t positions) {
        lease const held(*this);
        sequence& s = own(of);
        if (positions < 0 || positions > s.length)
            refuse("state_holds_positions",
                   "the first " + std::to_string(positions) + " positions are to be kept; 0 to " + std::to_string(s.length) + " would do");
        s.length = positions;  // what lies beyond is written before it is read
    }

    /// Refuses by name what a call may not be given, before anything runs.
    void check(lease const&, std::span<feed const> feeds) const {
        require_open();
        for (std::size_t i = 0; i < feeds.size(); ++i) {
            sequence const& s = own(feeds[i].sequence, i);
            for (std::size_t j = 0; j < i; ++j)
                if (feeds[j].sequence == feeds[i].sequence) refuse_twice(j, i);
            if (feeds[i].tokens.empty())
                refuse("feed_has_tokens", "state " + std::to_string(i) + " of the batch gets no token; 1 or more would do");
            require_room(s, i, s.length + static_cast<std::int64_t>(feeds[i].tokens.size()));
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
        gather(feeds, which);
        executor_->forward(batch_);
        require_scores();
        if (routing_ != nullptr) tell_routing();
        for (feed const& f : feeds) f.sequence->sequence_->length += static_cast<std::int64_t>(f.tokens.size());
        return {executor_->logits(), batch_.wanted.size() * static_cast<std::size_t>(config().vocab)};
    }

    census take_census() const {
        lease const held(*this);
        require_open();
        census c;
        c.ranks = executor_->counts();
        for (rank_census const& n : c.ranks) {
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
        basic_parameter_gatherer<Lazy> gathered(config(), layout_);
        executor_->visit_pieces(gathered);
        return gathered.take();
    }

    /// Ends the threads or processes and frees the weights, after a call that is still running. Idempotent.
    void close() noexcept {
        if (holder_.load(std::memory_order_relaxed) == std::this_thread::get_id()) {  // from an observer: the call ends first
            closed_ = true;
            return;
        }
        while (busy_.exchange(true, std::memory_order_acquire)) std::this_thread::yield();
        closed_ = true;
        executor_.reset();
        files_.reset();
        busy_.store(false, std::memory_order_release);
    }

protected:
    static std::uint64_t next_id() {
        static std::atomic<std::uint64_t> count{0};
        return ++count;
    }
    void require_open() const {
        if (closed_) refuse("model_is_open", "the model has been closed");
    }
    [[noreturn]] void refuse_positions(std::int64_t positions) const {
        refuse("positions_fit_the_model",
               std::to_string(positions) + " positions; the model has " + std::to_string(config().max_positions));
    }

    /// The sequence of a state that this model made.
    sequence& own(state const& s) const {
        require_open();
        if (s.released()) refuse("state_is_alive", "the state is empty or has been released");
        if (s.sequence_->owner != id_) refuse("state_belongs_to_the_model", "the state was made by another model");
        return *s.sequence_;
    }

    /// The sequence of state `i` of a batch.
    sequence& own(state const* s, std::size_t i) const {
        if (s == nullptr || s->released())
            refuse("state_is_alive", "state " + std::to_string(i) + " of the batch is empty or has been released");
        if (s->sequence_->owner != id_)
            refuse("state_belongs_to_the_model", "state " + std::to_string(i) + " of the batch was made by another model");
        return *s->sequence_;
    }
    [[noreturn]] static void refuse_twice(std::size_t first, std::size_t second) {
        refuse("batch_names_a_state_once", "states " + std::to_string(first) + " and " + std::to_string(second) + " of the batch are one");
    }
    /// Refuses positions that state `i` of a batch cannot hold.
    void require_room(sequence const& s, std::size_t i, std::int64_t after) const {
        if (after > config().max_positions) refuse_positions(after);
        if (after > s.room)
            refuse("state_has_room", "state " + std::to_string(i) + " of the batch would hold " + std::to_string(after) +
                                         " positions and was made with fixed room for " + std::to_string(s.room) +
                                         "; growth::grows would do");
    }

    /// All but the digest of the weights and the plan.
    snapshot_identity identity_of(std::string_view config_digest) const {
        stage_traits const& first = graph_.stages[0];  // stages share their arithmetic
        return {.config = config_digest,
                .profile = profile_.name,
                .arithmetic = first.canonical ? std::string_view("canonical") : name_of(first.devices[0].kind),
                .weight_format = name_of(weight_format_),
                .kv = kv_format_};
    }
    /// Made when it is asked for first. Reads the whole checkpoint once more.
    std::string const& weights_digest() {
        if (!weights_digest_.empty()) return weights_digest_;
        files_->require_unchanged();
        std::string digest = checkpoint::weights_digest(*files_, config(), scaling_, helpers_);
        files_->require_unchanged();
        files_->forget();
        return weights_digest_ = std::move(digest);
    }

    void clear_batch() {
        batch_.parts.clear();
        batch_.tokens.clear();
        batch_.wanted.clear();
        batch_.handed = nullptr;
    }
    /// Adds rows of a sequence to the batch, but for their tokens.
    void add_part(sequence& s, int count, rows_wanted which) {
        int const first = batch_.rows();
        batch_.parts.push_back({s.caches, s.number, first, count, s.length});
        for (int row = which == rows_wanted::all ? 0 : count - 1; row < count; ++row) batch_.wanted.push_back(first + row);
    }
    void gather(std::span<feed const> feeds, rows_wanted which) {
        clear_batch();
        for (feed const& f : feeds) {
            add_part(*f.sequence->sequence_, static_cast<int>(f.tokens.size()), which);
            batch_.tokens.insert(batch_.tokens.end(), f.tokens.begin(), f.tokens.end());
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
        unroutable_row const worst = executor_->take_unroutable();
        if (worst.row < 0) return;
        std::size_t const i = part_of_row(worst.row);
        batch_part const& p = batch_.parts[i];
        refuse("router_scores_are_numbers",
               "layer " + std::to_string(worst.layer) + ": all " + std::to_string(config().layer(worst.layer).experts.count) +
                   " scores of state " + std::to_string(i) + " at position " + std::to_string(p.first_position + worst.row - p.first_row) +
                   " are NaN; an expert needs one that is a number");
    }

    void tell_routing() {
        for (std::size_t i = 0; i < here_.size(); ++i) {
            stage_traits const& s = here_[i];
            std::span<std::int32_t const> all = executor_->traced(i);
            for (int l = s.first_layer; l <= s.last_layer; ++l) {
                auto const k = static_cast<std::size_t>(config().layer(l).experts ? config().layer(l).experts.chosen : 0);
                if (k == 0) continue;
                for (batch_part const& p : batch_.parts)
                    for (int t = 0; t < p.rows; ++t, all = all.subspan(k))
                        routing_->routed(l, p.number, p.first_position + t, all.first(k));
            }
        }
    }

    basic_placed_graph<Lazy> placed_;
    graph_view graph_;
    std::span<stage_traits const> here_;  ///< of the stages that have their ranks here
    std::uint64_t id_;
    std::int64_t states_made_ = 0;
    deferred<Lazy, std::unique_ptr<checkpoint::folder>> files_;
    checkpoint::block_scaling scaling_;
    weights weight_format_;
    kv_format kv_format_;
    numeric_profile profile_;
    unsigned helpers_;  ///< threads that may hash
    std::string weights_digest_;
    checkpoint::inventory_report report_;
    checkpoint::expert_layout layout_ = checkpoint::expert_layout::apart;
    routing_observer* routing_;
    deferred<Lazy, batch> batch_;
    mutable std::atomic<bool> busy_{false};
    mutable std::atomic<std::thread::id> holder_{};       ///< of the lease
    bool closed_ = false;                                 ///< read and written under the lease
    deferred<Lazy, std::unique_ptr<executor>> executor_;  // last: its workers end before what they use
};

}  // namespace detail
}  // namespace tenon::inline v0
