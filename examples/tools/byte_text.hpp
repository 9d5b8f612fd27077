// Ids that are bytes: whether a folder says that its ids are, and how they look as text.
// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <tenon/checkpoint/json.hpp>
#include <tenon/checkpoint/mapped_file.hpp>
#include <tenon/core/config.hpp>
#include <tenon/core/error.hpp>

#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <utility>

namespace tools {

/// Why the ids of a folder may not be taken for bytes; empty when its tokenizer_config.json declares that they are. Nothing is guessed.
inline std::string why_not_bytes(std::string const& folder) {
    namespace json = tenon::checkpoint::json;
    std::string const path = folder + "/tokenizer_config.json";
    try {
        tenon::checkpoint::mapped_file const file(path);
        json::value const declared = json::parse(file.text(), path);
        for (auto const& [key, wanted] : {std::pair{"tokenizer_class", "ByteLevelVocabulary"}, std::pair{"tenon_vocabulary", "bytes"}}) {
            json::value const* const found = declared.find(key);
            if (found == nullptr) return path + " has no " + key;
            if (!found->is(json::kind::string) || found->text != wanted) return path + ": " + key + " is " + json::show(*found);
        }
    } catch (tenon::refusal const& unreadable) {
        return unreadable.what();
    }
    return {};
}

namespace detail {
/// Bytes of the UTF-8 character that `text` begins with; 0 when it begins with none. RFC 3629: no overlong forms, no surrogates.
constexpr std::size_t character_at(std::string_view text) {
    auto const at = [text](std::size_t i) { return i < text.size() ? static_cast<unsigned char>(text[i]) : 0U; };
    auto const follows = [at](std::size_t i) { return at(i) >= 0x80U && at(i) <= 0xBFU; };
    unsigned const a = at(0), b = at(1);
    if (a < 0x80U) return 1;
    if (a >= 0xC2U && a <= 0xDFU) return follows(1) ? 2 : 0;
    if (a >= 0xE0U && a <= 0xEFU) return b >= (a == 0xE0U ? 0xA0U : 0x80U) && b <= (a == 0xEDU ? 0x9FU : 0xBFU) && follows(2) ? 3 : 0;
    if (a >= 0xF0U && a <= 0xF4U) return b >= (a == 0xF0U ? 0x90U : 0x80U) && b <= (a == 0xF4U ? 0x8FU : 0xBFU) && follows(2) && follows(3) ? 4 : 0;
    return 0;
}
static_assert(character_at("a") == 1 && character_at("\xC3\xA9") == 2 && character_at("\xE2\x82\xAC") == 3 && character_at("\xF0\x9F\x98\x80") == 4);
static_assert(character_at("\xC0\x80") == 0 && character_at("\xED\xA0\x80") == 0 && character_at("\xE2\x82") == 0 && character_at("\xFF") == 0);
}  // namespace detail

/// The bytes as valid UTF-8: a byte that belongs to no character becomes \xNN, four letters. `for_terminal` does that to control
/// characters too, save tab and newline.
inline std::string text_of(std::span<tenon::token_id const> ids, bool for_terminal) {
    std::string bytes, out;
    for (tenon::token_id const id : ids) bytes += static_cast<char>(static_cast<unsigned char>(id));
    for (std::string_view rest = bytes; !rest.empty();) {
        std::size_t const length = detail::character_at(rest);
        auto const first = static_cast<unsigned char>(rest[0]);
        bool const control = (first < 0x20U && first != '\n' && first != '\t') || first == 0x7FU;
        if (length == 0 || (for_terminal && control)) ((out += "\\x") += "0123456789abcdef"[first >> 4U]) += "0123456789abcdef"[first & 15U];
        else out += rest.substr(0, length);
        rest.remove_prefix(length == 0 ? 1 : length);
    }
    return out;
}

}  // namespace tools
