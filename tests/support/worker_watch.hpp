// What the system says of this process, its children and its memory: whether worker processes leave anything behind. Knows no library.
// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/types.h>
#include <unistd.h>
#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <fstream>
#include <sstream>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

namespace support {

/// Calls `visit` with the name of every entry of a folder.
template <class Visit>
void each_entry(std::string const& folder, Visit visit) {
    ::DIR* const open = ::opendir(folder.c_str());
    if (open == nullptr) return;
    int const own = ::dirfd(open);
    while (::dirent const* const entry = ::readdir(open))
        if (entry->d_name[0] != '.' && entry->d_name != std::to_string(own)) visit(std::string(entry->d_name));
    ::closedir(open);
}

/// One word after the name in /proc/ID/stat, from 0: the state, the parent. Empty where there is no such process.
inline std::string stat_word(std::string const& id, int index) {
    std::ifstream file("/proc/" + id + "/stat");
    std::string text;
    std::getline(file, text, '\0');  // not by an iterator of the buffer, which throws where the process ends before it is read
    std::size_t const end = text.rfind(')');
    if (end == std::string::npos) return {};
    std::istringstream words(text.substr(end + 1));
    std::string word;
    for (int i = 0; i <= index; ++i) words >> word;
    return word;
}
inline char state_of(::pid_t id) {
    std::string const word = stat_word(std::to_string(id), 0);
    return word.empty() ? '\0' : word[0];
}

/// The children of a process, zombies too, ascending.
inline std::vector<::pid_t> children_of(::pid_t parent) {
    std::vector<::pid_t> found;
    each_entry("/proc", [&](std::string const& name) {
        if (name.find_first_not_of("0123456789") == std::string::npos && stat_word(name, 1) == std::to_string(parent))
            found.push_back(std::atoi(name.c_str()));
    });
    std::sort(found.begin(), found.end());
    return found;
}
inline std::vector<::pid_t> children() { return children_of(::getpid()); }

/// Where the descriptors of a process point, as the system spells it.
inline std::vector<std::string> files_of(::pid_t id) {
    std::vector<std::string> found;
    std::string const folder = "/proc/" + std::to_string(id) + "/fd";
    each_entry(folder, [&](std::string const& name) {
        char target[512];
        ::ssize_t const n = ::readlink((folder + "/" + name).c_str(), target, sizeof target);
        if (n > 0) found.emplace_back(target, static_cast<std::size_t>(n));
    });
    return found;
}
inline std::size_t open_files() { return files_of(::getpid()).size(); }

/// A number of /proc/ID/status, by its name: "Threads", "VmRSS" (KiB).
inline long status_number(std::string_view name, std::string const& id = "self") {
    std::ifstream file("/proc/" + id + "/status");
    for (std::string line; std::getline(file, line);)
        if (line.starts_with(name) && line[name.size()] == ':') return std::atol(line.c_str() + name.size() + 1);
    return -1;
}

/// Shared memory of the library's that this process maps or holds open.
inline std::size_t shared_memories() {
    std::size_t count = 0;
    for (std::string const& target : files_of(::getpid())) count += target.starts_with("/memfd:tenon");
    std::ifstream maps("/proc/self/maps");
    for (std::string line; std::getline(maps, line);) count += line.find("/memfd:tenon") != std::string::npos;
    return count;
}

/// Waits until `done()`, for `seconds` at most.
template <class Done>
bool within(double seconds, Done done) {
    auto const end = std::chrono::steady_clock::now() + std::chrono::duration<double>(seconds);
    while (!done()) {
        if (std::chrono::steady_clock::now() > end) return false;
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    return true;
}

inline bool is_gone(::pid_t id) {
    char const state = state_of(id);
    return state == '\0' || state == 'Z';
}

/// Whether a sanitizer watches: it keeps what is freed, so that a process grows, and takes its time when one ends.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
inline constexpr bool is_sanitized = true;
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
inline constexpr bool is_sanitized = true;
#else
inline constexpr bool is_sanitized = false;
#endif
#else
inline constexpr bool is_sanitized = false;
#endif

/// What a process holds. Equal before and after, where nothing is left behind.
struct holdings {
    holdings() {
        static bool const started = (std::thread([] {}).join(), true);  // with the first thread a sanitizer starts one of its own
        static_cast<void>(started);
        files = open_files();
        memories = shared_memories();
        processes = children();
        threads = status_number("Threads");
    }
    std::size_t files = 0, memories = 0;
    std::vector<::pid_t> processes;
    long threads = 0;
    bool operator==(holdings const&) const = default;
};

}  // namespace support
