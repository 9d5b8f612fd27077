// A matrix as the kernels read it: panels of 32 outputs, inputs ascending. Knows how to write and read it back, not how to multiply.
// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <tenon/core/dtype.hpp>
#include <tenon/core/error.hpp>
#include <tenon/kernel/detail/number.hpp>
#include <tenon/kernel/fixed15.hpp>
#include <tenon/kernel/q8.hpp>

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>

namespace tenon::inline v0::kernel {

inline constexpr int panel_rows = 32;  ///< outputs of one panel; part of the layout, not of the law

static_assert(fixed15::outputs == panel_rows);

constexpr int panels(int rows) { return (rows + panel_rows - 1) / panel_rows; }

/// f32:  [panel][k][32] floats.
/// bf16: [panel][k / 2][32][2] bf16: two inputs of one output side by side, so that one 32-bit lane widens to both. An odd K is
///       padded with a zero that is never multiplied.
/// bf16_pair: the bytes of bf16, of a matrix whose products are those of rule 9: chains over pairs, activations rounded to bf16.
/// q8:   [panel][k / 32] blocks of 32 scales in half precision, then [8][32][4] bytes: four inputs of one output side by side, each its code
///       + 128, which the instruction that multiplies bytes wants without a sign. 32 divides K.
/// fixed15: [panel] 32 exponents, then [k / 2][32][2] codes of 16 bits, as bf16 (kernel/fixed15.hpp).
enum class panel_format : std::uint8_t { f32, bf16, bf16_pair, q8, fixed15 };
inline constexpr int panel_formats = 5;

constexpr std::string_view name_of(panel_format f) {
    constexpr std::string_view names[panel_formats] = {"f32", "bf16", "bf16 pairs", "q8", "fixed15"};
    return names[static_cast<int>(f)];
}

/// A matrix of N outputs and K inputs as a backend packed it. A view: somebody else owns the bytes. Here: whole panels, padded with zeros.
struct packed_matrix {
    void const* data = nullptr;  ///< 64-byte aligned
    int rows = 0;                ///< N, outputs
    int columns = 0;             ///< K, inputs
    int segments = 1;            ///< S, along K; divides K; a power of two, at most 8. The layout does not depend on it
    panel_format format = panel_format::f32;
    int first_row = 0;           ///< which output of the unsplit matrix row 0 is; panels do not care, tiles that may be cut do
};

/// Of a format that has elements of a constant size beside each other: all but q8; of fixed15 its codes.
constexpr std::size_t element_bytes(panel_format f) { return f == panel_format::f32 ? 4 : 2; }

/// Bytes of K inputs of one output, side by side: elements, or q8's blocks (`q8_block_bytes`).
constexpr std::size_t row_bytes(panel_format f, int columns) {
    auto const k = static_cast<std::size_t>(columns);
    return f == panel_format::q8 ? k / q8_block * q8_block_bytes : k * element_bytes(f);
}

inline constexpr std::size_t q8_panel_scale_bytes = 2 * panel_rows;
inline constexpr std::size_t q8_panel_block_bytes = q8_panel_scale_bytes + q8_block * panel_rows;

/// Bytes of one panel.
constexpr std::size_t panel_bytes(panel_format f, int columns) {
    auto const k = static_cast<std::size_t>(columns);
    if (f == panel_format::q8) return k / q8_block * q8_panel_block_bytes;
    if (f == panel_format::fixed15) return fixed15::panel_bytes(columns);
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

inline std::uint32_t word_at(std::byte const* row, int i) { return read_as<std::uint32_t>(row + 4 * std::ptrdiff_t{i}); }

inline constexpr int pack_words = 32;  // of a row at a time, so that the part of the panel being written stays in the first cache

/// Words of one output of a panel: an f32 each, or two of 16 bits.
constexpr int words_of(panel_format f, int columns) { return f == panel_format::f32 ? columns : (columns + 1) / 2; }

/// Writes rows, word by word of `word_of(row, i)`, and the padding after the last row.
template <class WordOf>
void pack_rows(void* destination, packed_matrix const& m, int first_row, int row_count, std::byte const* source, std::ptrdiff_t stride,
               WordOf word_of) {
    int const words = words_of(m.format, m.columns), end = first_row + row_count;
    int const padded_end = end == m.rows ? panels(m.rows) * panel_rows : end;
    for (int r0 = first_row, r1 = 0; r0 < padded_end; r0 = r1) {
        r1 = (r0 / panel_rows + 1) * panel_rows;
        r1 = r1 < padded_end ? r1 : padded_end;
        auto* const panel = reinterpret_cast<std::uint32_t*>(static_cast<std::byte*>(destination) +
                                                             static_cast<std::size_t>(r0 / panel_rows) * panel_bytes(m.format, m.columns));
        for (int w0 = 0; w0 < words; w0 += pack_words) {
            int const w1 = words - w0 < pack_words ? words : w0 + pack_words;
            for (int r = r0; r < r1; ++r) {
                std::uint32_t* to = panel + std::ptrdiff_t{w0} * panel_rows + r % panel_rows;
                std::byte const* const row = r < end ? source + (r - first_row) * stride : nullptr;
                for (int w = w0; w < w1; ++w, to += panel_rows) *to = r < end ? word_of(row, w) : 0U;
            }
        }
    }
}

/// The same for 16-bit elements made of `element_of(row, k)`: of an odd K's last word the upper half is zero.
template <class ElementOf>
void pack_halves(void* destination, packed_matrix const& m, int first_row, int row_count, std::byte const* source, std::ptrdiff_t stride,
                 ElementOf element_of) {
    pack_rows(destination, m, first_row, row_count, source, stride, [&](std::byte const* row, int w) {
        std::uint32_t const high = 2 * w + 1 < m.columns ? element_of(row, 2 * w + 1) : std::uint16_t{0};
        return element_of(row, 2 * w) | high << 16U;
    });
}

/// Where block `b` of a row lies in q8: its scale, and its first four codes; the next four follow 4 * panel_rows bytes on.
struct q8_place {
    std::size_t scale = 0, codes = 0;
    constexpr q8_place(packed_matrix const& m, int row, int b) {
        auto const in_panel = static_cast<std::size_t>(row % panel_rows);
        std::size_t const block = static_cast<std::size_t>(row / panel_rows) * panel_bytes(m.format, m.columns) +
                                  static_cast<std::size_t>(b) * q8_panel_block_bytes;
        scale = block + 2 * in_panel;
        codes = block + q8_panel_scale_bytes + 4 * in_panel;
    }
};

inline void put_q8(std::byte* to, packed_matrix const& m, int row, int b, std::uint16_t scale, std::int8_t const* codes) {
    q8_place const at(m, row, b);
    std::memcpy(to + at.scale, &scale, sizeof scale);
    for (std::size_t j = 0; j < q8_block / 4; ++j) {
        std::uint32_t word = 0;
        std::memcpy(&word, codes + 4 * j, sizeof word);
        word ^= 0x80808080U;
        std::memcpy(to + at.codes + 4 * panel_rows * j, &word, sizeof word);
    }
}

// Blocks of 32 rows one after the other: what is being written is one block of a panel.
inline void pack_q8(std::byte* to, packed_matrix const& m, int first_row, int row_count, std::byte const* source, std::ptrdiff_t stride,
                    dtype type) {
    std::int8_t codes[q8_block] = {};
    for (int r0 = 0; r0 < row_count;) {
        int const in_panel = panel_rows - (first_row + r0) % panel_rows, r1 = row_count - r0 < in_panel ? row_count : r0 + in_panel;
        for (int b = 0; b < m.columns / q8_block; ++b)
            for (int r = r0; r < r1; ++r) {
                float x[q8_block];
                widen_elements(x, source + r * stride + std::ptrdiff_t{b} * q8_block * bytes_of(type), type, q8_block);
                std::uint16_t const scale = quantize_q8(codes, x);
                if ((scale & 0x7c00U) == 0x7c00U)
                    v0::detail::refuse("q8_holds_weights", "row " + std::to_string(first_row + r) + ", block " + std::to_string(b) +
                                                               ": no half is a 127th of the largest weight there");
                put_q8(to, m, first_row + r, b, scale, codes);
            }
        r0 = r1;
    }
    if (first_row + row_count == m.rows)
        for (std::int8_t& c : codes) c = 0;
    for (int r = first_row + row_count == m.rows ? m.rows : panels(m.rows) * panel_rows; r < panels(m.rows) * panel_rows; ++r)
        for (int b = 0; b < m.columns / q8_block; ++b) put_q8(to, m, r, b, 0, codes);
}

inline void unpack_q8(std::byte* to, std::ptrdiff_t stride, packed_matrix const& m, int first_row, int row_count) {
    auto const* const from = static_cast<std::byte const*>(m.data);
    for (int r = 0; r < row_count; ++r)
        for (int b = 0; b < m.columns / q8_block; ++b) {
            q8_place const at(m, first_row + r, b);
            std::uint32_t words[q8_block / 4];
            for (std::size_t j = 0; j < q8_block / 4; ++j) words[j] = read_as<std::uint32_t>(from + at.codes + 4 * panel_rows * j) ^ 0x80808080U;
            std::int8_t codes[q8_block];
            std::memcpy(codes, words, sizeof codes);
            store_q8(to + r * stride, b, read_as<std::uint16_t>(from + at.scale), codes);
        }
}
}  // namespace detail

/// Writes `count` row-major elements of `type` (f32, bf16, f16; need not be aligned) as elements of `format`, or as blocks, side by side. Where
/// `beyond_q8` finds one, a block's scale is no number.
inline void store_row(std::byte* to, panel_format format, std::byte const* from, dtype type, int count) {
    if (format == panel_format::q8) {
        for (int b = 0; b < count / q8_block; ++b) {
            float x[q8_block];
            std::int8_t codes[q8_block];
            widen_elements(x, from + std::ptrdiff_t{b} * q8_block * bytes_of(type), type, q8_block);
            std::uint16_t const scale = quantize_q8(codes, x);
            store_q8(to, b, scale, codes);
        }
        return;
    }
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
/// bf16 and f16 widen exactly, what becomes bf16 rounds to nearest even, q8 quantises each block of 32 and refuses one whose scale no half
/// holds (`q8_holds_weights`). Whoever writes the last row writes the padding too. Codes of fixed15 need more than the columns that are
/// there: kernel/fixed15_table.hpp packs them.
inline void pack(void* destination, packed_matrix const& shape, int first_row, int row_count, std::byte const* source,
                 std::ptrdiff_t row_stride_bytes, dtype type) {
    if (shape.format == panel_format::fixed15)
        v0::detail::refuse("weights_are_floats", "codes of fixed15 are packed by kernel/fixed15_table.hpp, exponents of whole rows first");
    bool const wide = shape.format == panel_format::f32, is_float = type == dtype::f32 || type == dtype::bf16 || type == dtype::f16;
    if (shape.format == panel_format::q8 && is_float)
        return detail::pack_q8(static_cast<std::byte*>(destination), shape, first_row, row_count, source, row_stride_bytes, type);
    auto const words = [&](auto word_of) { detail::pack_rows(destination, shape, first_row, row_count, source, row_stride_bytes, word_of); };
    auto const halves = [&](auto element_of) {
        detail::pack_halves(destination, shape, first_row, row_count, source, row_stride_bytes, element_of);
    };
    auto const bits = [](float x) { return std::bit_cast<std::uint32_t>(x); };
    if (type == dtype::f32 && wide) return words([](std::byte const* row, int k) { return detail::word_at(row, k); });
    if (type == dtype::bf16 && wide)
        return words([](std::byte const* row, int k) { return std::uint32_t{v0::detail::load_16(row + 2 * std::ptrdiff_t{k})} << 16U; });
    if (type == dtype::f16 && wide) return words([&](std::byte const* row, int k) { return bits(load_f16(row + 2 * std::ptrdiff_t{k})); });
    if (type == dtype::f32) return halves([](std::byte const* row, int k) { return narrow_bf16(load_f32(row + 4 * std::ptrdiff_t{k})); });
    if (type == dtype::bf16 && shape.columns % 2 == 0)
        return words([](std::byte const* row, int w) { return detail::word_at(row, w); });
    if (type == dtype::bf16) return halves([](std::byte const* row, int k) { return v0::detail::load_16(row + 2 * std::ptrdiff_t{k}); });
    if (type == dtype::f16) return halves([](std::byte const* row, int k) { return narrow_bf16(load_f16(row + 2 * std::ptrdiff_t{k})); });
    v0::detail::refuse("weights_are_floats", std::string("a matrix is packed from F32, BF16 or F16, not from ") + std::string(name_of(type)));
}

/// The inverse: rows [first_row, first_row + row_count) as row-major elements of the matrix's own format (floats, or bf16 bits); in q8 as
/// blocks of `q8_block_bytes`: a scale, then 32 codes; of fixed15 the floats that its codes stand for.
inline void unpack(void* destination, std::ptrdiff_t row_stride_bytes, packed_matrix const& m, int first_row, int row_count) {
    if (m.format == panel_format::q8)
        return detail::unpack_q8(static_cast<std::byte*>(destination), row_stride_bytes, m, first_row, row_count);
    if (m.format == panel_format::fixed15) {
        for (int r = 0; r < row_count; ++r)
            for (int k = 0; k < m.columns; ++k) {
                int const e = static_cast<std::int32_t const*>(m.data)[fixed15::exponent_index(first_row + r, m.columns)];
                float const x = fixed15::value_of(static_cast<std::int16_t const*>(m.data)[fixed15::code_index(first_row + r, k, m.columns)], e);
                std::memcpy(static_cast<std::byte*>(destination) + r * row_stride_bytes + 4 * std::ptrdiff_t{k}, &x, sizeof x);
            }
        return;
    }
    std::size_t const size = m.format == panel_format::f32 ? 4 : 2;
    auto const* const from = static_cast<std::byte const*>(m.data);
    auto* const to = static_cast<std::byte*>(destination);
    for (int r = 0; r < row_count; ++r)
        for (int k = 0; k < m.columns; ++k)
            std::memcpy(to + r * row_stride_bytes + static_cast<std::ptrdiff_t>(size) * k, from + detail::packed_index(m, first_row + r, k) * size, size);
}

}  // namespace tenon::inline v0::kernel
