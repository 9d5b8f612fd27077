// exp, the gated unit, sums, norms and softmax, against the law written out.
// SPDX-License-Identifier: Apache-2.0
#include "reference.hpp"

#include <doctest/doctest.h>

using namespace reference;
using tenon::kernel::table_of;

namespace {
floats hard_numbers() {
    float const inf = std::numeric_limits<float>::infinity();
    floats x{-inf, inf, std::nanf(""), std::bit_cast<float>(0xffc12345u), std::bit_cast<float>(0x7f800001u), 1e-42f, -1e-42f, -1e30f, 1e30f, -0.0f, 0.0f,
             88.3762f, 88.4f, -87.33654f, -87.33655f, -87.3f, -103.9f};
    for (int i = 0; i < 6000; ++i) x.push_back((static_cast<float>(i) / 6000.0f - 0.5f) * 200.0f);
    return x;
}
}  // namespace

TEST_CASE("exp and the gated unit are the law's, for every length and every strange number") {
    floats const all = hard_numbers();
    random_numbers random;
    for (std::size_t n : {std::size_t{0}, std::size_t{1}, std::size_t{3}, std::size_t{17}, std::size_t{33}, all.size()}) {
        floats const x(all.begin(), all.begin() + static_cast<std::ptrdiff_t>(n)), up = random.row(n);
        floats expected_exp, expected_unit;
        for (std::size_t i = 0; i < n; ++i) {
            expected_exp.push_back(reference::exp(x[i]));
            expected_unit.push_back(product(silu(x[i]), up[i]));
        }
        for (isa i : all_supported()) {
            floats y(n + 1, 5.0f);
            table_of(i).exp(y.data(), x.data(), n);
            CHECK(y[n] == 5.0f);
            y.pop_back();
            CHECK(difference(y, expected_exp) == "");
            floats gate = x;
            table_of(i).swiglu(gate.data(), gate.data(), up.data(), n);
            CHECK(difference(gate, expected_unit) == "");
        }
    }
}

TEST_CASE("exp is close to the exponential and exact where the law names its values") {
    for (isa i : all_supported()) {
        float const inf = std::numeric_limits<float>::infinity();
        floats const x{inf, -inf, 0.0f, std::nanf("")};
        floats y(4);
        table_of(i).exp(y.data(), x.data(), 4);
        CHECK(y[0] == doctest::Approx(2.406e38).epsilon(1e-3));
        CHECK(bits(y[1]) == 0);
        CHECK(y[2] == 1.0f);
        CHECK(y[3] != y[3]);
        double worst = 0;
        for (int n = -87000; n < 88000; ++n) {
            float const v = static_cast<float>(n) * 0.001f;
            float e = 0;
            table_of(i).exp(&e, &v, 1);
            worst = std::max(worst, std::fabs(static_cast<double>(e) / std::exp(static_cast<double>(v)) - 1.0));
        }
        CHECK(worst < 8.2e-8);
    }
}

TEST_CASE("sums of rows are one addition per element") {
    random_numbers random;
    for (int n : {1, 5, 16, 31, 100}) {
        floats const x = random.row(at(3 * n)), y = random.row(at(3 * n)), bias(y.begin(), y.begin() + n);
        for (isa i : all_supported()) {
            floats sum = x, pair(x.size()), biased = x, expected = x, expected_bias = x;
            table_of(i).add(sum.data(), y.data(), y.size());
            table_of(i).add_pair(pair.data(), x.data(), y.data(), y.size());
            table_of(i).add_bias(biased.data(), n, bias.data(), n, 3);
            for (std::size_t k = 0; k < x.size(); ++k) {
                expected[k] = x[k] + y[k];
                expected_bias[k] = x[k] + bias[k % at(n)];
            }
            CHECK(difference(sum, expected) == "");
            CHECK(difference(pair, expected) == "");
            CHECK(difference(biased, expected_bias) == "");
        }
    }
}

TEST_CASE("norm and softmax reduce over 32 lanes, whatever the length") {
    random_numbers random;
    for (std::size_t n : {std::size_t{1}, std::size_t{2}, std::size_t{15}, std::size_t{31}, std::size_t{32}, std::size_t{33}, std::size_t{47}, std::size_t{64}, std::size_t{77}, std::size_t{2048}, std::size_t{1001}})
        for (int kind = 0; kind < 5; ++kind) {
            floats x = random.row(n, kind == 1 ? 1e-21f : 20.0f), gain = random.row(n);
            if (kind == 2) x[random.next() % n] = std::nanf("");
            if (kind == 3) x[random.next() % n] = std::numeric_limits<float>::infinity();
            if (kind == 4)
                for (float& v : x) v = -std::numeric_limits<float>::infinity();
            for (isa i : all_supported()) {
                floats y(2 * n, 3.0f), twice = x;
                twice.insert(twice.end(), x.begin(), x.end());
                float const epsilon = kind == 1 ? 0.0f : 1e-5f;
                table_of(i).rms_norm(y.data(), static_cast<std::ptrdiff_t>(n), twice.data(), static_cast<std::ptrdiff_t>(n), gain.data(), static_cast<int>(n), epsilon, 2);
                floats const one = reference::rms_norm(x, gain, epsilon);
                CHECK(difference(floats(y.begin(), y.begin() + static_cast<std::ptrdiff_t>(n)), one) == "");
                CHECK(difference(floats(y.begin() + static_cast<std::ptrdiff_t>(n), y.end()), one) == "");
                floats p = x;
                table_of(i).softmax(p.data(), p.data(), n);
                CHECK(difference(p, reference::softmax(x)) == "");
            }
        }
}

TEST_CASE("the fused multiply-add without hardware is the fused multiply-add") {
    random_numbers random;
    int wrong = 0;
    for (int n = 0; n < 1000000; ++n) {
        std::uint32_t u[3];
        for (std::uint32_t& b : u) b = static_cast<std::uint32_t>(random.next() >> 20);
        if (n % 3 == 0) {  // an addend of the product's size
            auto const e = ((u[0] >> 23) & 255) + ((u[1] >> 23) & 255) - 127 + (u[2] >> 23) % 60 - 30;
            u[2] = (u[2] & 0x807fffffu) | ((e & 255) << 23);
        }
        float const a = std::bit_cast<float>(u[0]), b = std::bit_cast<float>(u[1]), c = std::bit_cast<float>(u[2]);
        wrong += bits(tenon::kernel::detail::soft_fma(a, b, c)) != bits(std::fmaf(a, b, c));
    }
    CHECK(wrong == 0);
}

#if defined(__x86_64__)
TEST_CASE("a thread that flushes denormals keeps them inside the guard, and flushes again after it") {
    unsigned const before = _mm_getcsr();
    _mm_setcsr(before | 0x8040u);
    float volatile small = 1e-38f;
    {
        tenon::kernel::flush_to_zero_guard const guard;
        float volatile const half = small * 0.25f;
        CHECK(bits(half) != 0);
    }
    CHECK((_mm_getcsr() & 0x8040u) == 0x8040u);
    _mm_setcsr(before);
}
#endif
