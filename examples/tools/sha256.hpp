// SHA-256 of bytes that arrive piece by piece. Usable in constant expressions, where its test vectors are checked.
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

namespace tools {

class sha256 {
public:
    constexpr void add(unsigned char byte) {
        block_[used_++] = byte;
        if (used_ == block_.size()) {
            mix(block_.data());
            used_ = 0;
        }
        ++bytes_;
    }
    constexpr void add(std::string_view text) {
        for (char const c : text) add(static_cast<unsigned char>(c));
    }
    /// The bytes as they lie in memory; whole blocks are read in place.
    void add(std::span<std::byte const> data) {
        auto const* at = reinterpret_cast<unsigned char const*>(data.data());
        auto const* const end = at + data.size();
        while (at != end && used_ != 0) add(*at++);
        for (; end - at >= 64; at += 64, bytes_ += 64) mix(at);
        while (at != end) add(*at++);
    }

    /// The digest of what was added so far, as 64 lower-case digits.
    constexpr std::array<char, 64> digits() const {
        sha256 last = *this;
        std::uint64_t const bits = 8 * bytes_;
        last.add(static_cast<unsigned char>(0x80));
        while (last.used_ != 56) last.add(static_cast<unsigned char>(0));
        for (int shift = 56; shift >= 0; shift -= 8) last.add(static_cast<unsigned char>(bits >> shift));
        std::array<char, 64> out{};
        for (std::size_t i = 0; i < out.size(); ++i) out[i] = "0123456789abcdef"[last.state_[i / 8] >> (28 - 4 * (i % 8)) & 15U];
        return out;
    }
    std::string hex() const {
        std::array<char, 64> const text = digits();
        return {text.data(), text.size()};
    }

private:
    constexpr void mix(unsigned char const* block) {
        std::array<std::uint32_t, 64> w{};
        for (std::size_t t = 0; t < 16; ++t)
            for (std::size_t i = 0; i < 4; ++i) w[t] = w[t] << 8U | block[4 * t + i];
        for (std::size_t t = 16; t < 64; ++t) {
            std::uint32_t const x = w[t - 15], y = w[t - 2];
            w[t] = w[t - 16] + w[t - 7] + (std::rotr(x, 7) ^ std::rotr(x, 18) ^ x >> 3U) + (std::rotr(y, 17) ^ std::rotr(y, 19) ^ y >> 10U);
        }
        auto [a, b, c, d, e, f, g, h] = state_;
        for (std::size_t t = 0; t < 64; ++t) {
            std::uint32_t const one = h + (std::rotr(e, 6) ^ std::rotr(e, 11) ^ std::rotr(e, 25)) + ((e & f) ^ (~e & g)) + constants[t] + w[t];
            std::uint32_t const two = (std::rotr(a, 2) ^ std::rotr(a, 13) ^ std::rotr(a, 22)) + ((a & b) ^ (a & c) ^ (b & c));
            h = g, g = f, f = e, e = d + one, d = c, c = b, b = a, a = one + two;
        }
        std::array<std::uint32_t, 8> const sums{a, b, c, d, e, f, g, h};
        for (std::size_t i = 0; i < sums.size(); ++i) state_[i] += sums[i];
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

namespace detail {
constexpr bool digest_is(std::string_view text, std::string_view digest) {
    sha256 s;
    s.add(text);
    std::array<char, 64> const digits = s.digits();
    return std::string_view(digits.data(), digits.size()) == digest;
}
}  // namespace detail
// The examples that NIST publishes for the standard: none, one and two blocks.
static_assert(detail::digest_is("", "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"));
static_assert(detail::digest_is("abc", "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"));
static_assert(detail::digest_is("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq",
                                "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1"));

}  // namespace tools
