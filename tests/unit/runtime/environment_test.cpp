// What surrounds a call: the caller's floating-point mode, and fewer cores than ranks.
// SPDX-License-Identifier: Apache-2.0
#include "support/random_model.hpp"
#include "support/runs.hpp"

#include <doctest/doctest.h>
#include <tenon/device/cpu.hpp>
#include <tenon/dynamic_causal_lm.hpp>

#include <string>
#include <thread>

#if defined(__x86_64__)
#include <pmmintrin.h>
#endif

using namespace tenon;
using namespace support;

#if defined(__x86_64__)
namespace {
/// Denormals flushed and rounding towards zero, as a caller may have set them; restored at the end.
class rough_arithmetic {
public:
    static constexpr unsigned mode = 0xe040;
    rough_arithmetic() : saved_(_mm_getcsr()) { _mm_setcsr(saved_ | mode); }
    rough_arithmetic(rough_arithmetic const&) = delete;
    rough_arithmetic& operator=(rough_arithmetic const&) = delete;
    ~rough_arithmetic() { _mm_setcsr(saved_); }

private:
    unsigned saved_;
};
}  // namespace

TEST_CASE("Flush-to-zero and another rounding mode of the caller change no bits and are given back") {
    random_model files({.name = "denormals", .layers = 2, .hidden = 64, .heads = 4, .kv_heads = 2, .ffn = 64}, 61);
    // Gains so small that products are denormal.
    for (float& w : files.tensors()["model.norm.weight"].values) w *= 0x1p-130f;
    files.write();
    for (std::string const text : {"all@0", "all@0,1", "0@0;1@1"})
        for (runtime_kind const kind : {runtime_kind::sequential, runtime_kind::threads}) {
            CAPTURE(text);
            ids const tokens{5, 4, 3, 2, 1};
            floats expected, got;
            {
                auto m = dynamic_causal_lm<>::load(files.directory(), plan::parse(text), kind);
                expected = rows_of(m, tokens, 2);
            }
            std::size_t denormal = 0;
            for (float const x : expected) denormal += (bits_of(x) & 0x7f800000U) == 0 && (bits_of(x) & 0x7fffffU) != 0;
            CHECK(denormal > 0);
            unsigned during = 0;
            {
                rough_arithmetic const rough;
                auto m = dynamic_causal_lm<>::load(files.directory(), plan::parse(text), kind);  // narrows and widens too
                got = rows_of(m, tokens, 2);
                during = _mm_getcsr();
            }
            CHECK((during & rough_arithmetic::mode) == rough_arithmetic::mode);
            CHECK_EQ(first_difference(expected, got), "");
        }
}

TEST_CASE("Weights are converted and tokens drawn alike in a caller's rough arithmetic") {
    random_model const files({.name = "rough", .layers = 2, .hidden = 64, .heads = 4, .kv_heads = 2, .ffn = 64}, 62);
    load_options o;
    o.weights = weights::bf16;
    generation_options g;
    g.max_new_tokens = 24;
    g.sample = {.temperature = 1.3f, .top_p = 0.9f, .seed = 3};
    for (runtime_kind const kind : {runtime_kind::sequential, runtime_kind::threads}) {
        auto exact = dynamic_causal_lm<>::load(files.directory(), plan::parse("all@0"), kind, o);
        floats const expected = rows_of(exact, {1, 2, 3});
        ids const chosen = exact.generate({1, 2, 3}, g);
        floats got;
        ids drawn;
        {
            rough_arithmetic const rough;
            auto m = dynamic_causal_lm<>::load(files.directory(), plan::parse("all@0"), kind, o);
            got = rows_of(m, {1, 2, 3});
            drawn = m.generate({1, 2, 3}, g);
        }
        CHECK_EQ(first_difference(expected, got), "");
        CHECK(chosen == drawn);
    }
}

TEST_CASE("A token is chosen alike in a caller's rough arithmetic") {
    std::vector<float> const tiny{0.0f, 0x1p-140f, 0x1p-141f};
    std::vector<float> wide;
    random_bits random(8);
    for (int i = 0; i < 5000; ++i) wide.push_back(static_cast<float>(random.below(2001) - 1000) * 0.001f);
    auto const choices = [&] {
        ids all{greedy(tiny)};
        for (std::uint64_t i = 0; i < 2000; ++i)
            all.push_back(
                tenon::next_token(wide, {.temperature = 0.9f, .top_p = 0.95f, .seed = 1}, i, 0, device::cpu<>::instance("auto")));
        return all;
    };
    ids const expected = choices();
    CHECK(expected[0] == 1);
    rough_arithmetic const rough;
    CHECK(choices() == expected);
}
#endif

TEST_CASE("More ranks than cores is legal and gives the same bits") {
    random_model const files({.name = "crowd", .layers = 4, .hidden = 64, .kv_heads = 8, .vocab = 67}, 63);
    auto plain = dynamic_causal_lm<>::load(files.directory(), plan::parse("all@0"), runtime::sequential{});
    ids const tokens{1, 2, 3, 4, 5, 6};
    floats const expected = rows_of(plain, tokens);
    for (std::string const text : {"0@0,1,2,3,4,5,6,7;1@8,9,10,11,12,13,14,15;2@16,17,18,19,20,21,22,23;3@24,25,26,27,28,29,30,31",
                                   "all@100,7,3,55,12,1,0,9:tensor.reduce"}) {
        CAPTURE(text);
        auto m = dynamic_causal_lm<>::load(files.directory(), plan::parse(text));
        CHECK_EQ(first_difference(expected, rows_of(m, tokens)), "");
        CHECK_EQ(first_difference(expected, rows_of(m, tokens, 1)), "");
    }
}
