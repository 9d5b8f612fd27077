// A file as read-only bytes of memory. Knows POSIX; knows nothing of what the bytes mean.
// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <tenon/core/error.hpp>

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>
#include <utility>

namespace tenon::inline v0::checkpoint {

namespace detail {
[[noreturn]] inline void refuse_to_open(std::string const& path, std::string_view why) {
    tenon::v0::detail::refuse("file_opens", path + ": " + std::string(why) + "; a regular file that can be read would do");
}
}  // namespace detail

/// Maps a regular file for reading, whole and lazily: pages are read when they are touched. An empty file has no bytes.
/// Move-only; the bytes stay where they are when the object moves. A file that another process shortens while it is mapped
/// ends this process with SIGBUS when a lost page is touched, as with every map.
/// Refuses with `file_opens`, the path and the system's own words.
class mapped_file {
public:
    explicit mapped_file(std::string path) : path_(std::move(path)) {
        if (path_.find('\0') != std::string::npos) detail::refuse_to_open(path_, "the path has a zero byte");
        // O_NONBLOCK: opening a pipe must end in a refusal, not in waiting for its writer.
        int const file = ::open(path_.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
        if (file < 0) detail::refuse_to_open(path_, std::strerror(errno));
        struct ::stat facts {};
        if (::fstat(file, &facts) != 0) fail(file, std::strerror(errno));
        if (!S_ISREG(facts.st_mode)) fail(file, S_ISDIR(facts.st_mode) ? "is a directory" : "is not a regular file");
        if (facts.st_size < 0 || static_cast<std::uintmax_t>(facts.st_size) > SIZE_MAX) fail(file, "does not fit the address space");
        size_ = static_cast<std::size_t>(facts.st_size);
        seen_ = version_of(facts);
        if (size_ != 0) {
            void* const where = ::mmap(nullptr, size_, PROT_READ, MAP_PRIVATE, file, 0);
            if (where == MAP_FAILED) fail(file, std::strerror(errno));
            data_ = static_cast<std::byte const*>(where);
        }
        ::close(file);
    }

    mapped_file(mapped_file&& other) noexcept
        : path_(std::move(other.path_)),
          data_(std::exchange(other.data_, nullptr)),
          size_(std::exchange(other.size_, 0)),
          seen_(other.seen_) {}

    mapped_file& operator=(mapped_file&& other) noexcept {
        std::swap(path_, other.path_);
        std::swap(data_, other.data_);
        std::swap(size_, other.size_);
        std::swap(seen_, other.seen_);
        return *this;
    }

    mapped_file(mapped_file const&) = delete;
    mapped_file& operator=(mapped_file const&) = delete;

    ~mapped_file() {
        if (data_ != nullptr) ::munmap(const_cast<std::byte*>(data_), size_);
    }

    std::span<std::byte const> bytes() const noexcept { return {data_, size_}; }

    /// The bytes as characters, for text files.
    std::string_view text() const noexcept {
        return size_ == 0 ? std::string_view() : std::string_view(reinterpret_cast<char const*>(data_), size_);
    }

    std::string const& path() const noexcept { return path_; }

    /// Whether somebody has written to the file since it was mapped. Not where another has taken its place, or none: the map keeps it.
    bool is_written_over() const noexcept {
        struct ::stat facts {};
        if (::stat(path_.c_str(), &facts) != 0) return false;
        version const now = version_of(facts);
        return now.device == seen_.device && now.file == seen_.file && now != seen_;
    }

    /// Gives back the memory of what has been read; it is read again when it is touched.
    void forget() const noexcept { forget(bytes()); }
    /// The same of a part, and of what the system has mapped around it unasked. What is not of this file is left alone.
    void forget(std::span<std::byte const> part) const noexcept {
        // A touch maps its neighbours too, 64 KiB mostly and a huge page at most: by the pages of `part` alone the edges of many small
        // parts would stay.
        constexpr std::uintptr_t around = std::uintptr_t{1} << 21U;
        auto const begin = reinterpret_cast<std::uintptr_t>(data_), first = reinterpret_cast<std::uintptr_t>(part.data());
        if (part.empty() || first < begin || first - begin >= size_ || part.size() > size_ - (first - begin)) return;
        std::uintptr_t const end = begin + size_, last = first + part.size();
        std::uintptr_t const from = (std::max)(begin, first / around * around),
                             to = end - last < around ? end : (last + around - 1) / around * around;
        ::madvise(const_cast<std::byte*>(data_) + (from - begin), (std::min)(end, to) - from, MADV_DONTNEED);
    }

private:
    struct version {
        std::uintmax_t device = 0, file = 0;
        std::intmax_t bytes = 0, second = 0, nanosecond = 0;  ///< when it was last written
        bool operator==(version const&) const = default;
    };
    static version version_of(struct ::stat const& s) {
        return {static_cast<std::uintmax_t>(s.st_dev), static_cast<std::uintmax_t>(s.st_ino), static_cast<std::intmax_t>(s.st_size),
                static_cast<std::intmax_t>(s.st_mtim.tv_sec), static_cast<std::intmax_t>(s.st_mtim.tv_nsec)};
    }
    [[noreturn]] void fail(int file, char const* why) const {
        std::string const words = why;  // close may change what strerror points at
        ::close(file);
        detail::refuse_to_open(path_, words);
    }

    std::string path_;
    std::byte const* data_ = nullptr;
    std::size_t size_ = 0;
    version seen_{};
};

}  // namespace tenon::inline v0::checkpoint
