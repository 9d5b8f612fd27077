// The published checksums, at compile time and at run time, and pieces against the whole.
// SPDX-License-Identifier: Apache-2.0
#include <tenon/core/crc32c.hpp>

#include <doctest/doctest.h>
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

using tenon::crc32c;
using tenon::crc32c_of;

namespace {

template <std::size_t N, class Byte>
constexpr std::array<std::byte, N> made(Byte byte) {
    std::array<std::byte, N> bytes{};
    for (std::size_t i = 0; i < N; ++i) bytes[i] = static_cast<std::byte>(byte(i));
    return bytes;
}
constexpr std::uint32_t of(std::span<std::byte const> bytes) { return crc32c_of(bytes); }

// Source: RFC 3720, appendix B.4, read as little-endian numbers; the first line is the usual check value.
static_assert(of(made<9>([](std::size_t i) { return '1' + static_cast<int>(i); })) == 0xE3069283U);
static_assert(of(made<32>([](std::size_t) { return 0; })) == 0x8A9136AAU);
static_assert(of(made<32>([](std::size_t) { return 255; })) == 0x62A8AB43U);
static_assert(of(made<32>([](std::size_t i) { return i; })) == 0x46DD794EU);
static_assert(of(made<32>([](std::size_t i) { return 31 - i; })) == 0x113FDB5CU);
static_assert(of({}) == 0);

// One bit at a time, as the polynomial is defined.
std::uint32_t slow(std::span<std::byte const> bytes) {
    std::uint32_t rest = 0xFFFFFFFFU;
    for (std::byte const byte : bytes) {
        rest ^= std::to_integer<std::uint32_t>(byte);
        for (int bit = 0; bit < 8; ++bit) rest = (rest & 1U) != 0 ? rest >> 1U ^ 0x82F63B78U : rest >> 1U;
    }
    return ~rest;
}

}  // namespace

TEST_CASE("the read command of RFC 3720") {
    std::array<std::byte, 48> command{};
    int const bytes[][2]{{0, 0x01}, {1, 0xC0}, {16, 0x14}, {22, 0x04}, {27, 0x14}, {31, 0x18}, {32, 0x28}, {40, 0x02}};
    for (auto const& [at, value] : bytes) command[static_cast<std::size_t>(at)] = static_cast<std::byte>(value);
    CHECK(crc32c_of(command) == 0xD9963A56U);
}

TEST_CASE("every length and every cut gives what the definition gives") {
    std::vector<std::byte> bytes(100);
    for (std::size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<std::byte>(i * 151 + 7);
    for (std::size_t length = 0; length <= bytes.size(); ++length) {
        std::span<std::byte const> const whole = std::span(bytes).first(length);
        std::uint32_t const expected = slow(whole);
        CHECK(crc32c_of(whole) == expected);
        CHECK(~tenon::detail::crc32c_by_table(0xFFFFFFFFU, whole) == expected);
        if (tenon::detail::crc32c_is_an_instruction()) CHECK(~tenon::detail::crc32c_by_instruction(0xFFFFFFFFU, whole) == expected);
        for (std::size_t cut = 0; cut <= length; ++cut)
            if (crc32c().add(whole.first(cut)).add(whole.subspan(cut)).value() != expected) FAIL("length " << length << ", cut at " << cut);
    }
}
