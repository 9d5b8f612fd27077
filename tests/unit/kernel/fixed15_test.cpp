// Exact products of fifteen-bit integers against vectors of another implementation, to the bit: exponents, codes and products, edges among
// them.
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
std::vector<float> product(std::vector<float> const& x, std::vector<float> const& w, int m, int n, int k) {
    std::vector<std::int16_t> a(static_cast<std::size_t>(k)), b(a);
    std::vector<float> y;
    for (int i = 0; i < m; ++i)
        for (int j = 0; j < n; ++j) {
            int const e = fixed15::quantize(a.data(), x.data() + i * k, k) + fixed15::quantize(b.data(), w.data() + j * k, k);
            y.push_back(fixed15::finished(fixed15::sum_of_products(a.data(), b.data(), k), e));
        }
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

TEST_CASE("Largest codes of the longest row do not overflow, and a longer one is refused") {
    std::vector<float> const x(fixed15::most_columns, -16383.0f), w(fixed15::most_columns, 16383.0f);
    CHECK(product(x, w, 1, 1, fixed15::most_columns)[0] == -16383.0f * 16383.0f * 65536.0f);
    CHECK_NOTHROW(fixed15::require_exact(65536));
    CHECK_THROWS_WITH_AS(fixed15::require_exact(65537), doctest::Contains("product_is_exact"), tenon::refusal);
}

TEST_CASE("A code stands for a float exactly, the smallest and the largest too") {
    std::vector<float> const w{1.0f, -0.5f, 0.25f, 3.0f, -3.0f};
    std::int16_t codes[5];
    int const e = fixed15::quantize(codes, w.data(), 5);
    for (int k = 0; k < 5; ++k) CHECK(fixed15::value_of(codes[k], e) == w[static_cast<std::size_t>(k)]);
    CHECK(fixed15::value_of(8192, -139) == std::numeric_limits<float>::min());
    CHECK(fixed15::value_of(-3, -139) == -3 * 0x1p-139f);
    CHECK(fixed15::value_of(16383, 114) == 16383 * 0x1p114f);
    CHECK(fixed15::value_of(-16383, 115) == -std::numeric_limits<float>::infinity());
}
