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

/// Memory that is handed out front to back, so that the same requests get the same places in every process that maps it. Without memory it
/// only counts.
class arena {
public:
    arena() = default;
    arena(void* memory, std::size_t bytes) : memory_(static_cast<std::byte*>(memory)), bytes_(bytes) {}

    void rewind() noexcept { used_ = 0; }
    std::size_t used() const noexcept { return used_; }  ///< bytes handed out or counted since

    /// Room for `bytes` at a multiple of 64, of contents unknown; nullptr where it only counts.
    void* take(std::size_t bytes) {
        std::size_t const at = used_;
        used_ += (bytes + 63) / 64 * 64;
        if (memory_ == nullptr) return nullptr;
        if (used_ > bytes_) refuse("memory_suffices", "the shared arena has " + std::to_string(bytes_) + " bytes; " + std::to_string(used_) + " are needed");
        return memory_ + at;
    }

private:
    std::byte* memory_ = nullptr;
    std::size_t bytes_ = 0, used_ = 0;
};

/// What a rank writes and its peers read: in an arena where ranks are in several processes, else memory of its own. Like float_scratch it grows
/// and never shrinks, and what it held is lost when it grows or moves.
template <class T>
class published {
public:
    void reserve(std::size_t count, arena* shared) {
        if (shared != nullptr) {
            data_ = static_cast<T*>(shared->take(count * sizeof(T)));
        } else if (count * sizeof(T) > own_.bytes()) {
            own_ = buffer(count * sizeof(T));
            data_ = static_cast<T*>(own_.data());
        }
    }
    T* data() noexcept { return data_; }
    T const* data() const noexcept { return data_; }
    T& operator[](std::size_t i) noexcept { return data_[i]; }
    T const& operator[](std::size_t i) const noexcept { return data_[i]; }

private:
    T* data_ = nullptr;
    buffer own_;
};

}  // namespace tenon::inline v0::detail
