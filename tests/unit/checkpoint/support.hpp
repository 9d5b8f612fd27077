// What the tests of this folder share: the law that a call breaks, and folders that vanish. Knows no format.
// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <tenon/core/error.hpp>

#include <dirent.h>
#include <sys/stat.h>
#include <unistd.h>
#include <cstddef>
#include <cstdlib>
#include <fstream>
#include <span>
#include <string>
#include <string_view>

namespace checkpoint_test {

/// "law: sentence" of the refusal, "nothing is refused" without one.
template <class Call>
std::string refusal_of(Call&& call) {
    try {
        call();
    } catch (tenon::refusal const& r) { return r.what(); }
    return "nothing is refused";
}

template <class Call>
std::string law_of(Call&& call) {
    std::string const text = refusal_of(call);
    return text.substr(0, text.find(':'));
}

inline bool contains(std::string_view text, std::string_view part) { return text.find(part) != std::string_view::npos; }

inline std::span<std::byte const> bytes_of(std::string_view text) { return std::as_bytes(std::span<char const>(text.data(), text.size())); }

/// The bytes of a safetensors file with that header and data.
inline std::string container(std::string_view header, std::string_view data = {}) {
    std::string result;
    for (std::size_t i = 0; i < 8; ++i) result += static_cast<char>(static_cast<unsigned char>(header.size() >> (8 * i)));
    return result.append(header).append(data);
}

/// An empty folder, removed with its files at the end.
class scratch_folder {
public:
    scratch_folder() {
        char const* const parent = std::getenv("TMPDIR");
        path_ = std::string(parent != nullptr && *parent != '\0' ? parent : "/tmp") + "/tenon-test-XXXXXX";
        if (::mkdtemp(path_.data()) == nullptr) std::abort();
    }
    scratch_folder(scratch_folder const&) = delete;
    scratch_folder& operator=(scratch_folder const&) = delete;
    ~scratch_folder() {
        if (::DIR* const folder = ::opendir(path_.c_str())) {
            while (::dirent const* const entry = ::readdir(folder)) {
                std::string const name = path_ + "/" + entry->d_name;
                if (::unlink(name.c_str()) != 0) ::rmdir(name.c_str());
            }
            ::closedir(folder);
        }
        ::rmdir(path_.c_str());
    }

    std::string const& path() const { return path_; }
    std::string path(std::string_view name) const { return path_ + "/" + std::string(name); }
    void write(std::string_view name, std::string_view text) const {
        std::ofstream(path(name), std::ios::binary).write(text.data(), static_cast<std::streamsize>(text.size()));
    }

private:
    std::string path_;
};

}  // namespace checkpoint_test
