// Where workers meet: words in memory that threads or processes share. Waiting spins for a while, then sleeps: a futex wake-up costs tens
// of microseconds, a spin a fraction of one. Where everybody comes soon nothing here calls the system.
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
#include <sched.h>
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

/// A word that one side sets and others wait for, on a cache line of its own. Who sets it asks the system to wake nobody where nobody
/// sleeps: a call of the system takes as long as several exchanges.
struct alignas(64) awaited_word {
    shared_word value{0};
    shared_word sleepers{0};
};

/// Cores that this process may run on.
inline unsigned cores_to_run_on() noexcept {
#if defined(__linux__)
    ::cpu_set_t cores;
    if (::sched_getaffinity(0, sizeof cores, &cores) == 0) return static_cast<unsigned>(CPU_COUNT(&cores));
    long const online = ::sysconf(_SC_NPROCESSORS_ONLN);  // of a machine with more than fit
    return online > 0 ? static_cast<unsigned>(online) : 1U;
#else
    return 1;  // nobody knows: then nobody is kept waiting
#endif
}

inline void give_turn_away() noexcept {
#if defined(__linux__)
    ::sched_yield();
#else
    pause_cpu();
#endif
}

#if defined(__linux__)
// As linux/futex.h has them, whose structs would stand at file scope of every program.
inline constexpr int futex_wait = 0, futex_wake = 1, futex_private = 128;
#endif

/// Sleeps while `word` is `old`, or for no reason.
inline void sleep_on(shared_word const& word, std::uint32_t old, bool across_processes) noexcept {
#if defined(__linux__)
    ::syscall(SYS_futex, reinterpret_cast<std::uint32_t const*>(&word), futex_wait | (across_processes ? 0 : futex_private), old, nullptr,
              nullptr, 0);
#else
    static_cast<void>(across_processes);
    word.wait(old, std::memory_order_acquire);
#endif
}
inline void wake_all(shared_word& word, bool across_processes) noexcept {
#if defined(__linux__)
    ::syscall(SYS_futex, reinterpret_cast<std::uint32_t*>(&word), futex_wake | (across_processes ? 0 : futex_private), 0x7fffffff, nullptr,
              nullptr, 0);
#else
    static_cast<void>(across_processes);
    word.notify_all();
#endif
}

/// Sets a word, and wakes who sleeps until it changes. Either the sleeper's look at the value comes after it, or the look at the sleepers
/// here comes after the sleeper's entry: both sides are sequentially consistent.
inline void set_word(awaited_word& word, std::uint32_t value, bool across_processes = false) noexcept {
    word.value.store(value, std::memory_order_seq_cst);
    if (word.sleepers.load(std::memory_order_seq_cst) != 0) wake_all(word.value, across_processes);
}

/// How one waiter waits: it looks on for a while, then gives its turn to whoever else wants the core, then sleeps. How long it looks on, it
/// learns: where what it waits for comes with the first turns given away, the two share a core, and a look keeps away the one that it waits
/// for. One wait in 1024 tries the longest. Some systems pack threads on few cores as long as those keep up; a step of 0.1 ms with 20
/// meetings took 1.2 ms there with a fixed number of looks, and takes 0.04 ms.
class patience {
public:
    /// One of so many threads or processes that run at the same time.
    explicit patience(int runners, bool across_processes = false) noexcept
        : most_(static_cast<unsigned>(runners) <= cores_to_run_on() ? most_looks : fewest),
          looks_(most_),
          across_processes_(across_processes) {}

    bool across_processes() const noexcept { return across_processes_; }

    /// Whether `is_there()`, within some hundreds of microseconds: the time of a short step.
    template <class Condition>
    bool sees(Condition is_there) noexcept {
        bool const probes = ++waits_ % 1024 == 0;
        for (int i = 0, looks = probes ? most_ : looks_; i < looks; ++i) {
            if (is_there()) {
                if (i > 0) look_longer(i);  // it came while this one held a core
                return true;
            }
            pause_cpu();
        }
        for (int i = 0; i < turns; ++i) {
            if (is_there()) {
                if (i < 3 && !probes) look_shorter();
                return true;
            }
            give_turn_away();
        }
        return is_there();
    }

    /// Waits until `is_there(value of word)`.
    template <class Condition>
    void await(awaited_word& word, Condition is_there) noexcept {
        if (sees([&word, &is_there] { return is_there(word.value.load(std::memory_order_acquire)); })) return;
        word.sleepers.fetch_add(1, std::memory_order_seq_cst);
        for (std::uint32_t seen = word.value.load(std::memory_order_seq_cst); !is_there(seen);
             seen = word.value.load(std::memory_order_seq_cst))
            sleep_on(word.value, seen, across_processes_);
        word.sleepers.fetch_sub(1, std::memory_order_relaxed);
    }

private:
    static constexpr int fewest = 16, most_looks = 10'000, turns = 1000;

    void look_longer(int looked) noexcept { looks_ = looked >= looks_ || looks_ > most_ / 2 ? most_ : 2 * looks_; }
    void look_shorter() noexcept { looks_ = looks_ < 2 * fewest ? fewest : looks_ / 2; }

    int most_, looks_;
    unsigned waits_ = 0;
    bool across_processes_;
};

/// A view of the words of all stages: of each the last call that its root has finished, and the meetings that each of its ranks has come
/// to. A rank writes its own alone, and its peers look at it, so that a meeting moves one cache line each way and no line is written by
/// two.
class meeting_words {
public:
    /// For stages of that many ranks at most.
    static constexpr std::size_t count(std::size_t stages, std::size_t most_ranks) { return stages * (1 + most_ranks); }

    meeting_words(awaited_word* memory, std::size_t most_ranks) : memory_(memory), stride_(1 + most_ranks) {}
    awaited_word& finished(std::size_t stage) const { return memory_[stage * stride_]; }
    awaited_word* of_ranks(std::size_t stage) const { return memory_ + stage * stride_ + 1; }

private:
    awaited_word* memory_;
    std::size_t stride_;
};

/// Told of every step that a worker is about to take; may throw, which ends the call.
struct step_observer {
    virtual void step() = 0;

protected:
    ~step_observer() = default;
};

/// Where one worker meets the others in one call; calls count from 1. Whoever shares the words keeps them.
class meeting_place {
public:
    meeting_place(meeting_words words, std::span<stage_traits const> graph, std::uint32_t call, shared_word& failed, step_observer* steps,
                  patience& how)
        : words_(words), graph_(graph), call_(call), failed_(&failed), steps_(steps), how_(&how) {}

    /// Returns when all ranks of a stage have come.
    void meet(std::size_t stage, std::size_t member, step const& /*done*/) noexcept {
        awaited_word* const ranks = words_.of_ranks(stage);
        std::uint32_t const meeting = ranks[member].value.load(std::memory_order_relaxed) + 1;
        set_word(ranks[member], meeting, how_->across_processes());
        auto const count = static_cast<std::size_t>(graph_[stage].ranks());
        for (std::size_t p = 0; p < count; ++p)  // one that is there may have gone on to the next; counts go around
            if (p != member)
                how_->await(ranks[p], [meeting](std::uint32_t come) { return static_cast<std::int32_t>(come - meeting) >= 0; });
    }
    /// Returns when the root of a stage has finished.
    void await(std::size_t stage, std::size_t /*member of the next*/) noexcept {
        how_->await(words_.finished(stage), [this](std::uint32_t finished) { return finished == call_; });
    }
    void finish(std::size_t stage) noexcept { set_word(words_.finished(stage), call_, how_->across_processes()); }

    bool failed() const noexcept { return failed_->load(std::memory_order_acquire) != 0; }
    void fail() noexcept { failed_->store(1, std::memory_order_release); }
    void step() {
        if (steps_ != nullptr) steps_->step();
    }

private:
    meeting_words words_;
    std::span<stage_traits const> graph_;
    std::uint32_t call_;
    shared_word* failed_;
    step_observer* steps_;
    patience* how_;
};

}  // namespace tenon::inline v0::detail
