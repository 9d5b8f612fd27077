// Starting a worker process and ending it. A worker is this very program, executed again, or another that the user names; it never is a
// fork of a host that has threads.
// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <tenon/core/error.hpp>
#include <tenon/runtime/processes/channel.hpp>

#include <signal.h>
#include <spawn.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cerrno>
#include <climits>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

extern "C" char** environ;

namespace tenon::inline v0::detail {

inline constexpr char const* worker_variable = "TENON_WORKER";  ///< in a worker's environment: who its host is, as identity.hpp spells it
inline constexpr int worker_channel = 3;                        ///< the descriptor of a worker's end

/// The running program. By its path while there is such a file, which keeps debuggers and valgrind in the picture: of one that has been
/// deleted or replaced the link reads "PATH (deleted)", and still is the program.
inline std::string this_program() {
    char const* const link = "/proc/self/exe";
    char path[PATH_MAX];
    ::ssize_t const n = ::readlink(link, path, sizeof path - 1);
    if (n <= 0) return link;
    path[n] = '\0';
    return ::access(path, X_OK) == 0 ? path : link;
}

/// A handle of a process, which no other that gets its number answers to; none where the system has none.
inline descriptor process_handle([[maybe_unused]] ::pid_t id) {
#if defined(SYS_pidfd_open)
    return above_streams(static_cast<int>(::syscall(SYS_pidfd_open, id, 0)));
#else
    return {};
#endif
}

/// "was ended by signal 9 (Killed)", "has exited with status 3"
inline std::string show_status(::siginfo_t const& how) {
    if (how.si_code == CLD_EXITED) return "has exited with status " + std::to_string(how.si_status);
    return "was ended by signal " + std::to_string(how.si_status) + " (" + ::strsignal(how.si_status) + ")";
}

/// A worker and the host's end of its channel. Ended and reaped at the latest when this goes.
class worker_process {
public:
    worker_process() = default;
    worker_process(worker_process&& other) noexcept
        : talk(std::move(other.talk)),
          heard(other.heard),
          id_(std::exchange(other.id_, -1)),
          handle_(std::move(other.handle_)),
          status_(std::move(other.status_)) {}
    worker_process& operator=(worker_process&& other) noexcept {
        std::swap(talk, other.talk);
        std::swap(heard, other.heard);
        std::swap(id_, other.id_);
        std::swap(handle_, other.handle_);
        std::swap(status_, other.status_);
        return *this;
    }
    ~worker_process() {
        kill();
        reap();
    }

    /// Starts `program` as a worker of the host of that text.
    static worker_process start(std::string const& program, std::string_view host) {
        auto [ours, theirs] = socket_pair();
        std::string const variable = std::string(worker_variable) + "=" + std::string(host);
        std::vector<char*> variables;
        for (char** v = environ; *v != nullptr; ++v)
            if (std::strncmp(*v, variable.c_str(), std::strlen(worker_variable) + 1) != 0) variables.push_back(*v);
        variables.push_back(const_cast<char*>(variable.c_str()));
        variables.push_back(nullptr);

        ::posix_spawn_file_actions_t files;
        ::posix_spawn_file_actions_init(&files);
        ::posix_spawn_file_actions_addopen(&files, 0, "/dev/null", O_RDONLY, 0);
        if (::fcntl(2, F_GETFD) >= 0)
            ::posix_spawn_file_actions_adddup2(&files, 2, 1);  // a host's answer is its own
        else
            for (int const stream : {1, 2}) ::posix_spawn_file_actions_addopen(&files, stream, "/dev/null", O_WRONLY, 0);
        ::posix_spawn_file_actions_adddup2(&files, theirs.number(), worker_channel);
        ::posix_spawnattr_t how;
        ::posix_spawnattr_init(&how);
        ::sigset_t none, all;
        ::sigemptyset(&none);
        ::sigfillset(&all);
        ::posix_spawnattr_setsigmask(&how, &none);
        ::posix_spawnattr_setsigdefault(&how, &all);
        ::posix_spawnattr_setpgroup(&how, 0);  // a terminal's signals are the host's
        ::posix_spawnattr_setflags(&how, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETPGROUP);
        char name[] = "tenon-worker";
        char* const arguments[]{name, nullptr};
        ::pid_t id = -1;
        int const error = ::posix_spawn(&id, program.c_str(), &files, &how, arguments, variables.data());
        ::posix_spawnattr_destroy(&how);
        ::posix_spawn_file_actions_destroy(&files);
        if (error != 0)
            refuse("workers_start",
                   program + " does not start: " + std::strerror(error) + "; a program that is one, or more processes, would do");
        worker_process started;
        started.talk = channel(std::move(ours));
        started.id_ = id;
        started.handle_ = process_handle(id);
        return started;
    }

    ::pid_t id() const { return id_; }
    /// How it ended; empty while it lives.
    std::string const& status() const { return status_; }

    /// What the system says that it does: 'R' runs, 'S' sleeps, 'T' is stopped; 0 where nobody knows.
    char run_state() const {
        if (id_ < 0) return 0;
        descriptor const file(::open(("/proc/" + std::to_string(id_) + "/stat").c_str(), O_RDONLY | O_CLOEXEC));
        char text[256];
        ::ssize_t const n = file ? ::read(file.number(), text, sizeof text) : -1;
        for (::ssize_t i = n - 1; i > 0; --i)  // after the last parenthesis of the name
            if (text[i] == ')') return i + 2 < n ? text[i + 2] : '\0';
        return 0;
    }

    void kill() noexcept {
        if (id_ < 0) return;
#if defined(SYS_pidfd_send_signal)
        if (handle_) {
            ::syscall(SYS_pidfd_send_signal, handle_.number(), SIGKILL, nullptr, 0);
            return;
        }
#endif
        ::kill(id_, SIGKILL);
    }
    /// Whether it has ended within `seconds`; then it is reaped.
    bool ends_within(double seconds) {
        double const end = monotonic_seconds() + seconds;
        while (id_ >= 0 && !collect(WNOHANG)) {
            if (monotonic_seconds() >= end) return false;
            std::timespec const nap{0, 500'000};
            ::nanosleep(&nap, nullptr);
        }
        return true;
    }
    void reap() noexcept {
        if (id_ >= 0) collect(0);
    }
    /// Leaves it alone: it is another process's child.
    void abandon() noexcept { id_ = -1; }

    channel talk;
    std::uint32_t heard = 0;  ///< messages of it, since it was told its part

private:
    bool collect(int options) noexcept {
        constexpr auto by_handle = static_cast<::idtype_t>(3);  // P_PIDFD, which older headers do not have
        ::siginfo_t how{};
        int failed = 0;
        do
            failed = handle_ ? ::waitid(by_handle, static_cast<::id_t>(handle_.number()), &how, WEXITED | options)
                             : ::waitid(P_PID, static_cast<::id_t>(id_), &how, WEXITED | options);
        while (failed != 0 && errno == EINTR);
        if (failed == 0 && how.si_pid == 0) return false;
        if (failed != 0 && errno != ECHILD && handle_) {  // a system that knows handles, and does not wait for them
            handle_.close();
            return collect(options);
        }
        try {
            status_ =
                failed == 0 ? show_status(how) : "has ended, and somebody else was told how";  // a host that ignores or reaps children
        } catch (...) {}
        id_ = -1;
        handle_.close();
        return true;
    }

    ::pid_t id_ = -1;
    descriptor handle_;
    std::string status_{};
};

}  // namespace tenon::inline v0::detail
