// A backend of a user's own, as docs/devices.md tells: a loop an operation, after docs/numerics.md; float32 alone, on up to four ranks.
// SPDX-License-Identifier: Apache-2.0
#include "support/families.hpp"
#include "support/runs.hpp"

#include <doctest/doctest.h>
#include <tenon/tenon.hpp>

#include <algorithm>
#include <bit>
#include <cmath>

using namespace tenon;
using namespace support;

namespace {
float rounded(float volatile&& product) { return product; }  // it stays one, whatever the compiler contracts

float exp_of(float x) {
    float const capped = 88.3762f < x ? 88.3762f : x, t = std::fma(capped, 1.44269504f, 12582912.0f), n = t - 12582912.0f;
    float const r = std::fma(n, 2.12194440e-4f, std::fma(n, -0.693359375f, capped));
    float p = 1.9875691500e-4f;
    for (float const c : {1.3981999507e-3f, 8.3334519073e-3f, 4.1665795894e-2f, 1.6666665459e-1f, 5.0000001201e-1f}) p = std::fma(p, r, c);
    p = std::fma(r * r, p, r) + 1.0f;
    if (x != x || x < -87.33654f) return x != x ? x : 0.0f;
    return std::bit_cast<float>(std::bit_cast<std::uint32_t>(p) + (std::bit_cast<std::uint32_t>(t) << 23U));
}

/// Element i goes to lane i of 32, by `take(lane, i)`; then the lanes are folded.
float over_lanes(int n, auto take) {
    float l[32] = {};
    for (int i = 0; i < n; ++i) l[i % 32] = take(l[i % 32], i);
    for (int h = 16; h > 0; h /= 2)
        for (int i = 0; i < h; ++i) l[i] += l[i + h];
    return l[0];
}

struct toy_backend final : device::backend {
    std::string_view name() const noexcept override { return "user"; }
    bool holds(kernel::panel_format f) const noexcept override { return f == kernel::panel_format::f32; }
    void multiply(float* y, std::ptrdiff_t y_stride, kernel::packed_matrix const& w, float const* x, std::ptrdiff_t x_stride, int rows,
                  float*) const override {
        for (int t = 0; t < rows; ++t, y += y_stride, x += x_stride)
            for (int n = 0; n < w.rows; ++n) {
                float const* const row = static_cast<float const*>(w.data) + std::ptrdiff_t{n} * w.columns;
                float p[8] = {};
                for (int k = 0, length = w.columns / w.segments; k < w.columns; ++k) p[k / length] = std::fma(x[k], row[k], p[k / length]);
                for (int left = w.segments / 2; left > 0; left /= 2)
                    for (int i = 0; i < left; ++i) p[i] = p[2 * i] + p[2 * i + 1];
                y[n] = p[0];
            }
    }
    void rms_norm(float* y, std::ptrdiff_t y_stride, float const* x, std::ptrdiff_t x_stride, float const* gain, int n, float epsilon,
                  int rows) const override {
        for (int t = 0; t < rows; ++t, y += y_stride, x += x_stride) {
            float const squares = over_lanes(n, [x](float l, int i) { return std::fma(x[i], x[i], l); });
            float const r = 1.0f / std::sqrt(squares / static_cast<float>(n) + epsilon);
            for (int i = 0; i < n; ++i) y[i] = x[i] * r * gain[i];
        }
    }
    void rope(float* x, std::ptrdiff_t stride, int rows, int heads, int D, float const* cosines, float const* sines) const override {
        for (int t = 0, half = D / 2; t < rows; ++t, x += stride, cosines += half, sines += half)
            for (int i = 0; i < heads * half; ++i) {
                float &low = x[i / half * D + i % half], &high = (&low)[half];
                float const a = low, b = high, c = cosines[i % half], s = sines[i % half];
                low = std::fma(a, c, 0.0f - rounded(b * s));
                high = std::fma(b, c, a * s);
            }
    }
    void swiglu(float* y, float const* gate, float const* up, std::size_t n) const override {
        for (std::size_t i = 0; i < n; ++i) y[i] = gate[i] / (1.0f + exp_of(0.0f - gate[i])) * up[i];
    }
    void add(float* out, float const* a, float const* b, std::size_t n) const override { std::transform(a, a + n, b, out, std::plus<>{}); }
    void add_bias(float* y, std::ptrdiff_t stride, float const* bias, int n, int rows) const override {
        for (int t = 0; t < rows; ++t, y += stride) add(y, y, bias, static_cast<std::size_t>(n));
    }
    void attention(kernel::attention_call const& c) const override {
        for (std::ptrdiff_t i = 0, D = c.head_dim; i < std::ptrdiff_t{c.rows} * c.heads; ++i) {
            std::ptrdiff_t const t = i / c.heads, h = i % c.heads, last = c.first_position + t;
            std::ptrdiff_t const head = h * c.kv_heads / c.heads * c.kv_head_stride;
            float const* const q = c.q + t * c.q_stride + h * D;
            float* const out = c.out + t * c.out_stride + h * D;
            float m = -INFINITY, l = 0.0f;
            std::fill_n(out, D, 0.0f);
            std::ptrdiff_t first = c.window > 0 && last >= c.window ? last - c.window + 1 : 0;
            for (std::ptrdiff_t block = first / 64 * 64; first <= last; first = block += 64) {
                float const *const k = c.keys + head + block * D, *const v = c.values + head + block * D;  // (D, 64), (64, D)
                std::ptrdiff_t const low = first - block, end = std::min<std::ptrdiff_t>(last - block + 1, 64);
                float e[64] = {}, most = -INFINITY;
                for (std::ptrdiff_t j = low; j < end; ++j) {
                    for (std::ptrdiff_t d = 0; d < D; ++d) e[j] = std::fma(q[d], k[d * 64 + j], e[j]);
                    e[j] = rounded(e[j] * c.scale);
                    most = e[j] > most ? e[j] : most;
                }
                for (std::ptrdiff_t j = low; j < end; ++j) e[j] = exp_of(e[j] - most);
                float const both = m > most ? m : most, past = exp_of(m - both), here = exp_of(most - both);
                for (std::ptrdiff_t d = 0; d < D; ++d) {
                    float o = 0.0f;
                    for (std::ptrdiff_t j = low; j < end; ++j) o = std::fma(e[j], v[j * D + d], o);
                    out[d] = std::fma(out[d], past, (o + 0.0f) * here);
                }
                l = std::fma(l, past, over_lanes(64, [&e](float lane, int j) { return lane + e[j]; }) * here);
                m = both;
            }
            for (std::ptrdiff_t d = 0; d < D; ++d) out[d] /= l;
        }
    }
    void exp(float* y, float const* x, std::size_t n) const override { std::transform(x, x + n, y, exp_of); }
};

template <int... Index>
struct toy {
    static constexpr device_kind kind = device_kind::user;
    static constexpr int most_ranks = 4;
    static constexpr bool canonical = true;
    static constexpr std::array<device_id, sizeof...(Index)> devices{device_id{kind, Index}...};
    static device::backend const& instance(std::string_view) { return only; }
    static inline toy_backend const only{};
};

struct tiny {
    static constexpr auto config =
        model::llama({.layers = 4, .hidden = 64, .heads = 8, .kv_heads = 4, .ffn = 256, .vocab = 61, .max_positions = 256});
};
struct split : graph<tiny, stage<layers<0, 1>, toy<0, 1>, shard::tensor<join::reduce>>, stage<layers<2, 3>, device::cpu<0>>> {};
static_assert(split::plan() == "0-1@user.0,user.1:tensor.reduce;2-3@0");
}  // namespace

TEST_CASE("A user's backend has cpu's bits under every split, alone and beside it, and is refused by name what it cannot do") {
    for (geometry const& g : dense_families()) {
        random_model const files(g, 5);
        auto const load = [&files](std::string const& text, weights held = weights::f32) {
            return dynamic_causal_lm<toy, device::cpu>::load(files.directory(), plan::parse(text), runtime::threads{}, {.weights = held});
        };
        random_bits random(7);
        ids const tokens = random_tokens(random, 70, g.vocab);
        auto cpu = load("all@cpu.0");
        floats const expected = rows_of(cpu, tokens);
        for (std::string const text : {"all@0", "all@0,1,2,3", "0-1@user.0,1:tensor.reduce;2-3@2", "0@cpu.0;1-3@user.0,1"}) {
            auto m = load(text);
            CHECK_MESSAGE(first_difference(expected, rows_of(m, tokens, 33)) == "", g.name, " ", text);
        }
        CHECK_EQ(law_of([&] { load("all@0,1,2,3,4"); }), "device_serves_ranks");
        CHECK_EQ(law_of([&] { load("all@0", weights::stored); }), g.type == dtype::bf16 ? "device_holds_format" : "nothing is refused");
        if (g.name != "llama") continue;
        auto fixed = causal_lm<split>::load(files.directory());
        CHECK_EQ(first_difference(expected, rows_of(fixed, tokens)), "");
    }
}

TEST_CASE("A user's backend routes by what it inherits, with cpu's bits wherever the experts are") {
    for (geometry g : routed_families()) {
        if (g.type == dtype::bf16) g.type = dtype::f32;  // a router is held as it is stored
        random_model const files(g, 5);
        auto const load = [&files](std::string const& text) {
            return dynamic_causal_lm<toy, device::cpu>::load(files.directory(), plan::parse(text), runtime::threads{},
                                                             {.weights = weights::f32});
        };
        random_bits random(7);
        ids const tokens = random_tokens(random, 30, g.vocab);
        auto cpu = load("all@cpu.0");
        floats const expected = rows_of(cpu, tokens);
        for (std::string const text : {"all@0", "all@0,1,2:expert", "0-1@0,1:tensor+expert_width.reduce;2-3@cpu.0,cpu.1:expert"}) {
            auto m = load(text);
            CHECK_MESSAGE(first_difference(expected, rows_of(m, tokens, 11)) == "", g.name, " ", text);
        }
    }
}
