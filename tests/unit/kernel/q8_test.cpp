// Products of matrices in q8, against the law written out.
// SPDX-License-Identifier: Apache-2.0
#include "q8_reference.hpp"

#include <doctest/doctest.h>

using namespace reference;
using namespace tenon::kernel;

namespace {
constexpr float infinity = std::numeric_limits<float>::infinity();

struct named_table {
    std::string name;
    table const* of;
};

/// Of every instruction set that this machine runs; of AVX-512 with the byte products of VNNI and without.
std::vector<named_table> all_tables() {
    std::vector<named_table> list;
    for (isa i : all_supported())
        list.push_back({std::string(name_of(i)) + (i == isa::avx512 && multiplies_bytes() ? " vnni" : ""), &table_of(i)});
#if defined(__x86_64__) && defined(__GNUC__)
    if (supported(isa::avx512)) list.push_back({"avx512", &avx512::all<isa::avx512>()});
#endif
    return list;
}

floats multiplied(table const& by, matrix const& w, floats const& x, int rows, int first_panel = 0, int panel_count = -1) {
    floats y(at(rows) * at(w.view.rows), -7.0f), scratch(matmul_scratch_floats(rows, w.view.columns));
    by.matmul(y.data(), w.view.rows, w.view, x.data(), w.view.columns, rows, first_panel,
              panel_count < 0 ? panels(w.view.rows) : panel_count, scratch.data());
    return y;
}

floats rows_of(floats const& y, int first, int count, int width) {
    return floats(y.begin() + std::ptrdiff_t{first} * width, y.begin() + std::ptrdiff_t{first + count} * width);
}
}  // namespace

static_assert(row_bytes(panel_format::q8, 64) == 68 && packed_bytes(panel_format::q8, 33, 64) == 2 * 2 * 1088);

TEST_CASE("every instruction set multiplies q8 as the law says, for any shape and any number of rows") {
    random_numbers random;
    struct shape {
        int outputs, columns, segments;
    };
    for (shape s : {shape{1, 32, 1}, shape{33, 64, 2}, shape{40, 96, 1}, shape{130, 128, 4}, shape{257, 256, 8}, shape{31, 1536, 8},
                    shape{64, 2304, 8}, shape{97, 1120, 1}, shape{70, 2048, 4}}) {
        floats const w = random.row(at(s.outputs) * at(s.columns));
        matrix const packed(w, s.outputs, s.columns, s.segments, panel_format::q8);
        int const most = s.columns > 500 ? 17 : 33;
        floats const x = random.row(at(most) * at(s.columns), 2.0f);
        floats const expected = linear_rows_q8(w, x, s.outputs, s.columns, s.segments, most);
        for (named_table const& t : all_tables())
            for (int rows = 1; rows <= most; ++rows) {
                CAPTURE(s.outputs);
                CAPTURE(s.columns);
                CAPTURE(rows);
                CAPTURE(t.name);
                REQUIRE(difference(multiplied(*t.of, packed, x, rows), rows_of(expected, 0, rows, s.outputs)) == "");
            }
    }
}

TEST_CASE("a row's bits in q8 do not depend on how many rows are multiplied with it, nor an output's on the panels of a call") {
    random_numbers random;
    int const outputs = 5 * 32 + 6, columns = 640, rows = 500;
    matrix const w(random.row(at(outputs) * at(columns)), outputs, columns, 4, panel_format::q8);
    floats const x = random.row(at(rows) * at(columns));
    floats const whole = multiplied(table_of(isa::portable), w, x, rows);
    for (named_table const& t : all_tables()) {
        CAPTURE(t.name);
        floats const y = multiplied(*t.of, w, x, rows);
        CHECK(difference(y, whole) == "");
        for (int m : {0, 13, 14, 111, 223, 224, 447, 499})
            CHECK(difference(multiplied(*t.of, w, rows_of(x, m, 1, columns), 1), rows_of(y, m, 1, outputs)) == "");
        for (int count : {1, 3, 9})
            for (int first = 0; first < 6; ++first)
                for (int some = 0; first + some <= 6; ++some) {
                    floats const part = multiplied(*t.of, w, x, count, first, some);
                    bool right = true;
                    for (int m = 0; m < count; ++m)
                        for (int n = 0; n < outputs; ++n) {
                            bool const asked = n >= first * 32 && n < (first + some) * 32;
                            right = right && bits(part[at(m * outputs + n)]) == bits(asked ? whole[at(m * outputs + n)] : -7.0f);
                        }
                    CHECK(right);
                }
    }
}

TEST_CASE("the sub-trees of 2, 4 and 8 row-parallel ranks join to the bits of the whole in q8") {
    random_numbers random;
    int const outputs = 50, rows = 3, columns = 1536;
    floats const w = random.row(at(outputs) * at(columns)), x = random.row(at(rows) * at(columns));
    for (named_table const& t : all_tables()) {
        floats const whole = multiplied(*t.of, matrix(w, outputs, columns, 8, panel_format::q8), x, rows);
        for (int ranks = 2; ranks <= 8; ranks *= 2) {
            int const width = columns / ranks;
            std::vector<floats> parts;
            for (int r = 0; r < ranks; ++r) {
                floats part_w, part_x;
                for (int n = 0; n < outputs; ++n)
                    part_w.insert(part_w.end(), w.begin() + n * columns + r * width, w.begin() + n * columns + (r + 1) * width);
                for (int m = 0; m < rows; ++m)
                    part_x.insert(part_x.end(), x.begin() + m * columns + r * width, x.begin() + m * columns + (r + 1) * width);
                parts.push_back(multiplied(*t.of, matrix(part_w, outputs, width, 8 / ranks, panel_format::q8), part_x, rows));
            }
            for (; parts.size() > 1;) {
                std::vector<floats> next;
                for (std::size_t p = 0; p < parts.size(); p += 2) {
                    next.emplace_back(parts[p].size());
                    t.of->add_pair(next.back().data(), parts[p].data(), parts[p + 1].data(), parts[p].size());
                }
                parts = next;
            }
            CHECK(difference(parts[0], whole) == "");
        }
    }
}

TEST_CASE("NaN, infinities, denormals, zeros and ties in the activations go through a product in q8 as through the law") {
    random_numbers random;
    float const odd[]{
        0.0f, -0.0f, 1e-42f, -3e-39f, 0.5f, -1.5f, 127.0f, infinity, -infinity, std::nanf(""), std::bit_cast<float>(0xff800080u), 3e38f};
    float const sizes[]{1.0f, 6e-3f, 1e-4f, 1e-6f};  // of weights: scales that are normal halves, subnormal ones, and zero
    for (int round = 0; round < 40; ++round) {
        int const outputs = 37, columns = 256, rows = 7;
        floats w = random.row(at(outputs) * at(columns), sizes[round % 4]), x = random.row(at(rows) * at(columns));
        for (int n = 0; n < 12; ++n) x[random.next() % x.size()] = odd[random.next() % (round < 20 ? 7 : 12)];
        if (round % 5 == 4)
            for (float& v : x) v = v < 0 ? -0.0f : 0.0f;
        if (round % 5 == 3)  // blocks of denormals, where 127 / m is infinite or nearly so
            for (float& v : x) v = product(v, round % 2 == 0 ? 1e-37f : 4e-39f);
        if (round % 5 == 2)  // halves of a step: ties
            for (std::size_t i = 0; i < x.size(); ++i) x[i] = i % 32 == 0 ? 127.0f : std::floor(x[i] * 100.0f) + 0.5f;
        for (std::size_t i = 0; i < 32; ++i) w[i] = 0.0f;
        floats const expected = linear_rows_q8(w, x, outputs, columns, 8, rows);
        matrix const packed(w, outputs, columns, 8, panel_format::q8);
        for (named_table const& t : all_tables()) {
            CAPTURE(t.name);
            CAPTURE(round);
            CHECK(difference(multiplied(*t.of, packed, x, rows), expected) == "");
            CHECK(difference(multiplied(*t.of, packed, x, 1), rows_of(expected, 0, 1, outputs)) == "");
        }
    }
}

TEST_CASE("weights of any type become the codes and halves of the law, in pieces and from unaligned bytes, and come back") {
    random_numbers random;
    for (int columns : {32, 96, 256})
        for (int rows : {1, 31, 33, 70})
            for (tenon::dtype type : {tenon::dtype::f32, tenon::dtype::bf16, tenon::dtype::f16}) {
                std::ptrdiff_t const size = bytes_of(type), stride = columns * size + 3;
                std::vector<std::byte> source(at(rows * stride) + 1), expected;
                for (int r = 0; r < rows; ++r) {
                    floats wide(at(columns));
                    for (int k = 0; k < columns; ++k) {
                        float value = product(random.unit(), r % 3 == 0 ? 1e-4f : 1.0f);  // some scales are subnormal halves
                        std::byte* const to = source.data() + 1 + r * stride + k * size;
                        std::uint16_t const half = type == tenon::dtype::bf16 ? tenon::narrow_bf16(value) : tenon::narrow_f16(value);
                        if (type == tenon::dtype::f32)
                            std::memcpy(to, &value, 4);
                        else
                            std::memcpy(to, &half, 2);
                        if (type == tenon::dtype::bf16) value = tenon::widen_bf16(half);
                        if (type == tenon::dtype::f16) value = tenon::widen_f16(half);
                        wide[at(k)] = value;
                    }
                    quantized const q = quantize(wide.data(), columns, true);
                    for (int b = 0; b < columns / 32; ++b) {
                        std::uint16_t const scale = tenon::narrow_f16(q.scales[at(b)]);
                        auto const* const bytes = reinterpret_cast<std::byte const*>(&scale);
                        auto const* const codes = reinterpret_cast<std::byte const*>(q.codes.data() + 32 * b);
                        expected.insert(expected.end(), bytes, bytes + 2);
                        expected.insert(expected.end(), codes, codes + 32);
                    }
                }
                packed_matrix shape{nullptr, rows, columns, 1, panel_format::q8};
                std::vector<std::byte> store(packed_bytes(panel_format::q8, rows, columns), std::byte{0xff});
                for (int first = 0; first < rows; first += 20)
                    pack(store.data(), shape, first, std::min(20, rows - first), source.data() + 1 + first * stride, stride, type);
                shape.data = store.data();
                auto const held = static_cast<std::ptrdiff_t>(row_bytes(panel_format::q8, columns));
                std::vector<std::byte> back(at(held * rows)), side_by_side(back.size());
                unpack(back.data(), held, shape, 0, rows);
                CHECK(back == expected);
                for (int r = 0; r < rows; ++r)
                    store_row(side_by_side.data() + r * held, panel_format::q8, source.data() + 1 + r * stride, type, columns);
                CHECK(side_by_side == expected);
                for (int r = rows; r < panels(rows) * panel_rows; ++r) {  // padding is zeros of this format
                    std::vector<std::byte> row(at(held));
                    unpack(row.data(), held, shape, r, 1);
                    CHECK(row == std::vector<std::byte>(at(held)));
                }
            }
}

TEST_CASE("a block whose scale no half holds is refused, with its row and its number") {
    floats w(at(3 * 64), 0.25f);
    std::vector<std::byte> store(packed_bytes(panel_format::q8, 3, 64));
    auto const pack_it = [&] {
        pack(store.data(), {nullptr, 3, 64, 1, panel_format::q8}, 0, 3, reinterpret_cast<std::byte const*>(w.data()), 256,
             tenon::dtype::f32);
    };
    auto const* const last_row = reinterpret_cast<std::byte const*>(w.data() + 128);
    for (float const odd : {q8_limit, -q8_limit, infinity, std::nanf("")}) {
        w[at(2 * 64 + 40)] = odd;
        CHECK_THROWS_WITH_AS(pack_it(), doctest::Contains("q8_holds_weights: row 2, block 1"), tenon::refusal);
        CHECK(beyond_q8(last_row, tenon::dtype::f32, 64) == 40);
    }
    w[at(2 * 64 + 40)] = std::bit_cast<float>(std::bit_cast<std::uint32_t>(q8_limit) - 1);
    CHECK_NOTHROW(pack_it());
    CHECK(beyond_q8(last_row, tenon::dtype::f32, 64) == -1);
    CHECK_THROWS_WITH_AS(pack(store.data(), {nullptr, 1, 32, 1, panel_format::q8}, 0, 1, last_row, 32, tenon::dtype::i8),
                         doctest::Contains("weights_are_floats"), tenon::refusal);
}
