// A worker process: it is told its part, builds and loads that alone, and serves commands until its host is gone. A program that may start
// workers has a hook that takes over before its main where it has been started as one.
// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <tenon/checkpoint/folder.hpp>
#include <tenon/checkpoint/tensor_source.hpp>
#include <tenon/core/error.hpp>
#include <tenon/detail/deferred.hpp>
#include <tenon/kernel/float_environment.hpp>
#include <tenon/runtime/angles.hpp>
#include <tenon/runtime/executor.hpp>
#include <tenon/runtime/loading.hpp>
#include <tenon/runtime/machine.hpp>
#include <tenon/runtime/processes/channel.hpp>
#include <tenon/runtime/processes/identity.hpp>
#include <tenon/runtime/processes/message.hpp>
#include <tenon/runtime/processes/part.hpp>
#include <tenon/runtime/processes/segment.hpp>
#include <tenon/runtime/processes/spawn.hpp>

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>
#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <exception>
#include <map>
#include <memory>
#include <new>
#include <span>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

namespace tenon::inline v0::detail {

inline constexpr double never = 1e18;  ///< a deadline

/// Ends this process when its host has closed the channel or has ended, whatever this one is doing. Not by the channel alone, which a fork
/// of the host keeps open, and not by the parent's death signal, which follows the thread that forked.
inline void end_with_host(int channel) {
    ::ucred host{};
    ::socklen_t size = sizeof host;
    ::getsockopt(channel, SOL_SOCKET, SO_PEERCRED, &host, &size);
    std::thread([channel, id = host.pid] {
        descriptor const process = process_handle(id);
        if (!process && errno == ESRCH) ::_exit(0);
        ::pollfd watched[]{{channel, POLLRDHUP, 0}, {process.number(), POLLIN, 0}};
        while (::poll(watched, 2, -1) <= 0) {}
        ::_exit(0);
    }).detach();
}

template <class Lazy>
class basic_worker final : step_observer, load_observer, piece_visitor {
public:
    using opener = typename basic_machine<Lazy>::opener;

    basic_worker(channel& host, opener open, worker_part part, shared_memory control, shared_memory arena_memory)
        : host_(&host),
          part_(std::move(part)),
          graph_(part_),
          control_memory_(std::move(control)),
          arena_memory_(std::move(arena_memory)),
          machine_(graph_.view(), open, part_.isa, numeric::named(part_.profile), part_.fault, part_.traces),
          angles_(part_.config),
          control_(control_memory_.data(), part_.stages.size(), static_cast<std::size_t>(machine_.workers())),
          in_a_call_(machine_.workers() * part_.threads, true),
          between_calls_(patience_between_calls(machine_.workers() * part_.threads)) {
        if (part_.worker < 0 || part_.worker >= machine_.workers())
            refuse("worker_part_is_whole", "worker " + std::to_string(part_.worker) + " of " + std::to_string(machine_.workers()));
        if (control_memory_.bytes() < control_block::bytes_for(part_.stages.size(), static_cast<std::size_t>(machine_.workers())))
            refuse("worker_part_is_whole", "the control block has " + std::to_string(control_memory_.bytes()) + " bytes");
        machine_.keep_kv_in(part_.kv);
        machine_.employ(part_.threads, part_.pin_threads, false, part_.worker);
    }

    /// Reads the weights of this worker's ranks, and says so.
    void load() {
        checkpoint::folder const files(part_.directory);
        if (std::string const here = digest_of(files); here != part_.digest)
            refuse("worker_reads_the_hosts_checkpoint", part_.directory + " has the digest " + here + "; the host saw " + part_.digest);
        checkpoint::tensor_source const source(files, part_.config, part_.scaling);
        machine_.load(part_.worker, {source, part_.weights, this, part_.fault, numeric::named(part_.profile)});
        answer(byte_writer());
    }

    /// Serves until the host is gone.
    void serve() {
        message m;
        for (;;) {
            between_calls_.sees([this] { return is_ahead(words().told, heard_); });  // the next token's call comes soon
            if (is_told_here()) {
                ++heard_;
                call_words& call = control_.call();
                obey(message_kind::forward,
                     std::span(call.command).first((std::min)(static_cast<std::size_t>(call.bytes), call_words::room)));
                bool const last =
                    call.answered.fetch_add(1, std::memory_order_seq_cst) + 1 == call.expected.load(std::memory_order_relaxed);
                if (last && call.asleep.load(std::memory_order_seq_cst) != 0) host_->send(message_kind::nudge, {}, never);
                continue;
            }
            words().asleep.store(1, std::memory_order_seq_cst);
            bool const here = is_told_here();  // since the last look; whoever comes later sees that it has to send a nudge
            if (!here && host_->receive(m, never) != channel_end::open) return;
            words().asleep.store(0, std::memory_order_relaxed);
            if (here || m.kind == message_kind::nudge) continue;
            ++heard_;
            obey(m.kind, m.payload);
        }
    }

private:
    bool is_told_here() { return is_ahead(words().told, heard_) && words().told_here.load(std::memory_order_relaxed) != 0; }

    /// Does what one message says, and answers it.
    void obey(message_kind kind, std::span<std::byte const> payload) {
        try {
            dispatch(kind, payload);
        } catch (refusal const& r) {
            answer_failure(r.law_name(), std::string_view(r.what()).substr(r.law_name().size() + 2));
        } catch (std::bad_alloc const&) {
            answer_failure("memory_suffices", "the system gives no more memory");
        } catch (std::exception const& e) { answer_failure("", e.what()); } catch (...) {
            answer_failure("", "something that is no std::exception");
        }
    }

    void step() override {
        words().progress.store(words().progress.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);  // nobody else writes it
        if (misbehave(part_, *host_, ++steps_)) words().answers.fetch_add(1, std::memory_order_release);
    }
    void loaded(std::string_view tensor, std::int64_t bytes, std::int64_t) override {
        step();
        if (!part_.reports) return;
        byte_writer out;
        out.text(tensor).put(bytes);
        say(message_kind::loaded, out);
    }

public:
    /// The red arms of a process. Whether it has said something.
    static bool misbehave(worker_part const& part, channel& host, std::int64_t steps) {
        using kind = testing::worker_fault_kind;
        testing::worker_fault const& f = part.worker_fault;
        if (f.worker != part.worker || f.kind == kind::none) return false;
        if (f.kind == kind::slow && steps > f.steps) {
            std::timespec const nap{0, 20'000'000};
            ::nanosleep(&nap, nullptr);
        }
        if (steps != f.steps) return false;
        switch (f.kind) {
            case kind::throws: throw std::runtime_error("a deliberate fault at step " + std::to_string(steps));
            case kind::exits: ::_exit(3);
            case kind::killed: ::kill(::getpid(), SIGKILL); break;
            case kind::stops: ::kill(::getpid(), SIGSTOP); break;
            case kind::garbage: {
                std::byte const nonsense[64]{std::byte{0x55}};
                static_cast<void>(::send(host.number(), nonsense, sizeof nonsense, MSG_NOSIGNAL));
                return true;
            }
            default: break;
        }
        return false;
    }

private:
    void answer_failure(std::string_view law, std::string_view sentence) {
        byte_writer out;
        out.text(law).text(sentence);
        say(message_kind::failed, out);
    }
    void answer(byte_writer const& out) { say(message_kind::done, out); }
    void say(message_kind kind, byte_writer const& out) {
        words().answered_here.store(0, std::memory_order_relaxed);
        host_->send(kind, out.bytes(), never);
        words().answers.fetch_add(1, std::memory_order_release);
    }
    void answer_here(unroutable_row const& worst) {
        worker_words& w = words();
        w.layer = worst.layer;
        w.row = worst.row;
        w.answered_here.store(1, std::memory_order_relaxed);
        w.answers.fetch_add(1, std::memory_order_release);
    }
    worker_words& words() { return control_.of(part_.worker); }

    void dispatch(message_kind kind, std::span<std::byte const> payload) {
        byte_reader in(payload);
        byte_writer out;
        switch (kind) {
            case message_kind::forward: return forward(in);
            case message_kind::reserve: {
                auto const number = in.take<std::int64_t>(), positions = in.take<std::int64_t>();
                in.end();
                for (sequence_cache& c : caches_of(number)) c.reserve(positions);
                return answer(out);
            }
            case message_kind::forget: {
                for (std::int64_t const number : in.list<std::int64_t>()) sequences_.erase(number);
                in.end();
                return answer(out);
            }
            case message_kind::counts: {
                each_rank([&out](auto const& r) {
                    rank_census const& c = r.counts();
                    for (std::int64_t const n : {c.messages, c.bytes, c.gathers, c.reductions, c.hand_overs, c.products, c.rows})
                        out.put(n);
                    write(out, c.experts);
                });
                return answer(out);
            }
            case message_kind::weigh: {
                each_rank([&out](auto const& r) { out.put(r.weights().bytes()); });
                return answer(out);
            }
            case message_kind::pieces: {
                each_rank([this](auto const& r) { visit_pieces(r, *this, room_); });
                return answer(out);
            }
            case message_kind::read_layer: return read_layer(in);
            case message_kind::write_layer: return write_layer(in);
            default: refuse("worker_message_is_known", "a command of kind " + std::to_string(static_cast<std::uint32_t>(kind)));
        }
    }

    /// Calls `use` with the ranks of this worker, in order.
    template <class Use>
    void each_rank(Use use) {
        for (int r = 0; r < machine_.ranks(); ++r)
            if (machine_.worker_of_rank(r) == part_.worker) use(machine_.rank(r));
    }

    /// The caches of a sequence, one a rank of the graph; those of other workers have no memory.
    std::vector<sequence_cache>& caches_of(std::int64_t number) {
        std::vector<sequence_cache>& caches = sequences_[number];
        if (caches.empty())
            for (int r = 0; r < machine_.ranks(); ++r)
                caches.push_back(machine_.rank(r).new_cache(machine_.worker_of_rank(r) != part_.worker));
        return caches;
    }

    void forward(byte_reader& in) {
        auto const call = in.take<std::uint32_t>();
        meeting_place place(control_.meetings(), graph_.view().stages, call, control_.failed(), this, in_a_call_);
        std::exception_ptr failure;
        try {
            each_rank([](auto& r) { r.experts().take_nan_row(); });  // of a call that failed
            auto const arena_bytes = in.take<std::uint64_t>();
            batch_.parts.clear();
            for (auto count = in.take<std::uint64_t>(); count > 0; --count) {
                auto const number = in.take<std::int64_t>();
                auto const first = in.take<int>(), rows = in.take<int>();
                auto const position = in.take<std::int64_t>();
                batch_.parts.push_back({caches_of(number), number, first, rows, position});
            }
            in.list(batch_.tokens);
            in.list(batch_.wanted);
            in.end();
            for (batch_part const& p : batch_.parts)
                for (sequence_cache& c : p.caches) c.grow(p.first_position + p.rows, part_.config.max_positions);
            angles_.fill(batch_);
            if (arena_bytes != arena_memory_.bytes()) arena_memory_.map(arena_bytes);
            arena shared(arena_memory_.data(), arena_memory_.bytes());
            machine_.reserve(batch_, &shared, part_.worker);
        } catch (...) {
            failure = std::current_exception();
            place.fail();  // the others are met all the same
        }
        {
            kernel::flush_to_zero_guard const exact;
            try {
                machine_.serve(part_.worker, batch_, place);
            } catch (...) {
                if (!failure) failure = std::current_exception();
            }
        }
        if (failure) std::rethrow_exception(failure);
        unroutable_row worst;
        each_rank([&worst](auto& r) {
            if (auto const found = r.experts().take_nan_row(); found.row >= 0 && (worst.row < 0 || found.layer < worst.layer))
                worst = {found.layer, found.row};
        });
        if (!part_.traces) return answer_here(worst);
        byte_writer out;
        out.put(worst);
        each_rank([&out](auto& r) {
            if (r.member() == 0) out.list(r.experts().traced());
        });
        answer(out);
    }

    /// A slice goes in messages of whole rows.
    void piece(held_piece const& p) override {
        std::size_t const row = p.rows.size() > 0 ? p.data.size() / static_cast<std::size_t>(p.rows.size()) : 0;
        int const most = row == 0 ? p.rows.size() : static_cast<int>(piece_bytes / row > 0 ? piece_bytes / row : 1);
        for (int first = 0; first < p.rows.size(); first += most) {
            int const count = p.rows.size() - first < most ? p.rows.size() - first : most;
            byte_writer out;
            out.put(p.what)
                .put(p.layer)
                .put(p.expert)
                .put(share{p.rows.begin + first, p.rows.begin + first + count})
                .put(p.columns)
                .put(p.format);
            out.list(p.data.subspan(static_cast<std::size_t>(first) * row, static_cast<std::size_t>(count) * row));
            say(message_kind::pieces, out);
        }
    }

    /// What this worker's ranks hold of a layer, head by head: its number, its keys, its values, (T, D) each.
    void read_layer(byte_reader& in) {
        auto const number = in.take<std::int64_t>(), positions = in.take<std::int64_t>();
        auto const layer = in.take<int>();
        in.end();
        grouped_attention const& a = part_.config.layer(layer).attention;
        auto const row = static_cast<std::size_t>(a.kv_heads * a.head_dim), D = static_cast<std::size_t>(a.head_dim),
                   T = static_cast<std::size_t>(positions);
        std::vector<float> keys(T * row), values(T * row), one(T * D);
        machine_.read_layer(caches_of(number), layer, positions, keys.data(), values.data(), part_.worker);
        byte_writer out;
        machine_.each_holder(layer, part_.worker, [&](auto const&, int, share heads, grouped_attention const&) {
            for (int h = heads.begin; h < heads.end; ++h) {
                out.put(h);
                for (std::vector<float> const* all : {&keys, &values}) {
                    for (std::size_t t = 0; t < T; ++t)
                        std::memcpy(one.data() + t * D, all->data() + t * row + static_cast<std::size_t>(h) * D, D * sizeof(float));
                    out.list(std::span<float const>(one));
                }
            }
        });
        answer(out.put(-1));
    }
    void write_layer(byte_reader& in) {
        auto const number = in.take<std::int64_t>(), positions = in.take<std::int64_t>();
        auto const layer = in.take<int>();
        std::vector<float> const keys = in.list<float>(), values = in.list<float>();
        in.end();
        machine_.write_layer(caches_of(number), layer, positions, keys.data(), values.data(), part_.worker);
        answer(byte_writer());
    }

    channel* host_;
    worker_part part_;
    basic_rebuilt_graph<Lazy> graph_;
    shared_memory control_memory_, arena_memory_;
    basic_machine<Lazy> machine_;
    basic_angles<Lazy> angles_;
    control_block control_;
    patience in_a_call_, between_calls_;
    std::uint32_t heard_ = 0;  ///< messages of the host, since the part
    std::int64_t steps_ = 0;
    deferred<Lazy, std::map<std::int64_t, std::vector<sequence_cache>>> sequences_;
    deferred<Lazy, batch> batch_;
    std::vector<std::byte> room_;
};

/// Closes what the host has left open to whoever it starts.
inline void close_from(int first) {
#if defined(SYS_close_range)
    if (::syscall(SYS_close_range, static_cast<unsigned>(first), ~0U, 0U) == 0) return;
#endif
    for (long n = first, end = ::sysconf(_SC_OPEN_MAX); n < end; ++n) ::close(static_cast<int>(n));
}

/// The life of a worker that introduces itself as `own`; the exit status of its process.
template <class Lazy = void>
int work(typename basic_machine<Lazy>::opener open, std::string const& own) {
    ::unsetenv(worker_variable);
    close_from(worker_channel + 1);
    ::signal(SIGPIPE, SIG_IGN);
    ::prctl(PR_SET_PDEATHSIG, SIGCONT);  // one that is stopped has to see that its host has gone
    ::fcntl(worker_channel, F_SETFD, FD_CLOEXEC);
    channel host{descriptor(worker_channel)};
    byte_writer out;
    try {
        end_with_host(worker_channel);
        message m;
        if (host.send(message_kind::hello, std::as_bytes(std::span(own)), never) != channel_end::open ||
            host.receive(m, never) != channel_end::open)
            return 1;
        require_same_build(read_identity(m.payload), own);
        if (host.receive(m, never) != channel_end::open) return 1;
        if (m.kind != message_kind::build || m.files.size() != 2)
            refuse("worker_message_is_known", "a part with its two files of memory would do");
        byte_reader in(m.payload);
        worker_part part = read_part(in);
        basic_worker<Lazy>::misbehave(part, host, 0);
        auto const size_of = [](descriptor const& file) {
            ::off_t const size = ::lseek(file.number(), 0, SEEK_END);
            return size > 0 ? static_cast<std::size_t>(size) : std::size_t{1};
        };
        std::size_t const control = size_of(m.files[0]), shared = size_of(m.files[1]);
        auto const worker =
            std::make_unique<basic_worker<Lazy>>(host, open, std::move(part), shared_memory::of(std::move(m.files[0]), control),
                                                 shared_memory::of(std::move(m.files[1]), shared));
        worker->load();
        worker->serve();
        return 0;
    } catch (refusal const& r) {
        out.clear();
        out.text(r.law_name()).text(std::string_view(r.what()).substr(r.law_name().size() + 2));
    } catch (std::bad_alloc const&) {
        out.clear();
        out.text("memory_suffices").text("the system gives no more memory");
    } catch (std::exception const& e) {
        out.clear();
        out.text("").text(e.what());
    }
    host.send(message_kind::failed, out.bytes(), never);
    return 1;
}

/// The number of a program's backends, by the name of their type.
template <class Devices>
constexpr std::uint64_t number_of_backends() {
    std::uint64_t h = 1469598103934665603U;
    for (char const c : std::string_view(__PRETTY_FUNCTION__)) h = (h ^ static_cast<unsigned char>(c)) * 1099511628211U;
    return h;
}

/// Takes over where this process has been started as a worker for `Devices`: before main, when static objects are made.
template <class Devices>
struct worker_hook {
    static bool take_over() {
        char const* const told = std::getenv(worker_variable);
        if (told == nullptr) return false;
        build_identity const own{.backends = number_of_backends<Devices>()};
        if (!own.is_to_greet(told)) return false;
        ::_exit(work(&Devices::open, own.show()));
    }
    static inline bool const taken = take_over();
};

}  // namespace tenon::inline v0::detail
