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
/// Eigen's kernel then takes every output of the tile by one path, and a single row's path differs in nothing but speed.
inline constexpr int tile_outputs = 48;
/// Inputs of one call. Up to 127 a matrix times a vector is one chain, as a block of rows is; a longer segment is a sum of such pieces.
inline constexpr int piece_inputs = 64;

template <int Rows>
using tile = Eigen::Matrix<float, Rows, tile_outputs, Eigen::RowMajor>;
// The bounds are part of the types: with them Eigen packs into arrays on the stack, does not look at the sizes of the caches, and with
// at most 32 rows starts no OpenMP threads.
template <int Rows>
using input_piece = Eigen::Matrix<float, Rows, Eigen::Dynamic, Eigen::RowMajor, Rows, piece_inputs>;
using weight_piece = Eigen::Matrix<float, Eigen::Dynamic, tile_outputs, Eigen::RowMajor, piece_inputs, tile_outputs>;

/// Where output `row` of a shard lies: [tile][k][48] elements, zeros where a tile holds outputs of other ranks.
struct tile_place {
    std::ptrdiff_t tile, output;
};
constexpr int outputs_before(kernel::packed_matrix const& m) { return m.first_row % tile_outputs; }
constexpr tile_place place_of(kernel::packed_matrix const& m, int row) {
    int const at = outputs_before(m) + row;
    return {at / tile_outputs, at % tile_outputs};
}
constexpr int tiles_of(kernel::packed_matrix const& m) { return (outputs_before(m) + m.rows + tile_outputs - 1) / tile_outputs; }
constexpr std::size_t tile_elements(kernel::packed_matrix const& m) { return static_cast<std::size_t>(m.columns) * tile_outputs; }

template <class Element>
void pack_tiles(Element* to, kernel::packed_matrix const& shape, int first_row, int rows, std::byte const* source,
                std::ptrdiff_t row_stride_bytes, dtype type) {
    std::ptrdiff_t const columns = shape.columns, all = tiles_of(shape) * tile_outputs;
    auto const at = [columns](std::ptrdiff_t output, std::ptrdiff_t k) {
        return (output / tile_outputs * columns + k) * tile_outputs + output % tile_outputs;
    };
    std::ptrdiff_t const begin = outputs_before(shape) + first_row, end = begin + rows;
    for (std::ptrdiff_t k0 = 0; k0 < columns; k0 += piece_inputs) {
        std::ptrdiff_t const n = columns - k0 < piece_inputs ? columns - k0 : piece_inputs;
        for (std::ptrdiff_t r = 0; r < rows; ++r) {
            Element row[piece_inputs];
            kernel::store_row(reinterpret_cast<std::byte*>(row), shape.format, source + r * row_stride_bytes + k0 * bytes_of(type), type,
                              static_cast<int>(n));
            for (std::ptrdiff_t k = 0; k < n; ++k) to[at(begin + r, k0 + k)] = row[k];
        }
    }
    for (std::ptrdiff_t k = 0; k < columns; ++k) {
        if (first_row == 0)
            for (std::ptrdiff_t o = 0; o < begin; ++o) to[at(o, k)] = Element{};
        if (first_row + rows == shape.rows)
            for (std::ptrdiff_t o = end; o < all; ++o) to[at(o, k)] = Element{};
    }
}

template <class Element>
void unpack_tiles(std::byte* to, std::ptrdiff_t row_stride_bytes, kernel::packed_matrix const& m, int first_row, int rows) {
    for (int r = 0; r < rows; ++r) {
        auto const [tile, output] = place_of(m, first_row + r);
        Element const* from = static_cast<Element const*>(m.data) + tile * static_cast<std::ptrdiff_t>(tile_elements(m)) + output;
        for (int k = 0; k < m.columns; ++k, from += tile_outputs)
            std::memcpy(to + r * row_stride_bytes + k * static_cast<std::ptrdiff_t>(sizeof(Element)), from, sizeof(Element));
    }
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
        Element const* const w = static_cast<Element const*>(m.data) + static_cast<std::size_t>(t) * tile_elements(m);
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
