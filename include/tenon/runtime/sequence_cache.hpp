// Keys and values of one sequence on one rank: blocks of 64 positions for every layer of the rank's stage.
// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <tenon/kernel/attention.hpp>
#include <tenon/runtime/buffer.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <utility>
#include <vector>

namespace tenon::inline v0::detail {

/// The key and value heads that a rank holds of one layer.
struct cache_shape {
    int kv_heads = 0, head_dim = 0;
    std::int64_t plane() const { return std::int64_t{kernel::kv_block} * head_dim; }  ///< elements of one block of one head
    std::int64_t block() const { return 2 * kv_heads * plane(); }                     ///< of all heads, keys and values
};

/// Layout: [layer][keys, values][KV head][block][64 x D]. Grows by whole blocks and keeps what it holds. One whose memory is in another process
/// counts, and has none.
class sequence_cache {
public:
    sequence_cache() = default;
    explicit sequence_cache(std::vector<cache_shape> layers, kv_format format, bool elsewhere = false)
        : layers_(std::move(layers)), format_(format), elsewhere_(elsewhere) {
        for (cache_shape const& l : layers_) block_ += l.block();
    }

    void reserve(std::int64_t positions) {
        std::int64_t const blocks = (positions + kernel::kv_block - 1) / kernel::kv_block;
        if (blocks <= blocks_) return;
        if (elsewhere_) {
            blocks_ = blocks;
            return;
        }
        std::int64_t const size = bytes_of(format_);
        buffer grown(static_cast<std::size_t>(block_ * blocks * size));
        if (blocks_ > 0) {
            auto const* from = static_cast<std::byte const*>(memory_.data());
            auto* to = static_cast<std::byte*>(grown.data());
            for (cache_shape const& l : layers_)
                for (int head = 0; head < 2 * l.kv_heads; ++head, from += blocks_ * l.plane() * size, to += blocks * l.plane() * size)
                    std::memcpy(to, from, static_cast<std::size_t>(blocks_ * l.plane() * size));
        }
        memory_ = static_cast<buffer&&>(grown);
        blocks_ = blocks;
    }

    /// Room for `positions`, by doubling while the model has as many.
    void grow(std::int64_t positions, std::int64_t most) {
        if (positions > capacity()) reserve((std::min)((std::max)(positions, 2 * capacity()), (std::max)(positions, most)));
    }

    kernel::kv_place place(int layer) {
        std::int64_t before = 0;
        for (int l = 0; l < layer; ++l) before += at(l).block();
        std::int64_t const stride = blocks_ * at(layer).plane(), size = bytes_of(format_);
        std::byte* const keys = static_cast<std::byte*>(memory_.data()) + before * blocks_ * size;
        return {keys, keys + at(layer).kv_heads * stride * size, static_cast<std::ptrdiff_t>(stride), format_};
    }
    std::int64_t capacity() const { return blocks_ * kernel::kv_block; }  ///< positions
    std::int64_t bytes() const { return block_ * blocks_ * bytes_of(format_); }

private:
    cache_shape const& at(int layer) const { return layers_[static_cast<std::size_t>(layer)]; }

    std::vector<cache_shape> layers_;
    std::int64_t block_ = 0;  ///< elements of a block of every layer
    std::int64_t blocks_ = 0;
    kv_format format_ = kv_format::f32;
    bool elsewhere_ = false;
    buffer memory_;
};

}  // namespace tenon::inline v0::detail
