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

/// Says whether this process is a fork of the one that made it. Where the system wipes a page in a fork, that takes no call of the system.
class fork_mark {
public:
    fork_mark() {
        void* const page = ::mmap(nullptr, 1, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (page == MAP_FAILED) return;
#if defined(MADV_WIPEONFORK)
        if (::madvise(page, 1, MADV_WIPEONFORK) == 0) {
            page_ = static_cast<unsigned char volatile*>(page);
            *page_ = 1;
            return;
        }
#endif
        ::munmap(page, 1);
    }
    fork_mark(fork_mark const&) = delete;
    fork_mark& operator=(fork_mark const&) = delete;
    ~fork_mark() {
        if (page_ != nullptr) ::munmap(const_cast<unsigned char*>(page_), 1);
    }

    bool is_of_a_fork() const noexcept { return page_ != nullptr ? *page_ == 0 : made_by_ != ::getpid(); }
    ::pid_t made_by() const noexcept { return made_by_; }

private:
    ::pid_t made_by_ = ::getpid();
    unsigned char volatile* page_ = nullptr;
};

/// The words of one worker; each line is written by one side. The counts of messages say when it is worth to look into the channel, or
/// here.
struct worker_words {
    alignas(64) shared_word progress{0};  ///< steps taken and slices loaded
    alignas(64) shared_word told{0};      ///< messages of the host, since it told the worker its part
    shared_word told_here{0};             ///< whether the last of them is the command of the call_words
    alignas(64) shared_word asleep{0};    ///< the worker waits at its channel, and hears nothing else
    alignas(64) shared_word answers{0};   ///< messages of the worker, since then
    shared_word answered_here{0};         ///< whether the last of them is these two numbers: where no router could choose
    std::int32_t layer = -1, row = -1;
};

/// What one command of the host is to all workers.
struct call_words {
    static constexpr std::size_t room = 16384;  ///< of a command; a longer one goes through the channels

    alignas(64) shared_word failed{0};    ///< a rank of this call has thrown
    alignas(64) shared_word answered{0};  ///< commands that workers have answered, all together: the count goes around
    alignas(64) shared_word asleep{0};    ///< the host waits at its channels, and hears nothing else
    alignas(64) shared_word expected{0};  ///< what `answered` is when this one is
    std::uint64_t bytes = 0;
    std::byte command[room]{};
};

/// How to wait for the next command, or for its answers, before sleeping until a message comes, which is heard some tens of microseconds
/// late.
inline patience patience_between_calls(int workers) noexcept { return patience(workers + 1, true); }

/// Whether more messages have been counted than have been heard: the counts go around.
inline bool is_ahead(shared_word const& counted, std::uint32_t heard) noexcept {
    return static_cast<std::int32_t>(counted.load(std::memory_order_acquire) - heard) > 0;
}

/// The words that all workers and the host see: a call's command and failure, a stage's meetings, and what is between each worker and the
/// host.
class control_block {
public:
    static std::size_t bytes_for(std::size_t stages, std::size_t workers) {
        return sizeof(call_words) + workers * sizeof(worker_words) + meeting_words::count(stages, workers) * sizeof(awaited_word);
    }

    control_block(void* memory, std::size_t stages, std::size_t workers)
        : base_(static_cast<std::byte*>(memory)), stages_(stages), workers_(workers) {}

    /// Sets every word to 0; by the host, before a worker maps them.
    void initialise() {
        ::new (base_) call_words;
        for (std::size_t w = 0; w < workers_; ++w) ::new (place_of(w)) worker_words;
        for (std::size_t i = 0; i < meeting_words::count(stages_, workers_); ++i)
            ::new (place_of(workers_) + i * sizeof(awaited_word)) awaited_word;
    }
    call_words& call() const { return *std::launder(reinterpret_cast<call_words*>(base_)); }
    shared_word& failed() const { return call().failed; }
    worker_words& of(int worker) const {
        return *std::launder(reinterpret_cast<worker_words*>(place_of(static_cast<std::size_t>(worker))));
    }
    /// A stage has no more ranks than there are workers.
    meeting_words meetings() const { return {std::launder(reinterpret_cast<awaited_word*>(place_of(workers_))), workers_}; }

private:
    std::byte* place_of(std::size_t worker) const { return base_ + sizeof(call_words) + worker * sizeof(worker_words); }

    std::byte* base_;
    std::size_t stages_, workers_;
};

}  // namespace tenon::inline v0::detail
