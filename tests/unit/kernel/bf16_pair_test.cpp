// Products over pairs of bf16, against vectors made with exact fractions, against the law written out, and against each other.
// SPDX-License-Identifier: Apache-2.0
#include "reference.hpp"

#include <doctest/doctest.h>
#include <nlohmann/json.hpp>

#include <fstream>

using namespace reference;
using tenon::kernel::name_of;
using tenon::kernel::table;

namespace {

/// Every table that this machine runs, and of one with an instruction for pairs the other too, without.
struct named_table {
    std::string name;
    table const* kernels;
};
std::vector<named_table> every_table() {
    std::vector<named_table> all;
    for (isa i : all_supported()) all.push_back({std::string(name_of(i)), &tenon::kernel::table_of(i)});
#if defined(__x86_64__)
    if (tenon::kernel::has_native_pairs()) {
        all.push_back({"avx512 without an instruction for pairs", &tenon::kernel::avx512::all<isa::avx512>()});
        all.push_back({"the instruction for a single row", &tenon::kernel::avx512_bf16::all<false>()});
        all.push_back({"the instruction for all rows", &tenon::kernel::avx512_bf16::all<true>()});
    }
#endif
    return all;
}

floats run_with(table const& kernels, matrix const& w, floats const& x, int rows) {
    floats y(at(rows) * at(w.view.rows)), scratch(tenon::kernel::matmul_scratch_floats(rows, w.view.columns));
    kernels.matmul(y.data(), w.view.rows, w.view, x.data(), w.view.columns, rows, 0, tenon::kernel::panels(w.view.rows), scratch.data());
    return y;
}

enum class order { later_first, earlier_first };

/// Rule 9, one output. `w` is bf16, widened. In binary64, rounded to odd, so that nothing but the last rounding counts.
float flushed(float x) { return std::fabs(x) < 0x1p-126f ? product(x, 0.0f) : x; }
float step(float x, float w, float a) {
    double const exact = double{flushed(x)} * double{flushed(w)}, addend = double{flushed(a)}, sum = exact + addend;
    double const t = sum - exact, error = (exact - (sum - t)) + (addend - t);
    auto bits_of_sum = std::bit_cast<std::uint64_t>(sum);
    if (error != 0.0 && error == error && bits_of_sum % 2 == 0) bits_of_sum += (error > 0.0) == (sum > 0.0) ? 1 : ~std::uint64_t{0};
    double const odd = std::bit_cast<double>(bits_of_sum);
    // from here up a number rounds to the smallest normal one, or higher
    return std::fabs(odd) < 0x1p-126 - 0x1p-151 ? (std::signbit(odd) ? -0.0f : 0.0f) : static_cast<float>(odd);
}
float pair_linear(float const* w, float const* x, int columns, int segments, order first = order::later_first) {
    floats p;
    int const length = columns / segments;
    for (int s = 0; s < segments; ++s) {
        float a = 0.0f;
        for (int k = s * length; k < (s + 1) * length; k += 2) {
            bool const alone = k + 1 == (s + 1) * length;
            auto const one = [&](int i, float acc) {
                return i == k + 1 && alone ? step(0.0f, 0.0f, acc) : step(tenon::widen_bf16(tenon::narrow_bf16(x[i])), w[i], acc);
            };
            a = first == order::later_first ? one(k, one(k + 1, a)) : one(k + 1, one(k, a));
        }
        p.push_back(a);
    }
    return tree(p);
}
floats pair_rows(floats const& w, floats const& x, int outputs, int columns, int segments, int rows) {
    floats y;
    for (int m = 0; m < rows; ++m)
        for (int n = 0; n < outputs; ++n)
            y.push_back(pair_linear(w.data() + std::ptrdiff_t{n} * columns, x.data() + std::ptrdiff_t{m} * columns, columns, segments));
    return y;
}

struct vector_case {
    std::string name;
    int segments = 1;
    floats x, w;
    std::uint32_t y = 0;
};
std::vector<vector_case> vectors() {
    std::ifstream file(TENON_TEST_DATA "/bf16_pair/vectors.json");
    std::vector<vector_case> all;
    for (auto const& v : nlohmann::json::parse(file)) {
        vector_case c{v.at("name"), v.at("segments"), {}, {}, v.at("y")};
        for (std::uint32_t const b : v.at("x").get<std::vector<std::uint32_t>>()) c.x.push_back(std::bit_cast<float>(b));
        for (std::uint16_t const b : v.at("w").get<std::vector<std::uint16_t>>()) c.w.push_back(tenon::widen_bf16(b));
        all.push_back(c);
    }
    return all;
}

/// Numbers of any exponent within a range, both included; 255 is infinity and NaN.
floats spread(random_numbers& random, std::size_t n, unsigned low, unsigned high) {
    floats all(n);
    for (float& x : all) {
        auto const r = random.next();
        auto const exponent = low + static_cast<std::uint32_t>(r >> 32) % (high - low + 1);
        x = std::bit_cast<float>(static_cast<std::uint32_t>(r & 0x807fffffu) | exponent << 23);
    }
    return all;
}

}  // namespace

TEST_CASE("every kernel of pairs gives the vectors of the law, and so does the law written out") {
    std::vector<vector_case> const all = vectors();
    REQUIRE(all.size() > 100);
    for (vector_case const& v : all) {
        CAPTURE(v.name);
        auto const columns = static_cast<int>(v.x.size());
        CHECK(bits(pair_linear(v.w.data(), v.x.data(), columns, v.segments)) == v.y);
        matrix const w(v.w, 1, columns, v.segments, panel_format::bf16_pair);
        for (named_table const& t : every_table()) {
            CAPTURE(t.name);
            CHECK(bits(run_with(*t.kernels, w, v.x, 1)[0]) == v.y);
        }
    }
}

TEST_CASE("the vectors tell the earlier of a pair first from the later first, and pairs from single inputs") {
    int other_order = 0, single = 0;
    for (vector_case const& v : vectors()) {
        auto const columns = static_cast<int>(v.x.size());
        other_order += bits(pair_linear(v.w.data(), v.x.data(), columns, v.segments, order::earlier_first)) != v.y;
        floats rounded = v.x;
        for (float& x : rounded) x = tenon::widen_bf16(tenon::narrow_bf16(x));
        single += bits(linear(v.w.data(), rounded.data(), columns, v.segments)) != v.y;
    }
    CHECK(other_order >= 20);
    CHECK(single >= 30);
}

TEST_CASE("every kernel of pairs multiplies as the law says, for any shape and any number of rows") {
    random_numbers random;
    struct shape { int outputs, columns, segments; };
    for (shape s : {shape{1, 1, 1}, shape{3, 2, 1}, shape{33, 56, 8}, shape{40, 7, 1}, shape{65, 96, 1}, shape{130, 128, 4}, shape{257, 24, 8},
                    shape{31, 1000, 8}, shape{64, 2304, 8}, shape{32, 30, 2}, shape{97, 1150, 2}}) {
        floats const w = held(random.row(at(s.outputs) * at(s.columns)), panel_format::bf16);
        matrix const packed(w, s.outputs, s.columns, s.segments, panel_format::bf16_pair);
        int const most = s.columns > 500 ? 17 : 33;
        floats const x = random.row(at(most) * at(s.columns), 2.0f);
        floats const expected = pair_rows(w, x, s.outputs, s.columns, s.segments, most);
        for (named_table const& t : every_table())
            for (int rows = 1; rows <= most; ++rows) {
                CAPTURE(s.columns);
                CAPTURE(rows);
                CAPTURE(t.name);
                REQUIRE(difference(run_with(*t.kernels, packed, x, rows), floats(expected.begin(), expected.begin() + std::ptrdiff_t{rows} * s.outputs)) == "");
            }
    }
}

TEST_CASE("exponents near one, far apart, tiny, at the smallest normal number and of every kind go through as through the law") {
    random_numbers random;
    struct range { unsigned x_low, x_high, w_low, w_high; };
    for (range r : {range{120, 134, 120, 134}, range{100, 160, 90, 160}, range{50, 80, 50, 80}, range{60, 66, 60, 66}, range{1, 30, 97, 130},
                    range{0, 3, 120, 254}, range{225, 254, 0, 130}, range{0, 254, 0, 254}, range{0, 255, 0, 255}, range{63, 64, 62, 64}})
        for (int columns : {2, 7, 24, 56}) {
            int const outputs = 64, rows = 37, segments = columns % 8 == 0 ? 8 : 1;
            floats w = held(spread(random, at(outputs) * at(columns), r.w_low, r.w_high), panel_format::bf16);
            floats x = spread(random, at(rows) * at(columns), r.x_low, r.x_high);
            for (int n = 0; n < rows; ++n) x[random.next() % x.size()] = n % 2 != 0 ? 0.0f : -0.0f;
            floats const expected = pair_rows(w, x, outputs, columns, segments, rows);
            matrix const packed(w, outputs, columns, segments, panel_format::bf16_pair);
            for (named_table const& t : every_table()) {
                CAPTURE(t.name);
                CAPTURE(r.x_low);
                CAPTURE(r.w_low);
                CAPTURE(columns);
                CHECK(difference(run_with(*t.kernels, packed, x, rows), expected) == "");
                CHECK(difference(run_with(*t.kernels, packed, x, 1), floats(expected.begin(), expected.begin() + outputs)) == "");
            }
        }
}

TEST_CASE("a row's bits under pairs do not depend on how many rows are multiplied with it, nor on parts of the laying out") {
    random_numbers random;
    int const outputs = 70, columns = 640, rows = 500;
    matrix const w(random.row(at(outputs) * at(columns)), outputs, columns, 8, panel_format::bf16_pair);
    floats const x = random.row(at(rows) * at(columns));
    for (named_table const& t : every_table()) {
        CAPTURE(t.name);
        floats const y = run_with(*t.kernels, w, x, rows);
        for (int m : {0, 13, 14, 111, 223, 224, 447, 499}) {
            floats const alone = run_with(*t.kernels, w, floats(x.begin() + m * columns, x.begin() + (m + 1) * columns), 1);
            CHECK(difference(alone, floats(y.begin() + m * outputs, y.begin() + (m + 1) * outputs)) == "");
        }
        tenon::kernel::product_kernels const& of = t.kernels->products[static_cast<int>(panel_format::bf16_pair)];
        floats whole(tenon::kernel::prepared_floats(100, columns)), parts(whole.size());
        of.prepare(whole.data(), x.data(), columns, 100, columns, 0, 1);
        for (int part : {2, 0, 1}) of.prepare(parts.data(), x.data(), columns, 100, columns, part, 3);
        CHECK(std::memcmp(whole.data(), parts.data(), whole.size() * sizeof(float)) == 0);
    }
}

TEST_CASE("the sub-trees of row-parallel ranks join to the bits of the whole under pairs, segments of odd length too") {
    random_numbers random;
    int const outputs = 50, rows = 3;
    for (int columns : {56, 1000, 1024}) {
        floats const w = random.row(at(outputs) * at(columns)), x = random.row(at(rows) * at(columns));
        for (named_table const& t : every_table()) {
            floats const whole = run_with(*t.kernels, matrix(w, outputs, columns, 8, panel_format::bf16_pair), x, rows);
            for (int ranks = 2; ranks <= 8; ranks *= 2) {
                int const width = columns / ranks;
                std::vector<floats> parts;
                for (int r = 0; r < ranks; ++r) {
                    floats part_w, part_x;
                    for (int n = 0; n < outputs; ++n) part_w.insert(part_w.end(), w.begin() + n * columns + r * width, w.begin() + n * columns + (r + 1) * width);
                    for (int m = 0; m < rows; ++m) part_x.insert(part_x.end(), x.begin() + m * columns + r * width, x.begin() + m * columns + (r + 1) * width);
                    parts.push_back(run_with(*t.kernels, matrix(part_w, outputs, width, 8 / ranks, panel_format::bf16_pair), part_x, rows));
                }
                for (; parts.size() > 1;) {
                    std::vector<floats> next;
                    for (std::size_t p = 0; p < parts.size(); p += 2) {
                        next.emplace_back(parts[p].size());
                        t.kernels->add_pair(next.back().data(), parts[p].data(), parts[p + 1].data(), parts[p].size());
                    }
                    parts = next;
                }
                CHECK(difference(parts[0], whole) == "");
            }
        }
    }
}
