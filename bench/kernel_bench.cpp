// How fast the kernels are, beside what this machine can read and multiply at all. Every case checks its result before it is timed.
// SPDX-License-Identifier: Apache-2.0
#include <tenon/kernel/fixed15_table.hpp>
#include <tenon/kernel/kernels.hpp>

#include <benchmark/benchmark.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <vector>

namespace {

using namespace tenon::kernel;
using tenon::most_segments;
using tenon::segments_of;

struct release {
    void operator()(void* p) const { std::free(p); }
};

/// Memory on a cache line, filled with small numbers.
struct buffer {
    std::unique_ptr<void, release> bytes;
    std::size_t floats = 0;
    explicit buffer(std::size_t n) : bytes(std::aligned_alloc(4096, (n * 4 + 4095) / 4096 * 4096)), floats(n) {
        std::uint32_t state = 12345;
        for (std::size_t i = 0; i < n; ++i) {
            state = state * 1664525u + 1013904223u;
            data()[i] = static_cast<float>(static_cast<int>(state >> 16) - 32768) * (1.0f / 32768.0f);
        }
    }
    float* data() const { return static_cast<float*>(bytes.get()); }
};

// ---- what the machine can do

#if defined(__x86_64__)
#define TENON_BENCH_TARGET __attribute__((target("avx512f")))
constexpr isa plain_isa = isa::avx512;

template <int Streams>
TENON_BENCH_TARGET float read_all(float const* p, std::size_t n) {
    __m512 sum[4] = {};
    std::size_t const part = n / Streams;
    for (std::size_t i = 0; i < part; i += 64)
        for (int s = 0; s < Streams; ++s)
            for (int v = 0; v < 4; ++v) sum[v] = _mm512_add_ps(sum[v], _mm512_loadu_ps(p + static_cast<std::size_t>(s) * part + i + static_cast<std::size_t>(16 * v)));
    float out[16];
    _mm512_storeu_ps(out, _mm512_add_ps(_mm512_add_ps(sum[0], sum[1]), _mm512_add_ps(sum[2], sum[3])));
    return out[0];
}

TENON_BENCH_TARGET float multiply_only(int times) {
    __m512 acc[16], a = _mm512_set1_ps(0.999f), b = _mm512_set1_ps(0.001f);
    for (__m512& x : acc) x = b;
    for (int t = 0; t < times; ++t)
#pragma GCC unroll 16
        for (int i = 0; i < 16; ++i) acc[i] = _mm512_fmadd_ps(acc[i], a, b);
    float out[16];
    for (int i = 1; i < 16; ++i) acc[0] = _mm512_add_ps(acc[0], acc[i]);
    _mm512_storeu_ps(out, acc[0]);
    return out[0];
}
#undef TENON_BENCH_TARGET

#define TENON_BENCH_TARGET __attribute__((target("avx512f,avx512bf16")))
TENON_BENCH_TARGET float multiply_pairs_only(int times) {
    __m512 acc[16];
    __m512bh const a = (__m512bh)_mm512_set1_epi32(0x3f7f3f7f), b = (__m512bh)_mm512_set1_epi32(0x3a803a80);
    for (__m512& x : acc) x = _mm512_set1_ps(0.001f);
    for (int t = 0; t < times; ++t)
#pragma GCC unroll 16
        for (int i = 0; i < 16; ++i) acc[i] = _mm512_dpbf16_ps(acc[i], a, b);
    float out[16];
    for (int i = 1; i < 16; ++i) acc[0] = _mm512_add_ps(acc[0], acc[i]);
    _mm512_storeu_ps(out, acc[0]);
    return out[0];
}
#undef TENON_BENCH_TARGET

constexpr std::size_t plain_floats = std::size_t{1} << 26;  // 256 MiB, past every cache

template <int Streams>
void plain_read(benchmark::State& state) {
    if (!supported(plain_isa)) return state.SkipWithError("no avx512");
    static buffer const memory(plain_floats);
    for (auto _ : state) benchmark::DoNotOptimize(read_all<Streams>(memory.data(), plain_floats));
    state.SetBytesProcessed(static_cast<std::int64_t>(state.iterations()) * std::int64_t{plain_floats} * 4);
}
BENCHMARK(plain_read<1>);
BENCHMARK(plain_read<2>);
BENCHMARK(plain_read<4>);
BENCHMARK(plain_read<8>);

void plain_fma(benchmark::State& state) {
    if (!supported(plain_isa)) return state.SkipWithError("no avx512");
    for (auto _ : state) {
        int times = 100000;
        benchmark::DoNotOptimize(times);
        benchmark::DoNotOptimize(multiply_only(times));
    }
    state.counters["flops"] = benchmark::Counter(100000.0 * 16 * 16 * 2, benchmark::Counter::kIsIterationInvariantRate);
}
BENCHMARK(plain_fma);

void plain_pairs(benchmark::State& state) {
    if (!has_native_pairs()) return state.SkipWithError("no avx512bf16");
    for (auto _ : state) {
        int times = 100000;
        benchmark::DoNotOptimize(times);
        benchmark::DoNotOptimize(multiply_pairs_only(times));
    }
    state.counters["flops"] = benchmark::Counter(100000.0 * 16 * 32 * 2, benchmark::Counter::kIsIterationInvariantRate);
}
BENCHMARK(plain_pairs);
#endif

// ---- products

struct product_case {
    packed_matrix w{};
    buffer store, x, y, scratch;
    product_case(panel_format f, int rows, int outputs, int columns)
        : store(packed_bytes(f, outputs, columns) / 4),
          x(static_cast<std::size_t>(rows) * static_cast<std::size_t>(columns)),
          y(static_cast<std::size_t>(rows) * static_cast<std::size_t>(outputs)),
          scratch(matmul_scratch_floats(rows, columns)) {
        w.rows = outputs;
        w.columns = columns;
        w.segments = segments_of(columns, 32);
        w.format = f;
        buffer const source(static_cast<std::size_t>(outputs) * static_cast<std::size_t>(columns));
        auto const* const bytes = reinterpret_cast<std::byte const*>(source.data());
        std::ptrdiff_t const stride = std::ptrdiff_t{columns} * 4;
        if (f == panel_format::fixed15) {
            fixed15::pack_exponents(store.data(), outputs, columns, 0, outputs, bytes, stride, tenon::dtype::f32, columns);
            fixed15::pack_codes(store.data(), outputs, columns, 0, outputs, bytes, stride, tenon::dtype::f32);
        } else {
            pack(store.data(), w, 0, outputs, bytes, stride, tenon::dtype::f32);
        }
        w.data = store.data();
    }
    void run(isa i, int rows) const {
        product_kernels const& of = w.format == panel_format::fixed15 ? fixed15::table_of(i).product : table_of(i).products[static_cast<int>(w.format)];
        matmul(of, y.data(), w.rows, w, x.data(), w.columns, rows, 0, panels(w.rows), scratch.data());
    }
    /// The chains of one output in q8, by the law.  p (S), zeros
    void chains_q8(float const* row, int output, float* p) const {
        std::vector<std::byte> held(row_bytes(w.format, w.columns));
        unpack(held.data(), 0, w, output, 1);
        int const blocks = w.columns / q8_block;
        for (int b = 0; b < blocks; ++b) {
            std::byte const* const block = held.data() + static_cast<std::ptrdiff_t>(b) * q8_block_bytes;
            float const* const at = row + static_cast<std::ptrdiff_t>(b) * q8_block;
            q8_step const step = q8_step_of(q8_largest(at));
            int dot = 0;
            for (int k = 0; k < q8_block; ++k) dot += static_cast<std::int8_t>(block[2 + k]) * q8_code(at[k], step.inverse);
            float const volatile scale = tenon::load_f16(block) * step.scale;
            float& a = p[b / (blocks / w.segments)];
            a = std::fmaf(static_cast<float>(dot), scale, a);
        }
    }
    /// One output in fixed15, by the law.
    float exact(float const* row, int output) const {
        std::vector<std::int16_t> a(static_cast<std::size_t>(w.columns)), b(a);
        int const e = fixed15::quantize(a.data(), row, w.columns) + fixed15::unpack_row(b.data(), w.data, output, w.columns);
        return fixed15::finished(fixed15::sum_of_products(a.data(), b.data(), w.columns), e);
    }
    /// One output per row of every 100th column, by the law.
    bool right(int rows) const {
        for (int m = 0; m < rows; m += 7)
            for (int n = 0; n < w.rows; n += 101) {
                std::vector<float> row(static_cast<std::size_t>(w.columns));
                std::vector<std::uint16_t> half(row.size());
                float p[most_segments]{};
                if (w.format == panel_format::fixed15) {
                    float const expected = exact(x.data() + static_cast<std::ptrdiff_t>(m) * w.columns, n);
                    if (std::memcmp(&expected, y.data() + static_cast<std::ptrdiff_t>(m) * w.rows + n, 4) != 0) return false;
                    continue;
                }
                if (w.format == panel_format::f32)
                    unpack(row.data(), 0, w, n, 1);
                else if (w.format != panel_format::q8)
                    unpack(half.data(), 0, w, n, 1);
                else
                    chains_q8(x.data() + static_cast<std::ptrdiff_t>(m) * w.columns, n, p);
                int const length = w.columns / w.segments;
                for (int s = 0; s < w.segments && w.format != panel_format::q8; ++s) {
                    bool const pairs = w.format == panel_format::bf16_pair;  // of numbers that are none too small for a plain fma
                    for (int i = 0; i < length; ++i) {
                        int const k = s * length + (pairs ? i ^ 1 : i);
                        auto const at = static_cast<std::size_t>(k);
                        float const v = w.format == panel_format::f32 ? row[at] : tenon::widen_bf16(half[at]);
                        float const one = x.data()[static_cast<std::ptrdiff_t>(m) * w.columns + k];
                        p[s] = std::fmaf(pairs ? tenon::widen_bf16(tenon::narrow_bf16(one)) : one, v, p[s]);
                    }
                }
                for (int left = w.segments; left > 1; left /= 2)
                    for (int s = 0; s < left / 2; ++s) p[s] = p[2 * s] + p[2 * s + 1];
                if (std::memcmp(&p[0], y.data() + static_cast<std::ptrdiff_t>(m) * w.rows + n, 4) != 0) return false;
            }
        return true;
    }
};

// rows, outputs, columns, format, isa
void matmul_of(benchmark::State& state) {
    auto const arg = [&](std::size_t i) { return static_cast<int>(state.range(i)); };
    int const rows = arg(0), outputs = arg(1), columns = arg(2);
    auto const f = static_cast<panel_format>(arg(3));
    auto const i = static_cast<isa>(arg(4));
    if (!supported(i)) return state.SkipWithError("not supported here");
    product_case const c(f, rows, outputs, columns);
    c.run(i, rows);
    if (!c.right(rows)) return state.SkipWithError("wrong bits");
    for (auto _ : state) {
        c.run(i, rows);
        benchmark::ClobberMemory();
    }
    state.SetBytesProcessed(static_cast<std::int64_t>(state.iterations()) * static_cast<std::int64_t>(packed_bytes(f, outputs, columns)));
    state.counters["flops"] = benchmark::Counter(2.0 * rows * outputs * columns, benchmark::Counter::kIsIterationInvariantRate);
    bool const of_bytes = f == panel_format::q8 && i == isa::avx512 && multiplies_bytes();
    state.SetLabel(std::string(name_of(i)) + (of_bytes ? " vnni " : " ") + std::string(name_of(f)));
}
void products(benchmark::internal::Benchmark* b) {
    for (isa i : {isa::avx512, isa::avx2, isa::neon, isa::portable}) {
        if (!supported(i)) continue;
        for (int f = 0; f < panel_formats; ++f) {
            if (i == isa::portable && f > 0) continue;
            b->Args({1, i == isa::portable ? 512 : 16384, 4096, f, static_cast<int>(i)});  // past every cache
            if (i == isa::portable) continue;
            b->Args({1, 65536, 2048, f, static_cast<int>(i)});
            b->Args({1, 1024, 512, f, static_cast<int>(i)});                                // in the third cache
            for (int rows : {4, 16, 64, 128, 512}) b->Args({rows, 4096, 4096, f, static_cast<int>(i)});
            b->Args({128, 2048, 14336, f, static_cast<int>(i)});
        }
    }
}
BENCHMARK(matmul_of)->Apply(products)->Unit(benchmark::kMillisecond);

// ---- attention: rows, heads, kv_heads, head_dim, position of the last row
void attention_of(benchmark::State& state) {
    auto const arg = [&](std::size_t i) { return static_cast<int>(state.range(i)); };
    int const rows = arg(0), heads = arg(1), kv_heads = arg(2), width = arg(3), last = arg(4);
    auto const count = [](int a, int b, int c) { return static_cast<std::size_t>(a) * static_cast<std::size_t>(b) * static_cast<std::size_t>(c); };
    int const held = (last / kv_block + 1) * kv_block;
    buffer const q(count(rows, heads, width)), out(q.floats), k(count(kv_heads, held, width)), v(k.floats), scratch(attention_scratch_floats(width)),
        one(count(1, heads, width));
    attention_call c{q.data(), heads * width, out.data(), heads * width, k.data(), v.data(), std::ptrdiff_t{held} * width, rows, heads, kv_heads, width,
                     last - rows + 1, 0, 0.125f, scratch.data()};
    auto const& t = table_of(best_isa());
    t.attention(c);
    attention_call alone = c;
    alone.rows = 1;
    alone.first_position = last;
    alone.q = q.data() + static_cast<std::ptrdiff_t>(rows - 1) * heads * width;
    alone.out = one.data();
    table_of(isa::portable).attention(alone);
    if (std::memcmp(one.data(), out.data() + static_cast<std::ptrdiff_t>(rows - 1) * heads * width, one.floats * 4) != 0) return state.SkipWithError("wrong bits");
    for (auto _ : state) {
        t.attention(c);
        benchmark::ClobberMemory();
    }
    double const seen = rows * (last + 1 - (rows - 1) * 0.5);
    state.counters["flops"] = benchmark::Counter(4.0 * seen * heads * width, benchmark::Counter::kIsIterationInvariantRate);
    state.SetBytesProcessed(static_cast<std::int64_t>(state.iterations()) * static_cast<std::int64_t>(8 * (last + 1)) * kv_heads * width);
}
BENCHMARK(attention_of)
    ->Args({1, 32, 8, 128, 4095})
    ->Args({1, 32, 4, 64, 16383})
    ->Args({1, 8, 8, 128, 8191})
    ->Args({512, 32, 8, 128, 511})
    ->Args({256, 32, 8, 128, 4095})
    ->Args({256, 14, 2, 64, 1023})
    ->Unit(benchmark::kMillisecond);

void rms_norm_of(benchmark::State& state) {
    buffer const x(4096), gain(4096), y(4096);
    auto const& t = table_of(best_isa());
    for (auto _ : state) {
        t.rms_norm(y.data(), 4096, x.data(), 4096, gain.data(), 4096, 1e-5f, 1);
        benchmark::ClobberMemory();
    }
    state.SetItemsProcessed(static_cast<std::int64_t>(state.iterations()) * 4096);
}
BENCHMARK(rms_norm_of);

void swiglu_of(benchmark::State& state) {
    buffer const gate(8192), up(8192), y(8192);
    auto const& t = table_of(best_isa());
    for (auto _ : state) {
        t.swiglu(y.data(), gate.data(), up.data(), 8192);
        benchmark::ClobberMemory();
    }
    state.SetItemsProcessed(static_cast<std::int64_t>(state.iterations()) * 8192);
}
BENCHMARK(swiglu_of);

}  // namespace

BENCHMARK_MAIN();
