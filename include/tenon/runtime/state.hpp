// One sequence: its keys and values, one part a rank. Belongs to the model that made it.
// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <tenon/core/config.hpp>
#include <tenon/core/error.hpp>
#include <tenon/runtime/sequence_cache.hpp>

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace tenon::inline v0 {

namespace detail {
template <class = void>
class basic_engine;
using engine = basic_engine<>;
/// Sequences that are no more, for whoever holds parts of them elsewhere; written by any thread.
struct forgotten_sequences {
    std::mutex mutex;
    std::vector<std::int64_t> numbers;
    std::atomic<bool> any{false};  ///< whether it is worth to lock
};

struct sequence {
    sequence() = default;
    sequence(sequence const&) = delete;
    sequence& operator=(sequence const&) = delete;
    ~sequence() {
        if (forgotten == nullptr) return;
        std::lock_guard const lock(forgotten->mutex);
        forgotten->numbers.push_back(number);
        forgotten->any.store(true, std::memory_order_release);
    }

    std::uint64_t owner = 0;                           ///< of the engine that made it
    std::int64_t number = 0;                           ///< how many that engine had made before
    std::int64_t length = 0;                           ///< positions held
    std::int64_t room = 0;                             ///< most positions: what it was made with where it does not grow, else the model's
    std::vector<sequence_cache> caches;                ///< one a rank of the graph
    std::shared_ptr<forgotten_sequences> forgotten{};  ///< where it is told that this one is no more
};
}  // namespace detail

/// What happens when a sequence needs more room than it was made with: it gets it, up to the model's positions, or the call is
/// refused by name (`state_has_room`) before anything runs.
enum class growth : std::uint8_t { grows, fixed };

/// A handle to one sequence. Movable, not copyable; empty after `release()`, and then refused by name.
class state {
public:
    state() = default;

    /// Positions that the sequence holds: the tokens fed so far.
    std::int64_t length() const noexcept { return sequence_ ? sequence_->length : 0; }
    /// Bytes of keys and values on a rank.
    std::int64_t kv_bytes(int rank) const {
        if (!sequence_) return 0;
        std::size_t const ranks = sequence_->caches.size();
        if (rank < 0 || static_cast<std::size_t>(rank) >= ranks)
            detail::refuse("rank_exists", "rank " + std::to_string(rank) + " of " + std::to_string(ranks));
        return sequence_->caches[static_cast<std::size_t>(rank)].bytes();
    }
    bool released() const noexcept { return sequence_ == nullptr; }
    /// Frees the keys and values. Idempotent.
    void release() noexcept { sequence_.reset(); }

private:
    template <class>
    friend class detail::basic_engine;
    explicit state(std::unique_ptr<detail::sequence> s) : sequence_(std::move(s)) {}
    std::unique_ptr<detail::sequence> sequence_;
};

/// New tokens for one sequence of a batch.
struct feed {
    state* sequence = nullptr;
    std::span<token_id const> tokens{};
};

}  // namespace tenon::inline v0
