// One end of a socket pair over which messages go, whole and in order. Waiting ends at a deadline, or when the other end is closed.
// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <tenon/core/error.hpp>
#include <tenon/runtime/processes/message.hpp>

#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <ctime>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace tenon::inline v0::detail {

/// A file descriptor, closed at the end.
class descriptor {
public:
    descriptor() = default;
    explicit descriptor(int number) : number_(number) {}
    descriptor(descriptor&& other) noexcept : number_(std::exchange(other.number_, -1)) {}
    descriptor& operator=(descriptor&& other) noexcept {
        std::swap(number_, other.number_);
        return *this;
    }
    ~descriptor() { close(); }
    void close() noexcept {
        if (number_ >= 0) ::close(number_);
        number_ = -1;
    }
    int number() const { return number_; }
    explicit operator bool() const { return number_ >= 0; }

private:
    int number_ = -1;
};

/// Moves a new descriptor above the standard streams, which a host may have closed: what is printed must reach nothing of ours.
inline descriptor above_streams(int number) {
    constexpr int lowest = 10;
    descriptor const made(number);
    return descriptor(made ? ::fcntl(number, F_DUPFD_CLOEXEC, lowest) : -1);
}

/// Seconds of a clock that only goes forward.
inline double monotonic_seconds() {
    std::timespec t{};
    ::clock_gettime(CLOCK_MONOTONIC, &t);
    return static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_nsec) * 1e-9;
}

/// Why a conversation ended.
enum class channel_end : std::uint8_t { open, closed, late };

struct message {
    message_kind kind = message_kind::done;
    std::vector<std::byte> payload{};
    std::vector<descriptor> files{};  ///< passed beside it
};

class channel {
public:
    channel() = default;
    explicit channel(descriptor end) : end_(std::move(end)) {}

    int number() const { return end_.number(); }
    void close() { end_.close(); }

    /// Sends a message, with files beside its first bytes. `deadline` by monotonic_seconds.
    channel_end send(message_kind kind, std::span<std::byte const> payload, double deadline, std::span<int const> files = {}) {
        message_header const header{.kind = kind, .bytes = payload.size()};
        return send_all(std::as_bytes(std::span(&header, 1)), payload, deadline, files);
    }

    /// Receives one whole message. Refuses what is none.
    channel_end receive(message& into, double deadline) {
        message_header header;
        into.files.clear();
        if (channel_end const e = receive_all(std::as_writable_bytes(std::span(&header, 1)), deadline, &into.files); e != channel_end::open)
            return e;
        check_header(header);
        into.kind = header.kind;
        into.payload.clear();
        // Bytes are made room for as they come: a header's word is no reason to allocate a gigabyte.
        while (into.payload.size() < header.bytes) {
            std::size_t const at = into.payload.size(), more = static_cast<std::size_t>(header.bytes) - at,
                              step = more < chunk ? more : chunk;
            into.payload.resize(at + step);
            if (channel_end const e = receive_all(std::span(into.payload).subspan(at, step), deadline, nullptr); e != channel_end::open)
                return e;
        }
        return channel_end::open;
    }

private:
    static constexpr std::size_t chunk = std::size_t{1} << 22;
    static constexpr std::size_t most_files = 4;

    bool wait(short events, double deadline) const {
        for (;;) {
            double const left = deadline - monotonic_seconds();
            if (left <= 0) return false;
            ::pollfd p{end_.number(), events, 0};
            int const n = ::poll(&p, 1, left > 1e6 ? -1 : static_cast<int>(left * 1000) + 1);
            if (n > 0) return true;
            if (n < 0 && errno != EINTR) return false;
        }
    }

    /// Both in one go: a header alone would wake the other side twice.
    channel_end send_all(std::span<std::byte const> first, std::span<std::byte const> second, double deadline, std::span<int const> files) {
        while (!first.empty() || !second.empty()) {
            ::iovec pieces[]{{const_cast<std::byte*>(first.data()), first.size()}, {const_cast<std::byte*>(second.data()), second.size()}};
            ::msghdr m{};
            m.msg_iov = pieces;
            m.msg_iovlen = 2;
            alignas(::cmsghdr) std::byte room[CMSG_SPACE(most_files * sizeof(int))]{};
            if (!files.empty()) {
                m.msg_control = room;
                m.msg_controllen = CMSG_SPACE(files.size() * sizeof(int));
                ::cmsghdr* const c = CMSG_FIRSTHDR(&m);
                c->cmsg_level = SOL_SOCKET;
                c->cmsg_type = SCM_RIGHTS;
                c->cmsg_len = CMSG_LEN(files.size() * sizeof(int));
                std::memcpy(CMSG_DATA(c), files.data(), files.size() * sizeof(int));
            }
            ::ssize_t const n = ::sendmsg(end_.number(), &m, MSG_NOSIGNAL | MSG_DONTWAIT);
            if (n > 0) {
                auto const sent = static_cast<std::size_t>(n), of_first = sent < first.size() ? sent : first.size();
                first = first.subspan(of_first);
                second = second.subspan(sent - of_first);
                files = {};
            } else if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) {
                if (!wait(POLLOUT, deadline)) return channel_end::late;
            } else if (n < 0 && errno != EINTR) {
                return channel_end::closed;
            }
        }
        return channel_end::open;
    }

    channel_end receive_all(std::span<std::byte> bytes, double deadline, std::vector<descriptor>* files) {
        while (!bytes.empty()) {
            ::iovec piece{bytes.data(), bytes.size()};
            ::msghdr m{};
            m.msg_iov = &piece;
            m.msg_iovlen = 1;
            alignas(::cmsghdr) std::byte room[CMSG_SPACE(most_files * sizeof(int))]{};
            if (files != nullptr) {
                m.msg_control = room;
                m.msg_controllen = sizeof room;
            }
            ::ssize_t const n = ::recvmsg(end_.number(), &m, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
            if (n > 0) {
                bytes = bytes.subspan(static_cast<std::size_t>(n));
                if (files != nullptr) take_files(m, *files);
            } else if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) {
                if (!wait(POLLIN, deadline)) return channel_end::late;
            } else if (n == 0 || errno != EINTR) {
                return channel_end::closed;
            }
        }
        return channel_end::open;
    }

    static void take_files(::msghdr& m, std::vector<descriptor>& files) {
        for (::cmsghdr* c = CMSG_FIRSTHDR(&m); c != nullptr; c = CMSG_NXTHDR(&m, c)) {
            if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS) continue;
            std::size_t const count = (c->cmsg_len - CMSG_LEN(0)) / sizeof(int);
            for (std::size_t i = 0; i < count; ++i) {
                int number = -1;
                std::memcpy(&number, CMSG_DATA(c) + i * sizeof(int), sizeof number);
                files.emplace_back(number);
            }
        }
    }

    descriptor end_;
};

/// Two ends that know each other, and no other process does.
inline std::pair<descriptor, descriptor> socket_pair() {
    int ends[2]{-1, -1};
    static_cast<void>(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends));
    std::pair<descriptor, descriptor> pair{above_streams(ends[0]), above_streams(ends[1])};
    if (!pair.first || !pair.second)
        refuse("workers_start", std::string("no socket pair: ") + std::strerror(errno) + "; more open files would do");
    return pair;
}

}  // namespace tenon::inline v0::detail
