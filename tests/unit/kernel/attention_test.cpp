// Attention over the blocked KV cache, against the law written out.
// SPDX-License-Identifier: Apache-2.0
#include "reference.hpp"

#include <doctest/doctest.h>

using namespace reference;

namespace {
struct attention_case { int heads, kv_heads, head_dim, positions; std::int64_t window; };

// Keys or values of one KV head as (positions, D).
floats of_head(floats const& all, int kv_heads, int head_dim, int h) {
    floats r;
    std::ptrdiff_t const width = std::ptrdiff_t{kv_heads} * head_dim;
    for (std::size_t t = 0; t < all.size() / at(width); ++t) {
        auto const from = all.begin() + static_cast<std::ptrdiff_t>(t) * width + h * head_dim;
        r.insert(r.end(), from, from + head_dim);
    }
    return r;
}

floats expected_rows(attention_case const& c, floats const& q, floats const& k, floats const& v, float scale) {
    floats r;
    for (int t = 0; t < c.positions; ++t)
        for (int h = 0; h < c.heads; ++h) {
            int const kv = h * c.kv_heads / c.heads;
            floats const o = reference::attention(q.data() + (std::ptrdiff_t{t} * c.heads + h) * c.head_dim, of_head(k, c.kv_heads, c.head_dim, kv),
                                                  of_head(v, c.kv_heads, c.head_dim, kv), c.head_dim, t, c.window, scale);
            r.insert(r.end(), o.begin(), o.end());
        }
    return r;
}
}  // namespace

TEST_CASE("attention gives the law's bits in one call, in chunks and token by token, whatever the heads and the window") {
    random_numbers random;
    for (attention_case c : {attention_case{4, 2, 64, 150, 0}, attention_case{1, 1, 8, 70, 0}, attention_case{3, 1, 5, 66, 0}, attention_case{14, 2, 20, 40, 0},
                             attention_case{2, 2, 80, 131, 0}, attention_case{8, 1, 1, 33, 0}, attention_case{2, 1, 16, 200, 50},
                             attention_case{1, 1, 24, 150, 1}, attention_case{7, 1, 17, 140, 64}, attention_case{2, 2, 128, 66, 7}}) {
        float const scale = 0.37f;
        floats const q = random.row(at(c.positions * c.heads * c.head_dim), 4.0f), k = random.row(at(c.positions * c.kv_heads * c.head_dim), 2.0f),
                     v = random.row(k.size());
        floats const expected = expected_rows(c, q, k, v, scale);
        for (isa i : all_supported())
            for (int chunk : {c.positions, 1, 7, 65}) {
                cache kv(c.kv_heads, c.head_dim, c.positions, std::nanf(""));  // what was not written is not used
                floats out;
                for (int t = 0; t < c.positions; t += chunk) {
                    int const rows = std::min(chunk, c.positions - t);
                    kv.store(t, rows, k.data() + std::ptrdiff_t{t} * c.kv_heads * c.head_dim, v.data() + std::ptrdiff_t{t} * c.kv_heads * c.head_dim);
                    floats const o = kv.attend(i, q.data() + std::ptrdiff_t{t} * c.heads * c.head_dim, c.heads, rows, t, c.window, scale);
                    out.insert(out.end(), o.begin(), o.end());
                }
                CAPTURE(tenon::kernel::name_of(i));
                CAPTURE(c.head_dim);
                CAPTURE(chunk);
                CHECK(difference(out, expected) == "");
            }
    }
}

TEST_CASE("a NaN or an infinity at one position reaches no earlier one, and no query head of another KV head") {
    random_numbers random;
    attention_case const c{4, 2, 16, 90, 0};
    floats const q = random.row(at(c.positions * c.heads * c.head_dim));
    floats k = random.row(at(c.positions * c.kv_heads * c.head_dim)), v = random.row(k.size());
    std::size_t const width = at(c.kv_heads * c.head_dim);
    v[71 * width + 3] = std::numeric_limits<float>::infinity();
    k[80 * width + 20] = std::nanf("");
    k[40 * width + 1] = std::numeric_limits<float>::infinity();
    floats const expected = expected_rows(c, q, k, v, 0.25f);
    for (isa i : all_supported()) {
        cache kv(c.kv_heads, c.head_dim, c.positions, 0.0f);
        kv.store(0, c.positions, k.data(), v.data());
        CHECK(difference(kv.attend(i, q.data(), c.heads, c.positions, 0, 0, 0.25f), expected) == "");
    }
}

TEST_CASE("what a cache has stored is read back whole, from any position on") {
    random_numbers random;
    for (int const positions : {1, 63, 64, 65, 130})
        for (int const kv_heads : {1, 3}) {
            int const head_dim = 6;
            std::size_t const width = at(kv_heads * head_dim);
            floats const k = random.row(at(positions) * width), v = random.row(k.size());
            cache kv(kv_heads, head_dim, positions, 9.0f);
            kv.store(0, positions, k.data(), v.data());
            for (int const first : {0, positions / 2, positions - 1}) {
                std::size_t const rows = at(positions - first), stride = width + 2;
                floats back_k(rows * stride, 5.0f), back_v(back_k);
                tenon::kernel::load_kv(back_k.data(), back_v.data(), static_cast<std::ptrdiff_t>(stride), static_cast<float const*>(kv.keys.data()), static_cast<float const*>(kv.values.data()), kv.stride,
                                       kv_heads, head_dim, first, positions - first);
                bool same = true;
                for (std::size_t t = 0; t < rows; ++t)
                    for (std::size_t i = 0; i < stride; ++i) {
                        std::size_t const from = (at(first) + t) * width + i;
                        same = same && back_k[t * stride + i] == (i < width ? k[from] : 5.0f) && back_v[t * stride + i] == (i < width ? v[from] : 5.0f);
                    }
                CHECK(same);
            }
        }
}
