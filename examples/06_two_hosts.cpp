// Two programs, each with one stage of the model, that hand bundles over a socket. One idea: the library brings the stages and the
// bytes, whoever uses it the transport; and the tokens are those of the model in one program.
// SPDX-License-Identifier: Apache-2.0
//
//   06_two_hosts MODEL_DIRECTORY            the head; it starts the tail, and compares
//   06_two_hosts MODEL_DIRECTORY tail FD    the tail, which serves a socket until it closes
#include <tenon/boundary/frame.hpp>
#include <tenon/stage_host.hpp>
#include <tenon/tenon.hpp>

#include "embedded_model/embedded.hpp"

#include <cstddef>
#include <exception>
#include <iostream>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include <fcntl.h>
#include <spawn.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

using namespace tenon;

struct split : graph<embedded_model,
    stage<layers<0, embedded_model::half - 1>, device::cpu<0>>,
    stage<layers<embedded_model::half, embedded_model::last>, device::cpu<0, 1>>> {};  // a group of its own, in the tail's program

void send_all(int socket, std::span<std::byte const> bytes) {
    while (!bytes.empty()) {
        ::ssize_t const n = ::send(socket, bytes.data(), bytes.size(), MSG_NOSIGNAL);
        if (n <= 0) throw std::runtime_error("the other program is gone");
        bytes = bytes.subspan(static_cast<std::size_t>(n));
    }
}

/// False where the other side has closed before the first byte.
bool receive_all(int socket, std::span<std::byte> bytes) {
    for (std::size_t at = 0; at < bytes.size();) {
        ::ssize_t const n = ::recv(socket, bytes.data() + at, bytes.size() - at, 0);
        if (n == 0 && at == 0) return false;
        if (n <= 0) throw std::runtime_error("the other program is gone in the middle of a message");
        at += static_cast<std::size_t>(n);
    }
    return true;
}

/// The next frame whole: its first bytes say how many there are. Empty at the end.
std::vector<std::byte> receive_frame(int socket) {
    std::vector<std::byte> frame(boundary::frame_preamble_bytes);
    if (!receive_all(socket, frame)) return {};
    frame.resize(boundary::frame_length(frame));
    if (!receive_all(socket, std::span(frame).subspan(boundary::frame_preamble_bytes))) throw std::runtime_error("half a frame");
    return frame;
}

/// Takes bundles of one sequence and answers each with the token that follows.
int serve_tail(std::string const& directory, int socket) {
    auto host = stage_host<split, 1>::load(directory);
    state s = host.make_state();
    state* const states[]{&s};
    for (std::vector<std::byte> frame = receive_frame(socket); !frame.empty(); frame = receive_frame(socket)) {
        boundary::tail_output const out = host.forward(boundary::unpack(frame), states, {.sample = sampling{}});
        send_all(socket, std::as_bytes(std::span<token_id const>(out.chosen)));
    }
    return 0;
}

std::vector<token_id> generate(std::string const& directory, int socket, std::vector<token_id> ids, int count) {
    auto host = stage_host<split, 0>::load(directory);
    state s = host.make_state();
    for (int i = 0; i < count; ++i) {
        feed const fresh{&s, std::span<token_id const>(ids).subspan(static_cast<std::size_t>(s.length()))};
        send_all(socket, boundary::pack(host.forward({&fresh, 1})));
        token_id next = 0;
        if (!receive_all(socket, std::as_writable_bytes(std::span<token_id>(&next, 1)))) throw std::runtime_error("the tail is gone");
        ids.push_back(next);
    }
    return ids;
}

int main(int argc, char** argv) try {
    if (argc == 4 && std::string(argv[2]) == "tail") return serve_tail(argv[1], std::stoi(argv[3]));
    if (argc != 2) return std::cerr << "usage: 06_two_hosts MODEL_DIRECTORY [tail FD]\n", 2;
    std::string const directory = argv[1];

    int ends[2]{};
    if (::socketpair(AF_UNIX, SOCK_STREAM, 0, ends) != 0) return std::cerr << "no socket\n", 1;
    (void)::fcntl(ends[0], F_SETFD, FD_CLOEXEC);  // so that the tail sees it close
    std::string role = "tail", fd = std::to_string(ends[1]);
    char* const arguments[]{argv[0], argv[1], role.data(), fd.data(), nullptr};
    ::pid_t tail = 0;
    if (::posix_spawnp(&tail, argv[0], nullptr, nullptr, arguments, environ) != 0) return std::cerr << "no second program\n", 1;
    ::close(ends[1]);

    std::vector<token_id> const prompt = tokens_of("She was "), got = generate(directory, ends[0], prompt, 24);
    ::close(ends[0]);
    int status = 0;
    bool const ended_well = ::waitpid(tail, &status, 0) == tail && status == 0;

    auto whole = causal_lm<split>::load(directory);
    bool const same = got == whole.generate(prompt, {.max_new_tokens = 24});
    std::cout << text_of(got) << (same ? "\ntwo programs, the tokens of one\n" : "\nOTHER TOKENS\n");
    return same && ended_well ? 0 : 1;
} catch (std::exception const& e) {
    std::cerr << e.what() << '\n';
    return 1;
}
