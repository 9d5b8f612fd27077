// Products by Eigen on fixed shapes, so that a value's bits depend on its row, its output and the cut of K alone. Knows the packed tiles
// of a matrix; deliberately hands Eigen no extent that comes from a batch or a shard.
// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <tenon/device/eigen/core.hpp>
#include <tenon/kernel/packed_matrix.hpp>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>

namespace tenon::inline v0::device::detail {

/// Outputs of one tile, anchored at absolute output indices. A multiple of three vectors of 4, 8 and 16 lanes and of two of 4 and 8:
/// Eigen's kernel then takes every output of the tile by one path, a chain over k from 0, and so does the one of a single row. (With 64,
/// AVX-512 takes the last 16 by a path that sums even and odd k apart.)
inline constexpr int tile_outputs = 48;
/// Inputs of one call: below 128 a single row is one chain too. A segment is the sum of its pieces, in order.
inline constexpr int piece_inputs = 64;

template <int Rows>
using tile = Eigen::Matrix<float, Rows, tile_outputs, Eigen::RowMajor>;
// The bounds are part of the types: with them Eigen packs into arrays on the stack, does not look at the sizes of the caches, and with
// at most 32 rows starts no OpenMP threads.
template <int Rows>
using input_piece = Eigen::Matrix<float, Rows, Eigen::Dynamic, Eigen::RowMajor, Rows, piece_inputs>;
using weight_piece = Eigen::Matrix<float, Eigen::Dynamic, tile_outputs, Eigen::RowMajor, piece_inputs, tile_outputs>;

// Storage: [tile][k][48] elements, zeros where a tile holds outputs of other ranks or of none.

/// Outputs of lower ranks in the first tile.
constexpr int outputs_before(kernel::packed_matrix const& m) { return m.first_row % tile_outputs; }
constexpr int tiles_of(kernel::packed_matrix const& m) { return (outputs_before(m) + m.rows + tile_outputs - 1) / tile_outputs; }
constexpr std::ptrdiff_t tile_elements(kernel::packed_matrix const& m) { return std::ptrdiff_t{m.columns} * tile_outputs; }
/// Where element (row, k) of a shard lies; rows before 0 and after the last are padding.
constexpr std::ptrdiff_t place_of(kernel::packed_matrix const& m, int row, std::ptrdiff_t k) {
    int const output = outputs_before(m) + row;
    return output / tile_outputs * tile_elements(m) + k * tile_outputs + output % tile_outputs;
}

template <class Element>
void pack_tiles(Element* to, kernel::packed_matrix const& shape, int first_row, int rows, std::byte const* source,
                std::ptrdiff_t row_stride_bytes, dtype type) {
    for (int k0 = 0; k0 < shape.columns; k0 += piece_inputs) {
        int const n = shape.columns - k0 < piece_inputs ? shape.columns - k0 : piece_inputs;
        for (int r = 0; r < rows; ++r) {
            Element piece[piece_inputs];
            kernel::store_row(reinterpret_cast<std::byte*>(piece), shape.format,
                              source + r * row_stride_bytes + std::ptrdiff_t{k0} * bytes_of(type), type, n);
            for (int k = 0; k < n; ++k) to[place_of(shape, first_row + r, k0 + k)] = piece[k];
        }
    }
    auto const clear = [&](int begin, int end) {
        for (int k = 0; k < shape.columns; ++k)
            for (int r = begin; r < end; ++r) to[place_of(shape, r, k)] = Element{};
    };
    if (first_row == 0) clear(-outputs_before(shape), 0);
    if (first_row + rows == shape.rows) clear(shape.rows, tiles_of(shape) * tile_outputs - outputs_before(shape));
}

template <class Element>
void unpack_tiles(std::byte* to, std::ptrdiff_t row_stride_bytes, kernel::packed_matrix const& m, int first_row, int rows) {
    auto const* const from = static_cast<Element const*>(m.data);
    for (int r = 0; r < rows; ++r)
        for (int k = 0; k < m.columns; ++k)
            std::memcpy(to + r * row_stride_bytes + k * std::ptrdiff_t{sizeof(Element)}, from + place_of(m, first_row + r, k),
                        sizeof(Element));
}

/// y += x w, Eigen's kernels on one fixed shape.  y (Rows, 48), x (Rows, inputs), w (inputs, 48); inputs <= 64
template <int Rows>
void add_piece(tile<Rows>& y, float const* x, std::ptrdiff_t x_stride, float const* w, int inputs) {
    y.noalias() += Eigen::Map<input_piece<Rows> const, 0, Eigen::OuterStride<>>(x, Rows, inputs, Eigen::OuterStride<>(x_stride)) *
                   Eigen::Map<weight_piece const>(w, inputs, tile_outputs);
}
template <int Rows>
void add_piece(tile<Rows>& y, float const* x, std::ptrdiff_t x_stride, std::uint16_t const* w, int inputs) {
    alignas(64) float wide[piece_inputs * tile_outputs];
    for (int k = 0; k < inputs; ++k)  // a count that the compiler knows: it makes vectors of it
        for (int n = 0; n < tile_outputs; ++n) wide[k * tile_outputs + n] = widen_bf16(w[k * tile_outputs + n]);
    add_piece<Rows>(y, x, x_stride, wide, inputs);
}

/// One tile of outputs for `Rows` rows: per segment the pieces in order, then the tree.
template <int Rows, class Element>
tile<Rows> multiply_tile(Element const* w, float const* x, std::ptrdiff_t x_stride, int columns, int segments) {
    tile<Rows> sums[4];  // of 4, 2, 1 and 1 segments at most
    int const length = columns / segments;
    int top = 0;
    for (int s = 0; s < segments; ++s) {
        sums[top].setZero();
        for (int k = s * length, left = length; left > 0; k += piece_inputs, left -= piece_inputs)
            add_piece<Rows>(sums[top], x + k, x_stride, w + std::ptrdiff_t{k} * tile_outputs, left < piece_inputs ? left : piece_inputs);
        for (int done = s; done % 2 == 1; done /= 2, --top) sums[top - 1] += sums[top];
        ++top;
    }
    return sums[0];
}

/// The same as Eigen would be called otherwise: one product over all rows and all of K, whose order Eigen picks by their number.
inline Eigen::MatrixXf multiply_batch(float const* w, float const* x, std::ptrdiff_t x_stride, int rows, int columns) {
    using matrix = Eigen::Matrix<float, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;
    return Eigen::Map<matrix const, 0, Eigen::OuterStride<>>(x, rows, columns, Eigen::OuterStride<>(x_stride)) *
           Eigen::Map<matrix const>(w, columns, tile_outputs);
}
inline Eigen::MatrixXf multiply_batch(std::uint16_t const* w, float const* x, std::ptrdiff_t x_stride, int rows, int columns) {
    Eigen::ArrayXf wide(std::ptrdiff_t{columns} * tile_outputs);
    for (std::ptrdiff_t i = 0; i < wide.size(); ++i) wide[i] = widen_bf16(w[i]);
    return multiply_batch(wide.data(), x, x_stride, rows, columns);
}

/// y (T, N), x (T, K): every tile that holds outputs of this shard is computed whole, and those outputs are kept.
template <class Element>
void multiply_tiles(float* y, std::ptrdiff_t y_stride, kernel::packed_matrix const& m, float const* x, std::ptrdiff_t x_stride, int rows,
                    bool batch_shaped) {
    for (int t = 0; t < tiles_of(m); ++t) {
        Element const* const w = static_cast<Element const*>(m.data) + t * tile_elements(m);
        int const start = t * tile_outputs - outputs_before(m), skip = start < 0 ? -start : 0;
        int const end = m.rows - start < tile_outputs ? m.rows - start : tile_outputs, kept = end - skip;
        auto const keep = [&](int first, auto const& product) {
            for (int r = 0; r < product.rows(); ++r)
                Eigen::Map<Eigen::RowVectorXf>(y + (first + r) * y_stride + start + skip, kept) = product.row(r).segment(skip, kept);
        };
        if (batch_shaped) {
            keep(0, multiply_batch(w, x, x_stride, rows, m.columns));
            continue;
        }
        int row = 0;
        auto const take = [&]<int Rows>(std::integral_constant<int, Rows>) {
            for (; rows - row >= Rows; row += Rows) keep(row, multiply_tile<Rows>(w, x + row * x_stride, x_stride, m.columns, m.segments));
        };
        take(std::integral_constant<int, 32>{});
        take(std::integral_constant<int, 8>{});
        take(std::integral_constant<int, 1>{});
    }
}

}  // namespace tenon::inline v0::device::detail
