// Safetensors files, written the same way every time: for fixtures, and for whoever cuts a checkpoint. Knows the format alone.
// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <tenon/checkpoint/json.hpp>
#include <tenon/checkpoint/safetensors.hpp>
#include <tenon/core/dtype.hpp>
#include <tenon/core/error.hpp>
#include <tenon/detail/sort.hpp>

#include <fcntl.h>
#include <unistd.h>
#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace tenon::inline v0::checkpoint {

namespace detail {

/// The text as a JSON string, without a cut. Refuses with `json_is_utf8`.
inline std::string json_string(std::string_view text) {
    constexpr std::string_view digits = "0123456789abcdef";
    std::string result = "\"";
    for (std::size_t i = 0; i < text.size();) {
        std::size_t const length = json::detail::utf8_length(text, i);
        if (length == 0)
            tenon::v0::detail::refuse("json_is_utf8",
                                      "byte " + std::to_string(i) + " of a name to be written is not the beginning of a UTF-8 sequence");
        auto const byte = static_cast<unsigned char>(text[i]);
        if (byte < 0x20) {
            result += "\\u00";
            result += digits[byte >> 4U];
            result += digits[byte & 15U];
        } else {
            if (text[i] == '"' || text[i] == '\\') result += '\\';
            result += text.substr(i, length);
        }
        i += length;
    }
    return result + "\"";
}

/// The tensors in the order of their names. Refuses duplicate names and sizes that do not match, as the reader would.
inline std::vector<tensor_view const*> in_name_order(std::span<tensor_view const> tensors) {
    std::vector<tensor_view const*> order;
    order.reserve(tensors.size());
    for (tensor_view const& t : tensors) {
        std::uint64_t bytes = 0;
        bool const counted = count_bytes(t.shape, t.type, bytes);
        if (!counted || bytes != t.data.size())
            tenon::v0::detail::refuse("safetensors_size_matches_shape",
                                      "tensor " + json::quoted(t.name) + ": shape " + show(t.shape) + " of " +
                                          std::string(name_of(t.type)) + " takes " +
                                          (counted ? std::to_string(bytes) + " bytes" : "what is no count of bytes") + ", " +
                                          std::to_string(t.data.size()) + " are given");
        if (t.name == "__metadata__")
            tenon::v0::detail::refuse("safetensors_entry_is_complete",
                                      "\"__metadata__\" is the format's own key; another tensor name would do");
        order.push_back(&t);
    }
    tenon::v0::detail::sort(order, [](tensor_view const* a, tensor_view const* b) { return a->name < b->name; });
    for (std::size_t i = 1; i < order.size(); ++i)
        if (order[i]->name == order[i - 1]->name)
            tenon::v0::detail::refuse("json_keys_are_unique",
                                      "tensor " + json::quoted(order[i]->name) + " is given twice; each name once would do");
    return order;
}

/// Length and header of a file with these tensors, in this order. Padded, so that the data begin at a multiple of 8 bytes.
inline std::string header_of(std::span<tensor_view const* const> order) {
    std::string text = "{";
    std::uint64_t at = 0;
    for (tensor_view const* const t : order) {
        std::uint64_t const end = at + t->data.size();
        if (text.size() > 1) text += ',';
        text += json_string(t->name) + ":{\"dtype\":\"" + std::string(name_of(t->type)) + "\",\"shape\":[";
        for (std::size_t i = 0; i < t->shape.size(); ++i) text.append(i == 0 ? "" : ",").append(std::to_string(t->shape[i]));
        text += "],\"data_offsets\":[" + std::to_string(at) + "," + std::to_string(end) + "]}";
        at = end;
    }
    text += "}";
    text.resize((text.size() + 7) / 8 * 8, ' ');
    if (text.size() > most_header_bytes)
        tenon::v0::detail::refuse("safetensors_header_fits", "the header takes " + std::to_string(text.size()) + " bytes; " +
                                                                 std::to_string(most_header_bytes) + " would do");
    std::string length(8, '\0');
    for (std::size_t i = 0; i < 8; ++i) length[i] = static_cast<char>(static_cast<unsigned char>(text.size() >> (8 * i)));
    return length + text;
}

inline std::string_view characters(std::span<std::byte const> bytes) noexcept {
    return bytes.empty() ? std::string_view() : std::string_view(reinterpret_cast<char const*>(bytes.data()), bytes.size());
}

}  // namespace detail

/// The bytes of a safetensors file: names sorted, data in the order of names, no metadata, header padded with spaces to 8.
/// The same tensors give the same bytes in whatever order they are given; an overflow of the reader's limits is refused here.
/// Refuses with `json_keys_are_unique`, `json_is_utf8`, `safetensors_size_matches_shape`, `safetensors_entry_is_complete` (a tensor
/// named __metadata__) or `safetensors_header_fits`.
inline std::string safetensors_bytes(std::span<tensor_view const> tensors) {
    std::vector<tensor_view const*> const order = detail::in_name_order(tensors);
    std::string result = detail::header_of(order);
    for (tensor_view const* const t : order) result += detail::characters(t->data);
    return result;
}

/// Writes such a file beside `path` and then puts it there, so that a file that is being read stays whole; holds no copy of the
/// data. Refuses as above and with `file_is_written`.
inline void write_safetensors(std::string const& path, std::span<tensor_view const> tensors) {
    std::vector<tensor_view const*> const order = detail::in_name_order(tensors);
    std::string const header = detail::header_of(order), partial = path + ".partial";
    int const file = ::open(partial.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    auto const fail = [&path, &partial, file](int error) {
        std::string const why = std::strerror(error);
        if (file >= 0) ::unlink(partial.c_str());
        tenon::v0::detail::refuse("file_is_written", path + ": " + why + "; a path that can be written, on a device with room, would do");
    };
    if (file < 0) fail(errno);
    auto const put = [file, &fail](std::string_view bytes) {
        while (!bytes.empty()) {
            ::ssize_t const written = ::write(file, bytes.data(), std::min<std::size_t>(bytes.size(), std::size_t{1} << 30U));
            if (written >= 0) {
                bytes.remove_prefix(static_cast<std::size_t>(written));
            } else if (int const error = errno; error != EINTR) {
                ::close(file);
                fail(error);
            }
        }
    };
    put(header);
    for (tensor_view const* const t : order) put(detail::characters(t->data));
    if (::close(file) != 0 || std::rename(partial.c_str(), path.c_str()) != 0) fail(errno);
}

}  // namespace tenon::inline v0::checkpoint
