// Keys and values of one sequence on one rank: blocks of 64 positions for every layer of the rank's stage.
// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <tenon/kernel/attention.hpp>
#include <tenon/runtime/buffer.hpp>

#include <cstddef>
#include <cstdint>
#include <cstring>

namespace tenon::inline v0::detail {

/// Layout: [layer][keys, values][KV head][block][64 x D]. Grows by whole blocks and keeps what it holds.
class sequence_cache {
public:
    sequence_cache() = default;
    sequence_cache(int layers, int kv_heads, int head_dim) : layers_(layers), kv_heads_(kv_heads), head_dim_(head_dim) {}

    void reserve(std::int64_t positions) {
        std::int64_t const blocks = (positions + kernel::kv_block - 1) / kernel::kv_block;
        if (blocks <= blocks_) return;
        buffer grown(static_cast<std::size_t>(planes() * blocks * block_floats()) * sizeof(float));
        for (std::int64_t p = 0; p < planes() && blocks_ > 0; ++p)
            std::memcpy(grown.floats() + p * blocks * block_floats(), memory_.floats() + p * blocks_ * block_floats(),
                        static_cast<std::size_t>(blocks_ * block_floats()) * sizeof(float));
        memory_ = static_cast<buffer&&>(grown);
        blocks_ = blocks;
    }

    float* keys(int layer) { return memory_.floats() + std::int64_t{layer} * 2 * kv_heads_ * head_stride(); }
    float* values(int layer) { return keys(layer) + kv_heads_ * head_stride(); }
    std::ptrdiff_t head_stride() const { return blocks_ * block_floats(); }  ///< floats between KV heads
    std::int64_t capacity() const { return blocks_ * kernel::kv_block; }     ///< positions
    std::int64_t bytes() const { return static_cast<std::int64_t>(memory_.bytes()); }

private:
    std::int64_t planes() const { return std::int64_t{layers_} * 2 * kv_heads_; }
    std::int64_t block_floats() const { return std::int64_t{kernel::kv_block} * head_dim_; }

    int layers_ = 0, kv_heads_ = 0, head_dim_ = 0;
    std::int64_t blocks_ = 0;
    buffer memory_;
};

}  // namespace tenon::inline v0::detail
