// A bundle as bytes: a versioned little-endian frame with two checksums, written and read by exact inverses. docs/wire-format.md has
// its table. Knows framing alone: whether a bundle is what a stage takes is contract.hpp's question.
// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <tenon/boundary/bundle.hpp>
#include <tenon/core/convert.hpp>
#include <tenon/core/crc32c.hpp>
#include <tenon/core/dtype.hpp>
#include <tenon/core/error.hpp>
#include <tenon/detail/deferred.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace tenon::inline v0::boundary {

inline constexpr std::uint32_t frame_version = 1;
inline constexpr std::size_t frame_preamble_bytes = 32;  ///< what tells the length of the whole
inline constexpr std::array<unsigned char, 8> frame_magic{0x89, 'T', 'E', 'N', 'O', 'N', '\r', '\n'};

/// The most that a reader takes, and a writer sends.
struct frame_limits {
    std::uint64_t bytes = std::uint64_t{1} << 30U;  ///< of the whole frame
    std::uint64_t rows = std::uint64_t{1} << 20U;   ///< that have positions
    std::uint64_t sequences = std::uint64_t{1} << 16U;
    std::uint64_t name_bytes = 255;  ///< of the adapter, the tensor and the profile, each
};

/// Bytes that are no frame, or a bundle that no frame carries.
class frame_error : public boundary_error {
    using boundary_error::boundary_error;
};

namespace detail {

// Where the fields of the head lie; names, row offsets and positions follow them.
inline constexpr std::size_t at_version = 8, at_head_bytes = 12, at_payload_bytes = 16, at_preamble_zero = 24, at_preamble_sum = 28;
inline constexpr std::size_t at_schema = 32, at_next_layer = 36, at_streams = 40, at_normalized = 44, at_order = 45, at_rank = 46,
                             at_zero = 47, at_dtype = 48, at_extents = 56, at_name_bytes = 88, at_offset_count = 100,
                             at_position_count = 104, fixed_head_bytes = 112;
inline constexpr std::size_t dtype_bytes = 8, frame_sum_bytes = 4;

constexpr std::uint64_t load_64(std::byte const* from) noexcept {
    return tenon::v0::detail::load_32(from) | std::uint64_t{tenon::v0::detail::load_32(from + 4)} << 32U;
}
template <class Integer>
constexpr void store(std::byte* to, Integer value) noexcept {
    for (std::size_t i = 0; i < sizeof(Integer); ++i) to[i] = static_cast<std::byte>(static_cast<std::uint64_t>(value) >> 8 * i & 255U);
}

/// The numbers of a frame's head, as a writer has them or a reader found them.
struct frame_counts {
    std::uint64_t head = 0, payload = 0;       ///< bytes before the payload; of the payload
    std::array<std::uint64_t, 3> names{};      ///< bytes of adapter, tensor and profile
    std::uint64_t offsets = 0, positions = 0;  ///< how many there are
    std::uint64_t rank = 0, order = 0, normalized = 0;
    std::array<std::int64_t, most_extents> extents{};
};

/// What reader and writer refuse alike, so that neither does what the other does not.
template <class = void>
struct frame_laws {
    [[noreturn]] static void refuse(std::string_view law, std::string const& seen, std::string const& remedy) {
        tenon::v0::detail::raise(frame_error(law, seen + "; " + remedy + " would do"));
    }
    static void at_most(std::string_view law, std::string_view what, std::uint64_t seen, std::uint64_t most) {
        if (seen > most) refuse(law, std::string(what) + " is " + std::to_string(seen), "at most " + std::to_string(most));
    }

    /// Bytes of the whole frame.
    static std::uint64_t length(std::uint64_t head, std::uint64_t payload, frame_limits const& limits) {
        std::uint64_t const around = head + frame_sum_bytes;  // far below 2^64: the head has 32 bits
        if (around > limits.bytes || payload > limits.bytes - around)
            refuse("frame_length_fits",
                   "the frame is " + std::to_string(head) + " bytes, a payload of " + std::to_string(payload) + " and a checksum",
                   "at most " + std::to_string(limits.bytes) + " bytes in all");
        return around + payload;
    }

    static void check(frame_counts const& n, dtype element, frame_limits const& limits) {
        constexpr std::string_view names[]{"the adapter's length", "the tensor name's length", "the profile's length"};
        for (std::size_t i = 0; i < n.names.size(); ++i) at_most("frame_names_fit", names[i], n.names[i], limits.name_bytes);
        at_most("frame_sequences_fit", "the number of sequences", n.offsets == 0 ? 0 : n.offsets - 1, limits.sequences);
        at_most("frame_rows_fit", "the number of positions", n.positions, limits.rows);
        at_most("frame_rank_fits", "the rank", n.rank, most_extents);
        for (std::size_t i = static_cast<std::size_t>(n.rank); i < n.extents.size(); ++i)
            if (n.extents[i] != 0)
                refuse(
                    "frame_reserved_is_zero",
                    "extent " + std::to_string(i) + " of a shape of rank " + std::to_string(n.rank) + " is " + std::to_string(n.extents[i]),
                    "0");
        if (n.order != 1 && n.order != 2)
            refuse("frame_byte_order_is_known", "the byte order is " + std::to_string(n.order), "1 (little) or 2 (big)");
        if (n.normalized > 1) refuse("frame_flag_is_known", "normalized is " + std::to_string(n.normalized), "0 or 1");
        auto const width = static_cast<std::uint64_t>(bytes_of(element));
        if (n.payload % width != 0)
            refuse("frame_payload_is_whole_elements",
                   "the payload is " + std::to_string(n.payload) + " bytes of " + std::string(name_of(element)),
                   "a multiple of " + std::to_string(width));
    }

    static void check_name(std::string_view name) {
        for (std::size_t i = 0; i < name.size(); ++i)
            if (name[i] < ' ' || name[i] > '~')
                refuse("frame_names_are_plain",
                       "byte " + std::to_string(i) + " of a name is " + std::to_string(static_cast<unsigned char>(name[i])), "32 to 126");
    }
};

/// Bytes of a head, which ends at a multiple of 8. `n` has kept its laws, so that nothing here is near 2^64.
constexpr std::uint64_t head_bytes_of(frame_counts const& n) noexcept {
    std::uint64_t const names = n.names[0] + n.names[1] + n.names[2];
    return fixed_head_bytes + (names + 7) / 8 * 8 + 8 * (n.offsets + n.positions);
}

}  // namespace detail

/// Bytes of the whole frame that begins with these, of which the first 32 are read: how much a reader of a stream waits for.
/// Nothing is believed before the preamble's own checksum holds. Refuses with `frame_preamble_is_whole`, `frame_magic_is_known`,
/// `frame_version_is_known`, `frame_preamble_is_intact`, `frame_reserved_is_zero`, `frame_head_fits` and `frame_length_fits`.
template <class Lazy = void>
std::uint64_t frame_length(std::span<std::byte const> first, frame_limits const& limits = {}) {
    using laws = detail::frame_laws<Lazy>;
    auto const load_32 = [first](std::size_t at) { return tenon::v0::detail::load_32(first.data() + at); };
    if (first.size() < frame_preamble_bytes)
        laws::refuse("frame_preamble_is_whole", "there are " + std::to_string(first.size()) + " bytes",
                     std::to_string(frame_preamble_bytes) + " or more");
    for (std::size_t i = 0; i < frame_magic.size(); ++i)
        if (std::to_integer<unsigned char>(first[i]) != frame_magic[i])
            laws::refuse("frame_magic_is_known", "byte " + std::to_string(i) + " is " + std::to_string(std::to_integer<int>(first[i])),
                         std::to_string(frame_magic[i]));
    if (std::uint32_t const seen = load_32(detail::at_version); seen != frame_version)
        laws::refuse("frame_version_is_known", "the frame's version is " + std::to_string(seen), std::to_string(frame_version));
    std::uint32_t const sum = crc32c_of(first.first(detail::at_preamble_sum));
    if (std::uint32_t const seen = load_32(detail::at_preamble_sum); seen != sum)
        laws::refuse("frame_preamble_is_intact", "the preamble's checksum is " + std::to_string(seen), std::to_string(sum));
    if (std::uint32_t const seen = load_32(detail::at_preamble_zero); seen != 0)
        laws::refuse("frame_reserved_is_zero", "bytes 24 to 27 are " + std::to_string(seen), "0");
    std::uint32_t const head = load_32(detail::at_head_bytes);
    if (head < detail::fixed_head_bytes || head % 8 != 0)
        laws::refuse("frame_head_fits", "the head is " + std::to_string(head) + " bytes",
                     "a multiple of 8 from " + std::to_string(detail::fixed_head_bytes) + " on");
    return laws::length(head, detail::load_64(first.data() + detail::at_payload_bytes), limits);
}

template <class = void>
struct basic_frame_parts;
using frame_parts = basic_frame_parts<>;  // lazy: instantiated by who uses it

/// A frame in three pieces, for a writer that gathers: the payload is the bundle's own bytes, where they lie.
template <class Lazy>
struct basic_frame_parts {
    tenon::v0::detail::deferred<Lazy, std::vector<std::byte>> head{};
    std::span<std::byte const> payload{};
    std::array<std::byte, detail::frame_sum_bytes> checksum{};  ///< of head and payload
};

/// The pieces of a bundle's frame; the residual stays in the byte order that it has. Any bundle that a frame can carry is written,
/// whether a stage would take it or not. Refuses with `frame_dtype_is_known`, `frame_names_fit`, `frame_sequences_fit`,
/// `frame_rows_fit`, `frame_rank_fits`, `frame_reserved_is_zero`, `frame_byte_order_is_known`, `frame_payload_is_whole_elements`,
/// `frame_names_are_plain` and `frame_length_fits`.
template <class Lazy = void>
frame_parts pack_parts(bundle_view const& b, frame_limits const& limits = {}) {
    using laws = detail::frame_laws<Lazy>;
    using detail::store;
    std::string_view const names[]{b.adapter, b.tensor, b.profile};
    detail::frame_counts n{.payload = b.residual.size(),
                           .names = {b.adapter.size(), b.tensor.size(), b.profile.size()},
                           .offsets = b.row_offsets.size(),
                           .positions = b.positions.size(),
                           .rank = static_cast<std::uint64_t>(b.shape.rank),
                           .order = static_cast<std::uint64_t>(b.order),
                           .normalized = b.normalized,
                           .extents = b.shape.extents};
    if (static_cast<std::size_t>(b.element) >= dtype_table.size())
        laws::refuse("frame_dtype_is_known", "the dtype is number " + std::to_string(static_cast<int>(b.element)), "one of dtype's");
    laws::check(n, b.element, limits);
    for (std::string_view const name : names) laws::check_name(name);
    n.head = detail::head_bytes_of(n);
    laws::at_most("frame_length_fits", "the head's size in bytes", n.head, (std::numeric_limits<std::uint32_t>::max)());
    laws::length(n.head, n.payload, limits);

    frame_parts parts{};
    parts.head.resize(static_cast<std::size_t>(n.head));
    parts.payload = b.residual;
    std::byte* const head = parts.head.data();
    std::memcpy(head, frame_magic.data(), frame_magic.size());
    store(head + detail::at_version, frame_version);
    store(head + detail::at_head_bytes, static_cast<std::uint32_t>(n.head));
    store(head + detail::at_payload_bytes, n.payload);
    store(head + detail::at_preamble_sum, crc32c_of({head, detail::at_preamble_sum}));
    store(head + detail::at_schema, static_cast<std::uint32_t>(b.schema));
    store(head + detail::at_next_layer, static_cast<std::uint32_t>(b.next_layer));
    store(head + detail::at_streams, static_cast<std::uint32_t>(b.streams));
    store(head + detail::at_normalized, static_cast<std::uint8_t>(n.normalized));
    store(head + detail::at_order, static_cast<std::uint8_t>(n.order));
    store(head + detail::at_rank, static_cast<std::uint8_t>(n.rank));
    std::memcpy(head + detail::at_dtype, name_of(b.element).data(), name_of(b.element).size());
    for (std::size_t i = 0; i < n.extents.size(); ++i) store(head + detail::at_extents + 8 * i, n.extents[i]);
    for (std::size_t i = 0; i < n.names.size(); ++i) store(head + detail::at_name_bytes + 4 * i, static_cast<std::uint32_t>(n.names[i]));
    store(head + detail::at_offset_count, static_cast<std::uint32_t>(n.offsets));
    store(head + detail::at_position_count, n.positions);
    std::byte* to = head + detail::fixed_head_bytes;
    for (std::string_view const name : names) {
        if (!name.empty()) std::memcpy(to, name.data(), name.size());
        to += name.size();
    }
    to = head + n.head - 8 * (n.offsets + n.positions);
    for (std::span<std::int64_t const> const numbers : {b.row_offsets, b.positions})
        for (std::int64_t const number : numbers) {
            store(to, number);
            to += 8;
        }
    store(parts.checksum.data(), crc32c().add(parts.head).add(parts.payload).value());
    return parts;
}

/// A bundle's frame, whole. Refuses as `pack_parts` does.
template <class = void>
std::vector<std::byte> pack(bundle_view const& b, frame_limits const& limits = {}) {
    frame_parts parts = pack_parts(b, limits);
    std::vector<std::byte> frame = std::move(parts.head);
    frame.reserve(frame.size() + parts.payload.size() + parts.checksum.size());
    frame.insert(frame.end(), parts.payload.begin(), parts.payload.end());
    frame.insert(frame.end(), parts.checksum.begin(), parts.checksum.end());
    return frame;
}

namespace detail {

template <class Lazy = void>
dtype dtype_in(std::span<std::byte const> frame) {
    std::array<char, dtype_bytes> text{};
    std::memcpy(text.data(), frame.data() + at_dtype, text.size());
    std::string_view name(text.data(), text.size());
    while (!name.empty() && name.back() == '\0') name.remove_suffix(1);
    for (std::size_t i = 0; i < dtype_table.size(); ++i)
        if (dtype_table[i].name == name) return static_cast<dtype>(i);
    frame_laws<Lazy>::refuse("frame_dtype_is_known", "the dtype is " + shown(name), "a name of safetensors such as F32, zeros after it,");
}

/// What stands in the head of a frame whose checksum holds.
constexpr frame_counts counts_in(std::span<std::byte const> frame) {
    auto const load_32 = [frame](std::size_t at) { return tenon::v0::detail::load_32(frame.data() + at); };
    auto const byte = [frame](std::size_t at) { return std::to_integer<std::uint64_t>(frame[at]); };
    frame_counts n{.head = load_32(at_head_bytes),
                   .payload = load_64(frame.data() + at_payload_bytes),
                   .offsets = load_32(at_offset_count),
                   .positions = load_64(frame.data() + at_position_count),
                   .rank = byte(at_rank),
                   .order = byte(at_order),
                   .normalized = byte(at_normalized)};
    for (std::size_t i = 0; i < n.names.size(); ++i) n.names[i] = load_32(at_name_bytes + 4 * i);
    for (std::size_t i = 0; i < n.extents.size(); ++i) n.extents[i] = static_cast<std::int64_t>(load_64(frame.data() + at_extents + 8 * i));
    return n;
}

/// Elements of `width` bytes from one byte order to the other.
inline void reverse_elements(std::span<std::byte> bytes, std::size_t width) {
    for (std::size_t at = 0; at + width <= bytes.size(); at += width)
        for (std::size_t i = 0; i < width / 2; ++i) {
            std::byte const low = bytes[at + i];
            bytes[at + i] = bytes[at + width - 1 - i];
            bytes[at + width - 1 - i] = low;
        }
}

template <class = void>
void load_numbers(std::vector<std::int64_t>& into, std::byte const* from, std::uint64_t count) {
    into.resize(static_cast<std::size_t>(count));
    for (std::int64_t& number : into) {
        number = static_cast<std::int64_t>(load_64(from));
        from += 8;
    }
}

}  // namespace detail

/// The bundle of a frame, in this machine's byte order; memory that `into` has is used again. Nothing is allocated before every length
/// has been held against the bytes that are there, and a refused frame leaves `into` as it was. Refuses as `frame_length` does, and with
/// `frame_is_whole`, `frame_checksum_holds`, `frame_dtype_is_known`, `frame_names_fit`, `frame_sequences_fit`, `frame_rows_fit`,
/// `frame_rank_fits`, `frame_reserved_is_zero`, `frame_byte_order_is_known`, `frame_flag_is_known`, `frame_payload_is_whole_elements`,
/// `frame_head_is_whole` and `frame_names_are_plain`.
template <class Lazy = void>
void unpack_into(bundle& into, std::span<std::byte const> frame, frame_limits const& limits = {}) {
    using laws = detail::frame_laws<Lazy>;
    std::uint64_t const length = frame_length(frame, limits);
    if (frame.size() != length)
        laws::refuse("frame_is_whole", "there are " + std::to_string(frame.size()) + " bytes of the frame", std::to_string(length));
    std::span<std::byte const> const body = frame.first(frame.size() - detail::frame_sum_bytes);
    std::uint32_t const sum = crc32c_of(body);
    if (std::uint32_t const seen = tenon::v0::detail::load_32(body.data() + body.size()); seen != sum)
        laws::refuse("frame_checksum_holds", "the checksum is " + std::to_string(seen), std::to_string(sum));

    detail::frame_counts const n = detail::counts_in(frame);
    dtype const element = detail::dtype_in(frame);
    laws::check(n, element, limits);
    // The division first: with a caller's own limits, 8 bytes a position could pass 2^64.
    std::uint64_t const wanted = n.positions <= n.head / 8 ? detail::head_bytes_of(n) : 0;
    if (n.head != wanted)
        laws::refuse("frame_head_is_whole",
                     "the head is " + std::to_string(n.head) + " bytes for names of " +
                         std::to_string(n.names[0] + n.names[1] + n.names[2]) + " bytes, " + std::to_string(n.offsets) +
                         " row offsets and " + std::to_string(n.positions) + " positions",
                     wanted == 0 ? "fewer positions" : std::to_string(wanted));
    std::size_t const numbers = static_cast<std::size_t>(n.head - 8 * (n.offsets + n.positions));
    std::array<std::string_view, 3> names{};
    std::size_t at = detail::fixed_head_bytes;
    for (std::size_t i = 0; i < names.size(); ++i) {
        auto const size = static_cast<std::size_t>(n.names[i]);
        names[i] = {reinterpret_cast<char const*>(frame.data()) + at, size};
        laws::check_name(names[i]);
        at += size;
    }
    auto const require_zero = [frame](std::size_t place) {
        if (frame[place] != std::byte{0})
            laws::refuse("frame_reserved_is_zero",
                         "byte " + std::to_string(place) + " is " + std::to_string(std::to_integer<int>(frame[place])), "0");
    };
    require_zero(detail::at_zero);
    for (; at < numbers; ++at) require_zero(at);

    auto const integer = [frame](std::size_t place) { return static_cast<int>(tenon::v0::detail::load_32(frame.data() + place)); };
    into.adapter = names[0];
    into.schema = integer(detail::at_schema);
    into.tensor = names[1];
    into.normalized = n.normalized != 0;
    into.next_layer = integer(detail::at_next_layer);
    into.profile = names[2];
    into.shape = {static_cast<int>(n.rank), n.extents};
    into.element = element;
    into.streams = integer(detail::at_streams);
    detail::load_numbers(into.row_offsets, frame.data() + numbers, n.offsets);
    detail::load_numbers(into.positions, frame.data() + numbers + 8 * n.offsets, n.positions);
    auto const payload = static_cast<std::size_t>(n.payload);
    bool const floats = element == dtype::f32;
    into.residual.resize(floats ? payload / sizeof(float) : 0);
    into.encoded.resize(floats ? 0 : payload);
    std::span<std::byte> const to = floats ? std::as_writable_bytes(std::span<float>(into.residual)) : std::span<std::byte>(into.encoded);
    if (payload != 0) std::memcpy(to.data(), frame.data() + n.head, payload);
    if (static_cast<byte_order>(n.order) != native_order) detail::reverse_elements(to, static_cast<std::size_t>(bytes_of(element)));
}

/// The bundle of a frame; refuses as above.
template <class = void>
bundle unpack(std::span<std::byte const> frame, frame_limits const& limits = {}) {
    bundle b;
    unpack_into(b, frame, limits);
    return b;
}

}  // namespace tenon::inline v0::boundary
