// CRC-32C of bytes that arrive piece by piece: tells damage from what was written, and is no proof against forgery. Usable in
// constant expressions.
// Source: Castagnoli, Braeuer, Herrmann 1993, "Optimization of cyclic redundancy-check codes"; eight bytes a step after
// Kounavis, Berry 2005, "A systematic approach to building high performance, software-based, CRC generators".
// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <tenon/core/convert.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <type_traits>

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

/// The remainder `rest` after more bytes.
constexpr std::uint32_t crc32c_by_table(std::uint32_t rest, std::span<std::byte const> bytes) {
    auto const& table = crc32c_tables<>;
    std::size_t i = 0;
    for (; bytes.size() - i >= 8; i += 8) {
        std::uint32_t const low = load_32(bytes.data() + i) ^ rest, high = load_32(bytes.data() + i + 4);
        rest = table[7][low & 255U] ^ table[6][low >> 8U & 255U] ^ table[5][low >> 16U & 255U] ^ table[4][low >> 24U] ^
               table[3][high & 255U] ^ table[2][high >> 8U & 255U] ^ table[1][high >> 16U & 255U] ^ table[0][high >> 24U];
    }
    for (; i < bytes.size(); ++i) rest = rest >> 8U ^ table[0][(rest ^ std::to_integer<std::uint32_t>(bytes[i])) & 255U];
    return rest;
}

#if defined(__x86_64__) && defined(__GNUC__) && !defined(__CUDACC__)
/// The same; needs SSE 4.2.
__attribute__((target("sse4.2"))) inline std::uint32_t crc32c_by_instruction(std::uint32_t rest, std::span<std::byte const> bytes) {
    std::size_t i = 0;
    for (; bytes.size() - i >= 8; i += 8) {
        std::uint64_t word = 0;
        std::memcpy(&word, bytes.data() + i, sizeof word);
        rest = static_cast<std::uint32_t>(__builtin_ia32_crc32di(rest, word));
    }
    for (; i < bytes.size(); ++i) rest = __builtin_ia32_crc32qi(rest, std::to_integer<unsigned char>(bytes[i]));
    return rest;
}
inline bool crc32c_is_an_instruction() { return __builtin_cpu_supports("sse4.2") != 0; }
#else
inline std::uint32_t crc32c_by_instruction(std::uint32_t rest, std::span<std::byte const> bytes) { return crc32c_by_table(rest, bytes); }
inline bool crc32c_is_an_instruction() { return false; }
#endif
}  // namespace detail

/// The checksum of what was added so far.
class crc32c {
public:
    constexpr crc32c& add(std::span<std::byte const> bytes) {
        bool fast = false;
        if (!std::is_constant_evaluated()) fast = detail::crc32c_is_an_instruction();
        rest_ = fast ? detail::crc32c_by_instruction(rest_, bytes) : detail::crc32c_by_table(rest_, bytes);
        return *this;
    }
    constexpr std::uint32_t value() const noexcept { return ~rest_; }

private:
    std::uint32_t rest_ = 0xFFFFFFFFU;
};

constexpr std::uint32_t crc32c_of(std::span<std::byte const> bytes) { return crc32c().add(bytes).value(); }

}  // namespace tenon::inline v0
