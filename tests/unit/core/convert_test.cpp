// Exact widening over every 16-bit pattern, and rounding against the definition.
// SPDX-License-Identifier: Apache-2.0
#include <tenon/core/convert.hpp>

#include <doctest/doctest.h>
#include <array>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

using namespace tenon;

namespace {
std::uint32_t bits(float f) { return std::bit_cast<std::uint32_t>(f); }

// The value that IEEE 754 gives a half: sign * 2^(e - 25) * (1024 + f), or sign * 2^-24 * f.
double half_by_definition(unsigned pattern) {
    unsigned const exponent = (pattern >> 10U) & 31U, fraction = pattern & 1023U;
    double const size = exponent == 0 ? std::ldexp(fraction, -24) : std::ldexp(1024 + fraction, static_cast<int>(exponent) - 25);
    return (pattern & 0x8000U) != 0 ? -size : size;
}
}  // namespace

TEST_CASE("every 8-bit code widens to its value: 1-4-3, bias 7, no infinity, two NaN") {
    // The magnitudes in order: seven subnormals in steps of 2^-9, then eight numbers to every power of two, in steps of an eighth of it.
    double magnitude = 0, step = 0x1p-9;
    for (unsigned code = 0; code < 127; ++code) {
        CAPTURE(code);
        CHECK(bits(widen_f8_e4m3(static_cast<std::uint8_t>(code))) == bits(static_cast<float>(magnitude)));
        CHECK(bits(widen_f8_e4m3(static_cast<std::uint8_t>(code | 128U))) == bits(-static_cast<float>(magnitude)));
        if (code >= 16 && code % 8 == 0) step *= 2;
        magnitude += step;
    }
    CHECK(widen_f8_e4m3(126) == 448.0F);
    CHECK(widen_f8_e4m3(8) == 0x1p-6F);
    for (unsigned const code : {127U, 255U}) {
        CHECK(std::isnan(widen_f8_e4m3(static_cast<std::uint8_t>(code))));
        CHECK(std::signbit(widen_f8_e4m3(static_cast<std::uint8_t>(code))) == (code == 255));
    }
}

TEST_CASE("every half widens to its value, and comes back as it was") {
    int wrong = 0;
    for (unsigned pattern = 0; pattern < 65536; ++pattern) {
        float const wide = widen_f16(static_cast<std::uint16_t>(pattern));
        bool const special = ((pattern >> 10U) & 31U) == 31, nan = special && (pattern & 1023U) != 0;
        std::uint32_t const sign = (pattern & 0x8000U) << 16U;
        if (special)
            wrong += bits(wide) != (sign | 0x7F800000U | (pattern & 1023U) << 13U);
        else
            wrong += static_cast<double>(wide) != half_by_definition(pattern) || (bits(wide) >> 31U) != pattern >> 15U;
        wrong += narrow_f16(wide) != (nan ? pattern | 0x200U : pattern);
    }
    CHECK(wrong == 0);
    CHECK(bits(widen_f16(0x8000)) == 0x80000000U);
}

TEST_CASE("every bfloat16 widens to its bits, and comes back as it was") {
    int wrong = 0;
    for (unsigned pattern = 0; pattern < 65536; ++pattern) {
        bool const nan = (pattern & 0x7FFFU) > 0x7F80U;
        wrong += bits(widen_bf16(static_cast<std::uint16_t>(pattern))) != pattern << 16U;
        wrong += narrow_bf16(std::bit_cast<float>(pattern << 16U)) != (nan ? pattern | 0x40U : pattern);
    }
    CHECK(wrong == 0);
}

TEST_CASE("narrowing goes to the nearest, and a tie to the even pattern") {
    int wrong = 0;
    for (unsigned pattern = 0; pattern < 0x7BFFU; ++pattern) {  // every pair of neighbouring halves
        float const low = widen_f16(static_cast<std::uint16_t>(pattern)), high = widen_f16(static_cast<std::uint16_t>(pattern + 1));
        float const middle = low + (high - low) / 2;  // exact: float32 has 13 more bits
        unsigned const even = pattern + pattern % 2;
        wrong += narrow_f16(middle) != even || narrow_f16(-middle) != (even | 0x8000U);
        wrong += narrow_f16(std::nextafterf(middle, 0.0F)) != pattern || narrow_f16(std::nextafterf(middle, high)) != pattern + 1;
    }
    for (unsigned pattern = 0; pattern < 0x7F7FU; pattern += 3) {
        std::uint32_t const middle = pattern << 16U | 0x8000U;
        wrong += narrow_bf16(std::bit_cast<float>(middle)) != pattern + pattern % 2;
        wrong += narrow_bf16(std::bit_cast<float>(middle - 1)) != pattern || narrow_bf16(std::bit_cast<float>(middle + 1)) != pattern + 1;
    }
    CHECK(wrong == 0);
    CHECK(narrow_bf16(std::numeric_limits<float>::max()) == 0x7F80);
    CHECK(narrow_bf16(std::bit_cast<float>(0x7F800001U)) == 0x7FC0);  // a NaN whose payload is cut off stays NaN
    CHECK(narrow_f16(std::bit_cast<float>(0xFF800001U)) == 0xFE00);
    CHECK(narrow_f16(std::numeric_limits<float>::infinity()) == 0x7C00);
    CHECK(narrow_f16(-1e-30F) == 0x8000);
}

TEST_CASE("elements are read little-endian from any address") {
    std::array<std::byte, 9> const bytes{std::byte{0xAA}, std::byte{0x00}, std::byte{0xC0}, std::byte{0x80}, std::byte{0x3F},
                                         std::byte{0x00}, std::byte{0x00}, std::byte{0x80}, std::byte{0x3F}};
    std::array<float, 2> out{};
    widen_f16(out.data(), bytes.data() + 1, 1);
    CHECK(out[0] == -2.0F);
    widen_bf16(out.data(), bytes.data() + 1, 2);
    CHECK(out[0] == -2.0F);
    CHECK(out[1] == 1.0F);
    copy_f32(out.data(), bytes.data() + 5, 1);
    CHECK(out[0] == 1.0F);
    copy_f32(out.data(), bytes.data() + 1, 2);
    CHECK(bits(out[0]) == 0x3F80C000U);
}
