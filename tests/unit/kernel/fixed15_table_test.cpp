// The tables of the profile fixed15_1, against golden vectors and against its law written out in binary64 and 64-bit integers: products
// uncut and cut, and attention.
// SPDX-License-Identifier: Apache-2.0
#include "reference.hpp"

#include <doctest/doctest.h>
#include <tenon/kernel/fixed15_table.hpp>

#include <fstream>
#include <iterator>

namespace fixed15 = tenon::kernel::fixed15;
using namespace reference;
using tenon::dtype;

namespace {

using codes = std::vector<std::int16_t>;
using exponents = std::vector<std::int32_t>;
using sums = std::vector<std::int64_t>;

// The law, written from its words: frexp and ldexp, nothing of the library.
namespace law {
double flush(double x) { return std::fabs(x) < 0x1p-126 ? std::copysign(0.0, x) : x; }
double power(int e) { return e > 127 ? std::numeric_limits<double>::infinity() : e < -126 ? 0.0 : std::ldexp(1.0, e); }
int exponent(float const* x, int n) {
    double most = 0.0;
    for (int k = 0; k < n; ++k)
        if (!std::isnan(x[k])) most = std::max(most, std::fabs(flush(x[k])));
    if (most == 0.0) return 0;
    if (std::isinf(most)) return 128 - 13;
    int e = 0;
    std::frexp(most, &e);  // most = m * 2^e, m in [1/2, 1)
    return e - 1 - 13;
}
std::int16_t code(float x, int e) {
    double const scaled = flush(static_cast<double>(static_cast<float>(flush(x) * power(-e))));
    if (std::isnan(scaled)) return 0;
    return static_cast<std::int16_t>(std::clamp(std::nearbyint(scaled), -16383.0, 16383.0));
}
float value(std::int64_t s, int e) {
    float const rounded = static_cast<float>(s);
    return static_cast<float>(flush(static_cast<double>(product(rounded, static_cast<float>(power(e))))));
}
struct rows {
    exponents e;
    codes q;
    int columns;
    rows(floats const& x, int n, int k) : columns(k) {
        for (int r = 0; r < n; ++r) {
            float const* const row = x.data() + std::ptrdiff_t{r} * k;
            e.push_back(exponent(row, k));
            for (int i = 0; i < k; ++i) q.push_back(code(row[i], e.back()));
        }
    }
};
floats multiply(rows const& a, rows const& b) {
    floats c;
    for (std::size_t m = 0; m < a.e.size(); ++m)
        for (std::size_t n = 0; n < b.e.size(); ++n) {
            std::int64_t s = 0;
            auto const K = static_cast<std::size_t>(a.columns);
            for (std::size_t k = 0; k < K; ++k) s += std::int64_t{a.q[m * K + k]} * b.q[n * K + k];
            c.push_back(value(s, a.e[m] + b.e[n]));
        }
    return c;
}
}  // namespace law

template <class T>
std::vector<T> read_npy(std::string const& name, std::string const& descr) {
    std::string const path = TENON_TEST_DATA "/golden/fixed15/" + name + ".npy";
    std::ifstream file(path, std::ios::binary);
    std::string const all((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
    REQUIRE_MESSAGE(all.size() > 10, path);
    std::size_t const begin = 10 + static_cast<unsigned char>(all[8]) + 256U * static_cast<unsigned char>(all[9]);
    REQUIRE_MESSAGE(all.substr(10, begin - 10).find("'" + descr + "'") != std::string::npos, path);
    std::vector<T> numbers((all.size() - begin) / sizeof(T));
    std::memcpy(numbers.data(), all.data() + begin, numbers.size() * sizeof(T));
    return numbers;
}

/// Rows [n0, n1), columns [c0, c1) of whole rows of `columns`, packed by the library.
struct packed {
    std::vector<std::byte> bytes;
    tenon::kernel::packed_matrix view{};
    packed(std::byte const* source, dtype type, int columns, int n0, int n1, int c0, int c1) {
        int const element = tenon::bytes_of(type), rows = n1 - n0, held = c1 - c0;
        std::ptrdiff_t const stride = std::ptrdiff_t{columns} * element;
        std::size_t const size = fixed15::packed_bytes(rows, held);
        bytes.assign(size + 128, std::byte{0x5a});  // padding must be written, not found; nothing behind it may be
        auto const address = reinterpret_cast<std::uintptr_t>(bytes.data());
        std::byte* const to = bytes.data() + (64 - address % 64) % 64;
        for (int r = 0; r < rows; r += 7) {  // in bands, as files are read
            int const count = std::min(7, rows - r);
            std::byte const* const from = source + (n0 + r) * stride;
            fixed15::pack_exponents(to, rows, held, r, count, from, stride, type, columns);
            fixed15::pack_codes(to, rows, held, r, count, from + std::ptrdiff_t{c0} * element, stride, type);
        }
        bool untouched = true;
        for (std::byte const* p = to + size; p < bytes.data() + bytes.size(); ++p) untouched = untouched && *p == std::byte{0x5a};
        CHECK(untouched);
        view.data = to;
        view.rows = rows;
        view.columns = held;
    }
    packed(floats const& w, int columns, int n0, int n1, int c0, int c1)
        : packed(reinterpret_cast<std::byte const*>(w.data()), dtype::f32, columns, n0, n1, c0, c1) {}
    packed(floats const& w, int rows, int columns) : packed(w, columns, 0, rows, 0, columns) {}
    packed(packed const&) = delete;
    packed& operator=(packed const&) = delete;

    /// Every row as unpack_row gives it, and the floats that it stands for.
    void check(exponents const& e, codes const& q) const {
        codes row(at(view.columns));
        for (int r = 0; r < view.rows; ++r) {
            CHECK(fixed15::unpack_row(row.data(), static_cast<std::byte const*>(view.data), r, view.columns) == e[at(r)]);
            CHECK(std::equal(row.begin(), row.end(), q.begin() + std::ptrdiff_t{r} * view.columns));
        }
    }
};

/// `prepared` has exactly the floats that table.hpp gives it, and nothing beyond output N may be written.
floats run(isa i, packed const& w, floats const& x, int rows, int parts = 1) {
    fixed15::table const& t = fixed15::table_of(i);
    int const N = w.view.rows, K = w.view.columns, stride = N + 3, panels = tenon::kernel::panels(N);
    floats padded(at(std::ptrdiff_t{rows} * stride), 123.0f), y;
    for (int row = 0; row < rows; row += tenon::kernel::rows_at_once) {
        int const block = std::min(tenon::kernel::rows_at_once, rows - row);
        floats prepared(tenon::kernel::prepared_floats(block, K));
        for (int p = 0; p < parts; ++p) t.product.prepare(prepared.data(), x.data() + std::ptrdiff_t{row} * K, K, block, K, p, parts);
        for (int p = 0; p < parts; ++p) {
            int const first = panels * p / parts;
            t.product.multiply(padded.data() + std::ptrdiff_t{row} * stride, stride, w.view, prepared.data(), block, first,
                               panels * (p + 1) / parts - first, nullptr);
        }
    }
    bool untouched = true;
    for (int m = 0; m < rows; ++m) {
        auto const from = padded.begin() + std::ptrdiff_t{m} * stride;
        y.insert(y.end(), from, from + N);
        for (int n = N; n < stride; ++n) untouched = untouched && from[n] == 123.0f;
    }
    CHECK(untouched);
    return y;
}

/// The product of weights whose columns are cut over ranks: magnitudes by maximum, sums by addition, one finish on every rank.
floats run_reduced(isa i, floats const& w, floats const& x, int outputs, int columns, int rows, int ranks) {
    fixed15::table const& t = fixed15::table_of(i);
    auto const cut = [&](int r) { return columns * r / ranks; };
    std::vector<std::uint32_t> magnitudes(at(rows));
    for (int m = 0; m < rows; ++m)
        for (int r = ranks - 1; r >= 0; --r) {
            float const* const part = x.data() + std::ptrdiff_t{m} * columns + cut(r);
            magnitudes[at(m)] = std::max(magnitudes[at(m)], fixed15::row_magnitude(part, cut(r + 1) - cut(r)));
        }
    sums whole(at(std::ptrdiff_t{rows} * outputs));
    floats first_y;
    for (int pass = 0; pass < 2; ++pass)  // the sums of all ranks, then what each makes of them
        for (int r = 0; r < ranks; ++r) {
            packed const part(w, columns, 0, outputs, cut(r), cut(r + 1));
            floats prepared(tenon::kernel::prepared_floats(rows, part.view.columns));
            t.prepare_part(prepared.data(), x.data() + cut(r), columns, rows, part.view.columns, magnitudes.data(), 0, 1);
            if (pass == 0) {
                sums own(whole.size());
                t.sums(own.data(), outputs, part.view, prepared.data(), rows, 0, tenon::kernel::panels(outputs));
                for (std::size_t n = 0; n < own.size(); ++n) whole[n] += own[n];
            } else {
                floats y(whole.size());
                for (int m = 0; m < rows; ++m) {
                    std::ptrdiff_t const row = std::ptrdiff_t{m} * outputs;
                    int const first = outputs * r / ranks, end = outputs * (r + 1) / ranks;  // a rank's own outputs, and then the others
                    fixed15::finish(y.data() + row + first, whole.data() + row + first, part.view, first, end - first, magnitudes[at(m)]);
                    fixed15::finish(y.data() + row, whole.data() + row, part.view, 0, first, magnitudes[at(m)]);
                    fixed15::finish(y.data() + row + end, whole.data() + row + end, part.view, end, outputs - end, magnitudes[at(m)]);
                }
                if (r == 0) first_y = y;
                CHECK(difference(y, first_y) == "");
            }
        }
    return first_y;
}

/// Rows of sizes far apart; odd: every bit pattern there is, subnormals, infinities and NaN among them.
floats rows_of(random_numbers& random, int rows, int columns, bool odd) {
    floats x;
    for (int r = 0; r < rows; ++r) {
        floats row = random.row(at(columns), std::ldexp(1.0f, static_cast<int>(random.next() % 40) - 20));
        if (odd)
            for (float& v : row) v = std::bit_cast<float>(static_cast<std::uint32_t>(random.next() >> 32));
        x.insert(x.end(), row.begin(), row.end());
    }
    return x;
}
}  // namespace

TEST_CASE("fixed15 tables give the golden vectors: exponents, codes and products, uncut and cut") {
    struct shape {
        std::string name;
        int m, n, k;
    };
    for (shape const& s : {shape{"plain", 5, 7, 96}, shape{"k1", 3, 2, 1}, shape{"long_k", 2, 3, 4097}, shape{"edges", 10, 6, 40}}) {
        CAPTURE(s.name);
        floats const a = read_npy<float>(s.name + "_a", "<f4"), b = read_npy<float>(s.name + "_b", "<f4"),
                     c = read_npy<float>(s.name + "_c", "<f4");
        REQUIRE(a.size() == at(std::ptrdiff_t{s.m} * s.k));
        REQUIRE(b.size() == at(std::ptrdiff_t{s.n} * s.k));
        REQUIRE(c.size() == at(std::ptrdiff_t{s.m} * s.n));
        for (bool const left : {true, false}) {  // either operand as weights
            int const rows = left ? s.m : s.n;
            std::string const name = s.name + (left ? "_a" : "_b");
            exponents const e = read_npy<std::int32_t>(name + "_exp", "<i4");
            std::vector<std::int8_t> const hi = read_npy<std::int8_t>(name + "_hi", "|i1"), lo = read_npy<std::int8_t>(name + "_lo", "|i1");
            codes q;
            for (std::size_t i = 0; i < hi.size(); ++i) q.push_back(static_cast<std::int16_t>(128 * hi[i] + lo[i]));
            packed(left ? a : b, rows, s.k).check(e, q);
            for (isa i : all_supported()) {  // and as activations
                codes prepared(at(rows) * fixed15::row_codes(s.k));
                fixed15::table_of(i).product.prepare(prepared.data(), (left ? a : b).data(), s.k, rows, s.k, 0, 1);
                for (int r = 0; r < rows; ++r) {
                    CHECK(fixed15::exponent_of_row(prepared.data(), r, s.k) == e[at(r)]);
                    auto const row = prepared.begin() + static_cast<std::ptrdiff_t>(at(r) * fixed15::row_codes(s.k));
                    CHECK(std::equal(row, row + s.k, q.begin() + std::ptrdiff_t{r} * s.k));
                }
            }
        }
        CHECK(difference(law::multiply(law::rows(a, s.m, s.k), law::rows(b, s.n, s.k)), c) == "");
        packed const w(b, s.n, s.k);
        for (isa i : all_supported()) {
            CAPTURE(tenon::kernel::name_of(i));
            CHECK(difference(run(i, w, a, s.m), c) == "");
            for (int ranks : {2, 3, 4})
                if (ranks <= s.k) CHECK(difference(run_reduced(i, b, a, s.n, s.k, s.m, ranks), c) == "");
        }
    }
}

TEST_CASE("fixed15: every instruction set gives the sums of 64-bit integers, for any shape, alone or in a batch, in any number of parts") {
    random_numbers random;
    struct shape {
        int outputs, columns, rows;
    };
    for (shape s :
         {shape{1, 1, 1}, shape{3, 2, 2}, shape{33, 7, 5}, shape{40, 9, 3}, shape{65, 96, 4}, shape{31, 1001, 3}, shape{70, 64, 230}})
        for (bool const odd : {false, true}) {
            floats const w = rows_of(random, s.outputs, s.columns, odd), x = rows_of(random, s.rows, s.columns, odd);
            floats const expected = law::multiply(law::rows(x, s.rows, s.columns), law::rows(w, s.outputs, s.columns));
            packed const all(w, s.outputs, s.columns);
            CAPTURE(s.outputs);
            CAPTURE(s.columns);
            CAPTURE(odd);
            for (isa i : all_supported()) {
                CAPTURE(tenon::kernel::name_of(i));
                for (int parts : {1, 2, 5}) CHECK(difference(run(i, all, x, s.rows, parts), expected) == "");
                for (int m : {0, s.rows / 2, s.rows - 1}) {
                    floats const row(x.begin() + std::ptrdiff_t{m} * s.columns, x.begin() + std::ptrdiff_t{m + 1} * s.columns);
                    floats const alone(expected.begin() + std::ptrdiff_t{m} * s.outputs,
                                       expected.begin() + std::ptrdiff_t{m + 1} * s.outputs);
                    CHECK(difference(run(i, all, row, 1), alone) == "");
                }
            }
        }
}

TEST_CASE("fixed15: outputs cut over ranks, and inputs cut over ranks, give the bits of the uncut product") {
    random_numbers random;
    int const outputs = 100, columns = 134, rows = 5;
    for (bool const odd : {false, true}) {
        floats const w = rows_of(random, outputs, columns, odd), x = rows_of(random, rows, columns, odd);
        floats const expected = law::multiply(law::rows(x, rows, columns), law::rows(w, outputs, columns));
        for (isa i : all_supported())
            for (int ranks : {2, 3, 4}) {
                CAPTURE(ranks);
                CHECK(difference(run_reduced(i, w, x, outputs, columns, rows, ranks), expected) == "");
                floats joined(expected.size());
                for (int r = 0; r < ranks; ++r) {
                    int const n0 = outputs * r / ranks, n1 = outputs * (r + 1) / ranks;
                    packed const part(w, columns, n0, n1, 0, columns);
                    floats const y = run(i, part, x, rows);
                    for (int m = 0; m < rows; ++m)
                        std::copy_n(y.begin() + std::ptrdiff_t{m} * (n1 - n0), n1 - n0, joined.begin() + std::ptrdiff_t{m} * outputs + n0);
                }
                CHECK(difference(joined, expected) == "");
            }
    }
}

TEST_CASE("fixed15: the largest sums are exact at 65536 inputs, with either sign, and one input more is refused however few are held") {
    int const columns = fixed15::most_columns, rows = 2, outputs = 3;
    floats w(at(std::ptrdiff_t{outputs} * columns), 16383.0f), x(at(std::ptrdiff_t{rows} * columns), 16383.0f);
    for (int k = 0; k < columns; ++k) {
        x[at(columns + k)] = -16383.0f;
        w[at(columns + k)] = k % 2 == 0 ? 16383.0f : -16383.0f;
        w[at(2 * columns + k)] = k % 8 == 7 ? -1.0f : 16383.0f;
    }
    floats const expected = law::multiply(law::rows(x, rows, columns), law::rows(w, outputs, columns));
    CHECK(expected[0] == static_cast<float>(std::int64_t{16383} * 16383 * 65536));
    CHECK(expected[1] == 0.0f);
    packed const all(w, outputs, columns);
    for (isa i : all_supported()) CHECK(difference(run(i, all, x, rows), expected) == "");
    CHECK_THROWS_WITH_AS(fixed15::pack_exponents(nullptr, 1, 8, 0, 1, nullptr, 0, dtype::f32, columns + 1),
                         doctest::Contains("product_is_exact"), tenon::refusal);
}

TEST_CASE("fixed15: weights stored as bf16 and f16 give the codes of their float32 values, also where they are not aligned") {
    random_numbers random;
    int const rows = 37, columns = 45;
    for (dtype const type : {dtype::bf16, dtype::f16}) {
        std::vector<std::uint16_t> stored;
        floats wide;
        for (int n = 0; n < rows * columns; ++n) {
            stored.push_back(static_cast<std::uint16_t>(random.next() >> 48));
            wide.push_back(type == dtype::bf16 ? tenon::widen_bf16(stored.back()) : tenon::widen_f16(stored.back()));
        }
        std::vector<std::byte> shifted(stored.size() * 2 + 1);
        std::memcpy(shifted.data() + 1, stored.data(), stored.size() * 2);
        law::rows const expected(wide, rows, columns);
        packed(shifted.data() + 1, type, columns, 0, rows, 0, columns).check(expected.e, expected.q);
    }
}

namespace {
/// Rule 7 for one query row, but for the scores: integer products of codes, then the scale. It is rule 7 of one-wide queries and keys:
/// fma(1, s, +0) is s, but for the sign of a zero, which exp does not see.
floats expected_attention(float const* q, floats const& k, floats const& v, int D, std::int64_t position, std::int64_t window,
                          float scale) {
    int const seen = static_cast<int>(position) + 1;
    law::rows const query(floats(q, q + D), 1, D), keys(floats(k.begin(), k.begin() + std::ptrdiff_t{seen} * D), seen, D);
    floats const scores = law::multiply(query, keys);
    float const one = 1.0f;
    floats out;
    for (int d = 0; d < D; ++d) {
        floats column;
        for (int j = 0; j < seen; ++j) column.push_back(v[at(std::ptrdiff_t{j} * D + d)]);
        out.push_back(reference::attention(&one, scores, column, 1, position, window, scale)[0]);
    }
    return out;
}
}  // namespace

TEST_CASE("fixed15 attention has the law's scores and rule 7's everything else, in one call, in chunks and token by token") {
    random_numbers random;
    struct shape {
        int heads, kv_heads, head_dim, positions;
        std::int64_t window;
        int power;  // of two, by which keys are smaller and queries larger
    };
    for (shape c : {shape{4, 2, 64, 70, 0, 0}, shape{3, 1, 5, 66, 0, 0}, shape{8, 1, 1, 33, 0, 0}, shape{2, 1, 16, 140, 50, 0},
                    shape{1, 1, 24, 80, 1, 0}, shape{2, 2, 80, 66, 7, 0}, shape{3, 1, 7, 130, 0, -114}, shape{4, 2, 32, 90, 0, -118}}) {
        float const scale = 0.37f;
        std::ptrdiff_t const width = std::ptrdiff_t{c.heads} * c.head_dim, kv_width = std::ptrdiff_t{c.kv_heads} * c.head_dim;
        floats q = random.row(at(c.positions * width), 4.0f), k = random.row(at(c.positions * kv_width), 2.0f);
        floats const v = random.row(k.size());
        if (c.power != 0) {  // keys of a size where subnormals would get codes if they were kept, and NaN with every bit of a payload
            float const nan = std::bit_cast<float>(0x7fffffffu), subnormal = std::bit_cast<float>(0x007fffffu);
            for (float& x : k) x = std::ldexp(x, c.power);
            for (float& x : q) x = std::ldexp(x, -c.power);
            for (std::size_t i = 5; i < k.size(); i += 101) k[i] = nan;
            for (std::size_t i = 2; i < k.size(); i += 7) k[i] = i % 2 == 0 ? subnormal : -subnormal;
            for (std::size_t i = 3; i < q.size(); i += 211) q[i] = nan;
            k[k.size() - 3] = -std::numeric_limits<float>::infinity();
        }
        floats expected(q.size());
        for (int h = 0; h < c.heads; ++h) {
            std::ptrdiff_t const from = std::ptrdiff_t{h} * c.kv_heads / c.heads * c.head_dim;
            floats keys, values;
            for (int t = 0; t < c.positions; ++t) {
                keys.insert(keys.end(), k.begin() + t * kv_width + from, k.begin() + t * kv_width + from + c.head_dim);
                values.insert(values.end(), v.begin() + t * kv_width + from, v.begin() + t * kv_width + from + c.head_dim);
            }
            for (int t = 0; t < c.positions; ++t) {
                std::ptrdiff_t const row = t * width + std::ptrdiff_t{h} * c.head_dim;
                floats const o = expected_attention(q.data() + row, keys, values, c.head_dim, t, c.window, scale);
                std::copy(o.begin(), o.end(), expected.begin() + row);
            }
        }
        CHECK(std::count_if(expected.begin(), expected.end(), [](float x) { return x == x && x != 0.0f; }) > std::ssize(expected) / 2);
        for (isa i : all_supported())
            for (int chunk : {c.positions, 1, 7}) {
                cache kv(c.kv_heads, c.head_dim, c.positions, std::nanf(""));  // what was not written is not used
                floats out(q.size()), scratch(tenon::kernel::attention_scratch_floats(c.head_dim));
                for (int t = 0; t < c.positions; t += chunk) {
                    int const rows = std::min(chunk, c.positions - t);
                    kv.store(t, rows, k.data() + t * kv_width, v.data() + t * kv_width);
                    tenon::kernel::attention_call call{q.data() + t * width,
                                                       width,
                                                       out.data() + t * width,
                                                       width,
                                                       kv.keys.data(),
                                                       kv.values.data(),
                                                       kv.stride,
                                                       rows,
                                                       c.heads,
                                                       c.kv_heads,
                                                       c.head_dim,
                                                       t,
                                                       c.window,
                                                       scale,
                                                       scratch.data()};
                    for (int item = tenon::kernel::attention_items(call) - 1; item >= 0; --item)  // items depend on nothing outside them
                        fixed15::table_of(i).attend(call, item, 1, scratch.data());
                }
                CAPTURE(tenon::kernel::name_of(i));
                CAPTURE(c.head_dim);
                CAPTURE(chunk);
                CHECK(difference(out, expected) == "");
            }
    }
}

TEST_CASE("fixed15 attention reads a bf16 cache as its keys and values widened") {
    random_numbers random;
    int const heads = 2, head_dim = 24, positions = 70;
    std::ptrdiff_t const width = heads * head_dim;
    floats const q = random.row(at(positions * width), 4.0f);
    floats k = random.row(at(positions * head_dim), 2.0f), v = random.row(k.size());
    for (floats* of : {&k, &v})
        for (float& x : *of) x = tenon::widen_bf16(tenon::narrow_bf16(x));
    cache kv(1, head_dim, positions, 0.0f);
    kv.store(0, positions, k.data(), v.data());
    std::vector<std::uint16_t> keys, values;
    for (float x : kv.keys) keys.push_back(tenon::narrow_bf16(x));
    for (float x : kv.values) values.push_back(tenon::narrow_bf16(x));
    for (isa i : all_supported()) {
        floats wide(q.size()), narrow(q.size()), scratch(tenon::kernel::attention_scratch_floats(head_dim));
        tenon::kernel::attention_call call{q.data(),         width,     wide.data(), width, kv.keys.data(),
                                           kv.values.data(), kv.stride, positions,   heads, 1,
                                           head_dim,         0,         0,           0.37f, scratch.data()};
        fixed15::table_of(i).attend(call, 0, tenon::kernel::attention_items(call), scratch.data());
        call.out = narrow.data();
        call.keys = call.values = nullptr;
        call.narrow_keys = keys.data();
        call.narrow_values = values.data();
        fixed15::table_of(i).attend(call, 0, tenon::kernel::attention_items(call), scratch.data());
        CHECK(difference(narrow, wide) == "");
    }
}
