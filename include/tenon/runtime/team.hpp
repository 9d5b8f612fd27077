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
    explicit thread_team(int workers, int all = 0, int first_core = -1) : errors_(static_cast<std::size_t>(workers)) {
        bool const crowded = static_cast<unsigned>((std::max)(workers, all)) > std::thread::hardware_concurrency();
        spins_ = crowded ? 0 : 4000;
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

    int spins() const noexcept { return spins_; }

    /// Returns when all are done; rethrows the exception of the lowest worker that threw.
    void run(job& work) {
        job_ = &work;
        std::uint32_t const done = done_.load(std::memory_order_relaxed);
        if (!threads_.empty()) {
            left_.store(static_cast<std::uint32_t>(threads_.size()), std::memory_order_relaxed);
            call_.fetch_add(1, std::memory_order_release);
            call_.notify_all();
        }
        work_as(0);
        if (!threads_.empty()) wait_for_change(done_, done, {spins_});
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

    void work_as(int worker) noexcept {
        try {
            kernel::flush_to_zero_guard const exact;
            job_->run(worker);
        } catch (...) { errors_[static_cast<std::size_t>(worker)] = std::current_exception(); }
    }

    void serve(int worker) noexcept {
        for (std::uint32_t seen = 0;;) {
            wait_for_change(call_, seen, {spins_});
            seen = call_.load(std::memory_order_acquire);
            if (stopping_.load(std::memory_order_acquire)) return;
            work_as(worker);
            if (left_.fetch_sub(1, std::memory_order_acq_rel) == 1) {
                done_.fetch_add(1, std::memory_order_release);
                done_.notify_all();
            }
        }
    }

    void stop() noexcept {
        stopping_.store(true, std::memory_order_release);
        call_.fetch_add(1, std::memory_order_release);
        call_.notify_all();
        for (std::thread& t : threads_) t.join();
        threads_.clear();
    }

    std::vector<std::exception_ptr> errors_;  ///< one a worker
    int spins_ = 0;
    job* job_ = nullptr;
    std::atomic<bool> stopping_{false};
    alignas(64) std::atomic<std::uint32_t> call_{0};
    alignas(64) std::atomic<std::uint32_t> left_{0};
    alignas(64) std::atomic<std::uint32_t> done_{0};
    std::vector<std::thread> threads_;
};

}  // namespace tenon::inline v0::detail
