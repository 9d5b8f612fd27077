// JSON, read strictly: what a careless writer got wrong is refused with its byte. Knows RFC 8259; knows no key by name.
// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <tenon/core/error.hpp>
#include <tenon/detail/sort.hpp>

#include <algorithm>
#include <charconv>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace tenon::inline v0::checkpoint::json {

inline constexpr int most_depth = 64;                  ///< objects and arrays inside one another
inline constexpr std::size_t most_values = 4'000'000;  ///< of one text: bounds what a hostile file makes us allocate

enum class kind : std::uint8_t { null, boolean, number, string, array, object };

/// One value and all below it. Members of an object keep their order.
struct value {
    kind what = kind::null;
    bool truth = false;             ///< boolean
    std::size_t offset = 0;         ///< byte of the text at which the value begins
    std::string key{};              ///< its name, when it is a member of an object; decoded
    std::string text{};             ///< string: decoded; number: as it was spelled, so that 1 differs from 1.0
    std::vector<value> children{};  ///< array: elements; object: members

    bool is(kind k) const noexcept { return what == k; }

    /// The member of that name, or nullptr: also when this is no object.
    value const* find(std::string_view name) const noexcept {
        if (what == kind::object)
            for (value const& child : children)
                if (child.key == name) return &child;
        return nullptr;
    }

    /// The number if it is spelled as an integer (no fraction, no exponent, not -0) and fits; nothing otherwise.
    std::optional<std::int64_t> as_int64() const noexcept {
        std::int64_t result = 0;
        if (what != kind::number || text == "-0") return std::nullopt;
        auto const [end, error] = std::from_chars(text.data(), text.data() + text.size(), result);
        if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
        return result;
    }

    /// The number rounded to double; nothing if it is none or lies outside the range of double.
    std::optional<double> as_double() const noexcept {
        double result = 0;
        if (what != kind::number) return std::nullopt;
        auto const [end, error] = std::from_chars(text.data(), text.data() + text.size(), result);
        if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
        return result;
    }

    std::optional<bool> as_bool() const noexcept { return what == kind::boolean ? std::optional<bool>(truth) : std::nullopt; }
    std::string const* as_string() const noexcept { return what == kind::string ? &text : nullptr; }
};

constexpr std::string_view name_of(kind k) {
    constexpr std::string_view names[]{"null", "a boolean", "a number", "a string", "an array", "an object"};
    return names[static_cast<std::size_t>(k)];
}

/// Text between quotes, for messages: cut at 80 bytes, control characters and quotes escaped.
inline std::string quoted(std::string_view text) {
    constexpr std::string_view digits = "0123456789abcdef";
    std::string result = "\"";
    std::size_t length = std::min<std::size_t>(text.size(), 80);
    while (length < text.size() && length > 0 && (static_cast<unsigned char>(text[length]) & 0xC0U) == 0x80U) --length;
    for (char const c : text.substr(0, length)) {
        auto const byte = static_cast<unsigned char>(c);
        if (byte < 0x20 || byte == 0x7F) {
            result += "\\u00";
            result += digits[byte >> 4U];
            result += digits[byte & 15U];
        } else {
            if (c == '"' || c == '\\') result += '\\';
            result += c;
        }
    }
    return result + (length < text.size() ? "...\"" : "\"");
}

/// A value in a few words, for messages: `true`, `1.5`, `"gelu"`, `an object`.
inline std::string show(value const& v) {
    if (v.what == kind::boolean) return v.truth ? "true" : "false";
    if (v.what == kind::number) return v.text.size() <= 40 ? v.text : v.text.substr(0, 40) + "...";
    if (v.what == kind::string) return json::quoted(v.text);
    return std::string(name_of(v.what));
}

namespace detail {

/// Bytes of the UTF-8 sequence that begins at `at`, 0 if none does. Source: RFC 3629, section 4.
constexpr std::size_t utf8_length(std::string_view text, std::size_t at) noexcept {
    auto const byte = [text](std::size_t i) { return i < text.size() ? static_cast<unsigned>(static_cast<unsigned char>(text[i])) : 0U; };
    auto const tail = [&byte](std::size_t i) { return (byte(i) & 0xC0U) == 0x80U; };
    unsigned const first = byte(at), second = byte(at + 1);
    if (first < 0x80) return 1;
    if (first < 0xC2 || first > 0xF4 || !tail(at + 1)) return 0;
    if (first < 0xE0) return 2;
    if (first < 0xF0) {
        bool const overlong = first == 0xE0 && second < 0xA0, surrogate = first == 0xED && second > 0x9F;
        return overlong || surrogate || !tail(at + 2) ? 0 : 3;
    }
    bool const overlong = first == 0xF0 && second < 0x90, beyond = first == 0xF4 && second > 0x8F;
    return overlong || beyond || !tail(at + 2) || !tail(at + 3) ? 0 : 4;
}

/// The members of an object, sorted by key, then by place.
template <class = void>
std::vector<value const*> by_key(value const& object) {
    std::vector<value const*> sorted;
    sorted.reserve(object.children.size());
    for (value const& child : object.children) sorted.push_back(&child);
    tenon::v0::detail::sort(sorted, [](value const* a, value const* b) {
        int const order = a->key.compare(b->key);
        return order != 0 ? order < 0 : a->offset < b->offset;
    });
    return sorted;
}

template <class = void>
class basic_reader;
using reader = basic_reader<>;  // lazy: instantiated by who uses it

template <class>
class basic_reader {
public:
    basic_reader(std::string_view text, std::string_view what) : text_(text), what_(what) {}

    value document() {
        for (std::size_t i = 0; i < text_.size();) {
            std::size_t const length = utf8_length(text_, i);
            if (length == 0) refuse("json_is_utf8", i, "is not the beginning of a UTF-8 sequence");
            i += length;
        }
        value result;
        skip_space();
        read(result, 0);
        skip_space();
        if (at_ != text_.size()) malformed("one value and the end of the text were expected");
        return result;
    }

private:
    [[noreturn]] void refuse(std::string_view law, std::size_t offset, std::string_view why) const {
        tenon::v0::detail::refuse(
            law, std::string(what_) + ": byte " + std::to_string(offset) + " of " + std::to_string(text_.size()) + " " + std::string(why));
    }
    [[noreturn]] void malformed(std::string_view expected) const {
        std::string const found = at_ < text_.size() ? json::quoted(text_.substr(at_, utf8_length(text_, at_))) : std::string("the end");
        refuse("json_is_well_formed", at_, "is " + found + "; " + std::string(expected));
    }

    bool digit() const noexcept { return at_ < text_.size() && text_[at_] >= '0' && text_[at_] <= '9'; }
    bool take(char c) noexcept {
        if (at_ >= text_.size() || text_[at_] != c) return false;
        ++at_;
        return true;
    }
    void skip_space() noexcept {
        while (at_ < text_.size() && (text_[at_] == ' ' || text_[at_] == '\n' || text_[at_] == '\r' || text_[at_] == '\t')) ++at_;
    }

    void read(value& into, int depth) {
        if (++values_ > most_values)
            refuse("json_value_count_fits", at_, "begins one value too many; at most " + std::to_string(most_values) + " would do");
        into.offset = at_;
        char const c = at_ < text_.size() ? text_[at_] : '\0';
        if (c == '{' || c == '[') {
            if (depth == most_depth)
                refuse("json_nesting_fits", at_,
                       "opens level " + std::to_string(depth + 1) + "; " + std::to_string(most_depth) + " would do");
            into.what = c == '{' ? kind::object : kind::array;
            read_children(into, depth + 1);
        } else if (c == '"') {
            into.what = kind::string;
            read_string(into.text);
        } else if (c == '-' || digit()) {
            into.what = kind::number;
            read_number(into.text);
        } else if (take_word("true")) {
            into.what = kind::boolean;
            into.truth = true;
        } else if (take_word("false")) {
            into.what = kind::boolean;
        } else if (!take_word("null")) {
            malformed("a value was expected");
        }
    }

    bool take_word(std::string_view word) noexcept {
        if (text_.substr(at_, word.size()) != word) return false;
        at_ += word.size();
        return true;
    }

    void read_children(value& into, int depth) {
        bool const object = into.what == kind::object;
        char const close = object ? '}' : ']';
        ++at_;
        skip_space();
        if (take(close)) return;
        for (;;) {
            value child;
            if (object) {
                if (at_ >= text_.size() || text_[at_] != '"') malformed("a key in double quotes was expected");
                read_string(child.key);
                skip_space();
                if (!take(':')) malformed("a colon was expected after the key " + json::quoted(child.key));
                skip_space();
            }
            read(child, depth);
            into.children.push_back(std::move(child));
            skip_space();
            if (take(close)) break;
            if (!take(',')) malformed(object ? "a comma or } was expected" : "a comma or ] was expected");
            skip_space();
        }
        if (object) refuse_twins(into);
    }

    void refuse_twins(value const& object) const {
        std::vector<value const*> const sorted = by_key(object);
        for (std::size_t i = 1; i < sorted.size(); ++i)
            if (sorted[i]->key == sorted[i - 1]->key)
                refuse("json_keys_are_unique", sorted[i]->offset,
                       "begins a second value of the duplicate key " + json::quoted(sorted[i]->key) + "; the first is at byte " +
                           std::to_string(sorted[i - 1]->offset) + ", one of them would do");
    }

    void read_number(std::string& into) {
        std::size_t const begin = at_;
        take('-');
        if (!digit()) malformed("a digit was expected");
        if (!take('0')) skip_digits();
        if (digit()) malformed("a number has no leading zero");
        if (take('.')) {
            if (!digit()) malformed("a digit was expected after the point");
            skip_digits();
        }
        if (take('e') || take('E')) {
            if (!take('+')) take('-');
            if (!digit()) malformed("a digit was expected in the exponent");
            skip_digits();
        }
        into.assign(text_.substr(begin, at_ - begin));
    }
    void skip_digits() noexcept {
        while (digit()) ++at_;
    }

    void read_string(std::string& into) {
        ++at_;
        for (;;) {
            std::size_t const begin = at_;
            while (at_ < text_.size() && text_[at_] != '"' && text_[at_] != '\\' && static_cast<unsigned char>(text_[at_]) >= 0x20) ++at_;
            into.append(text_.substr(begin, at_ - begin));
            if (take('"')) return;
            if (!take('\\')) malformed("a string has no control characters and ends with a quote");
            read_escape(into);
        }
    }

    void read_escape(std::string& into) {
        constexpr std::string_view names = "\"\\/bfnrt", meanings = "\"\\/\b\f\n\r\t";
        std::size_t const begin = at_ - 1;
        if (!take('u')) {
            std::size_t const which = at_ < text_.size() ? names.find(text_[at_]) : std::string_view::npos;
            if (which == std::string_view::npos) malformed("an escape is one of \\\" \\\\ \\/ \\b \\f \\n \\r \\t \\u");
            into += meanings[which];
            ++at_;
            return;
        }
        std::uint32_t point = four_digits();
        if (point >= 0xD800 && point < 0xE000) {
            std::uint32_t low = 0;
            if (point < 0xDC00 && take_word("\\u")) low = four_digits();
            if (low < 0xDC00 || low > 0xDFFF) refuse("json_is_utf8", begin, "escapes half of a surrogate pair; both halves would do");
            point = 0x10000 + ((point - 0xD800) << 10U) + (low - 0xDC00);
        }
        append_utf8(into, point);
    }

    std::uint32_t four_digits() {
        std::uint32_t result = 0;
        for (int i = 0; i < 4; ++i, ++at_) {
            char const c = at_ < text_.size() ? text_[at_] : '\0';
            std::uint32_t digit_value = 0;
            if (c >= '0' && c <= '9')
                digit_value = static_cast<std::uint32_t>(c - '0');
            else if (c >= 'a' && c <= 'f')
                digit_value = static_cast<std::uint32_t>(c - 'a' + 10);
            else if (c >= 'A' && c <= 'F')
                digit_value = static_cast<std::uint32_t>(c - 'A' + 10);
            else
                malformed("four hexadecimal digits were expected after \\u");
            result = result * 16 + digit_value;
        }
        return result;
    }

    static void append_utf8(std::string& into, std::uint32_t point) {
        auto const put = [&into](std::uint32_t byte) { into += static_cast<char>(static_cast<unsigned char>(byte)); };
        if (point < 0x80) return put(point);
        if (point < 0x800) {
            put(0xC0U | (point >> 6U));
        } else {
            if (point < 0x10000) {
                put(0xE0U | (point >> 12U));
            } else {
                put(0xF0U | (point >> 18U));
                put(0x80U | ((point >> 12U) & 0x3FU));
            }
            put(0x80U | ((point >> 6U) & 0x3FU));
        }
        put(0x80U | (point & 0x3FU));
    }

    std::string_view text_, what_;
    std::size_t at_ = 0, values_ = 0;
};

}  // namespace detail

/// Reads one JSON text; white space around it is allowed, anything else is not. `what` names the text in messages.
/// Refuses with `json_is_utf8`, `json_is_well_formed`, `json_keys_are_unique`, `json_nesting_fits` or `json_value_count_fits`,
/// and the byte.
template <class = void>
value parse(std::string_view text, std::string_view what) {
    return detail::reader(text, what).document();
}

/// Whether two values mean the same: members in any order, numbers by value.
template <class = void>
bool same(value const& a, value const& b) {
    if (a.what != b.what || a.children.size() != b.children.size()) return false;
    if (a.what == kind::number) return a.text == b.text || (a.as_double() && a.as_double() == b.as_double());
    if (a.what != kind::object) {
        for (std::size_t i = 0; i < a.children.size(); ++i)
            if (!same(a.children[i], b.children[i])) return false;
        return a.truth == b.truth && a.text == b.text;
    }
    std::vector<value const*> const left = detail::by_key(a), right = detail::by_key(b);
    for (std::size_t i = 0; i < left.size(); ++i)
        if (left[i]->key != right[i]->key || !same(*left[i], *right[i])) return false;
    return true;
}

}  // namespace tenon::inline v0::checkpoint::json
