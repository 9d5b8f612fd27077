// The law of products in q8, literally, for the tests to compare with.
// SPDX-License-Identifier: Apache-2.0
#pragma once
#include "reference.hpp"

namespace reference {

/// A row in blocks of 32: codes, and one scale each.
struct quantized {
    std::vector<std::int8_t> codes;
    floats scales;
};

inline quantized quantize(float const* x, int n, bool is_weight) {
    quantized q;
    for (int b = 0; b < n; b += 32) {
        std::uint32_t m = 0;
        for (int k = b; k < b + 32; ++k) m = std::max(m, std::bit_cast<std::uint32_t>(x[k]) & 0x7fffffffu);
        float const largest = std::bit_cast<float>(m), d = largest / 127.0f;
        float i = largest > 0.0f ? 127.0f / largest : 0.0f;
        if (i == std::numeric_limits<float>::infinity()) i = 0.0f;
        for (int k = b; k < b + 32; ++k)
            q.codes.push_back(static_cast<std::int8_t>(std::bit_cast<std::uint32_t>(std::fmaf(x[k], i, 12582912.0f)) & 0xffu));
        q.scales.push_back(is_weight ? tenon::widen_f16(tenon::narrow_f16(d)) : d);
    }
    return q;
}

/// Rule 1 in q8, one output.
inline float linear_q8(quantized const& w, quantized const& x, int columns, int segments) {
    floats p;
    int const length = columns / segments;
    for (int s = 0; s < segments; ++s) {
        float a = 0.0f;
        for (int b = s * length / 32; b < (s + 1) * length / 32; ++b) {
            int dot = 0;
            for (int k = 32 * b; k < 32 * b + 32; ++k) dot += w.codes[at(k)] * x.codes[at(k)];
            a = std::fmaf(static_cast<float>(dot), product(w.scales[at(b)], x.scales[at(b)]), a);
        }
        p.push_back(a);
    }
    return tree(p);
}

inline floats linear_rows_q8(floats const& w, floats const& x, int outputs, int columns, int segments, int rows) {
    std::vector<quantized> held;
    for (int n = 0; n < outputs; ++n) held.push_back(quantize(w.data() + std::ptrdiff_t{n} * columns, columns, true));
    floats y;
    for (int m = 0; m < rows; ++m) {
        quantized const row = quantize(x.data() + std::ptrdiff_t{m} * columns, columns, false);
        for (int n = 0; n < outputs; ++n) y.push_back(linear_q8(held[at(n)], row, columns, segments));
    }
    return y;
}

}  // namespace reference
