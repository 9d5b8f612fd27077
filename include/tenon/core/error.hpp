// The one place of the library that throws, and what it throws. Knows names and sentences, nothing of what is refused.
// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <stdexcept>
#include <string>
#include <string_view>

namespace tenon::inline v0 {

/// Whatever is not certified, not covered or not consistent: "law_name: sentence".
class refusal : public std::runtime_error {
public:
    refusal(std::string_view law, std::string_view sentence)
        : std::runtime_error(std::string(law) + ": " + std::string(sentence)), law_(law) {}

    /// The stable name, as a script would match it.
    std::string const& law_name() const noexcept { return law_; }

private:
    std::string law_;
};

namespace detail {
/// Throws for the whole library, so that a build without exceptions changes one place.
template <class Error>
[[noreturn]] void raise(Error const& error) {
    throw error;
}
[[noreturn]] inline void refuse(std::string_view law, std::string_view sentence) { raise(refusal(law, sentence)); }
}  // namespace detail

}  // namespace tenon::inline v0
