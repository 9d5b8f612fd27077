// device::xtensor at run time: the arithmetic law as array expressions, the executable specification of every other canonical backend.
// It shares no kernel with them. A page of device/xtensor/ is one operation; here they read and write the rows of a model.
// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <tenon/device/backend.hpp>
#include <tenon/device/concept.hpp>
#include <tenon/device/xtensor/attention.hpp>
#include <tenon/device/xtensor/exp.hpp>
#include <tenon/device/xtensor/gated_unit.hpp>
#include <tenon/device/xtensor/linear.hpp>
#include <tenon/device/xtensor/rms_norm.hpp>
#include <tenon/device/xtensor/rope.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <type_traits>

namespace tenon::inline v0::device {

namespace specification {

/// Elements in somebody else's memory, as an array with that shape and these strides, in elements.
template <class T, std::size_t Rank>
auto elements(T* data, std::array<std::size_t, Rank> const& shape, std::array<std::ptrdiff_t, Rank> const& strides) {
    std::size_t reach = 1;
    for (std::size_t n : shape) reach *= n;
    return xt::adapt(data, reach, xt::no_ownership(), shape, strides);
}

/// A row of n elements.
template <class T>
auto elements(T* data, std::size_t n) {
    return elements<T, 1>(data, {n}, {1});
}

/// A matrix as it is held, widened exactly.  (N, K)
inline array<2> widened(kernel::packed_matrix const& m) {
    auto const N = static_cast<std::size_t>(m.rows), K = static_cast<std::size_t>(m.columns);
    auto const held = [&]<class T>(T const* data) { return elements<T const, 2>(data, {N, K}, {m.columns, 1}); };
    if (m.format == kernel::panel_format::f32) return held(static_cast<float const*>(m.data));
    return xt::make_lambda_xfunction([](std::uint16_t bits) { return widen_bf16(bits); }, held(static_cast<std::uint16_t const*>(m.data)));
}

}  // namespace specification

/// Matrices row-major, operations as the law writes them. Canonical: bit for bit what device::cpu computes, some hundred times slower.
///
/// Unlike other backends it allocates in every call, because its expressions are arrays; memory that is not there is refused by name
/// (`memory_suffices`).
class xtensor_backend final : public backend {
public:
    std::string_view name() const noexcept override { return "xtensor"; }

    void multiply(float* y, std::ptrdiff_t y_stride, kernel::packed_matrix const& w, float const* x, std::ptrdiff_t x_stride, int rows,
                  float* /*scratch*/) const override {
        store(specification::linear(matrix(x, x_stride, rows, w.columns), specification::widened(w), static_cast<std::size_t>(w.segments)),
              matrix(y, y_stride, rows, w.rows));
    }
    void rms_norm(float* y, std::ptrdiff_t y_stride, float const* x, std::ptrdiff_t x_stride, float const* gain, int n, float epsilon,
                  int rows) const override {
        store(specification::rms_norm(matrix(x, x_stride, rows, n), row(gain, n), epsilon), matrix(y, y_stride, rows, n));
    }
    void rope(float* x, std::ptrdiff_t stride, int rows, int heads, int head_dim, float const* cosines, float const* sines) const override {
        int const half = head_dim / 2;
        auto const all_heads = by_head(x, stride, rows, heads, head_dim);
        store(specification::rope(all_heads, matrix(cosines, half, rows, half), matrix(sines, half, rows, half)), all_heads);
    }
    void swiglu(float* y, float const* gate, float const* up, std::size_t n) const override {
        store(specification::gated_unit(row(gate, n), row(up, n)), row(y, n));
    }
    void add(float* out, float const* low, float const* high, std::size_t n) const override { store(row(low, n) + row(high, n), row(out, n)); }
    void add_bias(float* y, std::ptrdiff_t stride, float const* bias, int n, int rows) const override {
        auto const all_rows = matrix(y, stride, rows, n);
        store(all_rows + row(bias, n), all_rows);
    }
    void exp(float* y, float const* x, std::size_t n) const override { store(specification::exp(specification::array<1>(row(x, n))), row(y, n)); }

    void attention(kernel::attention_call const& c) const override {
        if (c.rows == 0) return;
        std::int64_t const last = c.first_position + c.rows - 1;
        std::size_t const K = size(c.kv_heads), D = size(c.head_dim), slots = kernel::kv_block, blocks = static_cast<std::size_t>(last) / slots + 1;
        std::ptrdiff_t const block_stride = std::ptrdiff_t{kernel::kv_block} * c.head_dim;
        auto const keys = specification::elements<float const, 4>(c.keys, {K, blocks, D, slots}, {c.kv_head_stride, block_stride, kernel::kv_block, 1});
        auto const values = specification::elements<float const, 4>(c.values, {K, blocks, slots, D}, {c.kv_head_stride, block_stride, c.head_dim, 1});
        store(specification::attention(by_head(c.q, c.q_stride, c.rows, c.heads, c.head_dim), keys, values, c.first_position, c.window, c.scale),
              by_head(c.out, c.out_stride, c.rows, c.heads, c.head_dim));
    }
...
};
}
