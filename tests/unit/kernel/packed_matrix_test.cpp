// Packing and unpacking.
// SPDX-License-Identifier: Apache-2.0
#include "reference.hpp"

#include <doctest/doctest.h>

using namespace reference;
using namespace tenon::kernel;

TEST_CASE("what was packed in pieces from unaligned bytes of any type comes back") {
    random_numbers random;
    for (int columns : {1, 7, 64, 65, 200})
        for (int rows : {1, 31, 32, 33, 70})
            for (tenon::dtype type : {tenon::dtype::f32, tenon::dtype::bf16, tenon::dtype::f16})
                for (panel_format format : {panel_format::f32, panel_format::bf16}) {
                    std::ptrdiff_t const size = bytes_of(type), stride = columns * size + 3;
                    std::vector<std::byte> source(at(rows * stride) + 1);
                    floats expected;
                    for (int r = 0; r < rows; ++r)
                        for (int k = 0; k < columns; ++k) {
                            float value = random.unit();
                            auto const half = static_cast<std::uint16_t>(random.next() & (type == tenon::dtype::f16 ? 0xbbff : 0xbf7f));
                            std::byte* const to = source.data() + 1 + r * stride + k * size;
                            if (type == tenon::dtype::f32)
                                std::memcpy(to, &value, 4);
                            else
                                std::memcpy(to, &half, 2);
                            if (type == tenon::dtype::bf16) value = tenon::widen_bf16(half);
                            if (type == tenon::dtype::f16) value = tenon::widen_f16(half);
                            expected.push_back(format == panel_format::bf16 ? tenon::widen_bf16(tenon::narrow_bf16(value)) : value);
                        }
                    packed_matrix shape{nullptr, rows, columns, 1, format};
                    std::vector<std::byte> store(packed_bytes(format, rows, columns), std::byte{0xff});
                    for (int first = 0; first < rows; first += 20)
                        pack(store.data(), shape, first, std::min(20, rows - first), source.data() + 1 + first * stride, stride, type);
                    shape.data = store.data();
                    floats back;
                    for (int r = 0; r < rows; ++r) {
                        floats f(at(columns));
                        std::vector<std::uint16_t> h(at(columns));
                        if (format == panel_format::f32)
                            unpack(f.data(), 4 * columns, shape, r, 1);
                        else
                            unpack(h.data(), 2 * columns, shape, r, 1);
                        for (int k = 0; k < columns; ++k) back.push_back(format == panel_format::f32 ? f[at(k)] : tenon::widen_bf16(h[at(k)]));
                    }
                    REQUIRE(difference(back, expected) == "");
                    int found_padding = 0;  // bytes never written
                    for (std::size_t b = 0; b + 3 < store.size(); b += 4)
                        found_padding += store[b] == std::byte{0xff} && store[b + 1] == std::byte{0xff} && store[b + 2] == std::byte{0xff} && store[b + 3] == std::byte{0xff};
                    REQUIRE(found_padding == 0);
                }
}

TEST_CASE("a type that is not a float is refused by name") {
    float x = 0;
    CHECK_THROWS_WITH_AS(pack(&x, {nullptr, 1, 1, 1, panel_format::f32}, 0, 1, reinterpret_cast<std::byte*>(&x), 4, tenon::dtype::i8),
                         doctest::Contains("weights_are_floats"), tenon::refusal);
}

TEST_CASE("an instruction set that this machine lacks is refused by name") {
    for (isa i : {isa::avx2, isa::avx512, isa::neon})
        if (!supported(i)) CHECK_THROWS_WITH_AS(table_of(i), doctest::Contains("isa_is_supported"), tenon::refusal);
    for (isa i : all_supported()) CHECK(table_of(i).which == i);
    CHECK(supported(best_isa()));
}
