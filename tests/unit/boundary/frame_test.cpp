// Frames: vectors that another encoder made, exact inverses, and every damage refused by name before it could hurt.
// SPDX-License-Identifier: Apache-2.0
#include "support.hpp"

#include <tenon/boundary/contract.hpp>
#include <tenon/boundary/frame.hpp>
#include <tenon/checkpoint/json.hpp>
#include <tenon/model/registry.hpp>

#include <doctest/doctest.h>
#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>
#include <limits>
#include <span>
#include <sstream>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

using namespace tenon::boundary;
using boundary_test::law_of;
using boundary_test::ragged;
using boundary_test::refusal_of;
namespace json = tenon::checkpoint::json;
using bytes = std::vector<std::byte>;

namespace {

constexpr std::uint64_t most = std::numeric_limits<std::uint64_t>::max();
constexpr frame_limits unlimited{most, most, most, most};

std::string text_of(std::string const& path) {
    std::ifstream file(path, std::ios::binary);
    REQUIRE_MESSAGE(file, path);
    return {std::istreambuf_iterator<char>(file), {}};
}

bytes from_hex(std::string_view digits) {
    bytes result;
    for (std::size_t i = 0; i + 2 <= digits.size(); i += 2)
        result.push_back(static_cast<std::byte>(std::stoi(std::string(digits.substr(i, 2)), nullptr, 16)));
    return result;
}

json::value const& vectors() {
    static json::value const all = json::parse(text_of(TENON_TEST_DATA "/wire/vectors.json"), "vectors.json");
    return all;
}

std::string_view string_in(json::value const& v, std::string_view key) { return v.find(key)->text; }
std::int64_t number_in(json::value const& v, std::string_view key) { return v.find(key)->as_int64().value(); }
std::vector<std::int64_t> numbers_in(json::value const& v, std::string_view key) {
    std::vector<std::int64_t> result;
    for (json::value const& child : v.find(key)->children) result.push_back(child.as_int64().value());
    return result;
}

bytes frame_named(std::string_view name) {
    for (json::value const& v : vectors().children)
        if (string_in(v, "name") == name) return from_hex(string_in(v, "frame"));
    FAIL("no vector " << name);
    return {};
}

/// The bundle that a vector holds, in this machine's order.
bundle bundle_in(json::value const& v) {
    bundle b{.adapter = std::string(string_in(v, "adapter")),
             .schema = static_cast<int>(number_in(v, "schema")),
             .tensor = std::string(string_in(v, "tensor")),
             .normalized = number_in(v, "normalized") != 0,
             .next_layer = static_cast<int>(number_in(v, "next_layer")),
             .profile = std::string(string_in(v, "profile")),
             .streams = static_cast<int>(number_in(v, "streams")),
             .row_offsets = numbers_in(v, "row_offsets"),
             .positions = numbers_in(v, "positions")};
    for (std::int64_t const extent : numbers_in(v, "shape")) b.shape.extents[static_cast<std::size_t>(b.shape.rank++)] = extent;
    bool const floats = string_in(v, "dtype") == "F32";
    if (!floats) b.element = tenon::dtype::bf16;
    for (std::int64_t const number : numbers_in(v, "bits")) {
        if (floats) {
            b.residual.push_back(std::bit_cast<float>(static_cast<std::uint32_t>(number)));
            continue;
        }
        auto const half = static_cast<std::uint16_t>(number);
        std::byte const* const raw = reinterpret_cast<std::byte const*>(&half);
        b.encoded.insert(b.encoded.end(), raw, raw + 2);
    }
    return b;
}

/// A bundle whose residual is in the other byte order, as a machine of that order would send it.
bundle_view swapped(bundle const& b, bytes& storage) {
    bundle_view v = b;
    storage.assign(v.residual.begin(), v.residual.end());
    auto const width = static_cast<std::ptrdiff_t>(tenon::bytes_of(b.element));
    for (auto at = storage.begin(); at != storage.end(); at += width) std::reverse(at, at + width);
    v.order = native_order == byte_order::little ? byte_order::big : byte_order::little;
    v.residual = storage;
    return v;
}

void put(bytes& frame, std::size_t at, std::uint64_t value, std::size_t size) {
    for (std::size_t i = 0; i < size; ++i) frame[at + i] = static_cast<std::byte>(value >> 8 * i & 255U);
}
/// Gives a damaged frame checksums that hold.
bytes sealed(bytes frame) {
    put(frame, 28, tenon::crc32c_of(std::span(frame).first(28)), 4);
    put(frame, frame.size() - 4, tenon::crc32c_of(std::span(frame).first(frame.size() - 4)), 4);
    return frame;
}
bytes changed(bytes frame, std::size_t at, std::uint64_t value, std::size_t size) {
    put(frame, at, value, size);
    return sealed(std::move(frame));
}

}  // namespace

TEST_CASE("the vectors unpack to what their maker says, or are refused for the reason it gives") {
    CHECK(vectors().children.size() > 80);
    for (json::value const& v : vectors().children) {
        CAPTURE(string_in(v, "name"));
        bytes const frame = from_hex(string_in(v, "frame"));
        std::string_view const law = string_in(v, "unpack");
        if (!law.empty()) {
            CHECK(law_of([&frame] { (void)unpack(frame); }) == law);
            CHECK_THROWS_AS(unpack(frame), frame_error);
            continue;
        }
        bundle const expected = bundle_in(*v.find("bundle")), read = unpack(frame);
        CHECK(read == expected);
        CHECK(frame_length(frame) == frame.size());
        bytes storage;
        bool const native = (string_in(*v.find("bundle"), "order") == "little") == (native_order == byte_order::little);
        CHECK(pack(native ? bundle_view(read) : swapped(read, storage)) == frame);

        json::value const& c = *v.find("contract");
        contract const taken{.adapter = tenon::model::adapter_of(string_in(c, "adapter")).id,
                             .first_layer = static_cast<int>(number_in(c, "first_layer")),
                             .hidden = number_in(c, "hidden"),
                             .streams = static_cast<int>(number_in(c, "streams")),
                             .max_positions = number_in(c, "max_positions")};
        CHECK(find_fault(read, taken).law == string_in(v, "check"));
    }
}

TEST_CASE("the page's example is the vector of that name") {
    std::istringstream page(text_of(TENON_TEST_DATA "/../../docs/wire-format.md"));
    std::string digits;
    for (std::string line; std::getline(page, line);)
        if (line.size() > 54 && line.substr(0, 2) == "00" && line.substr(4, 2) == "  ")
            for (char const c : line.substr(6, 47))
                if (c != ' ') digits += c;
    CHECK(from_hex(digits) == frame_named("one_row_little"));
}

TEST_CASE("pack and unpack are inverses over shapes, streams, dtypes and byte orders") {
    std::uint64_t random = 1;
    auto const next = [&random](std::uint64_t end) {
        random = random * 6364136223846793005U + 1442695040888963407U;
        return (random >> 33U) % end;
    };
    for (int round = 0; round < 300; ++round) {
        bundle b{.adapter = std::string(next(20), 'a'),
                 .schema = static_cast<int>(next(1U << 31U)) - (1 << 30),
                 .tensor = std::string(next(20), 't'),
                 .normalized = next(2) != 0,
                 .next_layer = static_cast<int>(next(300)) - 5,
                 .profile = std::string(next(20), 'p'),
                 .streams = static_cast<int>(next(5))};
        b.shape.rank = static_cast<int>(next(5));
        for (int i = 0; i < b.shape.rank; ++i) b.shape.extents[static_cast<std::size_t>(i)] = static_cast<std::int64_t>(next(most) - next(most));
        for (std::uint64_t i = next(6); i > 0; --i) b.row_offsets.push_back(static_cast<std::int64_t>(next(100)) - 50);
        for (std::uint64_t i = next(9); i > 0; --i) b.positions.push_back(static_cast<std::int64_t>(next(1U << 30U) << 33U));
        b.element = static_cast<tenon::dtype>(next(tenon::dtype_table.size()));
        std::size_t const elements = next(40);
        if (b.element == tenon::dtype::f32)
            for (std::size_t i = 0; i < elements; ++i) b.residual.push_back(std::bit_cast<float>(static_cast<std::uint32_t>(next(1U << 31U) << 1U)));
        else
            for (std::size_t i = 0; i < elements * static_cast<std::size_t>(tenon::bytes_of(b.element)); ++i)
                b.encoded.push_back(static_cast<std::byte>(next(256)));
        bytes const frame = pack(b);
        bundle const again = unpack(frame);
        CHECK(again == b);
        CHECK(pack(again) == frame);
        bytes storage;
        CHECK(unpack(pack(swapped(b, storage))) == b);
    }
}

TEST_CASE("every flipped bit of a frame is refused") {
    for (std::string_view const name : {"one_row_little", "one_row_big"}) {
        bytes const whole = frame_named(name);
        for (std::size_t bit = 0; bit < 8 * whole.size(); ++bit) {
            bytes frame = whole;
            frame[bit / 8] ^= static_cast<std::byte>(1U << bit % 8);
            std::string const law = law_of([&frame] { (void)unpack(frame, unlimited); });
            std::string_view const expected = bit < 64    ? "frame_magic_is_known"
                                              : bit < 96  ? "frame_version_is_known"
                                              : bit < 256 ? "frame_preamble_is_intact"
                                                          : "frame_checksum_holds";
            if (law != expected) FAIL(name << ", bit " << bit << ": " << law);
        }
    }
}

TEST_CASE("every truncation and every addition is refused, and only whole preambles tell a length") {
    bytes const whole = pack(ragged());
    for (std::size_t size = 0; size < whole.size(); ++size) {
        bytes const part(whole.begin(), whole.begin() + static_cast<std::ptrdiff_t>(size));  // its own memory: a sanitizer sees a step beyond
        bool const preamble = size >= frame_preamble_bytes;
        std::string const law = law_of([&part] { (void)unpack(part); });
        if (law != (preamble ? "frame_is_whole" : "frame_preamble_is_whole")) FAIL(size << " bytes: " << law);
        if (preamble) CHECK(frame_length(part) == whole.size());
    }
    bytes longer = whole;
    longer.push_back(std::byte{0});
    CHECK(law_of([&longer] { (void)unpack(longer); }) == "frame_is_whole");
    CHECK(frame_length(longer) == whole.size());
}

TEST_CASE("a refusal says what was seen and what would do") {
    bytes const whole = frame_named("one_row_little");
    auto const refused = [](bytes const& frame, frame_limits const& limits = {}) {
        return refusal_of([&] { (void)unpack(frame, limits); });
    };
    CHECK(refused(bytes(7)) == "frame_preamble_is_whole: there are 7 bytes; 32 or more would do");
    CHECK(refused(bytes(32)) == "frame_magic_is_known: byte 0 is 0; 137 would do");
    CHECK(refused(changed(whole, 8, 2, 4)) == "frame_version_is_known: the frame's version is 2; 1 would do");
    CHECK(refused(changed(whole, 12, 100, 4)) == "frame_head_fits: the head is 100 bytes; a multiple of 8 from 112 on would do");
    CHECK(refused(changed(whole, 16, 1U << 30U, 8)) ==
          "frame_length_fits: the frame is 168 bytes, a payload of 1073741824 and a checksum; at most 1073741824 bytes in all would do");
    CHECK(refused(changed(whole, 16, 20, 8)) == "frame_is_whole: there are 188 bytes of the frame; 192 would do");
    CHECK(refused(changed(whole, 48, 0x0A4646, 8)) ==
          "frame_dtype_is_known: the dtype is FF?; a name of safetensors such as F32, zeros after it, would do");
    CHECK(refused(changed(whole, 46, 5, 1)) == "frame_rank_fits: the rank is 5; at most 4 would do");
    CHECK(refused(changed(whole, 46, 1, 1)) == "frame_reserved_is_zero: extent 1 of a shape of rank 1 is 4; 0 would do");
    CHECK(refused(changed(whole, 45, 0, 1)) == "frame_byte_order_is_known: the byte order is 0; 1 (little) or 2 (big) would do");
    CHECK(refused(changed(whole, 44, 255, 1)) == "frame_flag_is_known: normalized is 255; 0 or 1 would do");
    CHECK(refused(changed(whole, 104, 2, 8)) ==
          "frame_head_is_whole: the head is 168 bytes for names of 31 bytes, 2 row offsets and 2 positions; 176 would do");
    CHECK(refused(changed(whole, 113, 7, 1)) == "frame_names_are_plain: byte 1 of a name is 7; 32 to 126 would do");
    CHECK(refused(changed(whole, 143, 7, 1)) == "frame_reserved_is_zero: byte 143 is 7; 0 would do");
    CHECK(refused(changed(whole, 47, 1, 1)) == "frame_reserved_is_zero: byte 47 is 1; 0 would do");
    CHECK(refused(changed(whole, 48, 0x343646, 8)) == "nothing is refused");  // 16 bytes are two F64
    CHECK(refused(whole, {.bytes = 187}) == "frame_length_fits: the frame is 168 bytes, a payload of 16 and a checksum; at most 187 bytes in all would do");
}

TEST_CASE("limits bind reader and writer alike, to the number") {
    bundle const b = ragged();
    bytes const whole = pack(b);
    auto const refused = [&](frame_limits const& limits) {
        std::string const reader = law_of([&] { (void)unpack(whole, limits); }), writer = law_of([&] { (void)pack(b, limits); });
        CHECK(reader == writer);
        return reader;
    };
    CHECK(refused({.bytes = whole.size(), .rows = 6, .sequences = 3, .name_bytes = 15}) == "nothing is refused");
    CHECK(refused({.bytes = whole.size() - 1}) == "frame_length_fits");
    CHECK(refused({.bytes = 0}) == "frame_length_fits");
    CHECK(refused({.rows = 5}) == "frame_rows_fit");
    CHECK(refused({.sequences = 2}) == "frame_sequences_fit");
    CHECK(refused({.name_bytes = 14}) == "frame_names_fit");
    CHECK(refused(unlimited) == "nothing is refused");
}

TEST_CASE("what a frame claims is neither allocated nor read, whatever the limits") {
    bytes const whole = frame_named("one_row_little");
    struct claim {
        std::size_t at, size;
    };
    // Head and payload lengths, the lengths of names, the numbers of offsets and positions, extents.
    for (claim const c : {claim{12, 4}, {16, 8}, {88, 4}, {92, 4}, {96, 4}, {100, 4}, {104, 8}})
        for (unsigned bit = 3; bit < 8 * c.size; ++bit)
            for (std::uint64_t const low : {0U, 1U, 2U, 8U, 168U}) {
                bytes const frame = changed(whole, c.at, (std::uint64_t{1} << bit) + low, c.size);
                std::string const text = refusal_of([&frame] { (void)unpack(frame, unlimited); });
                if (frame != whole && text.substr(0, 6) != "frame_") FAIL("field at " << c.at << ", bit " << bit << ": " << text);
            }
    // 2^61 positions are 2^64 bytes: a sum that wraps would find the head it expects.
    CHECK(law_of([&whole] { (void)unpack(changed(whole, 104, (std::uint64_t{1} << 61U) + 1, 8), unlimited); }) == "frame_head_is_whole");
    CHECK(law_of([&whole] { (void)unpack(changed(whole, 16, most - 168, 8), unlimited); }) == "frame_length_fits");
    // An extent allocates nothing: the contract holds it against the bytes.
    bundle const read = unpack(changed(whole, 56, std::uint64_t{1} << 62U, 8));
    CHECK(read.shape.extents[0] == std::int64_t{1} << 62U);
    CHECK(law_of([&read] { check(read, boundary_test::stage); }) == "bundle_row_offsets_cover_the_rows");
}

TEST_CASE("every other value of every byte of the head is read or refused, never misread") {
    bytes const whole = frame_named("one_row_little");
    bundle const original = unpack(whole);
    for (std::size_t at = 0; at < 168; ++at)
        for (unsigned value = 0; value < 256; ++value) {
            bytes const frame = changed(whole, at, value, 1);
            try {
                bundle const b = unpack(frame);
                bytes storage;
                bool const foreign = frame[45] != static_cast<std::byte>(native_order);
                if (pack(foreign ? swapped(b, storage) : bundle_view(b)) != frame) FAIL("byte " << at << " as " << value);
                if (frame != whole && b == original) FAIL("byte " << at << " as " << value << " is the same bundle");
            } catch (frame_error const&) {}
        }
}

TEST_CASE("a writer refuses what no frame carries") {
    auto const refused = [](auto&& change) {
        bundle b = ragged();
        change(b);
        return law_of([&b] { (void)pack(b); });
    };
    CHECK(refused([](bundle& b) { b.shape.rank = 5; }) == "frame_rank_fits");
    CHECK(refused([](bundle& b) { b.shape.rank = -1; }) == "frame_rank_fits");
    CHECK(refused([](bundle& b) { b.shape.extents[2] = 1; }) == "frame_reserved_is_zero");
    CHECK(refused([](bundle& b) { b.adapter = "llam\xC3\xA4"; }) == "frame_names_are_plain");
    CHECK(refused([](bundle& b) { b.tensor = std::string(256, 'x'); }) == "frame_names_fit");
    CHECK(refused([](bundle& b) { b.element = static_cast<tenon::dtype>(15); }) == "frame_dtype_is_known");
    CHECK(refused([](bundle& b) {
              b.element = tenon::dtype::bf16;
              b.encoded.resize(3);
          }) == "frame_payload_is_whole_elements");
    CHECK(law_of([] { (void)pack({.order = static_cast<byte_order>(3)}); }) == "frame_byte_order_is_known");
}

TEST_CASE("the parts of a frame are the frame, over the caller's own floats") {
    bundle const source = ragged();
    bundle_view const b = bundle_for(boundary_test::stage, source.row_offsets, source.positions, source.residual);
    frame_parts const parts = pack_parts(b);
    CHECK(parts.payload.data() == reinterpret_cast<std::byte const*>(source.residual.data()));
    bytes joined = parts.head;
    joined.insert(joined.end(), parts.payload.begin(), parts.payload.end());
    joined.insert(joined.end(), parts.checksum.begin(), parts.checksum.end());
    CHECK(joined == pack(b));
    CHECK(parts.head.size() % 8 == 0);
    CHECK(unpack(joined) == source);
}

TEST_CASE("unpacking again uses the memory that is there, and a refusal leaves it alone") {
    bytes const whole = pack(ragged());
    bundle b;
    unpack_into(b, whole);
    float const* const memory = b.residual.data();
    unpack_into(b, frame_named("one_row_big"));
    CHECK(b.residual.size() == 4);
    CHECK(b.residual.data() == memory);
    unpack_into(b, frame_named("bf16_big"));
    CHECK(b.residual.empty());
    CHECK(b.encoded.size() == 8);
    unpack_into(b, whole);
    CHECK(b == ragged());
    CHECK(b.encoded.empty());
    for (std::string_view const name : {"magic_other", "checksum", "rank_5", "name_with_zero", "padding"}) {
        CHECK_THROWS_AS(unpack_into(b, frame_named(name)), frame_error);
        CHECK(b == ragged());
    }
}

TEST_CASE("a frame may lie at any address") {
    bytes const whole = frame_named("ragged_big");
    for (std::size_t shift = 0; shift < 8; ++shift) {
        bytes room(shift);
        room.insert(room.end(), whole.begin(), whole.end());
        CHECK(unpack(std::span<std::byte const>(room).subspan(shift)) == unpack(whole));
    }
}

TEST_CASE("frames of a stream are read one after the other by their lengths") {
    bytes stream;
    std::vector<std::string_view> const names{"one_row_little", "ragged_big", "no_rows", "four_streams_big"};
    for (std::string_view const name : names) {
        bytes const frame = frame_named(name);
        stream.insert(stream.end(), frame.begin(), frame.end());
    }
    std::span<std::byte const> rest(stream);
    for (std::string_view const name : names) {
        auto const length = static_cast<std::size_t>(frame_length(rest.first(frame_preamble_bytes)));
        CHECK(unpack(rest.first(length)) == unpack(frame_named(name)));
        rest = rest.subspan(length);
    }
    CHECK(rest.empty());
}
