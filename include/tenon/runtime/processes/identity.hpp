// Who a host and a worker are: a line of text each, said before anything else and compared as it stands. So builds that would misread each
// other's messages part with both their names. Knows what messages are made of, not what they say.
// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <tenon/core/config.hpp>
#include <tenon/core/error.hpp>
#include <tenon/core/share.hpp>
#include <tenon/graph/lower.hpp>
#include <tenon/runtime/census.hpp>
#include <tenon/runtime/executor.hpp>
#include <tenon/runtime/meeting.hpp>
#include <tenon/runtime/processes/message.hpp>
#include <tenon/runtime/processes/part.hpp>
#include <tenon/runtime/processes/segment.hpp>
#include <tenon/runtime/profile.hpp>
#include <tenon/version.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace tenon::inline v0::detail {

/// The compiler that this is read by, by name, and the width of its pointers: "g++ 12.2.0 for 64 bits".
inline std::string compiler_text() {
#if defined(__GNUC__) && !defined(__clang__)
    std::string const name = "g++ " __VERSION__;
#else
    std::string const name = __VERSION__;  // has the name
#endif
    return name + " for " + std::to_string(8 * sizeof(void*)) + " bits";
}

/// A digest of the sizes of all that messages and shared memory hold as it lies in memory, and of how far enumerations go: two states of
/// the library under one version seldom have the same.
constexpr std::uint32_t message_format() {
    std::size_t const facts[]{last_message_kind,
                              sizeof(message_header),
                              sizeof(worker_words),
                              sizeof(call_words),
                              sizeof(awaited_word),
                              sizeof(model_config),
                              sizeof(stage_traits),
                              sizeof(share),
                              sizeof(expert_census),
                              sizeof(unroutable_row),
                              static_cast<std::size_t>(role::head),
                              static_cast<std::size_t>(last_of<adapter_id>),
                              static_cast<std::size_t>(last_of<dtype>),
                              static_cast<std::size_t>(last_of<tenon::v0::weights>),
                              static_cast<std::size_t>(last_of<device_kind>),
                              static_cast<std::size_t>(last_of<placing>),
                              static_cast<std::size_t>(last_of<testing::fault>),
                              static_cast<std::size_t>(last_of<testing::worker_fault_kind>)};
    std::uint32_t h = 2166136261U;
    for (std::size_t const fact : facts) h = (h ^ static_cast<std::uint32_t>(fact)) * 16777619U;
    return h;
}

/// Who one side is. Both sides of a conversation must be equal in all of it.
struct build_identity {
    std::string version{tenon::v0::version};  ///< of tenon
    std::string profiles{numeric::names()};  ///< that it computes; which of them is used, a part says
    std::string compiler{compiler_text()};
    std::uint32_t format = message_format();
    std::uint64_t backends = 0;  ///< of the program that the workers were made for

    static constexpr std::string_view begin = "tenon ";  ///< of every build's text, for ever
    static constexpr std::size_t most_text_bytes = 1024;

    /// "tenon 0.1.0, profiles canonical_1 or fast, compiler g++ 12.2.0 for 64 bits, messages 1403981752, backends 17"
    std::string show() const { return build() + std::to_string(backends); }

    /// Whether this program, started as a worker by the host of that text, is to greet it: as its worker; or as one of another build, so
    /// that the host can name both, and nothing else of the program runs. Of the same build other backends may be meant: those of another
    /// hook.
    bool is_to_greet(std::string_view host) const { return host.starts_with(begin) && (!host.starts_with(build()) || host == show()); }

private:
    std::string build() const {
        return std::string(begin) + version + ", profiles " + profiles + ", compiler " + compiler + ", messages " + std::to_string(format) +
               ", backends ";
    }
};

/// The text of a greeting. Nothing of it is taken apart: what a build says of itself is its own affair. Refuses what is no such text.
inline std::string read_identity(std::span<std::byte const> greeting) {
    std::string text;
    if (greeting.size() <= build_identity::most_text_bytes)
        for (std::byte const b : greeting) text += static_cast<char>(b);
    bool const printed = std::none_of(text.begin(), text.end(), [](char c) { return static_cast<unsigned char>(c) < ' '; });
    if (!text.starts_with(build_identity::begin) || !printed)
        refuse("worker_message_is_whole", "a greeting of " + std::to_string(greeting.size()) +
                                              " bytes names no build; a line that begins with \"" + std::string(build_identity::begin) +
                                              "\" would do");
    return text;
}

/// Refuses a worker of another build, naming both.
inline void require_same_build(std::string_view host, std::string_view worker) {
    if (host != worker)
        refuse("worker_is_of_this_build",
               "the host is " + std::string(host) + "; the worker is " + std::string(worker) + "; one build for both would do");
}

}  // namespace tenon::inline v0::detail
