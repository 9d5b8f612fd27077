// Memory aligned for vectors and zeroed, which masked keys and values must be.
// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <tenon/core/error.hpp>

#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <string>
#include <utility>

namespace tenon::inline v0::detail {

/// Owned bytes at a multiple of 64. Move-only.
class buffer {
public:
    buffer() = default;
    explicit buffer(std::size_t bytes) : bytes_(bytes) {
        if (bytes == 0) return;
        if (bytes <= static_cast<std::size_t>(-1) - 64) data_ = std::aligned_alloc(64, (bytes + 63) / 64 * 64);
        if (data_ == nullptr) refuse("memory_suffices", "no memory for " + std::to_string(bytes) + " bytes");
        std::memset(data_, 0, (bytes + 63) / 64 * 64);
    }
    buffer(buffer&& other) noexcept : data_(std::exchange(other.data_, nullptr)), bytes_(std::exchange(other.bytes_, 0)) {}
    buffer& operator=(buffer&& other) noexcept {
        std::swap(data_, other.data_);
        std::swap(bytes_, other.bytes_);
        return *this;
    }
    ~buffer() { std::free(data_); }

    void* data() noexcept { return data_; }
    float* floats() noexcept { return static_cast<float*>(data_); }
    float const* floats() const noexcept { return static_cast<float const*>(data_); }
    std::size_t bytes() const noexcept { return bytes_; }

private:
    void* data_ = nullptr;
    std::size_t bytes_ = 0;
};

/// Floats that grow and never shrink; what they held is lost when they grow.
class float_scratch {
public:
    void reserve(std::size_t floats) {
        if (floats * sizeof(float) > room_.bytes()) room_ = buffer(floats * sizeof(float));
    }
    float* data() noexcept { return room_.floats(); }
    float const* data() const noexcept { return room_.floats(); }

private:
    buffer room_;
};

}  // namespace tenon::inline v0::detail
