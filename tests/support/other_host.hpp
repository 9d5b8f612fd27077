// Another process in which a test runs a part of itself: a host with workers of its own, to be killed or to end by itself. Knows no
// library. SPDX-License-Identifier: Apache-2.0
#pragma once
#include <signal.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cerrno>
#include <cstdio>
#include <exception>
#include <functional>

namespace support {

/// Another process, a host of its own: it runs `body` and exits with 0 where that is true.
class other_host {
public:
    explicit other_host(std::function<bool()> const& body) : id_(::fork()) {
        if (id_ != 0) return;
        int status = 2;
        try {
            status = body() ? 0 : 1;
        } catch (std::exception const& e) { std::fprintf(stderr, "%s\n", e.what()); }
        ::_exit(status);
    }
    other_host(other_host const&) = delete;
    other_host& operator=(other_host const&) = delete;
    ~other_host() {
        if (id_ > 0) ::kill(id_, SIGKILL), status();
    }
    ::pid_t id() const { return id_; }
    void kill() const { ::kill(id_, SIGKILL); }
    /// Its exit status; -1 where a signal ended it.
    int status() {
        int how = 0;
        while (::waitpid(id_, &how, 0) < 0 && errno == EINTR) {}
        id_ = -1;
        return WIFEXITED(how) ? WEXITSTATUS(how) : -1;
    }

private:
    ::pid_t id_;
};

}  // namespace support
