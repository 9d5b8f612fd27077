// Eigen's arithmetic: near the law's, and the same bits whatever batch, chunk, shard or address a value is computed in.
// SPDX-License-Identifier: Apache-2.0
#define EIGEN_RUNTIME_NO_MALLOC  // in every file of this runner that includes Eigen
#include "../kernel/reference.hpp"

#include <tenon/device/eigen.hpp>

#include <doctest/doctest.h>

#include <array>

using namespace reference;
using tenon::dtype;
using tenon::device::backend;
using tenon::device::eigen_backend;
namespace detail = tenon::device::detail;

namespace {
float const inf = std::numeric_limits<float>::infinity();
constexpr panel_format both_formats[]{panel_format::f32, panel_format::bf16};
eigen_backend const batch_shaped(true);

backend const& fixed() { return tenon::device::eigen<0>::instance("auto"); }

/// Floats at `offset` floats past a cache line.
struct placed {
    floats bytes;
    std::ptrdiff_t begin;
    placed(floats const& x, std::ptrdiff_t offset) : bytes(x.size() + 32) {
        auto const address = reinterpret_cast<std::uintptr_t>(bytes.data());
        begin = static_cast<std::ptrdiff_t>((64 - address % 64) % 64 / 4) + offset;
        std::copy(x.begin(), x.end(), bytes.begin() + begin);
    }
    float* data() { return bytes.data() + begin; }
    floats values(std::size_t n) const { return floats(bytes.begin() + begin, bytes.begin() + begin + static_cast<std::ptrdiff_t>(n)); }
};

/// Outputs [first, first + rows) and inputs [k0, k0 + columns) of the row-major `w` with K inputs, as the backend holds them.
struct held_matrix {
    tenon::kernel::packed_matrix view{};
    std::vector<std::byte> bytes;

    held_matrix(floats const& w, int K, int first, int rows, int k0, int columns, int segments, panel_format format) {
        view = {nullptr, rows, columns, segments, format, first};
        bytes.assign(fixed().packed_bytes(view) + 64, std::byte{0xff});  // padding must be written, not found
        std::byte* const data = bytes.data() + (64 - reinterpret_cast<std::uintptr_t>(bytes.data()) % 64) % 64;
        for (int r = 0; r < rows; r += 50)  // in calls that end inside a tile
            fixed().pack(data, view, r, std::min(50, rows - r),
                         reinterpret_cast<std::byte const*>(w.data() + std::ptrdiff_t{first + r} * K + k0), std::ptrdiff_t{K} * 4,
                         dtype::f32);
        view.data = data;
    }
    held_matrix(floats const& w, int rows, int columns, int segments, panel_format format)
        : held_matrix(w, columns, 0, rows, 0, columns, segments, format) {}
};

floats multiply(backend const& b, held_matrix const& w, float const* x, std::ptrdiff_t x_stride, int rows) {
    floats y(at(rows) * at(w.view.rows)), scratch(b.multiply_scratch_floats(rows, w.view.columns));
    b.multiply(y.data(), w.view.rows, w.view, x, x_stride, rows, scratch.data());
    return y;
}

floats columns_of(floats const& y, int width, int begin, int end) {
    floats r;
    for (auto row = y.begin(); row != y.end(); row += width) r.insert(r.end(), row + begin, row + end);
    return r;
}

/// The largest |left - right| / (1 + |right|); an infinity where only one is NaN.
float distance(floats const& left, floats const& right) {
    float worst = left.size() == right.size() ? 0.0f : inf;
    for (std::size_t i = 0; i < left.size() && i < right.size(); ++i) {
        if (bits(left[i]) == bits(right[i])) continue;
        float const d = std::fabs(left[i] - right[i]) / (1.0f + std::fabs(right[i]));
        worst = d <= worst ? worst : d == d ? d : inf;
    }
    return worst;
}
}  // namespace

TEST_CASE("Eigen's kernels give an output of a row the same bits at every place of every fixed shape") {
    random_numbers random;
    for (int K = 1; K <= 260; K += K < 140 ? 1 : 17) {
        floats const u = random.row(at(K), 3.0f), v = random.row(at(K));
        floats x, w;
        for (int r = 0; r < 32; ++r) x.insert(x.end(), u.begin(), u.end());
        for (float value : v) w.insert(w.end(), detail::tile_outputs, value);
        auto const one = detail::multiply_tile<1>(w.data(), x.data(), K, K, 1);
        auto const eight = detail::multiply_tile<8>(w.data(), x.data(), K, K, 1);
        auto const all = detail::multiply_tile<32>(w.data(), x.data(), K, K, 1);
        int wrong = 0;
        for (int n = 0; n < detail::tile_outputs; ++n) {
            wrong += bits(one(0, n)) != bits(one(0, 0));
            for (int r = 0; r < 8; ++r) wrong += bits(eight(r, n)) != bits(one(0, 0));
            for (int r = 0; r < 32; ++r) wrong += bits(all(r, n)) != bits(one(0, 0));
        }
        CAPTURE(K);
        CHECK(wrong == 0);
        CHECK(one(0, 0) == doctest::Approx(linear(v.data(), u.data(), K, 1)).epsilon(1e-4));
    }
}

TEST_CASE("what is not finite in a row or an output of a tile reaches no other") {
    random_numbers random;
    for (int K : {1, 9, 64, 130}) {
        floats const x = random.row(at(32 * K)), w = random.row(at(detail::tile_outputs * K));
        auto const clean = detail::multiply_tile<32>(w.data(), x.data(), K, K, 1);
        for (float odd : {inf, std::nanf("")})
            for (int place = 0; place < detail::tile_outputs; ++place) {
                int const row = place % 32;
                floats bad_x = x, bad_w = w;
                bad_x[at(row * K + K / 2)] = odd;
                bad_w[at(K / 2 * detail::tile_outputs + place)] = odd;
                auto const a = detail::multiply_tile<32>(w.data(), bad_x.data(), K, K, 1);
                auto const b = detail::multiply_tile<32>(bad_w.data(), x.data(), K, K, 1);
                int wrong = 0;
                for (int r = 0; r < 32; ++r)
                    for (int n = 0; n < detail::tile_outputs; ++n)
                        wrong += (r == row ? std::isfinite(a(r, n)) : bits(a(r, n)) != bits(clean(r, n))) +
                                 (n == place ? std::isfinite(b(r, n)) : bits(b(r, n)) != bits(clean(r, n)));
                CHECK(wrong == 0);
            }
    }
}

TEST_CASE("a product is near the law's, and its rows do not depend on batch, chunk, stride or address") {
    random_numbers random;
    struct shape {
        int outputs, columns, segments;
    };
    for (shape s : {shape{1, 1, 1}, shape{3, 2, 1}, shape{33, 56, 8}, shape{40, 7, 1}, shape{65, 96, 1}, shape{130, 128, 4},
                    shape{49, 24, 8}, shape{48, 2304, 8}, shape{97, 1150, 2}})
        for (panel_format format : both_formats) {
            floats const w = held(random.row(at(s.outputs) * at(s.columns)), format);
            held_matrix const m(w, s.outputs, s.columns, s.segments, format);
            floats const x = random.row(at(75 * s.columns), 2.0f);
            floats const expected = multiply(fixed(), m, x.data(), s.columns, 75);
            CAPTURE(s.columns);
            CHECK(distance(expected, linear_rows(w, x, s.outputs, s.columns, s.segments, 75)) < 5e-5f);
            for (int rows = 1; rows <= 17; ++rows)
                for (int first = 0; first + rows <= 75; first += rows == 1 ? 1 : 29) {
                    floats const part(expected.begin() + std::ptrdiff_t{first} * s.outputs,
                                      expected.begin() + std::ptrdiff_t{first + rows} * s.outputs);
                    CHECK(difference(multiply(fixed(), m, x.data() + std::ptrdiff_t{first} * s.columns, s.columns, rows), part) == "");
                }
            for (std::ptrdiff_t offset : {1, 2, 4, 7}) {
                placed wide(floats(at(43 * (s.columns + offset)), -inf), offset), y(floats(at(43 * (s.outputs + offset)), -7.0f), offset);
                for (std::ptrdiff_t r = 0; r < 43; ++r)
                    std::copy_n(x.begin() + r * s.columns, s.columns, wide.data() + r * (s.columns + offset));
                fixed().multiply(y.data(), s.outputs + offset, m.view, wide.data(), s.columns + offset, 43, nullptr);
                floats const all = y.values(at(43 * (s.outputs + offset)));
                auto const stride = static_cast<int>(s.outputs + offset);
                CHECK(difference(columns_of(all, stride, 0, s.outputs),
                                 floats(expected.begin(), expected.begin() + std::ptrdiff_t{43} * s.outputs)) == "");
                CHECK(columns_of(all, stride, s.outputs, stride) == floats(at(43 * offset), -7.0f));
            }
        }
}

TEST_CASE("a shard of the outputs has the bits of the whole, wherever it is cut") {
    random_numbers random;
    int const outputs = 149, columns = 136, rows = 9;
    floats const w = random.row(at(outputs * columns)), x = random.row(at(rows * columns));
    for (panel_format format : both_formats) {
        floats const whole = multiply(fixed(), held_matrix(w, outputs, columns, 4, format), x.data(), columns, rows);
        for (int begin = 0; begin < outputs; ++begin)
            for (int width : {1, 2, 31, 48, 49, 96, outputs - begin}) {
                if (begin + width > outputs) continue;
                held_matrix const part(w, columns, begin, width, 0, columns, 4, format);
                CHECK(difference(multiply(fixed(), part, x.data(), columns, rows), columns_of(whole, outputs, begin, begin + width)) == "");
            }
    }
}

TEST_CASE("ranks that own some segments add up to the bits of one that owns all") {
    random_numbers random;
    for (int length : {1, 7, 36, 64, 100, 128})
        for (panel_format format : both_formats) {
            int const outputs = 50, columns = 8 * length, rows = 11;
            floats const w = random.row(at(outputs * columns)), x = random.row(at(rows * columns));
            floats const whole = multiply(fixed(), held_matrix(w, outputs, columns, 8, format), x.data(), columns, rows);
            for (int ranks : {2, 4, 8}) {
                std::vector<floats> parts;
                for (int r = 0; r < ranks; ++r) {
                    int const own = columns / ranks;
                    held_matrix const m(w, columns, 0, outputs, r * own, own, 8 / ranks, format);
                    parts.push_back(multiply(fixed(), m, x.data() + std::ptrdiff_t{r} * own, columns, rows));
                }
                for (std::size_t distance = 1; distance < parts.size(); distance *= 2)
                    for (std::size_t r = 0; r < parts.size(); r += 2 * distance)
                        fixed().add(parts[r].data(), parts[r].data(), parts[r + distance].data(), whole.size());
                CHECK(difference(parts[0], whole) == "");
            }
        }
}

TEST_CASE("one product over the whole batch differs between batches; the fixed shapes do not") {
    random_numbers random;
    int const outputs = 96, columns = 512;
    held_matrix const m(random.row(at(outputs * columns)), outputs, columns, 8, panel_format::f32);
    floats const x = random.row(at(17 * columns));
    auto const differs = [&](backend const& b) {
        floats const all = multiply(b, m, x.data(), columns, 17);
        for (int rows = 1; rows < 17; ++rows)
            if (difference(multiply(b, m, x.data(), columns, rows), floats(all.begin(), all.begin() + std::ptrdiff_t{rows} * outputs)) !=
                "")
                return true;
        return false;
    };
    CHECK(differs(batch_shaped));
    CHECK_FALSE(differs(fixed()));
}

TEST_CASE("what is packed comes back, from any type, in any calls and at any place in the first tile") {
    random_numbers random;
    for (int first : {0, 1, 47, 48, 100})
        for (panel_format format : both_formats) {
            int const rows = 101, columns = 67;
            floats const w = random.row(at((first + rows) * columns));
            held_matrix const m(w, columns, first, rows, 0, columns, 1, format);
            std::size_t const size = tenon::kernel::element_bytes(format);
            std::vector<std::byte> back(at(rows * columns) * size), one(back.size());
            fixed().unpack(back.data(), static_cast<std::ptrdiff_t>(size) * columns, m.view, 0, rows);
            for (int r = 0; r < rows; ++r) fixed().unpack(one.data() + at(r * columns) * size, 0, m.view, r, 1);
            CHECK(back == one);
            int wrong = 0;
            for (std::size_t i = 0; i < at(rows * columns); ++i) {
                float const expected = w[at(first * columns) + i];
                if (format == panel_format::f32)
                    wrong += bits(tenon::load_f32(back.data() + 4 * i)) != bits(expected);
                else
                    wrong += bits(tenon::load_bf16(back.data() + 2 * i)) != bits(tenon::widen_bf16(tenon::narrow_bf16(expected)));
            }
            CHECK(wrong == 0);
        }
    std::array<std::uint16_t, 4> const halves{0x3c00, 0xc000, 0x0001, 0x7c00};  // f16: 1, -2, the smallest, inf
    tenon::kernel::packed_matrix const shape{nullptr, 2, 2, 1, panel_format::f32, 0};
    floats packed(fixed().packed_bytes(shape) / 4), back(4);
    fixed().pack(packed.data(), shape, 0, 2, reinterpret_cast<std::byte const*>(halves.data()), 4, dtype::f16);
    fixed().unpack(back.data(), 8, {packed.data(), 2, 2, 1, panel_format::f32, 0}, 0, 2);
    CHECK(back == floats{1.0f, -2.0f, 0x1p-24f, inf});
}

TEST_CASE("exp and the gated unit are near the law's, and their bits do not depend on length, place, address or alias") {
    random_numbers random;
    floats x{-inf, inf, std::nanf(""), 1e-42f, -1e30f, 1e30f, -0.0f, 0.0f, 88.3762f, 89.0f, -87.33655f, -103.9f};
    for (int i = 0; i < 1000; ++i) x.push_back((static_cast<float>(i) / 1000.0f - 0.5f) * 180.0f);
    floats const up = random.row(x.size());
    floats expected, unit, law, law_unit;
    for (std::size_t i = 0; i < x.size(); ++i) {  // one by one
        float e = 0.0f, u = 0.0f;
        fixed().exp(&e, &x[i], 1);
        fixed().swiglu(&u, &x[i], &up[i], 1);
        expected.push_back(e);
        unit.push_back(u);
        law.push_back(reference::exp(x[i]));
        law_unit.push_back(product(silu(x[i]), up[i]));
    }
    CHECK(distance(expected, law) < 4e-7f);
    CHECK(distance(unit, law_unit) < 1e-6f);
    CHECK(bits(expected[0]) == 0);
    CHECK(expected[2] != expected[2]);
    CHECK(expected[7] == 1.0f);
    for (std::ptrdiff_t begin : {0, 1, 3, 63})
        for (std::size_t n : {at(0), at(1), at(17), at(64), at(65), x.size() - 63})
            for (std::ptrdiff_t offset : {0, 1, 6}) {
                auto const part = [&](floats const& all) {
                    return floats(all.begin() + begin, all.begin() + begin + static_cast<std::ptrdiff_t>(n));
                };
                placed from(part(x), offset), to(floats(n), offset / 2), gate(part(x), offset), value(part(up), offset + 1);
                fixed().exp(to.data(), from.data(), n);
                CHECK(difference(to.values(n), part(expected)) == "");
                fixed().exp(from.data(), from.data(), n);
                CHECK(difference(from.values(n), part(expected)) == "");
                fixed().swiglu(to.data(), gate.data(), value.data(), n);
                CHECK(difference(to.values(n), part(unit)) == "");
                fixed().swiglu(gate.data(), gate.data(), value.data(), n);
                CHECK(difference(gate.values(n), part(unit)) == "");
                placed second(part(x), offset + 2);
                fixed().swiglu(value.data(), second.data(), value.data(), n);
                CHECK(difference(value.values(n), part(unit)) == "");
            }
}

TEST_CASE("sums are one addition per element, in place too") {
    random_numbers random;
    for (int n : {1, 5, 16, 31, 100})
        for (std::ptrdiff_t offset : {0, 1, 5}) {
            floats const x = random.row(at(3 * n)), y = random.row(at(3 * n)), bias = random.row(at(n));
            floats sum, biased;
            for (std::size_t k = 0; k < x.size(); ++k) {
                sum.push_back(x[k] + y[k]);
                biased.push_back(x[k] + bias[k % at(n)]);
            }
            placed low(x, offset), high(y, offset + 1), out(x, 0);
            fixed().add(out.data(), low.data(), high.data(), x.size());
            CHECK(difference(out.values(x.size()), sum) == "");
            fixed().add(high.data(), low.data(), high.data(), x.size());
            CHECK(difference(high.values(x.size()), sum) == "");
            fixed().add_bias(low.data(), n, bias.data(), n, 3);
            CHECK(difference(low.values(x.size()), biased) == "");
        }
}

TEST_CASE("a norm is near the law's; its bits do not depend on the other rows, address, stride or alias") {
    random_numbers random;
    for (int n : {1, 2, 15, 31, 32, 33, 64, 77, 2048, 1001}) {
        floats x = random.row(at(6 * n), 20.0f), gain = random.row(at(n)), expected, law;
        for (int t = 0; t < 6; ++t) {
            floats const one(x.begin() + std::ptrdiff_t{t} * n, x.begin() + std::ptrdiff_t{t + 1} * n);
            floats y(at(n)), r = reference::rms_norm(one, gain, 1e-5f);
            fixed().rms_norm(y.data(), n, one.data(), n, gain.data(), n, 1e-5f, 1);
            expected.insert(expected.end(), y.begin(), y.end());
            law.insert(law.end(), r.begin(), r.end());
        }
        CHECK(distance(expected, law) < 2e-6f);
        for (std::ptrdiff_t offset : {0, 1, 3, 4}) {
            placed from(floats(at(6 * (n + offset))), offset), to(floats(at(6 * n)), offset / 2), weight(gain, offset);
            for (std::ptrdiff_t t = 0; t < 6; ++t) std::copy_n(x.begin() + t * n, n, from.data() + t * (n + offset));
            fixed().rms_norm(to.data(), n, from.data(), n + offset, weight.data(), n, 1e-5f, 6);
            CHECK(difference(to.values(at(6 * n)), expected) == "");
            fixed().rms_norm(from.data(), n + offset, from.data(), n + offset, weight.data(), n, 1e-5f, 6);
            CHECK(difference(columns_of(from.values(at(6 * (n + offset))), static_cast<int>(n + offset), 0, n), expected) == "");
        }
    }
}

TEST_CASE("rope is near the law's; its bits do not depend on the head, the row, the address or the place in a half") {
    random_numbers random;
    for (int half : {1, 3, 16, 32, 40, 64}) {
        // every pair of every head is the same numbers under the same angle, so every result must be
        float const a = random.unit(), b = random.unit(), c = random.unit(), s = random.unit();
        for (std::ptrdiff_t offset : {0, 1, 2, 5}) {
            floats x;
            for (int head = 0; head < 6; ++head) {
                x.insert(x.end(), at(half), a);
                x.insert(x.end(), at(half), b);
            }
            placed heads(x, offset), cosines(floats(at(2 * half), c), offset), sines(floats(at(2 * half), s), 1);
            fixed().rope(heads.data(), std::ptrdiff_t{6} * half, 2, 3, 2 * half, cosines.data(), sines.data());
            float one[2]{a, b};
            fixed().rope(one, 2, 1, 1, 2, &c, &s);
            floats expected;
            for (int head = 0; head < 6; ++head) {
                expected.insert(expected.end(), at(half), one[0]);
                expected.insert(expected.end(), at(half), one[1]);
            }
            CHECK(difference(heads.values(x.size()), expected) == "");
            CHECK(distance({one[0], one[1]}, {std::fmaf(a, c, 0.0f - product(b, s)), std::fmaf(b, c, product(a, s))}) < 1e-6f);
        }
    }
}

namespace {
struct attention_case {
    int heads, kv_heads, head_dim, positions;
    std::int64_t window;
};

floats attend(cache const& kv, float const* q, attention_case const& c, int rows, std::int64_t position, std::ptrdiff_t offset = 0) {
    std::ptrdiff_t const width = std::ptrdiff_t{c.heads} * c.head_dim;
    std::size_t const count = at(rows * width);
    placed query(floats(q, q + count), offset), out(floats(count), offset / 2),
        scratch(floats(fixed().attention_scratch_floats(c.head_dim)), 0);
    fixed().attention({query.data(), width, out.data(), width, kv.keys.data(), kv.values.data(), kv.stride, rows, c.heads, c.kv_heads,
                       c.head_dim, position, c.window, 0.37f, scratch.data()});
    return out.values(count);
}
floats of_head(floats const& all, int kv_heads, int head_dim, int h) {
    return columns_of(all, kv_heads * head_dim, h * head_dim, (h + 1) * head_dim);
}
}  // namespace

TEST_CASE("attention is near the law's, with the same bits in one call, in chunks and token by token, whatever the heads and the window") {
    random_numbers random;
    for (attention_case c : {attention_case{4, 2, 64, 150, 0}, attention_case{1, 1, 8, 70, 0}, attention_case{3, 1, 5, 66, 0},
                             attention_case{14, 2, 20, 40, 0}, attention_case{2, 2, 80, 131, 0}, attention_case{8, 1, 1, 33, 0},
                             attention_case{2, 1, 16, 200, 50}, attention_case{1, 1, 24, 150, 1}, attention_case{7, 1, 17, 140, 64},
                             attention_case{2, 2, 128, 66, 7}}) {
        int const width = c.heads * c.head_dim, kv_width = c.kv_heads * c.head_dim;
        floats const q = random.row(at(c.positions * width), 4.0f), k = random.row(at(c.positions * kv_width), 2.0f),
                     v = random.row(k.size());
        floats law, whole;
        for (int t = 0; t < c.positions; ++t)
            for (int h = 0; h < c.heads; ++h) {
                int const kv = h * c.kv_heads / c.heads;
                floats const o =
                    reference::attention(q.data() + std::ptrdiff_t{t} * width + h * c.head_dim, of_head(k, c.kv_heads, c.head_dim, kv),
                                         of_head(v, c.kv_heads, c.head_dim, kv), c.head_dim, t, c.window, 0.37f);
                law.insert(law.end(), o.begin(), o.end());
            }
        for (int chunk : {c.positions, 1, 7, 65}) {
            cache kv(c.kv_heads, c.head_dim, c.positions, std::nanf(""));  // what was not written is not used
            floats out;
            for (int t = 0; t < c.positions; t += chunk) {
                int const rows = std::min(chunk, c.positions - t);
                kv.store(t, rows, k.data() + std::ptrdiff_t{t} * kv_width, v.data() + std::ptrdiff_t{t} * kv_width);
                floats const o = attend(kv, q.data() + std::ptrdiff_t{t} * width, c, rows, t, t % 6);
                out.insert(out.end(), o.begin(), o.end());
            }
            if (chunk == c.positions) whole = out;
            CAPTURE(c.head_dim);
            CAPTURE(chunk);
            CHECK(difference(out, whole) == "");
        }
        CHECK(distance(whole, law) < 1e-5f);
        // one rank of a column-parallel split: one KV head and its query heads
        cache one(1, c.head_dim, c.positions, -inf);
        int const group = c.heads / c.kv_heads, last = c.kv_heads - 1;
        one.store(0, c.positions, of_head(k, c.kv_heads, c.head_dim, last).data(), of_head(v, c.kv_heads, c.head_dim, last).data());
        floats const own = columns_of(q, width, last * group * c.head_dim, width);
        CHECK(difference(attend(one, own.data(), {group, 1, c.head_dim, c.positions, c.window}, c.positions, 0, 3),
                         columns_of(whole, width, last * group * c.head_dim, width)) == "");
    }
}

TEST_CASE("a NaN or an infinity at one position reaches no earlier one, nor one whose window has passed it") {
    random_numbers random;
    for (std::int64_t window : {0, 9}) {
        attention_case const c{4, 2, 16, 90, window};
        floats const q = random.row(at(c.positions * c.heads * c.head_dim));
        floats k = random.row(at(c.positions * c.kv_heads * c.head_dim)), v = random.row(k.size());
        cache clean(c.kv_heads, c.head_dim, c.positions, 0.0f), strange(c.kv_heads, c.head_dim, c.positions, inf);
        clean.store(0, c.positions, k.data(), v.data());
        int const at_position = 40, width = c.heads * c.head_dim;
        v[at(at_position * c.kv_heads * c.head_dim + 3)] = inf;             // KV head 0
        k[at(at_position * c.kv_heads * c.head_dim + 20)] = std::nanf("");  // KV head 1
        strange.store(0, c.positions, k.data(), v.data());
        floats const good = attend(clean, q.data(), c, c.positions, 0), bad = attend(strange, q.data(), c, c.positions, 0);
        int leaked = 0, missing = 0;
        for (int t = 0; t < c.positions; ++t)
            for (int i = 0; i < width; ++i) {
                bool const sees = t >= at_position && (window == 0 || t - at_position < window),
                           touched = i / c.head_dim >= 2 || i % c.head_dim == 3;
                std::size_t const n = at(t * width + i);
                if (sees && touched)
                    missing += std::isfinite(bad[n]);
                else
                    leaked += bits(bad[n]) != bits(good[n]);
            }
        CHECK(leaked == 0);
        CHECK(missing == 0);
    }
}

TEST_CASE("nothing is allocated in a call") {
    random_numbers random;
    int const outputs = 200, columns = 5632, rows = 45;
    floats x = random.row(at(rows * columns)), y(x.size()), scratch(fixed().attention_scratch_floats(128));
    attention_case const c{8, 2, 128, 128, 0};
    cache const kv(c.kv_heads, c.head_dim, c.positions, 0.25f);
    for (panel_format format : both_formats) {
        held_matrix const m(random.row(at(outputs * columns)), outputs, columns, 8, format);
        Eigen::internal::set_is_malloc_allowed(false);  // from here Eigen's allocations fail an assertion
        fixed().multiply(y.data(), outputs, m.view, x.data(), columns, rows, nullptr);
        Eigen::internal::set_is_malloc_allowed(true);
    }
    Eigen::internal::set_is_malloc_allowed(false);
    fixed().rms_norm(y.data(), columns, x.data(), columns, x.data(), columns, 1e-5f, rows);
    fixed().swiglu(y.data(), x.data(), x.data(), x.size());
    fixed().exp(y.data(), x.data(), x.size());
    fixed().add(y.data(), x.data(), y.data(), x.size());
    fixed().add_bias(y.data(), columns, x.data(), columns, rows);
    fixed().rope(y.data(), columns, rows, 44, 128, x.data(), x.data());
    fixed().attention(
        {x.data(), 1024, y.data(), 1024, kv.keys.data(), kv.values.data(), kv.stride, 20, 8, 2, 128, 100, 0, 0.1f, scratch.data()});
    Eigen::internal::set_is_malloc_allowed(true);
    CHECK(y[0] == y[0]);
}
