// The kernels of the profile fixed15_1, one table of functions per instruction set, and the pieces of a product whose inputs are cut over
// ranks. Every table gives the bits of fixed15.hpp. The rest of a model under the profile is float32, from the tables of table.hpp.
// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <tenon/core/convert.hpp>
#include <tenon/core/dtype.hpp>
#include <tenon/kernel/attention.hpp>
#include <tenon/kernel/fixed15.hpp>
#include <tenon/kernel/isa.hpp>
#include <tenon/kernel/packed_matrix.hpp>
#include <tenon/kernel/table.hpp>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>

namespace tenon::inline v0::kernel::fixed15 {

// Weights of which a rank may hold some of the columns, each row's exponent from all of its columns.

namespace detail {
/// Calls `with(load)`, where load(p) reads one stored element of f32, bf16 or f16.
template <class With>
void with_elements(dtype type, With with) {
    if (type == dtype::f32)
        with([](std::byte const* p) { return load_f32(p); });
    else if (type == dtype::bf16)
        with([](std::byte const* p) { return load_bf16(p); });
    else if (type == dtype::f16)
        with([](std::byte const* p) { return load_f16(p); });
    else
        v0::detail::refuse("weights_are_floats", "codes are made of F32, BF16 or F16, not of " + std::string(name_of(type)));
}
}  // namespace detail

/// First half of packing: writes the exponents of rows [first_row, first_row + row_count) from whole rows.
///
///   destination  packed_bytes(rows, columns), 64-byte aligned: `columns` are those that the matrix will hold
///   source       row r at source + r * row_stride_bytes, `whole_columns` elements of f32, bf16 or f16; need not be aligned
///
/// Refuses rows of more than most_columns columns, however few of them are held. Whoever writes the last row writes the padding too.
inline void pack_exponents(void* destination, int rows, int columns, int first_row, int row_count, std::byte const* source,
                           std::ptrdiff_t row_stride_bytes, dtype type, int whole_columns) {
    require_exact(whole_columns);
    auto* const exponents = static_cast<std::int32_t*>(destination);
    detail::with_elements(type, [&](auto load) {
        for (int r = 0; r < row_count; ++r) {
            std::byte const* at = source + r * row_stride_bytes;
            std::uint32_t most = 0;
            for (int k = 0; k < whole_columns; ++k, at += bytes_of(type)) most = larger_magnitude(most, load(at));
            exponents[exponent_index(first_row + r, columns)] = exponent_of(most);
        }
    });
    if (first_row + row_count == rows)
        for (int r = rows; r < panels(rows) * outputs; ++r) exponents[exponent_index(r, columns)] = 0;
}

/// Second half: writes the codes of the `columns` elements that stand at `source`, by the exponents that `pack_exponents` has written.
inline void pack_codes(void* destination, int rows, int columns, int first_row, int row_count, std::byte const* source,
                       std::ptrdiff_t row_stride_bytes, dtype type) {
    constexpr int at_once = 64;  // columns at a time, so that the part of the panel being written stays in the first cache
    int const end = first_row + row_count, whole = columns / 2 * 2;
    auto* const words = static_cast<std::uint32_t*>(destination);
    auto const word_of = [columns](int r, int k) { return code_index(r, k, columns) / 2; };
    detail::with_elements(type, [&](auto load) {
        std::ptrdiff_t const size = bytes_of(type);
        auto const code = [&](std::byte const* row, int k, float scale) {
            return static_cast<std::uint16_t>(scaled_code(load(row + k * size), scale));
        };
        for (int r0 = first_row; r0 < end; r0 = (r0 / outputs + 1) * outputs)
            for (int k0 = 0; k0 < columns; k0 += at_once)
                for (int r = r0; r < end && r < (r0 / outputs + 1) * outputs; ++r) {
                    std::byte const* const row = source + (r - first_row) * row_stride_bytes;
                    float const scale = power_of_two(-static_cast<std::int32_t>(words[exponent_index(r, columns)]));
                    std::uint32_t* to = words + word_of(r, k0);
                    int k = k0;
                    for (; k < whole && k < k0 + at_once; k += 2, to += outputs)
                        *to = code(row, k, scale) | static_cast<std::uint32_t>(code(row, k + 1, scale)) << 16U;
                    if (k < columns && k < k0 + at_once) *to = code(row, k, scale);  // an odd column's, and the padding beside it
                }
    });
    for (int r = end; end == rows && r < panels(rows) * outputs; ++r)
        for (int k = 0; k < columns; k += 2) words[word_of(r, k)] = 0;
}

// Activations as the tables read them.

/// int16 elements of one prepared row of K inputs: its codes, right behind them its exponent, padded to a whole pair. Where K is odd the
/// exponent is the second half of the last pair, and meets a zero of the weights. Never more than K floats, K = 1 included.
constexpr std::size_t row_codes(int columns) { return static_cast<std::size_t>(columns / 2 + 1) * 2; }
constexpr int exponent_of_row(std::int16_t const* prepared, int row, int columns) {
    return prepared[static_cast<std::size_t>(row) * row_codes(columns) + static_cast<std::size_t>(columns)];
}

/// Turns a row of whole sums into outputs [first, first + count): the last step of a product whose inputs are cut, once the sums of all ranks
/// have been added.
///
///   y, s  (count) of these outputs   magnitude  of the whole row of inputs   w  this rank's part of the weights
inline void finish(float* y, std::int64_t const* s, packed_matrix const& w, int first, int count, std::uint32_t magnitude) {
    auto const* const exponents = static_cast<std::int32_t const*>(w.data);
    int const e = exponent_of(magnitude);
    for (int n = 0; n < count; ++n) y[n] = finished(s[n], e + exponents[exponent_index(first + n, w.columns)]);
}

/// Of a packed_matrix here segments are not looked at.
struct table {
    /// `prepare` writes rows of row_codes(K) int16: at most prepared_floats(rows, K) floats. `multiply` needs no stack.
    product_kernels product{};

    /// `prepare` for a part of the columns of every row.  magnitudes (rows): row_magnitude of the whole rows
    void (*prepare_part)(void* to, float const* x, std::ptrdiff_t x_stride, int rows, int columns, std::uint32_t const* magnitudes, int part,
                         int parts) = nullptr;

    /// s[m][n] = sum over k of the products of codes, for every output n of the panels named. The sums of the parts of a product add up to
    /// those of the whole, in any order.
    void (*sums)(std::int64_t* s, std::ptrdiff_t s_stride, packed_matrix const& w, void const* prepared, int rows, int first_panel,
                 int panel_count) = nullptr;

    /// Attention whose scores are exact products, whatever the call's `fixed15` says.  scratch: attention_scratch_floats(D)
    void (*attend)(attention_call const&, int first, int count, float* scratch) = nullptr;
};

}  // namespace tenon::inline v0::kernel::fixed15

#if defined(__clang__)
#pragma float_control(precise, on, push)
#endif
namespace tenon::inline v0::kernel {
namespace portable {
#define TENON_TARGET
#define TENON_INLINE inline
#define TENON_LANES 1
#include <tenon/kernel/detail/fixed15.inc>
}  // namespace portable
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__CUDACC__)
namespace avx2 {
#define TENON_TARGET __attribute__((target("avx2,fma")))
#define TENON_INLINE inline __attribute__((always_inline)) TENON_TARGET
#define TENON_LANES 8
#include <tenon/kernel/detail/fixed15.inc>
}  // namespace avx2
namespace avx512 {
#define TENON_TARGET __attribute__((target("avx2,fma,avx512f,avx512bw,avx512dq,avx512vl")))
#define TENON_INLINE inline __attribute__((always_inline)) TENON_TARGET
#define TENON_LANES 16
#include <tenon/kernel/detail/fixed15.inc>
}  // namespace avx512
#elif defined(__aarch64__) && defined(__GNUC__) && !defined(__CUDACC__)
namespace neon {
#define TENON_TARGET
#define TENON_INLINE inline __attribute__((always_inline))
#define TENON_LANES 1
#include <tenon/kernel/detail/fixed15.inc>
}  // namespace neon
#endif

namespace fixed15 {
/// The profile's kernels for one instruction set; refuses what this machine lacks.
template <class = void>
table const& table_of(isa i) {
    kernel::table_of(i);
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__CUDACC__)
    if (i == isa::avx2) return avx2::fixed15_kernels();
    if (i == isa::avx512) return avx512::fixed15_kernels();
#elif defined(__aarch64__) && defined(__GNUC__) && !defined(__CUDACC__)
    if (i == isa::neon) return neon::fixed15_kernels();
#endif
    return portable::fixed15_kernels();
}
}  // namespace fixed15

}  // namespace tenon::inline v0::kernel
#if defined(__clang__)
#pragma float_control(pop)
#endif
