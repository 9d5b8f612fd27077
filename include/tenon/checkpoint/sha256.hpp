// SHA-256 of bytes that arrive piece by piece: the receipt of a text. Usable in constant expressions; knows no files.
// Source: NIST FIPS 180-4, section 6.2.
// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace tenon::inline v0::checkpoint {

class sha256 {
    // The templates stand before their uses: clang 19 evaluates no member template whose body it has not read.

    /// One block of 64 bytes.
    template <class Byte>
    constexpr void mix(Byte const* block) {
        std::array<std::uint32_t, 64> w{};
        for (std::size_t t = 0; t < 16; ++t)
            for (std::size_t i = 0; i < 4; ++i) w[t] = w[t] << 8U | static_cast<unsigned char>(block[4 * t + i]);
        for (std::size_t t = 16; t < 64; ++t) {
            std::uint32_t const x = w[t - 15], y = w[t - 2];
            w[t] = w[t - 16] + w[t - 7] + (std::rotr(x, 7) ^ std::rotr(x, 18) ^ x >> 3U) + (std::rotr(y, 17) ^ std::rotr(y, 19) ^ y >> 10U);
        }
        auto [a, b, c, d, e, f, g, h] = state_;
        for (std::size_t t = 0; t < 64; ++t) {
            std::uint32_t const one =
                h + (std::rotr(e, 6) ^ std::rotr(e, 11) ^ std::rotr(e, 25)) + ((e & f) ^ (~e & g)) + constants[t] + w[t];
            std::uint32_t const two = (std::rotr(a, 2) ^ std::rotr(a, 13) ^ std::rotr(a, 22)) + ((a & b) ^ (a & c) ^ (b & c));
            h = g, g = f, f = e, e = d + one, d = c, c = b, b = a, a = one + two;
        }
        std::array<std::uint32_t, 8> const sums{a, b, c, d, e, f, g, h};
        for (std::size_t i = 0; i < sums.size(); ++i) state_[i] += sums[i];
    }

    /// Whole blocks are read where they lie.
    template <class Byte>
    constexpr sha256& take(Byte const* at, std::size_t size) {
        for (; size != 0 && (used_ != 0 || size < 64); --size) put(static_cast<unsigned char>(*at++));
        for (; size >= 64; size -= 64, at += 64, bytes_ += 64) mix(at);
        for (; size != 0; --size) put(static_cast<unsigned char>(*at++));
        return *this;
    }

public:
    constexpr sha256& add(std::string_view text) { return take(text.data(), text.size()); }
    constexpr sha256& add(std::span<std::byte const> bytes) { return take(bytes.data(), bytes.size()); }

    /// The digest of what was added so far, as 64 lower-case digits.
    constexpr std::array<char, 64> digits() const {
        sha256 last = *this;
        std::uint64_t const bits = 8 * bytes_;
        last.put(0x80);
        while (last.used_ != 56) last.put(0);
        for (int shift = 56; shift >= 0; shift -= 8) last.put(static_cast<unsigned char>(bits >> shift));
        std::array<char, 64> out{};
        for (std::size_t i = 0; i < out.size(); ++i) out[i] = "0123456789abcdef"[last.state_[i / 8] >> (28 - 4 * (i % 8)) & 15U];
        return out;
    }
    std::string hex() const {
        std::array<char, 64> const text = digits();
        return {text.data(), text.size()};
    }

private:
    constexpr void put(unsigned char byte) {
        block_[used_++] = byte;
        ++bytes_;
        if (used_ == block_.size()) {
            mix(block_.data());
            used_ = 0;
        }
    }

    static constexpr std::array<std::uint32_t, 64> constants{
        0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5, 0xd807aa98, 0x12835b01, 0x243185be,
        0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174, 0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa,
        0x5cb0a9dc, 0x76f988da, 0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967, 0x27b70a85,
        0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85, 0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3,
        0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070, 0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f,
        0x682e6ff3, 0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2};

    std::array<std::uint32_t, 8> state_{0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a, 0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
    std::array<unsigned char, 64> block_{};
    std::size_t used_ = 0;
    std::uint64_t bytes_ = 0;
};

/// The digest of a text: 64 lower-case digits.
template <class = void>
std::string sha256_of(std::string_view text) {
    return sha256().add(text).hex();
}

}  // namespace tenon::inline v0::checkpoint
