// The host's side: it starts the workers of a graph, tells each its part, sends batches and gathers answers. A worker that dies, hangs or
// talks nonsense becomes one error, and the others are ended with it.
// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <tenon/checkpoint/folder.hpp>
#include <tenon/core/error.hpp>
#include <tenon/detail/deferred.hpp>
#include <tenon/runtime/engine.hpp>
#include <tenon/runtime/executor.hpp>
#include <tenon/runtime/machine.hpp>
#include <tenon/runtime/processes/channel.hpp>
#include <tenon/runtime/processes/identity.hpp>
#include <tenon/runtime/processes/message.hpp>
#include <tenon/runtime/processes/part.hpp>
#include <tenon/runtime/processes/segment.hpp>
#include <tenon/runtime/processes/spawn.hpp>

#include <poll.h>
#include <unistd.h>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace tenon::inline v0::detail {

/// What a user says of worker processes.
struct process_options {
    std::string worker_program{};
    double start_seconds = 30.0;
    double hang_seconds = 10.0;
    testing::worker_fault fault{};
};

template <class Lazy>
class basic_process_executor final : public basic_executor<Lazy> {
public:
    basic_process_executor(graph_view graph, checkpoint::folder const& files, checkpoint::block_scaling scaling, rank_starter::opener open,
                           load_options const& options, process_options const& how, std::uint64_t backends)
        : how_(how),
          options_(&options),
          machine_(graph, open, options.isa, options.profile, options.fault, false),
          control_memory_(shared_memory::make(control_block::bytes_for(graph.stages.size(), static_cast<std::size_t>(machine_.workers())))),
          arena_memory_(shared_memory::make(std::size_t{1} << 16)),
          control_(control_memory_.data(), graph.stages.size(), static_cast<std::size_t>(machine_.workers())) {
        if (std::getenv(worker_variable) != nullptr)
            refuse("worker_is_no_host", std::string("this process was started as a worker (") + worker_variable +
                                            " is set) and its program does not serve as one; a program with the same backends would do");
        control_.initialise();
        start(backends);
        build(graph, files, scaling, options);
        options_ = nullptr;
    }
    ~basic_process_executor() override { end(); }

    std::vector<sequence_cache> new_caches() const override {
        std::vector<sequence_cache> caches;
        for (auto const& r : machine_.all()) caches.push_back(r->new_cache(true));
        return caches;
    }
    void reserve(sequence& s, std::int64_t positions) override {
        require_alive();
        forget(positions == 0 ? most_forgotten : 0);
        s.forgotten = forgotten_;
        if (positions == 0) return;
        for (sequence_cache& c : s.caches) c.reserve(positions);
        byte_writer out;
        out.put(s.number).put(positions);
        tell_all(message_kind::reserve, out);
    }

    void read_layer(sequence& s, int layer, float* keys, float* values) override {
        byte_writer out;
        out.put(s.number).put(s.length).put(layer);
        struct answers final : listener {
            grouped_attention const* a = nullptr;
            std::size_t positions = 0;
            float *keys = nullptr, *values = nullptr;
            void answer(int, byte_reader& in) override {
                std::size_t const D = static_cast<std::size_t>(a->head_dim), row = static_cast<std::size_t>(a->kv_heads) * D;
                for (int head = in.take<int>(); head >= 0; head = in.take<int>())
                    for (float* const to : {keys, values}) {
                        std::vector<float> const one = in.list<float>();
                        require_sense(head < a->kv_heads && one.size() == positions * D);
                        for (std::size_t t = 0; t < positions; ++t)
                            std::memcpy(to + t * row + static_cast<std::size_t>(head) * D, one.data() + t * D, D * sizeof(float));
                    }
            }
        } listening;
        listening.a = &machine_.graph().config->layer(layer).attention;
        listening.positions = static_cast<std::size_t>(s.length);
        listening.keys = keys;
        listening.values = values;
        tell_all(message_kind::read_layer, out, &listening);
    }
    void write_layer(sequence& s, int layer, float const* keys, float const* values) override {
        grouped_attention const& a = machine_.graph().config->layer(layer).attention;
        auto const count = static_cast<std::size_t>(s.length) * static_cast<std::size_t>(a.kv_heads * a.head_dim);
        byte_writer out;
        out.put(s.number).put(s.length).put(layer).list(std::span(keys, count)).list(std::span(values, count));
        tell_all(message_kind::write_layer, out);
    }

    void forward(batch& b) override {
        require_alive();
        for (batch_part const& p : b.parts)
            for (sequence_cache& c : p.caches) c.grow(p.first_position + p.rows, machine_.graph().config->max_positions);
        arena counting;
        machine_.publish(b, counting);
        if (counting.used() > arena_memory_.bytes()) arena_memory_.resize((counting.used() + counting.used() / 2 + 4095) / 4096 * 4096);
        arena shared(arena_memory_.data(), arena_memory_.bytes());
        machine_.publish(b, shared);
        traced_.assign(machine_.graph().stages.size(), {});
        unroutable_ = {};
        rows_ = b.rows();
        if (b.rows() == 0) return;
        control_.failed().store(0, std::memory_order_release);
        command_.clear();
        command_.put(++call_).put(static_cast<std::uint64_t>(arena_memory_.bytes())).put(static_cast<std::uint64_t>(b.parts.size()));
        for (batch_part const& p : b.parts) command_.put(p.number).put(p.first_row).put(p.rows).put(p.first_position);
        command_.list(std::span<token_id const>(b.tokens)).list(std::span<int const>(b.wanted));
        struct answers final : listener {
            basic_process_executor* self = nullptr;
            void answer(int worker, byte_reader& in) override { self->take_answer(worker, in); }
        } listening;
        listening.self = this;
        if (command_.bytes().size() <= call_words::room)
            call_all(listening);
        else
            tell_all(message_kind::forward, command_, &listening);
    }
    float const* logits() const override { return machine_.logits(); }
    unroutable_row take_unroutable() override { return std::exchange(unroutable_, {}); }
    std::span<std::int32_t const> traced(std::size_t stage) const override { return traced_[stage]; }

    std::vector<rank_census> counts() override {
        std::vector<rank_census> all(static_cast<std::size_t>(machine_.ranks()));
        struct answers final : listener {
            basic_process_executor* self = nullptr;
            std::vector<rank_census>* all = nullptr;
            void answer(int worker, byte_reader& in) override {
                for (int r = 0; r < self->machine_.ranks(); ++r) {
                    if (self->machine_.worker_of_rank(r) != worker) continue;
                    rank_census& c = (*all)[static_cast<std::size_t>(r)];
                    for (std::int64_t* const n : {&c.messages, &c.bytes, &c.gathers, &c.reductions, &c.hand_overs, &c.products, &c.rows})
                        *n = in.take<std::int64_t>();
                    c.experts = read_experts(in);
                    c.has_experts = self->machine_.rank(r).counts().has_experts;
                    int before = -1;
                    for (expert_census const& e : c.experts)
                        require_sense(e.layer > std::exchange(before, e.layer) && e.layer < self->machine_.graph().config->layers);
                }
            }
        } listening;
        listening.self = this;
        listening.all = &all;
        tell_all(message_kind::counts, {}, &listening);
        return all;
    }
    std::int64_t weight_bytes(int rank) override {
        struct answers final : listener {
            std::vector<std::int64_t> by_rank;
            basic_machine<Lazy> const* machine = nullptr;
            void answer(int worker, byte_reader& in) override {
                for (int r = 0; r < machine->ranks(); ++r)
                    if (machine->worker_of_rank(r) == worker) by_rank[static_cast<std::size_t>(r)] = in.take<std::int64_t>();
            }
        } listening;
        listening.machine = &machine_;
        listening.by_rank.resize(static_cast<std::size_t>(machine_.ranks()));
        tell_all(message_kind::weigh, {}, &listening);
        return listening.by_rank[static_cast<std::size_t>(rank)];
    }
    /// Worker by worker: one's slices at a time are on their way.
    void visit_pieces(piece_visitor& visitor) override {
        require_alive();
        forget(0);
        struct visit final {
            piece_visitor*& visitor;
            ~visit() { visitor = nullptr; }
        } const ends{visiting_};
        for (int w = 0; w < machine_.workers(); ++w) {
            visiting_ = &visitor;
            send(w, message_kind::pieces, {});
            gather(nullptr, {w});
        }
    }
    device::backend const& tail_ops() const override { return machine_.tail_ops(); }

private:
    /// Told of what a worker answers when it is done.
    struct listener {
        virtual void answer(int worker,
                            byte_reader& in) = 0;  ///< what throws another refusal than require_sense's is the call's, not the worker's

    protected:
        ~listener() = default;
    };

    void start(std::uint64_t backends) {
        program_ = how_.worker_program.empty() ? this_program() : how_.worker_program;
        std::string const own = build_identity{.backends = backends}.show();
        for (int w = 0; w < machine_.workers(); ++w) workers_.push_back(worker_process::start(program_, own));
        double const deadline = monotonic_seconds() + how_.start_seconds;
        for (int w = 0; w < machine_.workers(); ++w) {
            message m;
            channel& talk = at(w).talk;
            channel_end e = talk.send(message_kind::hello, std::as_bytes(std::span(own)), deadline);
            try {
                if (e == channel_end::open) e = talk.receive(m, deadline);
                if (e == channel_end::late) refuse_program(w, "does not say that it is one within " + seconds(how_.start_seconds));
                if (e == channel_end::closed) refuse_program(w, at(w).ends_within(1.0) ? at(w).status() : "has closed its channel");
                if (m.kind != message_kind::hello)
                    refuse_program(w, "greets with a message of kind " + std::to_string(static_cast<std::uint32_t>(m.kind)));
                require_same_build(own, read_identity(m.payload));
            } catch (refusal const& r) {
                if (!r.law_name().starts_with("worker_message")) throw;
                refuse_program(w, std::string("talks nonsense: ") + r.what());
            }
        }
    }
    [[noreturn]] void refuse_program(int w, std::string const& why) const {
        refuse("workers_start", who(w) + ": " + program_ + " is no worker: it " + why +
                                    "; a program that includes tenon/runtime/processes.hpp and loads with the same backends would do");
    }

    void build(graph_view graph, checkpoint::folder const& files, checkpoint::block_scaling scaling, load_options const& options) {
        worker_part part;
        part.config = *graph.config;
        for (stage_traits const& s : graph.stages)
            part.stages.push_back(
                {s, std::vector<device_id>(s.devices.begin(), s.devices.end()), std::vector<int>(s.owners.begin(), s.owners.end())});
        part.directory = files.directory();
        part.digest = digest_of(files);
        part.scaling = scaling;
        part.weights = options.weights;
        part.profile = options.profile.name;
        part.isa = options.isa;
        part.kv = options.kv;
        part.threads = options.threads;
        part.pin_threads = options.pin_threads;
        part.traces = options.routing != nullptr;
        part.reports = options.observer != nullptr;
        part.fault = options.fault;
        part.worker_fault = how_.fault;
        if (options.observer != nullptr) {
            checkpoint::tensor_source const source(files, *graph.config, scaling);
            bytes_total_ = bytes_to_load(graph, source, options.weights);
        }
        int const memory[]{control_memory_.file(), arena_memory_.file()};
        for (int w = 0; w < machine_.workers(); ++w) {
            part.worker = w;
            byte_writer out;
            write(out, part);
            if (at(w).talk.send(message_kind::build, out.bytes(), monotonic_seconds() + how_.start_seconds, memory) != channel_end::open)
                give_up(w, "the worker");
        }
        gather(nullptr, all_workers());
    }

    std::vector<int> all_workers() const {
        std::vector<int> all;
        for (int w = 0; w < machine_.workers(); ++w) all.push_back(w);
        return all;
    }

    /// Sends a command to every worker and waits for all.
    void tell_all(message_kind kind, byte_writer const& out, listener* to = nullptr) {
        require_alive();
        forget(0);
        for (int w = 0; w < machine_.workers(); ++w) send(w, kind, out);
        gather(to, all_workers());
    }

    /// The same by the words of shared memory, as long as nobody sleeps: then nothing here calls the system.
    void call_all(listener& to) {
        require_alive();
        forget(0);
        call_words& call = control_.call();
        call.bytes = command_.bytes().size();
        std::memcpy(call.command, command_.bytes().data(), command_.bytes().size());
        call.expected.store(call.expected.load(std::memory_order_relaxed) + static_cast<std::uint32_t>(machine_.workers()),
                            std::memory_order_relaxed);
        for (int w = 0; w < machine_.workers(); ++w) {
            worker_words& words = control_.of(w);
            words.told_here.store(1, std::memory_order_relaxed);
            words.told.fetch_add(1, std::memory_order_seq_cst);
        }
        for (int w = 0; w < machine_.workers(); ++w)
            if (control_.of(w).asleep.load(std::memory_order_seq_cst) != 0) send_bytes(w, message_kind::nudge, {});
        patience_.sees([this] { return all_have_answered(); });
        waiting_for_.clear();
        for (int w = 0; w < machine_.workers(); ++w)
            if (!hear_here(w, &to)) waiting_for_.push_back(w);
        if (!waiting_for_.empty()) gather(&to, waiting_for_);
    }
    /// Every worker the last command that lay in shared memory, there or by its channel.
    bool all_have_answered() const {
        return control_.call().answered.load(std::memory_order_seq_cst) == control_.call().expected.load(std::memory_order_relaxed);
    }
    /// Takes a worker's answer out of shared memory, where all have answered and this one has not said something else before.
    bool hear_here(int w, listener* to) {
        worker_words& words = control_.of(w);
        if (!all_have_answered() || words.answers.load(std::memory_order_acquire) != at(w).heard + 1 ||
            words.answered_here.load(std::memory_order_relaxed) == 0)
            return false;
        ++at(w).heard;
        unroutable_row const worst{words.layer, words.row};
        byte_reader in(std::as_bytes(std::span(&worst, 1)));
        held_to_sense(w, [&] {
            if (to != nullptr) to->answer(w, in);
        });
        return true;
    }
    /// Calls `take` with what a worker has said; nonsense ends them all.
    template <class Take>
    void held_to_sense(int w, Take take) {
        try {
            take();
        } catch (refusal const& r) {
            if (r.law_name().starts_with("worker_message")) give_up(w, std::string("the worker talks nonsense: ") + r.what());
            throw;
        }
    }

    void send(int w, message_kind kind, byte_writer const& out) {
        control_.of(w).told_here.store(0, std::memory_order_relaxed);
        send_bytes(w, kind, out.bytes());
        control_.of(w).told.fetch_add(1, std::memory_order_release);
    }
    void send_bytes(int w, message_kind kind, std::span<std::byte const> bytes) {
        channel_end const e = at(w).talk.send(kind, bytes, monotonic_seconds() + how_.hang_seconds);
        if (e != channel_end::open)
            give_up(w, e == channel_end::late ? "the worker takes no command within " + seconds(how_.hang_seconds) : "the worker");
    }

    /// Tells the workers of sequences that are no more, where there are more than `most`.
    void forget(std::size_t most) {
        if (!forgotten_->any.load(std::memory_order_acquire)) return;
        std::vector<std::int64_t> numbers;
        {
            std::lock_guard const lock(forgotten_->mutex);
            if (forgotten_->numbers.size() > most) {
                numbers.swap(forgotten_->numbers);
                forgotten_->any.store(false, std::memory_order_relaxed);
            }
        }
        if (numbers.empty()) return;
        byte_writer out;
        out.list(std::span<std::int64_t const>(numbers));
        for (int w = 0; w < machine_.workers(); ++w) send(w, message_kind::forget, out);
        gather(nullptr, all_workers());
    }

    struct failure {
        int worker = -1;
        std::string law, sentence;
    };

    /// Waits until each of these workers has said that it is done, and throws what the lowest of them that failed has said.
    void gather(listener* to, std::vector<int> waiting_for) {
        bool const loading = options_ != nullptr;
        failure first;
        std::exception_ptr own;  // of whoever is told: the workers still finish what they say
        std::vector<std::uint32_t> progress(static_cast<std::size_t>(machine_.workers()), 0);
        double last = monotonic_seconds(), quiet = 0;
        std::vector<::pollfd> polled;
        while (!waiting_for.empty()) {
            polled.clear();
            patience_.sees([&] { return is_worth_a_look(waiting_for); });
            call_words& call = control_.call();
            call.asleep.store(1, std::memory_order_seq_cst);  // from now on the last to answer in shared memory sends a nudge
            bool moved = false;
            for (int const w : waiting_for)
                if (hear_here(w, own ? nullptr : to)) done_.push_back(w);
            if (!done_.empty()) {
                moved = true;
            } else {
                for (int const w : waiting_for) polled.push_back({at(w).talk.number(), POLLIN, 0});
                moved = ::poll(polled.data(), polled.size(), 100) > 0;
            }
            call.asleep.store(0, std::memory_order_relaxed);
            for (std::size_t i = 0; moved && i < polled.size(); ++i) {
                if (polled[i].revents == 0) continue;
                try {
                    hear(waiting_for[i], own ? nullptr : to, first);
                } catch (...) {
                    if (loading || !cause_.empty()) throw;
                    if (!own) own = std::current_exception();
                }
            }
            for (int const w : done_) std::erase(waiting_for, w);
            done_.clear();
            for (int w = 0; w < machine_.workers(); ++w) {
                std::uint32_t const now = control_.of(w).progress.load(std::memory_order_relaxed);
                if (std::exchange(progress[static_cast<std::size_t>(w)], now) != now) moved = true;
            }
            // One large tensor is one slice, and may take its time: from a disk, or through a conversion.
            for (std::size_t i = 0; loading && !moved && i < waiting_for.size(); ++i) moved = is_busy(at(waiting_for[i]).run_state());
            // A second at most for each look: where all of us have been stopped for long, nobody hangs.
            double const now = monotonic_seconds(), since = now - std::exchange(last, now);
            quiet = moved ? 0 : quiet + (since < 1.0 ? since : 1.0);
            if (!waiting_for.empty() && quiet > how_.hang_seconds) give_up_stuck(slowest(waiting_for));
        }
        if (own) std::rethrow_exception(own);
        if (first.worker < 0) return;
        if (!first.law.empty()) throw refusal(first.law, first.sentence);
        refuse("workers_compute", who(first.worker) + ": " + first.sentence);
    }

    /// Whether one of these has said something that can be taken.
    bool is_worth_a_look(std::vector<int> const& waiting_for) {
        bool const all = all_have_answered();
        for (int const w : waiting_for)
            if (is_ahead(control_.of(w).answers, at(w).heard) && (all || control_.of(w).answered_here.load(std::memory_order_relaxed) == 0))
                return true;
        return false;
    }

    static bool is_busy(char run_state) { return run_state == 'R' || run_state == 'D'; }
    static bool is_stopped(char run_state) { return run_state == 'T' || run_state == 't'; }

    /// The one of those that keeps the others waiting: one that is stopped, else one that is busy, else the one that has come least far.
    int slowest(std::vector<int> const& of) {
        auto const guilt = [this](int w) {
            char const state = at(w).run_state();
            return is_stopped(state) ? 2 : is_busy(state) ? 1 : 0;
        };
        int worst = of[0];
        for (int const w : of) {
            auto const steps = [this](int x) { return control_.of(x).progress.load(); };
            if (guilt(w) > guilt(worst) || (guilt(w) == guilt(worst) && steps(w) < steps(worst))) worst = w;
        }
        return worst;
    }

    /// Receives one message of a worker, and tells of it.
    void hear(int w, listener* to, failure& first) {
        channel_end e = channel_end::closed;
        held_to_sense(w, [&] {
            e = at(w).talk.receive(heard_, monotonic_seconds() + how_.hang_seconds);
            if (e != channel_end::open || heard_.kind == message_kind::nudge) return;
            ++at(w).heard;
            take(w, to, first);
        });
        if (e == channel_end::open) return;
        give_up(w, e == channel_end::late ? "the worker stops in the middle of an answer for " + seconds(how_.hang_seconds) : "the worker");
    }
    void take(int w, listener* to, failure& first) {
        byte_reader in(heard_.payload);
        switch (heard_.kind) {
            case message_kind::loaded: return report(in);
            case message_kind::pieces: return visit_one(in);
            case message_kind::done:
                done_.push_back(w);
                if (to == nullptr) return;
                to->answer(w, in);
                return in.end();
            case message_kind::failed: {
                done_.push_back(w);
                failure f{w, in.text(), in.text()};
                in.end();
                if (first.worker < 0 || w < first.worker) first = std::move(f);
                return;
            }
            default: give_up(w, "the worker answers with a message of kind " + std::to_string(static_cast<std::uint32_t>(heard_.kind)));
        }
    }

    /// Refuses an answer that no worker of this build gives: what it says is used as indices and sizes.
    static void require_sense(bool makes_sense) {
        if (!makes_sense) refuse("worker_message_makes_sense", "the numbers of an answer are not those of the model");
    }

    [[noreturn]] void give_up_stuck(int w) {
        give_up(w, "no worker has moved for " + seconds(how_.hang_seconds) +
                       (is_stopped(at(w).run_state()) ? ", and this one is stopped" : ""));
    }

    void report(byte_reader& in) {
        std::string const tensor = in.text();
        bytes_done_ += in.take<std::int64_t>();
        in.end();
        if (options_ != nullptr && options_->observer != nullptr) options_->observer->loaded(tensor, bytes_done_, bytes_total_);
    }

    void take_answer(int worker, byte_reader& in) {
        auto const found = in.take<unroutable_row>();
        require_sense(found.row < rows_ && found.layer < machine_.graph().config->layers && (found.row < 0 || found.layer >= 0));
        if (found.row >= 0 && (unroutable_.row < 0 || found.layer < unroutable_.layer)) unroutable_ = found;
        if (!traces_) return;
        for (std::size_t s = 0; s < machine_.graph().stages.size(); ++s) {
            if (machine_.worker_of_rank(machine_.root_of(s).rank()) != worker) continue;
            traced_[s] = in.list<std::int32_t>();
            std::size_t chosen = 0;
            stage_traits const& stage = machine_.graph().stages[s];
            for (int l = stage.first_layer; l <= stage.last_layer; ++l)
                if (routed_experts const& e = machine_.graph().config->layer(l).experts) chosen += static_cast<std::size_t>(e.chosen);
            require_sense(found.row >= 0 || traced_[s].size() == chosen * static_cast<std::size_t>(rows_));
        }
    }

    void visit_one(byte_reader& in) {
        held_piece p;
        p.what = in.one_of(role::head);
        p.layer = in.take<int>();
        p.expert = in.take<int>();
        p.rows = in.take<share>();
        p.columns = in.take<share>();
        p.format = in.one_of(last_of<held_as>);
        auto const size = in.take<std::uint64_t>();
        p.data = in.some(static_cast<std::size_t>(size));
        in.end();
        require_sense(is_held(p));
        piece_visitor* const visitor = std::exchange(visiting_, nullptr);  // gone where it throws
        if (visitor != nullptr) visitor->piece(p);
        visiting_ = visitor;
    }
    /// Whether a piece is within a tensor of the graph.
    bool is_held(held_piece const& p) const {
        auto const within = [](share s, int extent) { return s.begin >= 0 && s.begin <= s.end && s.end <= extent; };
        for (tensor const& t : machine_.graph().ir.tensors) {
            stage_traits const& s = machine_.graph().stages[static_cast<std::size_t>(t.stage)];
            bool const in_layers = is_of_layer(t.what) ? p.layer >= s.first_layer && p.layer <= s.last_layer : p.layer == 0;
            if (t.what != p.what || !in_layers || p.expert < 0 || p.expert >= t.experts || !within(p.rows, t.rows) ||
                !within(p.columns, t.columns))
                continue;
            return p.data.size() == static_cast<std::size_t>(p.rows.size() * bytes_of(p.format, p.columns.size()));
        }
        return false;
    }

    /// Ends every worker and throws what one of them has done. `why` is a sentence, or a name that is followed by how the worker ended.
    [[noreturn]] void give_up(int w, std::string why) {
        bool const ended = at(w).ends_within(why == "the worker" ? 1.0 : 0.0);
        if (ended)
            why = "the worker " + at(w).status();
        else if (why == "the worker")
            why = "the worker has closed its channel";
        cause_ = who(w) + ": " + why;
        for (worker_process& p : workers_) p.kill();
        for (worker_process& p : workers_) p.reap();
        refuse("workers_live", cause_ + "; all workers of the model are ended, and another load would do");
    }
    void require_alive() const {
        if (mark_.is_of_a_fork())
            refuse("workers_live", "the workers of this model are those of process " + std::to_string(mark_.made_by()) +
                                       ", of which this one is a fork; another load would do");
        if (!cause_.empty()) refuse("workers_live", "the workers of this model are ended (" + cause_ + "); another load would do");
    }

    /// "rank 1 on cpu.1, layers 0-3"
    std::string who(int worker) const {
        std::string text;
        int rank = 0;
        for (stage_traits const& s : machine_.graph().stages)
            for (device_id const& d : s.devices) {
                if (machine_.worker_of_rank(rank) == worker)
                    text += (text.empty() ? "rank " : ", rank ") + std::to_string(rank) + " on " + std::string(name_of(d.kind)) + "." +
                            std::to_string(d.index) + ", layers " + std::to_string(s.first_layer) + "-" + std::to_string(s.last_layer);
                ++rank;
            }
        return text;
    }
    static std::string seconds(double s) { return std::to_string(static_cast<int>(s)) + " s"; }

    /// A worker that hears nothing more ends by itself; one that does not is killed.
    void end() noexcept {
        if (mark_.is_of_a_fork()) {  // a fork of the host: the workers are not its
            for (worker_process& p : workers_) p.abandon();
            return;
        }
        for (worker_process& p : workers_) p.talk.close();
        for (worker_process& p : workers_)
            if (!p.ends_within(1.0)) p.kill();
        for (worker_process& p : workers_) p.reap();
    }
    worker_process& at(int w) { return workers_[static_cast<std::size_t>(w)]; }

    process_options how_;
    load_options const* options_;  ///< while loading
    fork_mark mark_;
    basic_machine<Lazy> machine_;  ///< its ranks hold nothing: where they publish is all that the host needs of them
    shared_memory control_memory_, arena_memory_;
    control_block control_;
    std::shared_ptr<forgotten_sequences> forgotten_ = std::make_shared<forgotten_sequences>();
    static constexpr std::size_t most_forgotten = 1000;  ///< that a call which has nothing else to say keeps to itself
    std::uint32_t call_ = 0;
    int rows_ = 0;  ///< of the call
    patience patience_ = patience_between_calls(machine_.workers() * options_->threads);
    byte_writer command_;  ///< of a call
    std::vector<int> waiting_for_;
    std::int64_t bytes_done_ = 0, bytes_total_ = 0;
    bool traces_ = options_->routing != nullptr;
    unroutable_row unroutable_{};
    piece_visitor* visiting_ = nullptr;
    std::string program_{}, cause_{};  ///< what the workers run; why they were ended
    deferred<Lazy, std::vector<std::vector<std::int32_t>>> traced_;
    std::vector<int> done_;  ///< that have just said so
    message heard_;
    deferred<Lazy, std::vector<worker_process>> workers_;
};

}  // namespace tenon::inline v0::detail
