// The arithmetic law, literally: one scalar operation after the other, for the kernel tests to compare with.
// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <tenon/kernel/kernels.hpp>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <string>
#include <utility>
#include <vector>

namespace reference {

using tenon::kernel::isa;
using tenon::kernel::panel_format;
using floats = std::vector<float>;

inline std::size_t at(std::ptrdiff_t i) { return static_cast<std::size_t>(i); }

/// a * b, rounded before anything else happens to it.
inline float product(float a, float b) {
    float volatile p = a * b;
    return p;
}

/// Bits, all NaN being one.
inline std::uint32_t bits(float x) { return x != x ? 0x7fc00000u : std::bit_cast<std::uint32_t>(x); }

/// Where and how two rows of numbers first differ; empty when they do not.
inline std::string difference(floats const& left, floats const& right) {
    if (left.size() != right.size()) return "sizes " + std::to_string(left.size()) + " and " + std::to_string(right.size());
    for (std::size_t i = 0; i < left.size(); ++i)
        if (bits(left[i]) != bits(right[i]))
            return "index " + std::to_string(i) + ": " + std::to_string(left[i]) + " (" + std::to_string(bits(left[i])) + ") and " +
                   std::to_string(right[i]) + " (" + std::to_string(bits(right[i])) + ")";
    return {};
}

struct random_numbers {
    std::uint64_t state = 0x9E3779B97F4A7C15ull;
    std::uint64_t next() {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        return state;
    }
    /// In (-1, 1), 24 bits.
    float unit() { return static_cast<float>(static_cast<std::int64_t>(next() >> 40) - (1 << 23)) * (1.0f / (1 << 23)); }
    floats row(std::size_t n, float scale = 1.0f) {
        floats r(n);
        for (float& x : r) x = product(unit(), scale);
        return r;
    }
};

inline std::vector<isa> all_supported() {
    std::vector<isa> r;
    for (isa i : {isa::portable, isa::avx2, isa::avx512, isa::neon})
        if (tenon::kernel::supported(i)) r.push_back(i);
    return r;
}

inline float tree(floats p) {
    while (p.size() > 1) {
        floats next;
        for (std::size_t i = 0; i + 1 < p.size(); i += 2) next.push_back(p[i] + p[i + 1]);
        p = next;
    }
    return p[0];
}

/// Rule 1, one output.
inline float linear(float const* w, float const* x, int columns, int segments) {
    floats p;
    int const length = columns / segments;
    for (int s = 0; s < segments; ++s) {
        float a = 0.0f;
        for (int k = s * length; k < (s + 1) * length; ++k) a = std::fmaf(x[k], w[k], a);
        p.push_back(a);
    }
    return tree(p);
}

/// Rule 4.
inline float fold(float (&l)[32]) {
    for (int h = 16; h > 0; h /= 2)
        for (int i = 0; i < h; ++i) l[i] = l[i] + l[i + h];
    return l[0];
}
inline float sum(float const* x, std::size_t n) {
    float l[32] = {};
    for (std::size_t k = 0; k < n; ++k) l[k % 32] = l[k % 32] + x[k];
    return fold(l);
}
inline float maximum(float const* x, std::size_t n) {
    float m = -std::numeric_limits<float>::infinity();
    for (std::size_t k = 0; k < n; ++k) m = x[k] > m ? x[k] : m;
    return m;
}

/// Rule 5.
inline float exp(float x) {
    if (x != x) return x;
    x = 88.3762f < x ? 88.3762f : x;
    float const t = std::fmaf(x, 1.44269504f, 12582912.0f), n = t - 12582912.0f;
    float r = std::fmaf(n, -0.693359375f, x);
    r = std::fmaf(n, 2.12194440e-4f, r);
    float p = 1.9875691500e-4f;
    for (float c : {1.3981999507e-3f, 8.3334519073e-3f, 4.1665795894e-2f, 1.6666665459e-1f, 5.0000001201e-1f}) p = std::fmaf(p, r, c);
    p = std::fmaf(product(r, r), p, r) + 1.0f;
    if (x < -87.33654f) return 0.0f;
    return std::bit_cast<float>(std::bit_cast<std::uint32_t>(p) + (std::bit_cast<std::uint32_t>(t) << 23));
}
inline float silu(float x) { return x / (1.0f + exp(0.0f - x)); }

inline floats softmax(floats const& x) {
    floats e;
    float const m = maximum(x.data(), x.size());
    for (float v : x) e.push_back(exp(v - m));
    float const s = sum(e.data(), e.size());
    for (float& v : e) v = v / s;
    return e;
}

inline floats rms_norm(floats const& x, floats const& gain, float epsilon) {
    float l[32] = {};
    for (std::size_t k = 0; k < x.size(); ++k) l[k % 32] = std::fmaf(x[k], x[k], l[k % 32]);
    float const r = 1.0f / std::sqrt(fold(l) / static_cast<float>(x.size()) + epsilon);
    floats y;
    for (std::size_t k = 0; k < x.size(); ++k) y.push_back(product(product(x[k], r), gain[k]));
    return y;
}

/// Rule 7, one query row at `position` over keys and values (positions, D).
inline floats attention(float const* q, floats const& k, floats const& v, int head_dim, std::int64_t position, std::int64_t window, float scale) {
    std::int64_t const first = window > 0 ? std::max<std::int64_t>(0, position - window + 1) : 0;
    float m = 0.0f, l = 0.0f;
    floats o(at(head_dim));
    for (std::int64_t block = first / 64; block <= position / 64; ++block) {
        float e[64];
        bool seen[64];
        float block_m = -std::numeric_limits<float>::infinity();
        for (int j = 0; j < 64; ++j) {
            std::int64_t const p = block * 64 + j;
            seen[j] = p >= first && p <= position;
            if (!seen[j]) continue;
            float a = 0.0f;
            for (int d = 0; d < head_dim; ++d) a = std::fmaf(q[d], k[at(p * head_dim + d)], a);
            e[j] = product(a, scale);
            block_m = e[j] > block_m ? e[j] : block_m;
        }
        for (int j = 0; j < 64; ++j) e[j] = seen[j] ? exp(e[j] - block_m) : 0.0f;
        float const block_l = sum(e, 64);
        float const both = block == first / 64 ? block_m : m > block_m ? m : block_m;
        float const old_part = exp(m - both), new_part = exp(block_m - both);
        for (int d = 0; d < head_dim; ++d) {
            float a = 0.0f;
            for (int j = 0; j < 64; ++j)
                if (seen[j]) a = std::fmaf(e[j], v[at((block * 64 + j) * head_dim + d)], a);
            a = a + 0.0f;
            float& out = o[at(d)];
            out = block == first / 64 ? a : std::fmaf(out, old_part, product(a, new_part));
        }
        l = block == first / 64 ? block_l : std::fmaf(l, old_part, product(block_l, new_part));
        m = both;
    }
    for (float& x : o) x = x / l;
    return o;
}

/// A packed matrix that owns its bytes.
struct matrix {
    tenon::kernel::packed_matrix view{};
    std::vector<std::byte> bytes;

    matrix(floats const& w, int rows, int columns, int segments, panel_format format) {
        view.rows = rows;
        view.columns = columns;
        view.segments = segments;
        view.format = format;
        std::size_t const size = tenon::kernel::packed_bytes(format, rows, columns);
        bytes.assign(size + 64, std::byte{0xff});  // padding must be written, not found
        auto const address = reinterpret_cast<std::uintptr_t>(bytes.data());
        void* const aligned = bytes.data() + (64 - address % 64) % 64;
        tenon::kernel::pack(aligned, view, 0, rows, reinterpret_cast<std::byte const*>(w.data()), std::ptrdiff_t{columns} * 4, tenon::dtype::f32);
        view.data = aligned;
    }
    matrix(matrix const&) = delete;
    matrix& operator=(matrix const&) = delete;
};

inline floats run(isa i, matrix const& w, floats const& x, int rows) {
    floats y(at(rows) * at(w.view.rows)), scratch(tenon::kernel::matmul_scratch_floats(rows, w.view.columns));
    tenon::kernel::table_of(i).matmul(y.data(), w.view.rows, w.view, x.data(), w.view.columns, rows, 0, tenon::kernel::panels(w.view.rows), scratch.data());
    return y;
}

/// The matrix as the format holds it.
inline floats held(floats w, panel_format format) {
    if (format == panel_format::bf16)
        for (float& x : w) x = tenon::widen_bf16(tenon::narrow_bf16(x));
    return w;
}

inline floats linear_rows(floats const& w, floats const& x, int outputs, int columns, int segments, int rows) {
    floats y;
    for (int m = 0; m < rows; ++m)
        for (int n = 0; n < outputs; ++n) y.push_back(linear(w.data() + std::ptrdiff_t{n} * columns, x.data() + std::ptrdiff_t{m} * columns, columns, segments));
    return y;
}

/// Keys and values of all KV heads, in the cache's layout, and the call that reads them.
struct cache {
    int kv_heads, head_dim;
    std::ptrdiff_t stride;
    floats keys, values;
    cache(int kv, int d, int positions, float fill) : kv_heads(kv), head_dim(d), stride(std::ptrdiff_t{(positions + 63) / 64 * 64} * d) {
        keys.assign(at(stride * kv), fill);
        values = keys;
    }
    /// k, v (T, K, D).
    void store(std::int64_t position, int rows, float const* k, float const* v) {
        tenon::kernel::store_kv(keys.data(), values.data(), stride, 0, kv_heads, head_dim, position, rows, k, v, std::ptrdiff_t{kv_heads} * head_dim);
    }
    floats attend(isa i, float const* q, int heads, int rows, std::int64_t position, std::int64_t window, float scale) const {
        floats out(at(rows) * at(heads) * at(head_dim)), scratch(tenon::kernel::attention_scratch_floats(head_dim));
        std::ptrdiff_t const width = std::ptrdiff_t{heads} * head_dim;
        tenon::kernel::table_of(i).attention({q, width, out.data(), width, keys.data(), values.data(), stride, rows, heads, kv_heads, head_dim, position,
                                              window, scale, scratch.data()});
        return out;
    }
};

}  // namespace reference
