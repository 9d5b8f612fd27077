// Other people's memory as matrices: rows at a stride, weights as they are held. Knows layouts, no arithmetic.
// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <tenon/core/convert.hpp>
#include <tenon/device/xtensor/matrix.hpp>
#include <tenon/kernel/packed_matrix.hpp>

#include <array>
#include <cstddef>
#include <cstdint>

namespace tenon::inline v0::device::specification {

/// Elements in place, (rows, columns): element (t, k) at t * stride + k * step.
template <class T>
auto in_place(T* x, std::ptrdiff_t stride, std::size_t rows, std::size_t columns, std::ptrdiff_t step = 1) {
    return xt::adapt(x, rows * columns, xt::no_ownership(), std::array{rows, columns}, std::array{stride, step});
}

/// A copy of some rows, or of one.
inline matrix read(float const* x, std::ptrdiff_t stride, int rows, int columns) {
    return in_place(x, stride, static_cast<std::size_t>(rows), static_cast<std::size_t>(columns));
}
/// The same of bf16, widened exactly.
inline matrix read(std::uint16_t const* x, std::ptrdiff_t stride, int rows, int columns) {
    return xt::make_lambda_xfunction([](std::uint16_t bits) { return widen_bf16(bits); },
                                     in_place(x, stride, static_cast<std::size_t>(rows), static_cast<std::size_t>(columns)));
}
inline matrix read(float const* x, std::size_t n) { return in_place(x, 0, 1, n); }

/// The inverse. What lies between the rows stays.
inline void write(float* y, std::ptrdiff_t stride, matrix const& values) {
    xt::noalias(in_place(y, stride, values.shape(0), values.shape(1))) = values;
}
inline void write(float* y, matrix const& values) { write(y, 0, values); }

/// A matrix as it is held, N rows of K, widened exactly and turned.  (K, N)
inline matrix widened(kernel::packed_matrix const& w) {
    auto const N = static_cast<std::size_t>(w.rows), K = static_cast<std::size_t>(w.columns);
    if (w.format == kernel::panel_format::f32) return in_place(static_cast<float const*>(w.data), 1, K, N, w.columns);
    return xt::make_lambda_xfunction([](std::uint16_t bits) { return widen_bf16(bits); },
                                     in_place(static_cast<std::uint16_t const*>(w.data), 1, K, N, w.columns));
}

}  // namespace tenon::inline v0::device::specification
