// Memory that processes share and that no name ever points to: it is gone with the last of them, however they end.
// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <tenon/core/error.hpp>
#include <tenon/runtime/meeting.hpp>
#include <tenon/runtime/processes/channel.hpp>

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <new>
#include <string>
#include <thread>
#include <utility>

namespace tenon::inline v0::detail {

/// A file of memory, mapped. The host makes it; workers map what they were passed.
class shared_memory {
public:
    shared_memory() = default;
    /// Makes one of that size. Its pages are there, or it is refused: a full memory must not end a process at its first touch.
    static shared_memory make(std::size_t bytes) {
        shared_memory m;
        m.file_ = above_streams(::memfd_create("tenon", MFD_CLOEXEC));
        if (!m.file_) refuse("shared_memory_suffices", std::string("no shared memory: ") + std::strerror(errno));
        m.resize(bytes);
        return m;
    }
    static shared_memory of(descriptor file, std::size_t bytes) {
        shared_memory m;
        m.file_ = std::move(file);
        m.map(bytes);
        return m;
    }
    shared_memory(shared_memory&& other) noexcept
        : file_(std::move(other.file_)), data_(std::exchange(other.data_, nullptr)), bytes_(std::exchange(other.bytes_, 0)) {}
    shared_memory& operator=(shared_memory&& other) noexcept {
        std::swap(file_, other.file_);
        std::swap(data_, other.data_);
        std::swap(bytes_, other.bytes_);
        return *this;
    }
    ~shared_memory() { unmap(); }

    int file() const { return file_.number(); }
    void* data() const { return data_; }
    std::size_t bytes() const { return bytes_; }

    /// Grows the file and maps it anew: pointers into it are void. Where that is refused all stays as it was.
    void resize(std::size_t bytes) {
        ::rlimit most{};
        ::getrlimit(RLIMIT_FSIZE, &most);  // the system ends a process that goes beyond
        int error = most.rlim_cur != RLIM_INFINITY && bytes > most.rlim_cur ? EFBIG : EINTR;
        while (error == EINTR) error = ::posix_fallocate(file_.number(), 0, static_cast<::off_t>(bytes));
        if (error != 0)
            refuse("shared_memory_suffices", "no shared memory of " + std::to_string(bytes) + " bytes: " + std::strerror(error) +
                                                 "; a smaller batch or chunk would do");
        map(bytes);
    }
    void map(std::size_t bytes) {
        void* const where = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file_.number(), 0);
        if (where == MAP_FAILED)
            refuse("shared_memory_suffices",
                   "no room to map " + std::to_string(bytes) + " bytes of shared memory: " + std::strerror(errno));
        unmap();
        data_ = where;
        bytes_ = bytes;
    }

private:
    void unmap() noexcept {
        if (data_ != nullptr) ::munmap(data_, bytes_);
        data_ = nullptr;
    }
    descriptor file_;
    void* data_ = nullptr;
    std::size_t bytes_ = 0;
};

/// The words of one worker, each on a cache line of its own. The counts of messages only say when it is worth to look into the channel.
struct worker_words {
    alignas(64) shared_word progress{0};  ///< steps taken and slices loaded
    alignas(64) shared_word told{0};      ///< messages of the host, since it told the worker its part
    alignas(64) shared_word answers{0};   ///< messages of the worker, since then
};

/// How often to look at a count before sleeping until a message comes, which is heard some tens of microseconds late: not at all where
/// workers and host outnumber the cores. A one-rank step of 80 us took 170 us where both slept, and takes 100 us.
inline int idle_spins(int workers) { return static_cast<unsigned>(workers) < std::thread::hardware_concurrency() ? 20'000 : 0; }

/// Whether more messages have been counted than have been heard: the counts go around.
inline bool is_ahead(shared_word const& counted, std::uint32_t heard) noexcept {
    return static_cast<std::int32_t>(counted.load(std::memory_order_acquire) - heard) > 0;
}

/// The words that all workers and the host see: a stage's meetings, a call's failure, and what is between each worker and the host.
class control_block {
public:
    static std::size_t bytes_for(std::size_t stages, std::size_t workers) {
        return 64 + workers * sizeof(worker_words) + stages * sizeof(stage_words);
    }

    control_block(void* memory, std::size_t stages, std::size_t workers)
        : base_(static_cast<std::byte*>(memory)), stages_(stages), workers_(workers) {}

    /// Sets every word to 0; by the host, before a worker maps them.
    void initialise() {
        ::new (base_) shared_word(0);
        for (std::size_t w = 0; w < workers_; ++w) ::new (place_of(w)) worker_words;
        for (std::size_t s = 0; s < stages_; ++s) ::new (place_of(workers_) + s * sizeof(stage_words)) stage_words;
    }
    shared_word& failed() const { return *std::launder(reinterpret_cast<shared_word*>(base_)); }
    worker_words& of(int worker) const {
        return *std::launder(reinterpret_cast<worker_words*>(place_of(static_cast<std::size_t>(worker))));
    }
    stage_words* stages() const { return std::launder(reinterpret_cast<stage_words*>(place_of(workers_))); }

private:
    std::byte* place_of(std::size_t worker) const { return base_ + 64 + worker * sizeof(worker_words); }

    std::byte* base_;
    std::size_t stages_, workers_;
};

}  // namespace tenon::inline v0::detail
