// How attention calls of few rows are divided over threads where whole items would leave some of them idle: by blocks of the KV cache. Knows
// no thread and no kernel.
// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <tenon/kernel/attention.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>

namespace tenon::inline v0::device::detail {

/// Blocks [begin, end) of an item's, all in one range.
struct attention_piece {
    kernel::attention_call const* call = nullptr;
    int item = 0, rows = 0;
    std::int64_t begin = 0, end = 0;
    int range = 0;
};

/// The blocks of all items of some calls, counted through and cut into ranges of the same length, at most one a thread. What an item's first
/// range computes is merged there, and every block of a later range is left by itself, to be merged after it: the bits are those of one thread.
class attention_ranges {
public:
    /// `spare`: blocks that each item may have besides those it has at its position.
    attention_ranges(std::span<kernel::attention_call const> calls, int threads, int spare = 0) : calls_(calls), threads_(threads) {
        for (kernel::attention_call const& c : calls) {
            int const items = kernel::attention_items(c);
            if (c.fixed15 || (c.rows > 1 && items > c.kv_heads)) return;
            for (int i = 0; i < items; ++i) {
                kernel::attention_item const item = kernel::attention_item_of(c, i);
                blocks_ += item.blocks + spare;
                longest_ = (std::max)(longest_, item.blocks + spare);
                left_ = (std::max)(left_, kernel::attention_left_floats(item.rows, c.head_dim));
            }
            items_ += items;
        }
        possible_ = threads > 1;
        count_ = static_cast<int>((std::min)(std::int64_t{threads}, blocks_ / fewest));
    }

    /// Whether there is enough to share, and whole items may take the slowest thread an eighth longer than a fair share.
    bool worth_it() const {
        std::int64_t const rounds = (items_ + threads_ - 1) / threads_;
        std::int64_t const at_most = (std::min)(longest_ * rounds * threads_, blocks_ + longest_ * threads_);
        return possible_ && count_ > 1 && 8 * at_most >= 9 * blocks_;
    }

    /// Floats of scratch of one range: what it has merged, then what it leaves. No less at later positions.
    std::size_t scratch_floats() const {
        if (!possible_) return 0;
        std::int64_t const range = (std::max)(blocks_ / threads_, 2 * fewest) + 1;
        return static_cast<std::size_t>(1 + (std::min)(longest_, range)) * left_;
    }
    /// Where in it that which it leaves begins.
    std::size_t left_floats() const { return left_; }
    /// At most so many floats are left to be merged.
    std::int64_t all_left_floats() const { return blocks_ * static_cast<std::int64_t>(left_); }

    /// Calls visit(piece) for all pieces, ranges and items in order.
    template <class Visit>
    void each(Visit visit) const {
        std::int64_t before = 0;  // blocks of the items that came first
        int range = 0;
        for (kernel::attention_call const& c : calls_)
            for (int i = 0; i < kernel::attention_items(c); ++i) {
                kernel::attention_item const item = kernel::attention_item_of(c, i);
                for (std::int64_t begin = 0, end = 0; begin < item.blocks; begin = end) {
                    while (end_of(range) <= before + begin) ++range;
                    end = (std::min)(item.blocks, end_of(range) - before);
                    visit(attention_piece{&c, i, item.rows, begin, end, range});
                }
                before += item.blocks;
            }
    }

private:
    static constexpr std::int64_t fewest = 4;  // blocks of a range that are worth the merging

    std::int64_t end_of(int range) const { return blocks_ * (range + 1) / count_; }

    std::span<kernel::attention_call const> calls_;
    int threads_;
    int count_ = 0;  // ranges
    int items_ = 0;
    std::int64_t blocks_ = 0, longest_ = 0;
    std::size_t left_ = 0;
    bool possible_ = false;
};

}  // namespace tenon::inline v0::device::detail
