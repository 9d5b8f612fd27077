// A safetensors file as named views of its bytes, after every rule of the format has been checked. Loads and converts nothing.
// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <tenon/checkpoint/json.hpp>
#include <tenon/checkpoint/mapped_file.hpp>
#include <tenon/core/dtype.hpp>
#include <tenon/core/error.hpp>
#include <tenon/detail/deferred.hpp>
#include <tenon/detail/sort.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace tenon::inline v0::checkpoint {

/// One tensor of a file: little-endian, row-major, without strides, aligned to nothing (read it through memcpy).
struct tensor_view {
    std::string name{};  ///< arbitrary UTF-8; never a path
    dtype type = dtype::f32;
    std::vector<std::int64_t> shape{};  ///< empty: a scalar, one element; an extent may be 0
    std::span<std::byte const> data{};  ///< product(shape) * bytes_of(type) bytes
};

inline constexpr std::uint64_t most_header_bytes = 100'000'000;

/// "[2, 3]"
template <class = void>
std::string show(std::span<std::int64_t const> shape) {
    std::string text = "[";
    for (std::size_t i = 0; i < shape.size(); ++i) text.append(i == 0 ? "" : ", ").append(std::to_string(shape[i]));
    return text + "]";
}

/// A tensor of that name in a list sorted by name, or nullptr.
template <class Lazy = void>
tensor_view const* find(tenon::v0::detail::deferred<Lazy, std::span<tensor_view const>> sorted, std::string_view name) noexcept {
    auto const at =
        std::lower_bound(sorted.begin(), sorted.end(), name, [](tensor_view const& t, std::string_view n) { return t.name.compare(n) < 0; });
    return at != sorted.end() && at->name == name ? &*at : nullptr;
}

namespace detail {

/// `a * b` into `a`; false, and `a` is kept, if it would not fit. Counts from the left: 2^62 * 4 * 0 does not fit, 0 * 2^62 * 4 does.
constexpr bool multiply(std::uint64_t& a, std::uint64_t b) noexcept {
    if (b != 0 && a > (std::numeric_limits<std::uint64_t>::max)() / b) return false;
    a *= b;
    return true;
}

/// Bytes of a tensor; false if the number does not fit 64 bits or an extent is negative.
constexpr bool count_bytes(std::span<std::int64_t const> shape, dtype type, std::uint64_t& bytes) noexcept {
    bytes = 1;
    for (std::int64_t const extent : shape)
        if (extent < 0 || !multiply(bytes, static_cast<std::uint64_t>(extent))) return false;
    return multiply(bytes, static_cast<std::uint64_t>(bytes_of(type)));
}

template <class = void>
class basic_header_reader;
using header_reader = basic_header_reader<>;  // lazy: instantiated by who uses it

/// Reads the entries of one header; `what` names the file in messages.
template <class Lazy>
class basic_header_reader {
    template <class T>
    using deferred = tenon::v0::detail::deferred<Lazy, T>;

public:
    basic_header_reader(std::span<std::byte const> bytes, std::string_view what) : bytes_(bytes), what_(what) {}

    std::vector<tensor_view> read() {
        json::value const header = json::parse(header_text(), std::string(what_) + ", header");
        std::size_t const close = text_.find_last_not_of(' ');
        if (text_[close] != '}') refuse("safetensors_header_is_object", "only spaces may follow the header's object");
        deferred<std::vector<tensor_view>> tensors;
        tensors.reserve(header.children.size());
        for (json::value const& entry : header.children)
            if (entry.key == "__metadata__")
                check_metadata(entry);
            else
                tensors.push_back(read_entry(entry));
        check_layout(tensors);
        tenon::v0::detail::sort(tensors, [](tensor_view const& a, tensor_view const& b) { return a.name < b.name; });
        return tensors;
    }

private:
    [[noreturn]] void refuse(std::string_view law, std::string_view why) const {
        tenon::v0::detail::refuse(law, std::string(what_) + ": " + std::string(why));
    }
    [[noreturn]] void refuse(std::string_view law, std::string_view tensor, std::string_view why) const {
        refuse(law, "tensor " + json::quoted(tensor) + ": " + std::string(why));
    }

    std::string_view header_text() {
        std::uint64_t const size = bytes_.size();
        if (size < 8)
            refuse("safetensors_header_fits", "the file has " + std::to_string(size) + " bytes; its header's length alone takes 8");
        std::uint64_t length = 0;
        for (std::size_t i = 8; i-- > 0;) length = length << 8U | std::to_integer<std::uint64_t>(bytes_[i]);
        if (length > most_header_bytes || length > size - 8)
            refuse("safetensors_header_fits", "the header claims " + std::to_string(length) + " bytes; at most " +
                                                  std::to_string((std::min)(most_header_bytes, size - 8)) + " would do in a file of " +
                                                  std::to_string(size));
        if (length == 0 || std::to_integer<char>(bytes_[8]) != '{')
            refuse("safetensors_header_is_object", length == 0 ? "the header is empty; it begins with {, and {} would do for no tensors"
                                                               : "the header does not begin with {");
        text_ = {reinterpret_cast<char const*>(bytes_.data()) + 8, static_cast<std::size_t>(length)};
        data_ = bytes_.subspan(8 + static_cast<std::size_t>(length));
        return text_;
    }

    void check_metadata(json::value const& metadata) const {
        if (!metadata.is(json::kind::object))
            refuse("safetensors_metadata_is_strings", "__metadata__ is " + json::show(metadata) + "; an object of strings would do");
        for (json::value const& child : metadata.children)
            if (!child.is(json::kind::string))
                refuse("safetensors_metadata_is_strings",
                       "__metadata__ " + json::quoted(child.key) + " is " + json::show(child) + "; a string would do");
    }

    tensor_view read_entry(json::value const& entry) const {
        json::value const* const type = entry.find("dtype");
        json::value const* const shape = entry.find("shape");
        json::value const* const offsets = entry.find("data_offsets");
        if (type == nullptr || shape == nullptr || offsets == nullptr || entry.children.size() != 3)
            refuse("safetensors_entry_is_complete", entry.key,
                   "has " + keys_of(entry) + "; exactly dtype, shape and data_offsets would do");
        deferred<tensor_view> result;
        result.name = entry.key;
        result.type = read_type(entry.key, *type);
        if (!shape->is(json::kind::array))
            refuse("safetensors_shape_is_counts", entry.key, "shape is " + json::show(*shape) + "; an array of counts would do");
        result.shape.reserve(shape->children.size());
        for (json::value const& extent : shape->children)
            result.shape.push_back(count("safetensors_shape_is_counts", entry.key, "extent", extent));
        read_data(result, *offsets);
        return result;
    }

    static std::string keys_of(json::value const& entry) {
        if (!entry.is(json::kind::object)) return json::show(entry) + " as its entry";
        if (entry.children.empty()) return "no keys";
        std::string text;
        for (std::size_t i = 0; i < entry.children.size() && i < 6; ++i)
            text.append(i == 0 ? "" : ", ").append(json::quoted(entry.children[i].key));
        return text + (entry.children.size() > 6 ? ", ..." : "");
    }

    dtype read_type(std::string_view tensor, json::value const& type) const {
        std::string list;
        for (std::size_t i = 0; i < dtype_table.size(); ++i) {
            if (type.is(json::kind::string) && type.text == dtype_table[i].name) return static_cast<dtype>(i);
            list += (i == 0 ? "" : i + 1 == dtype_table.size() ? " or " : ", ") + std::string(dtype_table[i].name);
        }
        // Newer than this reader: some of them pack several elements into a byte, so that their size is not even known here.
        bool newer = false;
        for (std::string_view const name : {"F4", "F6_E2M3", "F6_E3M2", "F8_E8M0", "F8_E4M3FNUZ", "F8_E5M2FNUZ", "C64"})
            newer = newer || (type.is(json::kind::string) && type.text == name);
        refuse("safetensors_dtype_is_known", tensor,
               "dtype " + json::show(type) + (newer ? " is known, not supported; " : " is unknown; ") + list + " would do");
    }

    std::int64_t count(std::string_view law, std::string_view tensor, std::string_view noun, json::value const& number) const {
        auto const result = number.as_int64();
        if (!result || *result < 0)
            refuse(law, tensor,
                   std::string(noun) + " " + json::show(number) + " is not a count; a whole number from 0 to 2^63 - 1 would do");
        return *result;
    }

    // Leaves `data` a range inside the data section or refuses.
    void read_data(tensor_view& tensor, json::value const& offsets) const {
        if (!offsets.is(json::kind::array) || offsets.children.size() != 2)
            refuse("safetensors_offsets_are_counts", tensor.name,
                   "data_offsets is " + json::show(offsets) +
                       (offsets.is(json::kind::array) ? " of " + std::to_string(offsets.children.size()) : std::string()) +
                       "; an array of begin and end would do");
        auto const begin = static_cast<std::uint64_t>(count("safetensors_offsets_are_counts", tensor.name, "offset", offsets.children[0]));
        auto const end = static_cast<std::uint64_t>(count("safetensors_offsets_are_counts", tensor.name, "offset", offsets.children[1]));
        std::string const range = "[" + std::to_string(begin) + ", " + std::to_string(end) + ")";
        if (begin > end) refuse("safetensors_offsets_ascend", tensor.name, "data_offsets " + range + " end before they begin");
        std::uint64_t bytes = 0;
        if (!count_bytes(tensor.shape, tensor.type, bytes))
            refuse("safetensors_size_matches_shape", tensor.name,
                   "shape " + show(tensor.shape) + " of " + std::string(name_of(tensor.type)) + " takes more bytes than 64 bits can count");
        if (bytes != end - begin)
            refuse("safetensors_size_matches_shape", tensor.name,
                   "shape " + show(tensor.shape) + " of " + std::string(name_of(tensor.type)) + " takes " + std::to_string(bytes) +
                       " bytes, data_offsets " + range + " span " + std::to_string(end - begin));
        if (end > data_.size())
            refuse("safetensors_ends_with_data", tensor.name,
                   "data_offsets " + range + " end beyond the file's " + std::to_string(data_.size()) + " bytes of data; " +
                       std::to_string(end - data_.size()) + " bytes are missing, as in a download that was cut short");
        tensor.data = data_.subspan(static_cast<std::size_t>(begin), static_cast<std::size_t>(end - begin));
    }

    // The ranges, in order, cover the data section once: neither hole nor overlap nor rest.
    void check_layout(deferred<std::span<tensor_view const>> tensors) const {
        deferred<std::vector<tensor_view const*>> order;
        order.reserve(tensors.size());
        for (tensor_view const& t : tensors) order.push_back(&t);
        auto const begin_of = [this](tensor_view const& t) { return static_cast<std::size_t>(t.data.data() - data_.data()); };
        auto const less = [&begin_of](tensor_view const* a, tensor_view const* b) {
            std::size_t const x = begin_of(*a), y = begin_of(*b);
            return x != y ? x < y : a->data.size() != b->data.size() ? a->data.size() < b->data.size() : a->name < b->name;
        };
        tenon::v0::detail::sort(order, less);
        std::size_t next = 0;
        tensor_view const* previous = nullptr;
        for (tensor_view const* const t : order) {
            std::size_t const begin = begin_of(*t);
            std::string const numbers =
                begin == next ? "" : "begins at byte " + std::to_string(begin) + " of the data; " + std::to_string(next);
            if (begin > next)
                refuse("safetensors_has_no_hole", t->name,
                       numbers + " would do, where " + (previous ? json::quoted(previous->name) + " ends" : "the data begin"));
            if (begin < next) {
                bool const aliased = previous->data.size() == t->data.size() && begin_of(*previous) == begin;
                refuse("safetensors_does_not_overlap", t->name,
                       numbers + " would do, where " + json::quoted(previous->name) + " ends" +
                           (aliased ? "; both have the same bytes, but tied tensors are declared in the config (tie_word_embeddings) and "
                                      "stored once"
                                    : ""));
            }
            next += t->data.size();
            previous = t;
        }
        if (next != data_.size())
            refuse("safetensors_ends_with_data", "the tensors end at byte " + std::to_string(next) + " of the data, the file has " +
                                                     std::to_string(data_.size()) + "; " + std::to_string(data_.size() - next) +
                                                     " bytes belong to no tensor");
    }

    std::span<std::byte const> bytes_, data_{};
    std::string_view what_, text_{};
};

}  // namespace detail

/// The tensors of a file's bytes, sorted by name. `what` names the file in messages.
/// Refuses with the laws of `json.hpp` and: `safetensors_header_fits`, `safetensors_header_is_object`,
/// `safetensors_metadata_is_strings`, `safetensors_entry_is_complete`, `safetensors_dtype_is_known`, `safetensors_shape_is_counts`,
/// `safetensors_offsets_are_counts`, `safetensors_offsets_ascend`, `safetensors_size_matches_shape`, `safetensors_has_no_hole`,
/// `safetensors_does_not_overlap`, `safetensors_ends_with_data`.
template <class = void>
std::vector<tensor_view> read_safetensors(std::span<std::byte const> bytes, std::string_view what) {
    return detail::header_reader(bytes, what).read();
}

template <class = void>
class basic_safetensors_file;
using safetensors_file = basic_safetensors_file<>;  // lazy: instantiated by who uses it

/// A mapped file and the views into it. Move-only; views stay valid while it or what it was moved to lives.
template <class Lazy>
class basic_safetensors_file {
public:
    explicit basic_safetensors_file(mapped_file file) : file_(std::move(file)), tensors_(read_safetensors(file_.bytes(), file_.path())) {}
    explicit basic_safetensors_file(std::string path) : basic_safetensors_file(mapped_file(std::move(path))) {}

    mapped_file const& file() const noexcept { return file_; }
    std::string const& path() const noexcept { return file_.path(); }
    std::span<tensor_view const> tensors() const noexcept { return tensors_; }  ///< sorted by name
    tensor_view const* find(std::string_view name) const noexcept { return checkpoint::find(tensors_, name); }

private:
    mapped_file file_;
    tenon::v0::detail::deferred<Lazy, std::vector<tensor_view>> tensors_;
};

}  // namespace tenon::inline v0::checkpoint
