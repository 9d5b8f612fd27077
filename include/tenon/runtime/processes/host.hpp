// The host's side: it starts the workers of a graph, tells each its part, sends batches and gathers answers. A worker that dies, hangs or talks
// nonsense becomes one error, and the others are ended with it.
// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <tenon/checkpoint/folder.hpp>
#include <tenon/core/error.hpp>
#include <tenon/detail/deferred.hpp>
#include <tenon/runtime/engine.hpp>
#include <tenon/runtime/executor.hpp>
#include <tenon/runtime/machine.hpp>
#include <tenon/runtime/processes/channel.hpp>
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
#include <memory>
#include <mutex>
#include <span>
#include <string>
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
          owner_(::getpid()),
          machine_(graph, open, options.isa, options.fault, false),
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
            float *keys = nullptr, *values = nullptr;
            void answer(int, byte_reader& in) override {
                std::size_t const D = static_cast<std::size_t>(a->head_dim), row = static_cast<std::size_t>(a->kv_heads) * D;
                for (int head = in.take<int>(); head >= 0; head = in.take<int>())
                    for (float* const to : {keys, values}) {
                        std::vector<float> const one = in.list<float>();
                        for (std::size_t t = 0; t * D < one.size(); ++t) std::memcpy(to + t * row + static_cast<std::size_t>(head) * D, one.data() + t * D, D * sizeof(float));
                    }
            }
        } listening;
        listening.a = &machine_.graph().config->layer(layer).attention;
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
        for (batch_part const& p : b.parts)
            for (sequence_cache& c : p.caches) c.grow(p.first_position + p.rows, machine_.graph().config->max_positions);
        arena counting;
        machine_.publish(b, counting);
        if (counting.used() > arena_memory_.bytes()) arena_memory_.resize((counting.used() + counting.used() / 2 + 4095) / 4096 * 4096);
        arena shared(arena_memory_.data(), arena_memory_.bytes());
        machine_.publish(b, shared);
        traced_.assign(machine_.graph().stages.size(), {});
        unroutable_ = {};
        if (b.rows() == 0) return;
        control_.failed().store(0, std::memory_order_release);
        byte_writer out;
        out.put(++call_).put(static_cast<std::uint64_t>(arena_memory_.bytes())).put(static_cast<std::uint64_t>(b.parts.size()));
        for (batch_part const& p : b.parts) out.put(p.number).put(p.first_row).put(p.rows).put(p.first_position);
        out.list(std::span<token_id const>(b.tokens)).list(std::span<int const>(b.wanted));
        struct answers final : listener {
            basic_process_executor* self = nullptr;
            void answer(int worker, byte_reader& in) override { self->take_answer(worker, in); }
        } listening;
        listening.self = this;
        tell_all(message_kind::forward, out, &listening);
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
                    for (std::int64_t* const n : {&c.messages, &c.bytes, &c.gathers, &c.reductions, &c.hand_overs, &c.products, &c.rows}) *n = in.take<std::int64_t>();
                    c.experts = in.list<expert_census>();
                }
            }
        } listening;
        listening.self = this;
        listening.all = &all;
        tell_all(message_kind::counts, {}, &listening);
        return all;
    }
    std::int64_t weight_bytes(int rank) override {
        struct weigher final : piece_visitor {
            std::int64_t sum = 0;
            void piece(held_piece const& p) override { sum += static_cast<std::int64_t>(p.data.size()); }
        } weighed;
        visit(machine_.worker_of_rank(rank), rank, weighed);
        return weighed.sum;
    }
    void visit_pieces(piece_visitor& visitor) override {
        for (int w = 0; w < machine_.workers(); ++w) visit(w, -1, visitor);
    }
    device::backend const& tail_ops() const override { return machine_.tail_ops(); }

private:
    /// Told of what a worker answers when it is done.
    struct listener {
        virtual void answer(int worker, byte_reader& in) = 0;

    protected:
        ~listener() = default;
    };

    void start(std::uint64_t backends) {
        std::string const program = how_.worker_program.empty() ? this_program() : how_.worker_program;
        for (int w = 0; w < machine_.workers(); ++w) workers_.push_back(worker_process::start(program, backends));
        build_identity const own{.backends = backends};
        byte_writer hello;
        write(hello, own);
        double const deadline = monotonic_seconds() + how_.start_seconds;
        for (int w = 0; w < machine_.workers(); ++w) {
            message m;
            channel& talk = at(w).talk;
            channel_end const sent = talk.send(message_kind::hello, hello.bytes(), deadline);
            channel_end const e = sent == channel_end::open ? talk.receive(m, deadline) : sent;
            if (e == channel_end::late) give_up(w, program + " does not say that it is a worker within " + seconds(how_.start_seconds) + "; a program that includes tenon/runtime/processes.hpp would do");
            if (e == channel_end::closed) give_up(w, "the worker");
            byte_reader in(m.payload);
            if (m.kind != message_kind::hello) give_up(w, program + " greets with a message of kind " + std::to_string(static_cast<std::uint32_t>(m.kind)));
            require_same_build(own, read_identity(in));
            in.end();
        }
    }

    void build(graph_view graph, checkpoint::folder const& files, checkpoint::block_scaling scaling, load_options const& options) {
        worker_part part;
        part.config = *graph.config;
        for (stage_traits const& s : graph.stages)
            part.stages.push_back({s, std::vector<device_id>(s.devices.begin(), s.devices.end()), std::vector<int>(s.owners.begin(), s.owners.end())});
        part.directory = files.directory();
        part.digest = digest_of(files);
        part.scaling = scaling;
        part.weights = options.weights;
        part.isa = options.isa;
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
            if (at(w).talk.send(message_kind::build, out.bytes(), monotonic_seconds() + how_.start_seconds, memory) != channel_end::open) give_up(w, "the worker");
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
        forget();
        for (int w = 0; w < machine_.workers(); ++w) send(w, kind, out);
        gather(to, all_workers());
    }

    void send(int w, message_kind kind, byte_writer const& out) {
        channel_end const e = at(w).talk.send(kind, out.bytes(), monotonic_seconds() + how_.hang_seconds);
        if (e != channel_end::open) give_up(w, e == channel_end::late ? "the worker takes no command within " + seconds(how_.hang_seconds) : "the worker");
    }

    /// Tells the workers of sequences that are no more.
    void forget() {
        std::vector<std::int64_t> numbers;
        {
            std::lock_guard const lock(forgotten_->mutex);
            numbers.swap(forgotten_->numbers);
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
        failure first;
        std::vector<std::uint32_t> progress(static_cast<std::size_t>(machine_.workers()), 0);
        double moved = monotonic_seconds();
        std::vector<::pollfd> polled;
        while (!waiting_for.empty()) {
            polled.clear();
            for (int const w : waiting_for) polled.push_back({at(w).talk.number(), POLLIN, 0});
            int const ready = ::poll(polled.data(), polled.size(), 100);
            if (ready > 0) moved = monotonic_seconds();
            for (std::size_t i = 0; ready > 0 && i < polled.size(); ++i)
                if (polled[i].revents != 0) hear(waiting_for[i], to, first, waiting_for_done_);
            for (int const w : waiting_for_done_) std::erase(waiting_for, w);
            waiting_for_done_.clear();
            for (int w = 0; w < machine_.workers(); ++w) {
                std::uint32_t const now = control_.progress(static_cast<std::size_t>(w)).load(std::memory_order_relaxed);
                if (std::exchange(progress[static_cast<std::size_t>(w)], now) != now) moved = monotonic_seconds();
            }
            if (!waiting_for.empty() && monotonic_seconds() - moved > how_.hang_seconds) give_up(slowest(waiting_for), "no worker has moved for " + seconds(how_.hang_seconds));
        }
        if (first.worker < 0) return;
        if (!first.law.empty()) throw refusal(first.law, first.sentence);
        throw std::runtime_error(who(first.worker) + ": " + first.sentence);
    }

    /// The one of those that has come least far: it keeps the others waiting.
    int slowest(std::vector<int> const& of) const {
        int least = of[0];
        for (int const w : of)
            if (control_.progress(static_cast<std::size_t>(w)).load() < control_.progress(static_cast<std::size_t>(least)).load()) least = w;
        return least;
    }

    /// Receives one message of a worker.
    void hear(int w, listener* to, failure& first, std::vector<int>& done) {
        channel_end e = channel_end::closed;
        try {
            e = at(w).talk.receive(heard_, monotonic_seconds() + how_.hang_seconds);
            if (e == channel_end::open) {
                byte_reader in(heard_.payload);
                switch (heard_.kind) {
                    case message_kind::loaded: return report(in);
                    case message_kind::pieces: return visit_one(in);
                    case message_kind::done:
                        if (to != nullptr) to->answer(w, in);
                        in.end();
                        done.push_back(w);
                        return;
                    case message_kind::failed: {
                        failure f{w, in.text(), in.text()};
                        in.end();
                        if (first.worker < 0 || w < first.worker) first = std::move(f);
                        done.push_back(w);
                        return;
                    }
                    default: give_up(w, "the worker answers with a message of kind " + std::to_string(static_cast<std::uint32_t>(heard_.kind)));
                }
            }
        } catch (refusal const& r) {
            if (r.law_name().starts_with("worker_message")) give_up(w, std::string("the worker talks nonsense: ") + r.what());
            throw;
        }
        give_up(w, e == channel_end::late ? "the worker stops in the middle of an answer for " + seconds(how_.hang_seconds) : "the worker");
    }

    void report(byte_reader& in) {
        std::string const tensor = in.text();
        bytes_done_ += in.take<std::int64_t>();
        in.end();
        if (options_ != nullptr && options_->observer != nullptr) options_->observer->loaded(tensor, bytes_done_, bytes_total_);
    }

    void take_answer(int worker, byte_reader& in) {
        auto const found = in.take<unroutable_row>();
        if (found.row >= 0 && (unroutable_.row < 0 || found.layer < unroutable_.layer)) unroutable_ = found;
        if (!traces_) return;
        for (std::size_t s = 0; s < machine_.graph().stages.size(); ++s)
            if (machine_.worker_of_rank(machine_.root_of(s).rank()) == worker) traced_[s] = in.list<std::int32_t>();
    }

    /// Everything that a worker holds, or one of its ranks.
    void visit(int worker, int rank, piece_visitor& visitor) {
        require_alive();
        byte_writer out;
        out.put(rank);
        visiting_ = &visitor;
        send(worker, message_kind::pieces, out);
        gather(nullptr, {worker});
        visiting_ = nullptr;
    }
    void visit_one(byte_reader& in) {
        held_piece p;
        p.what = in.take<role>();
        p.layer = in.take<int>();
        p.expert = in.take<int>();
        p.rows = in.take<share>();
        p.columns = in.take<share>();
        p.type = in.take<dtype>();
        auto const size = in.take<std::uint64_t>();
        p.data = in.some(static_cast<std::size_t>(size));
        in.end();
        if (visiting_ != nullptr) visiting_->piece(p);
    }

    /// Ends every worker and throws what one of them has done. `why` is a sentence, or a name that is followed by how the worker ended.
    [[noreturn]] void give_up(int w, std::string why) {
        bool const ended = at(w).ends_within(why == "the worker" ? 1.0 : 0.0);
        if (ended) why = "the worker " + at(w).status();
        else if (why == "the worker") why = "the worker has closed its channel";
        cause_ = who(w) + ": " + why;
        for (worker_process& p : workers_) p.kill();
        for (worker_process& p : workers_) p.reap();
        refuse("workers_live", cause_ + "; all workers of the model are ended, and another load would do");
    }
    void require_alive() const {
        if (!cause_.empty()) refuse("workers_live", "the workers of this model are ended (" + cause_ + "); another load would do");
    }

    /// "rank 1 on cpu.1, layers 0-3"
    std::string who(int worker) const {
        std::string text;
        int rank = 0;
        for (stage_traits const& s : machine_.graph().stages)
            for (device_id const& d : s.devices) {
                if (machine_.worker_of_rank(rank) == worker)
                    text += (text.empty() ? "rank " : ", rank ") + std::to_string(rank) + " on " + std::string(name_of(d.kind)) + "." + std::to_string(d.index) + ", layers " +
                            std::to_string(s.first_layer) + "-" + std::to_string(s.last_layer);
                ++rank;
            }
        return text;
    }
    static std::string seconds(double s) { return std::to_string(static_cast<int>(s)) + " s"; }

    /// A worker that hears nothing more ends by itself; one that does not is killed.
    void end() noexcept {
        if (owner_ != ::getpid()) {  // a fork of the host: the workers are not its
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
    ::pid_t owner_;
    basic_machine<Lazy> machine_;  ///< its ranks hold nothing: where they publish is all that the host needs of them
    shared_memory control_memory_, arena_memory_;
    control_block control_;
    std::shared_ptr<forgotten_sequences> forgotten_ = std::make_shared<forgotten_sequences>();
    std::uint32_t call_ = 0;
    std::int64_t bytes_done_ = 0, bytes_total_ = 0;
    bool traces_ = options_->routing != nullptr;
    unroutable_row unroutable_{};
    piece_visitor* visiting_ = nullptr;
    std::string cause_{};  ///< why the workers were ended
    deferred<Lazy, std::vector<std::vector<std::int32_t>>> traced_;
    std::vector<int> waiting_for_done_;
    message heard_;
    deferred<Lazy, std::vector<worker_process>> workers_;
};

}  // namespace tenon::inline v0::detail
