// Workers start from any host and end with it, and nothing of them is left: not after a thousand models, not where the host is killed.
// SPDX-License-Identifier: Apache-2.0
#include "support/minimal_model.hpp"
#include "support/other_host.hpp"
#include "support/runs.hpp"
#include "support/worker_watch.hpp"

#include <doctest/doctest.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <tenon/dynamic_causal_lm.hpp>
#include <tenon/runtime/processes.hpp>

#include <atomic>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <iterator>
#include <optional>
#include <string>
#include <thread>
#include <vector>

using namespace tenon;
using namespace support;

namespace {
ids const prompt{1, 2, 3};

dynamic_causal_lm<> load(std::string const& directory, std::string const& text = "0@0,1;1@0", runtime::processes const& how = {}) {
    return dynamic_causal_lm<>::load(directory, plan::parse(text), how);
}
floats plain_rows(std::string const& directory) {
    auto m = dynamic_causal_lm<>::load(directory, plan::parse("all@0"), runtime::sequential{});
    return rows_of(m, prompt);
}
bool gives(std::string const& directory, floats const& expected) {
    auto m = load(directory);
    return first_difference(expected, rows_of(m, prompt)).empty();
}

/// The workers of another host, once there are two.
std::vector<::pid_t> two_workers_of(::pid_t host) {
    std::vector<::pid_t> found;
    CHECK(within(60, [&] {
        found.clear();
        for (::pid_t const id : children_of(host)) {
            std::ifstream file("/proc/" + std::to_string(id) + "/cmdline");
            std::string name;
            if (std::getline(file, name, '\0') && name == "tenon-worker") found.push_back(id);
        }
        return found.size() == 2;
    }));
    return found;
}
/// Whether all of them end, and soon.
bool end_soon(std::vector<::pid_t> const& workers) {
    for (::pid_t const id : workers)
        if (!within(10, [id] { return is_gone(id); })) return false;
    return true;
}
}  // namespace

TEST_CASE("A thousand models leave no descriptor, no thread, no child, no shared memory, and no memory to speak of") {
    random_model const files(tiny(), 1);
    floats const expected = plain_rows(files.directory());
    auto const cycle = [&](int i) {
        auto m = load(files.directory(), i % 10 == 0 ? "0@0,1;1@0" : "all@0");
        if (i % 10 == 0) CHECK_EQ(first_difference(expected, rows_of(m, prompt)), "");
        if (i % 3 == 0) m.close();
    };
    for (int i = 0; i < 50; ++i) cycle(i);
    holdings const before;
    long const resident = status_number("VmRSS");
    for (int i = 0; i < (is_sanitized ? 50 : 1000); ++i) cycle(i);
    CHECK(holdings() == before);
    if (!is_sanitized) CHECK(status_number("VmRSS") - resident < 4096);
}

TEST_CASE("A thousand states that come and go leave nothing in a worker or a host") {
    random_model const files(tiny(), 2);
    auto m = load(files.directory(), "all@0");
    std::string const worker = std::to_string(children().back());
    auto const pages = [&worker] {
        std::ifstream file("/proc/" + worker + "/statm");
        long size = 0, resident = 0;
        file >> size >> resident;
        return resident;
    };
    auto const cycle = [&m](int i) {
        state s = m.make_state(i % 2 == 0 ? 64 : 0);
        if (i % 4 < 2) m.prefill(s, prompt);
    };
    for (int i = 0; i < 100; ++i) cycle(i);
    long const before = pages();
    for (int i = 0; i < 4000; ++i) cycle(i);
    if (!is_sanitized) CHECK(pages() - before < 64);  // of 4 KiB; four thousand caches would be 4,000
    long const resident = status_number("VmRSS");
    for (int i = 0; i < 400'000; ++i) m.make_state();  // nothing is ever told to a worker
    if (!is_sanitized) CHECK(status_number("VmRSS") - resident < 1024);
}

TEST_CASE("Workers belong to the process, not to the thread that started them") {
    random_model const files(tiny(), 3);
    floats const expected = plain_rows(files.directory());
    std::optional<dynamic_causal_lm<>> m;
    std::thread([&] { m.emplace(load(files.directory())); }).join();
    CHECK_EQ(first_difference(expected, rows_of(*m, prompt)), "");
    std::thread([&] { m.reset(); }).join();
    CHECK(children().empty());
}

TEST_CASE("Twenty threads start twenty models at once") {
    random_model const files(tiny(), 4);
    floats const expected = plain_rows(files.directory());
    holdings const before;
    std::atomic<int> right{0};
    std::vector<std::thread> threads;
    for (int i = 0; i < 20; ++i) threads.emplace_back([&] { right += gives(files.directory(), expected); });
    for (std::thread& t : threads) t.join();
    CHECK(right == 20);
    CHECK(holdings() == before);
}

namespace {
std::atomic<int> reaped{0};
/// A host that reaps whatever child ends, as some do.
void reap_all(int) {
    int const kept = errno;
    while (::waitpid(-1, nullptr, WNOHANG) > 0) ++reaped;
    errno = kept;
}
}  // namespace

TEST_CASE("The host may ignore or handle the end of children, block signals, have closed its streams, or have many files open") {
    random_model const files(tiny(), 5);
    floats const expected = plain_rows(files.directory());
    std::string const directory = files.directory();
    auto const works_and_ends = [&] { return gives(directory, expected) && children().empty(); };
    SUBCASE("the end of children is ignored") {
        CHECK(other_host([&] { return ::signal(SIGCHLD, SIG_IGN) != SIG_ERR && works_and_ends(); }).status() == 0);
    }
    SUBCASE("a handler of the host's own reaps all children; a dead one is still noticed") {
        CHECK(other_host([&] {
                  ::signal(SIGCHLD, reap_all);
                  if (!works_and_ends()) return false;
                  auto m = load(directory);
                  for (::pid_t const id : children()) ::kill(id, SIGKILL);
                  return law_of([&] { rows_of(m, prompt); }) == "workers_live" && children().empty() && reaped >= 2;
              }).status() == 0);
    }
    SUBCASE("every signal is blocked, and a child's mask is empty all the same") {
        CHECK(other_host([&] {
                  ::sigset_t all;
                  ::sigfillset(&all);
                  ::sigprocmask(SIG_BLOCK, &all, nullptr);
                  auto m = std::make_optional(load(directory));
                  ::kill(children().at(0), SIGTERM);
                  if (!within(10, [] { return is_gone(children().at(0)); })) return false;
                  m.reset();
                  return works_and_ends();
              }).status() == 0);
    }
    SUBCASE("standard input, output and error are closed") {
        CHECK(other_host([&] {
                  for (int const stream : {0, 1, 2}) ::close(stream);
                  if (!works_and_ends()) return false;
                  auto m = load(directory);
                  for (int const stream : {0, 1, 2})  // nothing of ours has taken their places
                      if (::fcntl(stream, F_GETFD) >= 0) return false;
                  for (::pid_t const id : children())
                      for (std::string const& file : files_of(id))
                          if (file != "/dev/null" && !file.starts_with("socket:") && !file.starts_with("/memfd:tenon") && file.find("pidfd") == std::string::npos) return false;
                  return first_difference(expected, rows_of(m, prompt)).empty();
              }).status() == 0);
    }
    SUBCASE("a hundred descriptors are open to whoever inherits them, and none is in a worker") {
        CHECK(other_host([&] {
                  int const own = ::open((directory + "/config.json").c_str(), O_RDONLY);  // not closed on exec
                  for (int i = 0; i < 100; ++i) ::dup(own);
                  auto m = load(directory);
                  std::vector<::pid_t> const workers = children();
                  for (::pid_t const id : workers) {
                      std::vector<std::string> const open = files_of(id);
                      if (open.size() > 7) return false;  // streams, channel, two memories, the host's handle
                      for (std::string const& file : open)
                          if (file.ends_with("config.json")) return false;
                  }
                  return workers.size() == 2 && first_difference(expected, rows_of(m, prompt)).empty();
              }).status() == 0);
    }
    SUBCASE("a file-size limit is a refusal, not the end of the host") {
        CHECK(other_host([&] {
                  if (is_sanitized) return true;  // the sanitizer's own memory is a file
                  ::rlimit const few{4096, 4096};
                  ::setrlimit(RLIMIT_FSIZE, &few);
                  return law_of([&] { load(directory); }) == "shared_memory_suffices" && children().empty();
              }).status() == 0);
    }
    SUBCASE("no more descriptors are a refusal") {
        CHECK(other_host([&] {
                  ::rlimit limit{};
                  ::getrlimit(RLIMIT_NOFILE, &limit);
                  int refused = 0;
                  for (limit.rlim_cur = 12; limit.rlim_cur < 64; ++limit.rlim_cur) {  // the memories have no room, one worker, the second, none
                      ::setrlimit(RLIMIT_NOFILE, &limit);
                      std::string const law = law_of([&] { load(directory, "all@0,1"); });
                      if (law != "workers_start" && law != "shared_memory_suffices" && law != "nothing is refused") return false;
                      if (!children().empty()) return false;
                      refused += law == "workers_start";
                  }
                  return refused > 0;
              }).status() == 0);
    }
    SUBCASE("a checkpoint's path is relative to where the host is") {
        CHECK(other_host([&] {
                  if (::chdir(directory.c_str()) != 0) return false;
                  return gives(".", expected) && gives("../" + directory.substr(directory.rfind('/') + 1), expected);
              }).status() == 0);
    }
    SUBCASE("a variable of the workers' is set by hand: a refusal, and no worker") {
        CHECK(other_host([&] {
                  ::setenv("TENON_WORKER", "7", 1);
                  std::string const law = law_of([&] { load(directory); });
                  ::unsetenv("TENON_WORKER");
                  return law == "worker_is_no_host" && children().empty() && works_and_ends();
              }).status() == 0);
    }
}

TEST_CASE("A worker's own variable is gone in it, and its environment is the host's") {
    random_model const files(tiny(), 6);
    ::setenv("TENON_TEST_MARK", "seen", 1);
    auto m = load(files.directory(), "all@0");
    ::unsetenv("TENON_TEST_MARK");
    std::ifstream file("/proc/" + std::to_string(children().back()) + "/environ");
    std::string const all((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
    CHECK(all.find("TENON_TEST_MARK=seen") != std::string::npos);
    CHECK(std::getenv("TENON_WORKER") == nullptr);
}

TEST_CASE("A program started as a worker by hand ends, whatever is open") {
    detail::build_identity const own{.backends = detail::number_of_backends<device::backends<device::cpu>>()};
    detail::build_identity const other{.version = "0.0.1", .backends = 7};  // its worker names itself, and nothing else of the program runs
    for (auto const& [host, open] : {std::pair{own.show(), false}, {own.show(), true}, {other.show(), false}, {other.show(), true}}) {
        ::pid_t const id = ::fork();
        if (id == 0) {
            ::close(3);
            if (open && ::open("/dev/null", O_RDWR) != 3) ::_exit(9);
            ::setenv("TENON_WORKER", host.c_str(), 1);
            ::execl("/proc/self/exe", "by-hand", nullptr);
            ::_exit(8);
        }
        CHECK(within(30, [id] { return is_gone(id); }));
        ::kill(id, SIGKILL);
        int how = 0;
        ::waitpid(id, &how, 0);
        CHECK(WIFEXITED(how));
        CHECK(WEXITSTATUS(how) <= 1);
    }
}

TEST_CASE("The workers of a host that is killed end with it, whatever they are doing") {
    random_model const files(tiny(), 7);
    std::string const directory = files.directory();
    using fault_kind = testing::worker_fault_kind;
    auto const ends_with_its_host = [&](std::function<bool()> const& body) {
        other_host host(body);
        std::vector<::pid_t> const all = two_workers_of(host.id());
        std::this_thread::sleep_for(std::chrono::milliseconds(30));
        host.kill();
        CHECK(end_soon(all));
        CHECK(host.status() == -1);
    };
    SUBCASE("idle") {
        ends_with_its_host([&] { auto m = load(directory); return ::pause() == 0; });
    }
    SUBCASE("in the middle of calls") {
        ends_with_its_host([&]() -> bool {
            for (auto m = load(directory);;) rows_of(m, prompt);
        });
    }
    SUBCASE("in the middle of a load") {
        ends_with_its_host([&] { auto m = load(directory, "0@0,1;1@0", {.fault = {fault_kind::slow, 1, 0}}); return ::pause() == 0; });
    }
    SUBCASE("waiting for a peer that is stopped, and the stopped one too, whoever inherits them") {
        ::prctl(PR_SET_CHILD_SUBREAPER, 1);
        ends_with_its_host([&]() -> bool {
            for (auto m = load(directory, "0@0,1;1@0", {.hang_seconds = 1000, .fault = {fault_kind::stops, 1, 25}});;) rows_of(m, prompt);
        });
        CHECK(within(10, [] { return ::waitpid(-1, nullptr, WNOHANG) < 0; }));  // all are reaped
        ::prctl(PR_SET_CHILD_SUBREAPER, 0);
        ends_with_its_host([&]() -> bool {
            for (auto m = load(directory, "0@0,1;1@0", {.hang_seconds = 1000, .fault = {fault_kind::stops, 1, 25}});;) rows_of(m, prompt);
        });
    }
    SUBCASE("while a fork of the host lives and keeps all its descriptors") {
        int held[2];
        REQUIRE(::pipe(held) == 0);
        ends_with_its_host(
            [&] {
                auto m = load(directory);
                if (::fork() == 0) {  // ends when this test lets go of the pipe
                    ::close(held[1]);
                    char byte;
                    ::_exit(static_cast<int>(::read(held[0], &byte, 1)));
                }
                return ::pause() == 0;
            });
        ::close(held[0]);
        ::close(held[1]);
    }
}

TEST_CASE("A fork of the host leaves the workers alone, and may not use them") {
    random_model const files(tiny(), 8);
    floats const expected = plain_rows(files.directory());
    auto m = std::make_optional(load(files.directory()));
    std::vector<::pid_t> const workers = children();
    CHECK(other_host([&] {
              bool const refused = law_of([&] { rows_of(*m, prompt); }) == "workers_live" && law_of([&] { m->counts(); }) == "workers_live";
              m.reset();
              return refused && gives(files.directory(), expected);
          }).status() == 0);
    CHECK(children() == workers);
    CHECK_EQ(first_difference(expected, rows_of(*m, prompt)), "");
}

TEST_CASE("Two models live side by side, and one that dies leaves the other alone") {
    random_model const files(tiny(), 9);
    floats const expected = plain_rows(files.directory());
    auto first = load(files.directory());
    std::vector<::pid_t> const workers = children();
    auto second = load(files.directory());
    ::kill(workers[0], SIGKILL);
    CHECK(law_of([&] { rows_of(first, prompt); }) == "workers_live");
    CHECK_EQ(first_difference(expected, rows_of(second, prompt)), "");
    auto moved = std::move(second);
    CHECK_EQ(first_difference(expected, rows_of(moved, prompt)), "");
    CHECK(law_of([&] { second.make_state(); }) == "model_is_open");
}

TEST_CASE("The smallest of everything works: one layer, one head, one position") {
    geometry g = tiny();
    g.layers = g.heads = g.kv_heads = g.ffn = g.max_positions = 1;
    g.hidden = 2;
    g.vocab = 2;
    random_model const files(g, 10);
    auto plain = dynamic_causal_lm<>::load(files.directory(), plan::parse("all@0"), runtime::sequential{});
    auto m = load(files.directory(), "all@0");
    CHECK_EQ(first_difference(rows_of(plain, {1}), rows_of(m, {1})), "");
}
