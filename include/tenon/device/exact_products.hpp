// Products of integer codes, which are exact however they are cut: what a backend has that computes the profile fixed15_1, beside a layout
// for its weights. The products themselves, of whole rows, are the backend's own.
// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <tenon/core/dtype.hpp>
#include <tenon/device/crew.hpp>
#include <tenon/kernel/packed_matrix.hpp>

#include <cstddef>
#include <cstdint>

namespace tenon::inline v0::device {

/// Extents as in `backend`; every matrix is of kernel::panel_format::fixed15. A matrix may hold some of the columns of its rows: sums of all
/// parts, added in any order, are those of whole rows. None allocates, and of those that a step calls none throws.
class exact_products {
public:
    /// Writes the exponents of rows [first_row, first_row + rows) from whole rows; before `backend::pack` writes their codes.
    ///
    ///   source  row r at source + r * row_stride_bytes, `whole_columns` elements of `type`; not aligned
    ///
    /// Refuses more than 65,536 whole columns (`product_is_exact`).
    virtual void pack_exponents(void* to, kernel::packed_matrix const& shape, int first_row, int rows, std::byte const* source,
                                std::ptrdiff_t row_stride_bytes, dtype type, int whole_columns) const = 0;

    /// The largest magnitude of each row's part, as kernel::fixed15 compares them. That of a row is the largest of its parts'.
    ///
    ///   largest  (T)   x  (T, K)
    virtual void magnitudes(std::uint32_t* largest, float const* x, std::ptrdiff_t x_stride, int columns, int rows) const = 0;

    /// s[t][n] = sum over this part's k of the codes of x[t][k] and w[n][k].  s (T, N), x (T, K), magnitudes (T) of whole rows
    ///
    ///   scratch  backend::multiply_all_scratch_floats(T, K, threads.size())
    virtual void sums(std::int64_t* s, kernel::packed_matrix const& w, float const* x, std::ptrdiff_t x_stride, int rows,
                      std::uint32_t const* magnitudes, float* scratch, crew& threads) const = 0;

    /// What whole sums stand for, of outputs [first, first + count) of one row.  y, s (count)
    virtual void finish(float* y, std::int64_t const* s, kernel::packed_matrix const& w, int first, int count,
                        std::uint32_t magnitude) const = 0;

protected:
    ~exact_products() = default;
};

}  // namespace tenon::inline v0::device
