// Products over packed matrices, against the law written out.
// SPDX-License-Identifier: Apache-2.0
#include "reference.hpp"

#include <doctest/doctest.h>

using namespace reference;
using tenon::kernel::name_of;
using tenon::segments_of;

namespace {
constexpr panel_format both_formats[]{panel_format::f32, panel_format::bf16};
}

static_assert(segments_of(14 * 64, 64) == 2);
static_assert(segments_of(9 * 64, 64) == 1);
static_assert(segments_of(6 * 64, 64) == 2);
static_assert(segments_of(96, 32) == 1);
static_assert(segments_of(56, 1) == 8);
static_assert(segments_of(4096, 32) == 8);
static_assert(segments_of(1, 1) == 1);

TEST_CASE("every instruction set multiplies as the law says, for any shape and any number of rows") {
    random_numbers random;
    struct shape { int outputs, columns, segments; };
    for (shape s : {shape{1, 1, 1}, shape{3, 2, 1}, shape{33, 56, 8}, shape{40, 7, 1}, shape{65, 96, 1}, shape{130, 128, 4}, shape{257, 24, 8},
                    shape{31, 1000, 8}, shape{64, 2304, 8}, shape{32, 30, 2}, shape{97, 1150, 2}})
        for (panel_format format : both_formats) {
            floats const w = random.row(at(s.outputs) * at(s.columns));
            matrix const packed(w, s.outputs, s.columns, s.segments, format);
            int const most = s.columns > 500 ? 17 : 33;
            floats const x = random.row(at(most) * at(s.columns), 2.0f);
            floats const expected = linear_rows(held(w, format), x, s.outputs, s.columns, s.segments, most);
            for (isa i : all_supported())
                for (int rows = 1; rows <= most; ++rows) {
                    floats const first(expected.begin(), expected.begin() + std::ptrdiff_t{rows} * s.outputs);
                    CAPTURE(s.outputs);
                    CAPTURE(s.columns);
                    CAPTURE(rows);
                    CAPTURE(name_of(i));
                    REQUIRE(difference(run(i, packed, x, rows), first) == "");
                }
        }
}

TEST_CASE("a row's bits do not depend on how many rows are multiplied with it") {
    random_numbers random;
    int const outputs = 70, columns = 640, rows = 500;
    for (panel_format format : both_formats) {
        matrix const w(random.row(at(outputs) * at(columns)), outputs, columns, 8, format);
        floats const x = random.row(at(rows) * at(columns));
        for (isa i : all_supported()) {
            floats const y = run(i, w, x, rows);
            for (int m : {0, 13, 14, 111, 223, 224, 447, 499}) {
                floats const alone = run(i, w, floats(x.begin() + m * columns, x.begin() + (m + 1) * columns), 1);
                CHECK(difference(alone, floats(y.begin() + m * outputs, y.begin() + (m + 1) * outputs)) == "");
            }
        }
    }
}

TEST_CASE("the sub-trees of 2, 4 and 8 row-parallel ranks join to the bits of the whole") {
    random_numbers random;
    int const outputs = 50, rows = 3;
    for (int columns : {56, 1024, 2400})
        for (panel_format format : both_formats) {
            floats const w = random.row(at(outputs) * at(columns)), x = random.row(at(rows) * at(columns));
            for (isa i : all_supported()) {
                floats const whole = run(i, matrix(w, outputs, columns, 8, format), x, rows);
                for (int ranks = 2; ranks <= 8; ranks *= 2) {
                    int const width = columns / ranks;
                    std::vector<floats> parts;
                    for (int r = 0; r < ranks; ++r) {
                        floats part_w, part_x;
                        for (int n = 0; n < outputs; ++n) part_w.insert(part_w.end(), w.begin() + n * columns + r * width, w.begin() + n * columns + (r + 1) * width);
                        for (int m = 0; m < rows; ++m) part_x.insert(part_x.end(), x.begin() + m * columns + r * width, x.begin() + m * columns + (r + 1) * width);
                        parts.push_back(run(i, matrix(part_w, outputs, width, 8 / ranks, format), part_x, rows));
                    }
                    for (; parts.size() > 1;) {
                        std::vector<floats> next;
                        for (std::size_t p = 0; p < parts.size(); p += 2) {
                            next.emplace_back(parts[p].size());
                            tenon::kernel::table_of(i).add_pair(next.back().data(), parts[p].data(), parts[p + 1].data(), parts[p].size());
                        }
                        parts = next;
                    }
                    CHECK(difference(parts[0], whole) == "");
                }
            }
        }
}

TEST_CASE("a call for some panels writes their outputs and nothing else") {
    random_numbers random;
    int const outputs = 5 * 32 + 7, columns = 64, stride = 200;
    matrix const w(random.row(at(outputs) * at(columns)), outputs, columns, 8, panel_format::f32);
    for (int rows : {1, 2, 5, 9, 40}) {
        floats const x = random.row(at(rows) * at(columns));
        for (isa i : all_supported()) {
            floats const whole = run(i, w, x, rows);
            for (int first = 0; first < 6; ++first)
                for (int count = 0; first + count <= 6; ++count) {
                    floats y(at(rows * stride), -7.0f), scratch(tenon::kernel::matmul_scratch_floats(rows, columns));
                    tenon::kernel::table_of(i).matmul(y.data(), stride, w.view, x.data(), columns, rows, first, count, scratch.data());
                    bool right = true;
                    for (int m = 0; m < rows; ++m)
                        for (int n = 0; n < stride; ++n) {
                            bool const asked = n >= first * 32 && n < (first + count) * 32 && n < outputs;
                            right = right && bits(y[at(m * stride + n)]) == bits(asked ? whole[at(m * outputs + n)] : -7.0f);
                        }
                    CHECK(right);
                }
        }
    }
}

TEST_CASE("NaN, infinities, denormals and signed zeros go through a product as through the law") {
    random_numbers random;
    float const inf = std::numeric_limits<float>::infinity();
    float const odd[]{0.0f, -0.0f, 1e-42f, -3e-39f, inf, -inf, std::nanf(""), 3e38f, -3e38f, 1.0f};
    for (panel_format format : both_formats)
        for (int round = 0; round < 20; ++round) {
            int const outputs = 37, columns = 24, rows = 5;
            floats w = random.row(at(outputs) * at(columns)), x = random.row(at(rows) * at(columns));
            for (int n = 0; n < 12; ++n) {
                w[random.next() % w.size()] = odd[random.next() % 10];
                x[random.next() % x.size()] = odd[random.next() % (round < 10 ? 4 : 10)];
            }
            if (round % 5 == 4)
                for (float& v : x) v = v < 0 ? -0.0f : 0.0f;
            floats const expected = linear_rows(held(w, format), x, outputs, columns, 8, rows);
            matrix const packed(w, outputs, columns, 8, format);
            for (isa i : all_supported()) {
                CHECK(difference(run(i, packed, x, rows), expected) == "");
                CHECK(difference(run(i, packed, x, 1), floats(expected.begin(), expected.begin() + outputs)) == "");
            }
        }
}
