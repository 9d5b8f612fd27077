// Where workers meet: words in memory that threads or processes share. Waiting spins for a while, then sleeps: a futex wake-up costs tens of
// microseconds, a spin a fraction of one.
// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <tenon/graph/stage.hpp>
#include <tenon/runtime/batch.hpp>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <ctime>
#include <span>
#if defined(__linux__)
#include <sys/syscall.h>
#include <unistd.h>
#endif

namespace tenon::inline v0::detail {

inline void pause_cpu() noexcept {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__) && defined(__GNUC__)
    asm volatile("yield");
#endif
}

using shared_word = std::atomic<std::uint32_t>;
static_assert(shared_word::is_always_lock_free && sizeof(shared_word) == 4);

/// How a waiter waits: spinning that often first, 0 where workers outnumber cores, since there a spinning one keeps away the one that it waits
/// for; then asleep, in a way that reaches other processes where the word is shared with them.
struct waiting {
    int spins = 0;
    bool across_processes = false;
};

#if defined(__linux__)
// As linux/futex.h has them, whose structs would stand at file scope of every program.
inline constexpr int futex_wait = 0, futex_wake = 1;
#endif

/// Sleeps while `word` is `old`, or for no reason.
inline void sleep_on(shared_word const& word, std::uint32_t old, bool across_processes) noexcept {
#if defined(__linux__)
    if (across_processes) {
        ::syscall(SYS_futex, reinterpret_cast<std::uint32_t const*>(&word), futex_wait, old, nullptr, nullptr, 0);
        return;
    }
#endif
    static_cast<void>(across_processes);
    word.wait(old, std::memory_order_acquire);
}
inline void wake_all(shared_word& word, bool across_processes) noexcept {
#if defined(__linux__)
    if (across_processes) {
        ::syscall(SYS_futex, reinterpret_cast<std::uint32_t*>(&word), futex_wake, 0x7fffffff, nullptr, nullptr, 0);
        return;
    }
#endif
    static_cast<void>(across_processes);
    word.notify_all();
}

/// Waits until `word` leaves `old`.
inline void wait_for_change(shared_word const& word, std::uint32_t old, waiting how) noexcept {
    for (int i = 0; i < how.spins; ++i) {
        if (word.load(std::memory_order_acquire) != old) return;
        pause_cpu();
    }
    while (word.load(std::memory_order_acquire) == old) sleep_on(word, old, how.across_processes);
}

/// The words of one stage, each on a cache line of its own.
struct stage_words {
    alignas(64) shared_word arrived{0};   ///< ranks at the meeting
    alignas(64) shared_word round{0};     ///< meetings held
    alignas(64) shared_word finished{0};  ///< the last call that the stage's root has finished
};

/// Told of every step that a worker is about to take; may throw, which ends the call.
struct step_observer {
    virtual void step() = 0;

protected:
    ~step_observer() = default;
};

/// A view of the words of all stages, for one worker in one call; calls count from 1. Whoever shares the words keeps them.
class meeting_place {
public:
    meeting_place(stage_words* stages, std::span<stage_traits const> graph, std::uint32_t call, shared_word& failed, step_observer* steps, waiting how)
        : stages_(stages), graph_(graph), call_(call), failed_(&failed), steps_(steps), how_(how) {}

    /// Returns when all ranks of a stage have come.
    void meet(std::size_t stage, std::size_t /*member*/, step const& /*done*/) noexcept {
        auto const ranks = static_cast<std::uint32_t>(graph_[stage].ranks());
        stage_words& w = stages_[stage];
        std::uint32_t const round = w.round.load(std::memory_order_acquire);
        if (w.arrived.fetch_add(1, std::memory_order_acq_rel) + 1 == ranks) {
            w.arrived.store(0, std::memory_order_relaxed);
            w.round.store(round + 1, std::memory_order_release);
            wake_all(w.round, how_.across_processes);
        } else {
            wait_for_change(w.round, round, how_);
        }
    }
    /// Returns when the root of a stage has finished.
    void await(std::size_t stage, std::size_t /*member of the next*/) noexcept {
        shared_word const& finished = stages_[stage].finished;
        for (std::uint32_t seen = finished.load(std::memory_order_acquire); seen != call_; seen = finished.load(std::memory_order_acquire))
            wait_for_change(finished, seen, how_);
    }
    void finish(std::size_t stage) noexcept {
        stages_[stage].finished.store(call_, std::memory_order_release);
        wake_all(stages_[stage].finished, how_.across_processes);
    }

    bool failed() const noexcept { return failed_->load(std::memory_order_acquire) != 0; }
    void fail() noexcept { failed_->store(1, std::memory_order_release); }
    void step() {
        if (steps_ != nullptr) steps_->step();
    }

private:
    stage_words* stages_;
    std::span<stage_traits const> graph_;
    std::uint32_t call_;
    shared_word* failed_;
    step_observer* steps_;
    waiting how_;
};

}  // namespace tenon::inline v0::detail
