// Exact products of fifteen-bit integers against vectors of another implementation, to the bit: exponents, codes and products, edges among
// them; and against sums in 64 bits for every shape, cut by outputs.
// SPDX-License-Identifier: Apache-2.0
#include <doctest/doctest.h>
#include <tenon/kernel/fixed15.hpp>

#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <fstream>
#include <iterator>
#include <limits>
#include <random>
#include <stdexcept>
#include <string>
#include <vector>

namespace fixed15 = tenon::kernel::fixed15;

namespace {

/// The numbers of a version 1.0 .npy file whose element type is spelled so.
template <class T>
std::vector<T> read_npy(std::string const& name, std::string const& type) {
    std::string const path = std::string(TENON_TEST_DATA) + "/golden/fixed15/" + name + ".npy";
    std::ifstream file(path, std::ios::binary);
    std::string const all((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
    if (all.size() < 10) throw std::runtime_error(path);
    std::size_t const begin = 10 + static_cast<unsigned char>(all[8]) + 256U * static_cast<unsigned char>(all[9]);
    if (all.substr(0, begin).find("'" + type + "'") == std::string::npos) throw std::runtime_error(path + " does not hold " + type);
    std::vector<T> numbers((all.size() - begin) / sizeof(T));
    std::memcpy(numbers.data(), all.data() + begin, numbers.size() * sizeof(T));
    return numbers;
}

std::uint32_t bits_of(float x) { return x != x ? 0x7fc00000U : std::bit_cast<std::uint32_t>(x); }

/// y = x w^T.  x (m, k), w (n, k)
std::vector<float> product(std::vector<float> const& x, std::vector<float> const& w, int m, int n, int k, int panels_from = 0) {
    std::vector<std::uint64_t> memory(fixed15::packed_bytes(n, k) / 8);
    auto* const packed = reinterpret_cast<std::byte*>(memory.data());
    for (int row = 0; row < n; ++row) fixed15::pack_row(packed, row, k, w.data() + row * k);
    std::vector<std::uint32_t> prepared(static_cast<std::size_t>(m) * fixed15::prepared_words(k));
    fixed15::prepare(prepared.data(), x.data(), k, k, 0, m);
    std::vector<float> y(static_cast<std::size_t>(m * n), -7.0f);
    int const panels = (n + fixed15::outputs - 1) / fixed15::outputs;
    fixed15::multiply(y.data(), n, packed, n, k, prepared.data(), m, panels_from, panels - panels_from, fixed15::add_pairs);
    return y;
}

struct vectors {
    char const* name;
    int m, n, k;
};
constexpr vectors cases[]{{"plain", 5, 7, 96}, {"k1", 3, 2, 1}, {"long_k", 2, 3, 4097}, {"edges", 10, 6, 40}};

}  // namespace

TEST_CASE("Exponents, codes and products are those of another implementation, to the bit") {
    for (vectors const& c : cases) {
        std::string const name = c.name;
        CAPTURE(name);
        for (std::string const side : {"a", "b"}) {
            CAPTURE(side);
            std::vector<float> const x = read_npy<float>(name + "_" + side, "<f4");
            auto const hi = read_npy<std::int8_t>(name + "_" + side + "_hi", "|i1"), lo = read_npy<std::int8_t>(name + "_" + side + "_lo", "|i1");
            auto const exponents = read_npy<std::int32_t>(name + "_" + side + "_exp", "<i4");
            int const rows = side == "a" ? c.m : c.n;
            REQUIRE(x.size() == static_cast<std::size_t>(rows * c.k));
            std::vector<std::int16_t> codes(static_cast<std::size_t>(c.k));
            for (int r = 0; r < rows; ++r) {
                CHECK(fixed15::quantize(codes.data(), x.data() + r * c.k, c.k) == exponents[static_cast<std::size_t>(r)]);
                bool same = true;
                for (int k = 0; k < c.k; ++k) {
                    auto const at = static_cast<std::size_t>(r * c.k + k);
                    same = same && codes[static_cast<std::size_t>(k)] == 128 * hi[at] + lo[at];
                }
                CHECK(same);
            }
        }
        std::vector<float> const y = product(read_npy<float>(name + "_a", "<f4"), read_npy<float>(name + "_b", "<f4"), c.m, c.n, c.k);
        std::vector<float> const expected = read_npy<float>(name + "_c", "<f4");
        REQUIRE(y.size() == expected.size());
        for (std::size_t i = 0; i < y.size(); ++i) {
            CAPTURE(i);
            CHECK(bits_of(y[i]) == bits_of(expected[i]));
        }
    }
}

TEST_CASE("Products of every shape are the sums in 64 bits, whatever panels a call has") {
    std::mt19937 random(15);
    std::normal_distribution<float> number(0.0f, 3.0f);
    for (int const k : {1, 2, 31, 64, 1023, 1024, 1025, 2050, 4099})
        for (int const n : {1, 31, 32, 33, 70}) {
            int const m = 3;
            std::vector<float> x(static_cast<std::size_t>(m * k)), w(static_cast<std::size_t>(n * k));
            for (float& v : x) v = number(random);
            for (float& v : w) v = std::ldexp(number(random), static_cast<int>(random() % 40) - 20);
            x[0] = x[x.size() - 1] = 1e30f;  // one large number leaves small codes to the others
            std::vector<float> const y = product(x, w, m, n, k), tail = n > 32 ? product(x, w, m, n, k, 1) : y;
            std::vector<std::int16_t> a(static_cast<std::size_t>(k)), b(a);
            for (int i = 0; i < m; ++i)
                for (int j = 0; j < n; ++j) {
                    int const e = fixed15::quantize(a.data(), x.data() + i * k, k) + fixed15::quantize(b.data(), w.data() + j * k, k);
                    float const expected = fixed15::finished(fixed15::sum_of_products(a.data(), b.data(), k), e);
                    auto const at = static_cast<std::size_t>(i * n + j);
                    REQUIRE(bits_of(y[at]) == bits_of(expected));
                    REQUIRE(bits_of(tail[at]) == bits_of(n > 32 && j < 32 ? -7.0f : expected));
                }
        }
}

TEST_CASE("Largest codes of the longest row do not overflow, and a longer one is refused") {
    std::vector<float> const x(fixed15::most_columns, -16383.0f), w(fixed15::most_columns, 16383.0f);
    CHECK(product(x, w, 1, 1, fixed15::most_columns)[0] == -16383.0f * 16383.0f * 65536.0f);
    CHECK_NOTHROW(fixed15::require_exact(65536));
    CHECK_THROWS_WITH_AS(fixed15::require_exact(65537), doctest::Contains("product_is_exact"), tenon::refusal);
}

TEST_CASE("A row is given back as it is held") {
    std::vector<float> const w{1.0f, -0.5f, 0.25f, 3.0f, -3.0f};
    std::vector<std::uint64_t> memory(fixed15::packed_bytes(33, 5) / 8);
    auto* const packed = reinterpret_cast<std::byte*>(memory.data());
    fixed15::pack_row(packed, 32, 5, w.data());
    std::int16_t codes[5];
    int const e = fixed15::unpack_row(codes, packed, 32, 5);
    for (int k = 0; k < 5; ++k) CHECK(std::ldexp(static_cast<float>(codes[k]), e) == w[static_cast<std::size_t>(k)]);
}
