// Memory aligned for vectors and zeroed, which masked keys and values must be; large pieces in pages as large as the system gives.
// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <tenon/core/error.hpp>
#include <tenon/device/crew.hpp>

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <string>
#include <utility>
#include <vector>
#if defined(__linux__)
#include <sys/mman.h>
#endif

namespace tenon::inline v0::detail {

/// Owned bytes at a multiple of 64. Move-only. What is large is mapped: it is zero without being touched, and the first thread that writes a
/// page finds its place. Pages of 2 MiB make a plain read up to 1.15 times as fast.
class buffer {
public:
    buffer() = default;
    explicit buffer(std::size_t bytes) : bytes_(bytes) {
        if (bytes == 0) return;
        if (bytes <= static_cast<std::size_t>(-1) - 2 * huge_page) data_ = bytes < mapped_from ? allocated(bytes) : mapped(bytes);
        if (data_ == nullptr) refuse("memory_suffices", "no memory for " + std::to_string(bytes) + " bytes");
    }
    buffer(buffer&& other) noexcept : data_(std::exchange(other.data_, nullptr)), bytes_(std::exchange(other.bytes_, 0)) {}
    buffer& operator=(buffer&& other) noexcept {
        std::swap(data_, other.data_);
        std::swap(bytes_, other.bytes_);
        return *this;
    }
    ~buffer() {
#if defined(__linux__)
        if (bytes_ >= mapped_from) {
            if (data_ != nullptr) ::munmap(data_, whole_pages(bytes_));
            return;
        }
#endif
        std::free(data_);
    }

    void* data() noexcept { return data_; }
    float* floats() noexcept { return static_cast<float*>(data_); }
    float const* floats() const noexcept { return static_cast<float const*>(data_); }
    std::size_t bytes() const noexcept { return bytes_; }

private:
    static constexpr std::size_t huge_page = std::size_t{1} << 21, page = 1 << 16;  // as large as any system's
    static constexpr std::size_t whole_pages(std::size_t bytes) { return (bytes + page - 1) / page * page; }
#if defined(__linux__)
    static constexpr std::size_t mapped_from = 2 * huge_page;
    static void* mapped(std::size_t bytes) {
        std::size_t const whole = whole_pages(bytes);
        void* const room = ::mmap(nullptr, whole + huge_page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (room == MAP_FAILED) return nullptr;
        auto* const first = static_cast<char*>(room);
        std::size_t const before = (huge_page - reinterpret_cast<std::uintptr_t>(room) % huge_page) % huge_page;
        if (before > 0) ::munmap(first, before);
        if (before < huge_page) ::munmap(first + before + whole, huge_page - before);
        ::madvise(first + before, whole, MADV_HUGEPAGE);  // refused where there are none: then the pages are small
        return first + before;
    }
#else
    static constexpr std::size_t mapped_from = static_cast<std::size_t>(-1);
    static void* mapped(std::size_t) { return nullptr; }
#endif
    static void* allocated(std::size_t bytes) {
        std::size_t const whole = (bytes + 63) / 64 * 64;
        void* const room = std::aligned_alloc(64, whole);
        if (room != nullptr) std::memset(room, 0, whole);
        return room;
    }

    void* data_ = nullptr;
    std::size_t bytes_ = 0;
};

/// Pieces that live together, side by side in a few large buffers: matrices of some hundred kilobytes then lie in huge pages too. Buffers
/// double, so that a small model takes little; what a large one does not use of its last buffer is not
/// touched, but for a page a thread.
template <class = void>
class basic_pool {
public:
    /// Zeroed bytes at a multiple of 64, as long as the pool lives. Several threads touch their pages first, each its own: where two meet in a
    /// page that is not there yet, both clear one and one is thrown away.
    void* take(std::size_t bytes, device::crew& threads) {
        bytes = (bytes + 63) / 64 * 64;
        if (bytes > left_) {
            std::size_t const next = next_ < most ? 2 * next_ : most, size = bytes > next ? bytes : next;
            buffers_.emplace_back(size);  // may refuse: nothing has changed yet
            next_ = next;
            left_ = size;
            at_ = touched_ = static_cast<std::byte*>(buffers_.back().data());
        }
        std::byte *const begin = at_, *const buffer_end = begin + left_;
        at_ += bytes;
        left_ -= bytes;
        if (threads.size() > 1 && at_ > touched_) {
            if (touched_ < begin) touched_ = begin;  // what was handed out before is somebody's
            std::size_t const ahead = large_page * static_cast<std::size_t>(threads.size());  // a page for each, where matrices are small
            auto const rest = static_cast<std::size_t>(buffer_end - touched_), needed = static_cast<std::size_t>(at_ - touched_) + ahead;
            std::size_t const now = needed < rest ? needed : rest;
            touch(touched_, now, threads);
            touched_ += now;
        }
        return begin;
    }

private:
    static constexpr std::size_t most = std::size_t{1} << 28, large_page = std::size_t{1} << 21, small_page = std::size_t{1} << 12;

    static void touch(std::byte* at, std::size_t bytes, device::crew& threads) {
        std::size_t const before = reinterpret_cast<std::uintptr_t>(at) % large_page;
        auto const pages = static_cast<std::ptrdiff_t>((before + bytes + large_page - 1) / large_page);
        threads.share(pages, 2, [&](std::ptrdiff_t first, std::ptrdiff_t end) {
            auto const from = first == 0 ? std::size_t{0} : static_cast<std::size_t>(first) * large_page - before;
            auto const to = end == pages ? bytes : static_cast<std::size_t>(end) * large_page - before;
            for (std::size_t i = from; i < to; i += small_page) *static_cast<std::byte volatile*>(at + i) = std::byte{0};
        });
    }

    std::vector<buffer> buffers_;
    std::byte *at_ = nullptr, *touched_ = nullptr;
    std::size_t left_ = 0, next_ = std::size_t{1} << 15;
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
            return;
        }
        if (count * sizeof(T) > own_.bytes()) own_ = buffer(count * sizeof(T));
        data_ = static_cast<T*>(own_.data());
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
