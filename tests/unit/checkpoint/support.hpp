// What the tests of this folder share: the law that a call breaks, and the bytes of a file. Knows the container, no model.
// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <tenon/core/error.hpp>

#include "support/random_model.hpp"

#include <sys/stat.h>
#include <unistd.h>
#include <cstddef>
#include <span>
#include <string>
#include <string_view>

namespace checkpoint_test {

using support::scratch_folder;

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

}  // namespace checkpoint_test
