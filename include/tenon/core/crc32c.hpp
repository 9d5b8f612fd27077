// CRC-32C of bytes that arrive piece by piece: tells damage from what was written, and is no proof against forgery. Usable in
// constant expressions.
// Source: Castagnoli, Braeuer, Herrmann 1993, "Optimization of cyclic redundancy-check codes"; eight bytes a step after
// Kounavis, Berry 2005, "A systematic approach to building high performance, software-based, CRC generators".
// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

namespace tenon::inline v0 {

namespace detail {
/// Entry b of table n: the remainder of byte b followed by n zero bytes. Bits are reflected.
constexpr std::array<std::array<std::uint32_t, 256>, 8> make_crc32c_tables() {
    std::array<std::array<std::uint32_t, 256>, 8> tables{};
    for (std::uint32_t b = 0; b < 256; ++b) {
        std::uint32_t rest = b;
        for (int bit = 0; bit < 8; ++bit) rest = rest >> 1U ^ ((rest & 1U) != 0 ? 0x82F63B78U : 0U);
        tables[0][b] = rest;
    }
    for (std::size_t n = 1; n < tables.size(); ++n)
        for (std::size_t b = 0; b < 256; ++b) tables[n][b] = tables[n - 1][b] >> 8U ^ tables[0][tables[n - 1][b] & 255U];
    return tables;
}

template <class = void>
inline constexpr auto crc32c_tables = make_crc32c_tables();  // a template: computed for who uses it
}  // namespace detail

/// The checksum of what was added so far.
class crc32c {
public:
    constexpr crc32c& add(std::span<std::byte const> bytes) {
        auto const& table = detail::crc32c_tables<>;
        std::uint32_t rest = rest_;
        std::size_t i = 0;
        for (; bytes.size() - i >= 8; i += 8) {
            std::uint32_t next = 0;
            for (std::size_t n = 0; n < 8; ++n) {
                std::uint32_t const byte = std::to_integer<std::uint32_t>(bytes[i + n]) ^ (n < 4 ? rest >> 8 * n & 255U : 0U);
                next ^= table[7 - n][byte];
            }
            rest = next;
        }
        for (; i < bytes.size(); ++i) rest = rest >> 8U ^ table[0][(rest ^ std::to_integer<std::uint32_t>(bytes[i])) & 255U];
        rest_ = rest;
        return *this;
    }
    constexpr std::uint32_t value() const noexcept { return ~rest_; }

private:
    std::uint32_t rest_ = 0xFFFFFFFFU;
};

constexpr std::uint32_t crc32c_of(std::span<std::byte const> bytes) { return crc32c().add(bytes).value(); }

}  // namespace tenon::inline v0
