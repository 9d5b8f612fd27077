// Rotary position embedding: its tables against libm, its rotation against the law written out.
// SPDX-License-Identifier: Apache-2.0
#include "reference.hpp"

#include <doctest/doctest.h>

using namespace reference;
using tenon::kernel::rope_frequencies;

namespace {
double frequency(tenon::rope const& law, int head_dim, int j) {
    double const inv = std::pow(law.theta, -2.0 * j / head_dim);
    if (law.scaling == tenon::rope_scaling::linear) return inv / law.factor;
    if (law.scaling == tenon::rope_scaling::llama3) {
        double const original = law.original_positions, wavelength = 2 * std::acos(-1.0) / inv;
        if (wavelength < original / law.high_freq_factor) return inv;
        if (wavelength > original / law.low_freq_factor) return inv / law.factor;
        double const s = (original / wavelength - law.low_freq_factor) / (law.high_freq_factor - law.low_freq_factor);
        return (1 - s) * inv / law.factor + s * inv;
    }
    return inv;
}
}  // namespace

TEST_CASE("tables are within the rounding of libm's, up to a million positions and under every scaling") {
    tenon::rope const laws[]{{},
                             {500000.0, tenon::rope_scaling::none, 1, 1, 4, 0},
                             {10000.0, tenon::rope_scaling::linear, 4.0, 1, 4, 0},
                             {500000.0, tenon::rope_scaling::llama3, 8.0, 1.0, 4.0, 8192},
                             {500000.0, tenon::rope_scaling::llama3, 32.0, 1.0, 4.0, 8192}};
    for (tenon::rope const& law : laws)
        for (int head_dim : {2, 8, 64, 96, 128, 256}) {
            rope_frequencies const f(law, head_dim);
            floats c(at(head_dim / 2)), s(c.size());
            double worst = 0;
            for (std::int64_t position : {0, 1, 17, 63, 4095, 131071, 1000003}) {
                f.row(position, c.data(), s.data());
                for (int j = 0; j < head_dim / 2; ++j) {
                    double const angle = static_cast<double>(position) * frequency(law, head_dim, j);
                    worst = std::max({worst, std::fabs(static_cast<double>(c[at(j)]) - std::cos(angle)), std::fabs(static_cast<double>(s[at(j)]) - std::sin(angle))});
                }
            }
            // half a unit in the last place of numbers below one, and the angle's own error beside libm's
            CHECK(worst < 3.1e-8);
        }
}

TEST_CASE("the compiler computes the same tables as the program") {
    constexpr tenon::rope law{500000.0, tenon::rope_scaling::llama3, 8.0, 1.0, 4.0, 8192};
    constexpr double f1 = tenon::kernel::detail::rope_frequency(law, 128, 1), f40 = tenon::kernel::detail::rope_frequency(law, 128, 40);
    constexpr auto turned = tenon::kernel::detail::turn(12345.678);
    tenon::rope volatile const hidden_law_theta{};
    tenon::rope same = law;
    same.theta = hidden_law_theta.theta * 50.0;
    double volatile const angle = 12345.678;
    CHECK(std::bit_cast<std::uint64_t>(tenon::kernel::detail::rope_frequency(same, 128, 1)) == std::bit_cast<std::uint64_t>(f1));
    CHECK(std::bit_cast<std::uint64_t>(tenon::kernel::detail::rope_frequency(same, 128, 40)) == std::bit_cast<std::uint64_t>(f40));
    CHECK(tenon::kernel::detail::turn(angle).sine == turned.sine);
    CHECK(tenon::kernel::detail::turn(angle).cosine == turned.cosine);
}

TEST_CASE("rotation is the law's for every head width") {
    random_numbers random;
    for (int head_dim : {2, 6, 8, 34, 64, 128}) {
        int const rows = 3, heads = 5, half = head_dim / 2, stride = heads * head_dim + 3;
        floats const x = random.row(at(rows * stride)), c = random.row(at(rows * half)), s = random.row(at(rows * half));
        floats expected = x;
        for (int t = 0; t < rows; ++t)
            for (int h = 0; h < heads; ++h)
                for (int j = 0; j < half; ++j) {
                    std::size_t const a = at(t * stride + h * head_dim + j), b = a + at(half), k = at(t * half + j);
                    expected[a] = std::fmaf(x[a], c[k], 0.0f - product(x[b], s[k]));
                    expected[b] = std::fmaf(x[b], c[k], product(x[a], s[k]));
                }
        for (isa i : all_supported()) {
            floats y = x;
            tenon::kernel::table_of(i).rope(y.data(), stride, rows, heads, head_dim, c.data(), s.data());
            CHECK(difference(y, expected) == "");
        }
    }
}
