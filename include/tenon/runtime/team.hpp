// Persistent worker threads that run one job together.
// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <tenon/core/error.hpp>
#include <tenon/kernel/float_environment.hpp>
#include <tenon/runtime/meeting.hpp>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <string>
#include <system_error>
#include <thread>
#include <vector>
#if defined(__linux__)
#include <sched.h>
#endif

namespace tenon::inline v0::detail {

/// Workers that wait for a job, run it, each with its own index, and wait again. Worker 0 is whoever calls `run`, so that a team of
/// one has no thread and nobody is woken without need; the others are persistent threads, joined by the destructor.
class thread_team {
public:
    /// What the workers run. An interface, not a std::function: <functional> costs a user's file a third of a second.
    struct job {
        virtual void run(int worker) = 0;

    protected:
        ~job() = default;
    };

    /// `all`: how many threads the model has on this machine, this team's among them. Worker w > 0 stays on the core first_core + w, counted
    /// around those that the process may use, where there are as many cores as threads; with -1 on none.
    explicit thread_team(int workers, int all = 0, int first_core = -1)
        : errors_(static_cast<std::size_t>(workers)),
          how_(static_cast<std::size_t>(workers), alone_on_its_line{patience((std::max)(workers, all))}),
          done_(std::make_unique<awaited_word[]>(static_cast<std::size_t>(workers))) {
        bool const crowded = static_cast<unsigned>((std::max)(workers, all)) > cores_to_run_on();
        threads_.reserve(static_cast<std::size_t>(workers));
        try {
            for (int w = 1; w < workers; ++w) threads_.emplace_back([this, w, core = first_core < 0 || crowded ? -1 : first_core + w] {
                if (core >= 0) stay_on(core);
                serve(w);
            });
        } catch (std::system_error const& failed) {
            std::size_t const started = threads_.size();
            stop();
            refuse("threads_start", "the system gives thread " + std::to_string(started + 1) + " of " + std::to_string(workers - 1) +
                                        " no room: " + failed.what());
        } catch (...) {
            stop();
            throw;
        }
    }
    thread_team(thread_team const&) = delete;
    thread_team& operator=(thread_team const&) = delete;
    ~thread_team() { stop(); }

    /// How a worker waits; its own alone.
    patience& patience_of(int worker) noexcept { return how_[static_cast<std::size_t>(worker)].how; }

    /// Returns when all are done; rethrows the exception of the lowest worker that threw.
    void run(job& work) {
        job_ = &work;
        std::uint32_t const call = call_.value.load(std::memory_order_relaxed) + 1;
        if (!threads_.empty()) set_word(call_, call);
        work_as(0);
        for (std::size_t w = 1; w <= threads_.size(); ++w)
            patience_of(0).await(done_[w], [call](std::uint32_t done) { return done == call; });
        std::exception_ptr first;
        for (std::exception_ptr& e : errors_) {
            if (e && !first) first = e;
            e = nullptr;
        }
        if (first) std::rethrow_exception(first);
    }

private:
    static void stay_on(int number) noexcept {
#if defined(__linux__)
        ::cpu_set_t may, one;
        if (::sched_getaffinity(0, sizeof may, &may) != 0) return;  // a machine of more cores than fit: nobody is pinned
        int left = number % CPU_COUNT(&may);
        CPU_ZERO(&one);
        for (std::size_t core = 0; core < CPU_SETSIZE; ++core)
            if (CPU_ISSET(core, &may) && left-- == 0) {
                CPU_SET(core, &one);
                break;
            }
        ::sched_setaffinity(0, sizeof one, &one);
#else
        static_cast<void>(number);
#endif
    }
    struct alignas(64) alone_on_its_line {
        patience how;
    };

    void work_as(int worker) noexcept {
        try {
            kernel::flush_to_zero_guard const exact;
            job_->run(worker);
        } catch (...) { errors_[static_cast<std::size_t>(worker)] = std::current_exception(); }
    }

    void serve(int worker) noexcept {
        for (std::uint32_t call = 0;;) {
            patience_of(worker).await(call_, [call](std::uint32_t told) { return told != call; });
            call = call_.value.load(std::memory_order_acquire);
            if (stopping_.load(std::memory_order_acquire)) return;
            work_as(worker);
            set_word(done_[static_cast<std::size_t>(worker)], call);
        }
    }

    void stop() noexcept {
        stopping_.store(true, std::memory_order_release);
        set_word(call_, call_.value.load(std::memory_order_relaxed) + 1);
        for (std::thread& t : threads_) t.join();
        threads_.clear();
    }

    std::vector<std::exception_ptr> errors_;  ///< one a worker
    std::vector<alone_on_its_line> how_;
    job* job_ = nullptr;
    std::atomic<bool> stopping_{false};
    awaited_word call_{};
    std::unique_ptr<awaited_word[]> done_;  ///< the last call that each worker has run
    std::vector<std::thread> threads_;
};

}  // namespace tenon::inline v0::detail
