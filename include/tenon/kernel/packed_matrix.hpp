// A matrix as the kernels read it: panels of 32 outputs, inputs ascending. Knows how to write and read it back, not how to multiply.
// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <tenon/core/dtype.hpp>
#include <tenon/core/error.hpp>
#include <tenon/kernel/detail/number.hpp>

#include <cstddef>
#include <cstdint>
#include <cstring>

namespace tenon::inline v0::kernel {

inline constexpr int panel_rows = 32;  ///< outputs of one panel; part of the layout, not of the law

constexpr int panels(int rows) { return (rows + panel_rows - 1) / panel_rows; }

/// f32:  [panel][k][32] floats.
/// bf16: [panel][k / 2][32][2] bf16: two inputs of one output side by side, so that one 32-bit lane widens to both. An odd K is
///       padded with a zero that is never multiplied.
/// bf16_pair: the bytes of bf16, of a matrix whose products are those of rule 9: chains over pairs, activations rounded to bf16.
enum class panel_format : std::uint8_t { f32, bf16, bf16_pair };
inline constexpr int panel_formats = 3;

/// A matrix of N outputs and K inputs as a backend packed it. A view: somebody else owns the bytes. Here: whole panels, padded with zeros.
struct packed_matrix {
    void const* data = nullptr;  ///< 64-byte aligned
    int rows = 0;                ///< N, outputs
    int columns = 0;             ///< K, inputs
    int segments = 1;            ///< S, along K; divides K; a power of two, at most 8. The layout does not depend on it
    panel_format format = panel_format::f32;
    int first_row = 0;           ///< which output of the unsplit matrix row 0 is; panels do not care, tiles that may be cut do
};

constexpr std::size_t element_bytes(panel_format f) { return f == panel_format::f32 ? 4 : 2; }

/// Bytes of one panel.
constexpr std::size_t panel_bytes(panel_format f, int columns) {
    auto const k = static_cast<std::size_t>(columns);
    return f == panel_format::f32 ? k * panel_rows * 4 : (k + 1) / 2 * panel_rows * 4;
}

constexpr std::size_t packed_bytes(panel_format f, int rows, int columns) {
    return static_cast<std::size_t>(panels(rows)) * panel_bytes(f, columns);
}

namespace detail {
/// Where element (row, k) lies, counted in elements of the format.
constexpr std::size_t packed_index(packed_matrix const& m, int row, int k) {
    auto const in_panel = static_cast<std::size_t>(row % panel_rows), at = static_cast<std::size_t>(k);
    std::size_t const panel = static_cast<std::size_t>(row / panel_rows) * panel_bytes(m.format, m.columns);
    if (m.format == panel_format::f32) return panel / 4 + at * panel_rows + in_panel;
    return panel / 2 + (at / 2 * panel_rows + in_panel) * 2 + at % 2;
}

template <class T>
T read_as(std::byte const* p) {
    T value{};
    std::memcpy(&value, p, sizeof value);
    return value;
}

/// Columns [k0, k1) of one row, source element e widened or narrowed by `convert`.
template <class Stored, class Source, class Convert>
void pack_row(Stored* destination, packed_matrix const& m, int row, int k0, int k1, std::byte const* source, Convert convert) {
    std::ptrdiff_t at = 0;
    for (int k = k0; k < k1; ++k, at += static_cast<std::ptrdiff_t>(sizeof(Source)))
        destination[packed_index(m, row, k)] = convert(read_as<Source>(source + at));
}

inline constexpr int pack_columns = 64;  // columns at a time, so that the part of the panel being written stays in the first cache

template <class Stored, class Source, class Convert>
void pack_rows(void* destination, packed_matrix const& m, int first_row, int row_count, std::byte const* source, std::ptrdiff_t stride,
               Convert convert) {
    auto* const stored = static_cast<Stored*>(destination);
    for (int r0 = 0; r0 < row_count;) {
        int const in_panel = panel_rows - (first_row + r0) % panel_rows, left = row_count - r0;
        int const r1 = r0 + (in_panel < left ? in_panel : left);
        for (int k0 = 0; k0 < m.columns; k0 += pack_columns) {
            int const k1 = m.columns - k0 < pack_columns ? m.columns : k0 + pack_columns;
            for (int r = r0; r < r1; ++r)
                pack_row<Stored, Source>(stored, m, first_row + r, k0, k1, source + r * stride + k0 * std::ptrdiff_t{sizeof(Source)}, convert);
        }
        r0 = r1;
    }
    // padding: rows after the last, and the second half of the last pair of an odd K
    if (first_row + row_count == m.rows)
        for (int k = 0; k < m.columns; ++k)
            for (int r = m.rows; r < panels(m.rows) * panel_rows; ++r) stored[packed_index(m, r, k)] = Stored{};
    if (m.format != panel_format::f32 && m.columns % 2 != 0) {
        int const last = first_row + row_count == m.rows ? panels(m.rows) * panel_rows : first_row + row_count;
        for (int r = first_row; r < last; ++r) stored[packed_index(m, r, m.columns)] = Stored{};
    }
}
}  // namespace detail

/// Writes `count` row-major elements of `type` (f32, bf16, f16; need not be aligned) as elements of `format`, side by side.
inline void store_row(std::byte* to, panel_format format, std::byte const* from, dtype type, int count) {
    std::size_t const in = static_cast<std::size_t>(bytes_of(type)), out = element_bytes(format);
    if (in == out && type != dtype::f16) {
        std::memcpy(to, from, in * static_cast<std::size_t>(count));
        return;
    }
    for (int k = 0; k < count; ++k, from += in, to += out) {
        float const wide = type == dtype::f32 ? detail::read_as<float>(from)
                           : type == dtype::bf16 ? widen_bf16(detail::read_as<std::uint16_t>(from))
                                                 : widen_f16(detail::read_as<std::uint16_t>(from));
        std::uint16_t const narrow = narrow_bf16(wide);
        if (format == panel_format::f32)
            std::memcpy(to, &wide, out);
        else
            std::memcpy(to, &narrow, out);
    }
}

/// Writes rows [first_row, first_row + row_count) of the packed matrix at `destination` from row-major bytes.
///
///   shape   rows, columns and format of the destination (its `data` is not looked at)
///   source  row r at source + r * row_stride_bytes, K elements of f32, bf16 or f16; need not be aligned
///
/// bf16 and f16 widen exactly, what becomes bf16 rounds to nearest even. Whoever writes the last row writes the padding too.
inline void pack(void* destination, packed_matrix const& shape, int first_row, int row_count, std::byte const* source,
                 std::ptrdiff_t row_stride_bytes, dtype type) {
    bool const wide = shape.format == panel_format::f32;
    auto const to = [&]<class Stored, class Source>(Stored, Source, auto convert) {
        detail::pack_rows<Stored, Source>(destination, shape, first_row, row_count, source, row_stride_bytes, convert);
    };
    float const f{};
    std::uint16_t const h{};
    if (type == dtype::f32 && wide) return to(f, f, [](float x) { return x; });
    if (type == dtype::bf16 && wide) return to(f, h, [](std::uint16_t x) { return widen_bf16(x); });
    if (type == dtype::f16 && wide) return to(f, h, [](std::uint16_t x) { return widen_f16(x); });
    if (type == dtype::f32) return to(h, f, [](float x) { return narrow_bf16(x); });
    if (type == dtype::bf16) return to(h, h, [](std::uint16_t x) { return x; });
    if (type == dtype::f16) return to(h, h, [](std::uint16_t x) { return narrow_bf16(widen_f16(x)); });
    v0::detail::refuse("weights_are_floats", std::string("a matrix is packed from F32, BF16 or F16, not from ") + std::string(name_of(type)));
}

/// The inverse: rows [first_row, first_row + row_count) as row-major elements of the matrix's own format (floats, or bf16 bits).
inline void unpack(void* destination, std::ptrdiff_t row_stride_bytes, packed_matrix const& m, int first_row, int row_count) {
    std::size_t const size = m.format == panel_format::f32 ? 4 : 2;
    auto const* const from = static_cast<std::byte const*>(m.data);
    auto* const to = static_cast<std::byte*>(destination);
    for (int r = 0; r < row_count; ++r)
        for (int k = 0; k < m.columns; ++k)
            std::memcpy(to + r * row_stride_bytes + static_cast<std::ptrdiff_t>(size) * k, from + detail::packed_index(m, first_row + r, k) * size, size);
}

}  // namespace tenon::inline v0::kernel
