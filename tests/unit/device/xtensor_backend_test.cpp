// The law as array expressions against the kernels, with which it shares no code: every operation, bit for bit.
// SPDX-License-Identifier: Apache-2.0
#include "../kernel/reference.hpp"

#include <tenon/device/cpu.hpp>
#include <tenon/device/xtensor.hpp>

#include <doctest/doctest.h>

using namespace reference;
using tenon::device::backend;

namespace {
float const inf = std::numeric_limits<float>::infinity();

backend const& specification() { return tenon::device::xtensor<0>::instance("auto"); }

std::vector<backend const*> kernels() {
    std::vector<backend const*> all;
    for (isa i : all_supported()) all.push_back(&tenon::device::cpu<0>::instance(tenon::kernel::name_of(i)));
    return all;
}

/// Numbers, one in `rarity` of which is NaN, infinite, denormal, a signed zero, or where exp ends; 0: none.
floats strange(random_numbers& random, std::size_t n, std::uint64_t rarity) {
    float const odd[]{0.0f, -0.0f, 1e-42f, -3e-39f, 1e-20f, inf, -inf, std::nanf(""), 3e38f, -3e38f, 88.5f, -87.4f};
    floats x = random.row(n, 4.0f);
    if (rarity != 0)
        for (float& v : x)
            if (random.next() % rarity == 0) v = odd[random.next() % std::size(odd)];
    return x;
}

/// A matrix as one backend packed it.
struct held_matrix {
    tenon::kernel::packed_matrix view{};
    std::vector<std::byte> bytes;
    std::byte* data;

    held_matrix(backend const& b, int rows, int columns, int segments, panel_format format) {
        view.rows = rows;
        view.columns = columns;
        view.segments = segments;
        view.format = format;
        bytes.assign(b.packed_bytes(view) + 64, std::byte{0xff});
        data = bytes.data() + (64 - reinterpret_cast<std::uintptr_t>(bytes.data()) % 64) % 64;
        view.data = data;
    }
    held_matrix(backend const& b, floats const& w, int rows, int columns, int segments, panel_format format)
        : held_matrix(b, rows, columns, segments, format) {
        b.pack(data, view, 0, rows, reinterpret_cast<std::byte const*>(w.data()), std::ptrdiff_t{columns} * 4, tenon::dtype::f32);
    }
    held_matrix(held_matrix const&) = delete;
    held_matrix& operator=(held_matrix const&) = delete;
};

/// `operation` as a backend computes it on a copy of `before`: what it does not write is compared too.
template <class Operation>
floats after(backend const& b, floats before, Operation operation) {
    operation(b, before);
    return before;
}

/// Every instruction set's kernels against the specification.
template <class Operation>
void check_all(floats const& before, Operation operation) {
    floats const expected = after(specification(), before, operation);
    for (backend const* b : kernels()) {
        CAPTURE(b->isa());
        REQUIRE(difference(after(*b, before, operation), expected) == "");
    }
}

using law = tenon::device::xtensor<1, 0>;
static_assert(tenon::device::policy<law>);
static_assert(law::kind == tenon::device_kind::xtensor && law::canonical && law::most_ranks == tenon::most_ranks_of_a_stage);
static_assert(law::devices[0] == tenon::device_id{tenon::device_kind::xtensor, 1});
}  // namespace

TEST_CASE("the specification is one backend, whichever instruction set was asked for") {
    CHECK(&tenon::device::xtensor<0>::instance("portable") == &specification());
    CHECK(specification().name() == "xtensor");
    CHECK(specification().isa() == "portable");
    CHECK(specification().holds(panel_format::bf16));
}

TEST_CASE("products are the kernels', for every K up to 97, every S that divides it, both formats, one row or some") {
    random_numbers random;
    for (int columns = 1; columns <= 97; ++columns)
        for (int segments = 1; segments <= 8 && columns % segments == 0; segments *= 2)
            for (panel_format format : {panel_format::f32, panel_format::bf16}) {
                int const outputs = static_cast<int>(random.next() % 70) + 1, rows = static_cast<int>(random.next() % 9) + 1;
                int const x_stride = columns + static_cast<int>(random.next() % 5),
                          y_stride = outputs + static_cast<int>(random.next() % 5);
                std::uint64_t const rarity = columns % 3 == 0 ? 40 : 0;
                floats const w = strange(random, at(outputs * columns), rarity), x = strange(random, at(rows * x_stride), rarity);
                CAPTURE(columns);
                CAPTURE(segments);
                CAPTURE(rows);
                check_all(floats(at(rows * y_stride), 7.0f), [&](backend const& b, floats& y) {
                    held_matrix const m(b, w, outputs, columns, segments, format);
                    floats scratch(b.multiply_scratch_floats(rows, columns));
                    b.multiply(y.data(), y_stride, m.view, x.data(), x_stride, rows, scratch.data());
                });
            }
}

TEST_CASE("sub-trees of row-parallel ranks, added low first, are the whole product") {
    random_numbers random;
    int const outputs = 21, columns = 96, rows = 3;
    floats const w = random.row(at(outputs * columns)), x = random.row(at(rows * columns));
    auto const product_of = [&](int first, int width, int segments) {
        floats part;
        for (int n = 0; n < outputs; ++n) part.insert(part.end(), w.begin() + n * columns + first, w.begin() + n * columns + first + width);
        held_matrix const m(specification(), part, outputs, width, segments, panel_format::f32);
        floats y(at(rows * outputs));
        specification().multiply(y.data(), outputs, m.view, x.data() + first, columns, rows, nullptr);
        return y;
    };
    floats const whole = product_of(0, columns, 8);
    for (int ranks = 2; ranks <= 8; ranks *= 2) {
        std::vector<floats> parts;
        for (int r = 0; r < ranks; ++r) parts.push_back(product_of(r * columns / ranks, columns / ranks, 8 / ranks));
        for (std::size_t distance = 1; distance < parts.size(); distance *= 2)
            for (std::size_t r = 0; r < parts.size(); r += 2 * distance)
                specification().add(parts[r].data(), parts[r].data(), parts[r + distance].data(), parts[r].size());
        CHECK(difference(parts[0], whole) == "");
    }
}

TEST_CASE("matrices of every stored type are held and given back as the kernels do, whichever rows come when") {
    random_numbers random;
    int const rows = 37;
    for (int columns : {1, 2, 33, 64})
        for (tenon::dtype type : {tenon::dtype::f32, tenon::dtype::bf16, tenon::dtype::f16})
            for (panel_format format : {panel_format::f32, panel_format::bf16}) {
                std::size_t const row_bytes = at(columns) * static_cast<std::size_t>(tenon::bytes_of(type)) + 3;
                std::vector<std::byte> source(at(rows) * row_bytes);
                for (std::byte& v : source) v = static_cast<std::byte>(random.next() >> 20);
                auto const there_and_back = [&](backend const& b) {
                    held_matrix m(b, rows, columns, 1, format);
                    b.pack(m.data, m.view, 0, 5, source.data(), static_cast<std::ptrdiff_t>(row_bytes), type);
                    b.pack(m.data, m.view, 5, rows - 5, source.data() + 5 * row_bytes, static_cast<std::ptrdiff_t>(row_bytes), type);
                    std::size_t const size = at(columns) * tenon::kernel::element_bytes(format);
                    std::vector<std::byte> back((at(rows) - 2) * size);
                    b.unpack(back.data(), static_cast<std::ptrdiff_t>(size), m.view, 2, rows - 2);
                    return back;
                };
                for (backend const* b : kernels()) CHECK(there_and_back(*b) == there_and_back(specification()));
            }
}

TEST_CASE("norms are the kernels', for every width up to 97 and some rows, in place and apart") {
    random_numbers random;
    for (int n = 1; n <= 97; ++n)
        for (int rows : {1, 2, 9})
            for (std::uint64_t rarity : {0u, 100u}) {
                int const stride = n + rows / 2;
                floats const x = strange(random, at(rows * stride), rarity), gain = strange(random, at(n), rarity);
                CAPTURE(n);
                check_all(
                    x, [&](backend const& b, floats& y) { b.rms_norm(y.data(), stride, y.data(), stride, gain.data(), n, 1e-5f, rows); });
                check_all(floats(at(rows * (stride + 1)), 7.0f), [&](backend const& b, floats& y) {
                    b.rms_norm(y.data(), stride + 1, x.data(), stride, gain.data(), n, 0.0f, rows);
                });
            }
}

TEST_CASE("rotations are the kernels', for any number of heads and any width of them") {
    random_numbers random;
    for (int head_dim : {2, 4, 6, 10, 34, 64, 96})
        for (int heads : {1, 3, 8})
            for (int rows : {1, 5})
                for (std::uint64_t rarity : {0u, 20u}) {
                    int const stride = heads * head_dim + rows - 1, half = head_dim / 2;
                    floats const c = strange(random, at(rows * half), rarity), s = strange(random, at(rows * half), rarity);
                    check_all(strange(random, at(rows * stride), rarity),
                              [&](backend const& b, floats& x) { b.rope(x.data(), stride, rows, heads, head_dim, c.data(), s.data()); });
                }
}

TEST_CASE("a product that rotation subtracts from zero is rounded first, so that one too small to be a number leaves +0") {
    floats const c{1.0f}, s{1e-30f};
    check_all(floats{-0.0f, 1e-30f}, [&](backend const& b, floats& x) {
        b.rope(x.data(), 2, 1, 1, 2, c.data(), s.data());
        CHECK(bits(x[0]) == 0);
    });
}

TEST_CASE("exp, the gated unit and sums are the kernels' for strange numbers, every length and every alias") {
    random_numbers random;
    for (std::size_t n = 0; n < 200; n = n < 40 ? n + 1 : n + 37) {
        floats const low = strange(random, n, 4), high = strange(random, n, 4);
        CAPTURE(n);
        check_all(low, [&](backend const& b, floats& x) { b.exp(x.data(), x.data(), n); });
        check_all(floats(n + 1, 7.0f), [&](backend const& b, floats& y) { b.exp(y.data(), low.data(), n); });
        check_all(low, [&](backend const& b, floats& gate) { b.swiglu(gate.data(), gate.data(), high.data(), n); });
        check_all(high, [&](backend const& b, floats& up) { b.swiglu(up.data(), low.data(), up.data(), n); });
        check_all(low, [&](backend const& b, floats& x) { b.add(x.data(), x.data(), high.data(), n); });
        check_all(high, [&](backend const& b, floats& y) { b.add(y.data(), low.data(), y.data(), n); });
        check_all(floats(n + 1, 7.0f), [&](backend const& b, floats& y) { b.add(y.data(), low.data(), high.data(), n); });
        int const width = static_cast<int>(n), stride = width + 2;
        check_all(strange(random, at(3 * stride), 4),
                  [&](backend const& b, floats& y) { b.add_bias(y.data(), stride, low.data(), width, 3); });
    }
}

TEST_CASE("exp is the kernels' over the whole of its range, and at its edges") {
    floats x{88.3762f,
             88.37621f,
             88.4f,
             -87.33654f,
             -87.33655f,
             -87.3f,
             -103.9f,
             inf,
             -inf,
             -0.0f,
             std::bit_cast<float>(0xffc12345u),
             std::bit_cast<float>(0x7f800001u)};
    for (std::uint64_t u = 0; u < 0x100000000ull; u += 16381 * 7) x.push_back(std::bit_cast<float>(static_cast<std::uint32_t>(u)));
    for (int i = -90000; i < 90000; i += 7) x.push_back(static_cast<float>(i) * 0.001f);
    check_all(x, [&](backend const& b, floats& y) { b.exp(y.data(), y.data(), y.size()); });
}

TEST_CASE("attention is the kernels', wherever its rows stand, whatever they see and however heads share the cache") {
    random_numbers random;
    struct heads_of {
        int heads, kv_heads, head_dim;
    };
    for (heads_of c : {heads_of{4, 2, 8}, heads_of{1, 1, 1}, heads_of{6, 1, 5}, heads_of{2, 2, 33}})
        for (std::int64_t window : {0, 1, 7, 64, 65})
            for (int rows : {1, 2, 9})
                for (int first : {0, 1, 55, 63, 64, 120, 127, 128, 200}) {
                    std::uint64_t const rarity = first % 5 == 0 ? 0 : 400;
                    int const positions = first + rows, width = c.heads * c.head_dim, stride = width + rows - 1;
                    floats const k = strange(random, at(positions * c.kv_heads * c.head_dim), rarity),
                                 v = strange(random, k.size(), rarity), q = strange(random, at(rows * stride), rarity);
                    cache kv(c.kv_heads, c.head_dim, positions, std::nanf(""));  // what no row sees reaches none
                    kv.store(0, positions, k.data(), v.data());
                    CAPTURE(c.head_dim);
                    CAPTURE(window);
                    CAPTURE(rows);
                    CAPTURE(first);
                    check_all(floats(at(rows * (stride + 1)), 7.0f), [&](backend const& b, floats& out) {
                        floats scratch(b.attention_scratch_floats(c.head_dim));
                        b.attention({q.data(), stride, out.data(), stride + 1, kv.keys.data(), kv.values.data(), kv.stride, rows, c.heads,
                                     c.kv_heads, c.head_dim, first, window, 0.37f, scratch.data()});
                    });
                }
}

TEST_CASE("values too small to be numbers add up to +0, as if their slots had been skipped") {
    floats const q{1.0f}, k{0.0f, -87.0f}, v{-0.0f, -1e-20f};
    cache kv(1, 1, 2, 0.0f);
    kv.store(0, 2, k.data(), v.data());
    check_all({7.0f}, [&](backend const& b, floats& out) {
        floats scratch(b.attention_scratch_floats(1));
        b.attention({q.data(), 1, out.data(), 1, kv.keys.data(), kv.values.data(), kv.stride, 1, 1, 1, 1, 1, 0, 1.0f, scratch.data()});
        CHECK(bits(out[0]) == 0);
    });
}

TEST_CASE("no rows are no work") {
    float const x = 1.0f;
    check_all({7.0f}, [&](backend const& b, floats& y) {
        held_matrix const m(b, {2.0f}, 1, 1, 1, panel_format::f32);
        b.multiply(y.data(), 1, m.view, &x, 1, 0, nullptr);
        b.rms_norm(y.data(), 1, &x, 1, &x, 1, 0.0f, 0);
        b.rope(y.data(), 2, 0, 1, 2, &x, &x);
        b.add_bias(y.data(), 1, &x, 1, 0);
        b.attention({&x, 1, y.data(), 1, &x, &x, 64, 0, 1, 1, 1, 0, 0, 1.0f, nullptr});
    });
}

TEST_CASE("memory that is not there is refused by name") {
    tenon::device::specification::refusing_allocator<float> memory;
    try {
        float* const p = memory.allocate(static_cast<std::size_t>(-1) / 2);
        memory.deallocate(p, 0);
        FAIL("allocated");
    } catch (tenon::refusal const& refused) { CHECK(refused.law_name() == "memory_suffices"); }
}
