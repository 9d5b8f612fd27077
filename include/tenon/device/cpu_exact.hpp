// device::cpu's products of integer codes: the kernels of fixed15_table.hpp behind the interface of exact_products.hpp.
// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <tenon/device/exact_products.hpp>
#include <tenon/kernel/fixed15_table.hpp>

#include <cstddef>
#include <cstdint>

namespace tenon::inline v0::device {

template <class = void>
class basic_cpu_exact final : public exact_products {
public:
    explicit basic_cpu_exact(kernel::fixed15::table const& kernels) : kernels_(kernels) {}

    kernel::fixed15::table const& kernels() const noexcept { return kernels_; }

    void pack_exponents(void* to, kernel::packed_matrix const& shape, int first_row, int rows, std::byte const* source,
                        std::ptrdiff_t row_stride_bytes, dtype type, int whole_columns) const override {
        kernel::fixed15::pack_exponents(to, shape.rows, shape.columns, first_row, rows, source, row_stride_bytes, type, whole_columns);
    }
    void magnitudes(std::uint32_t* largest, float const* x, std::ptrdiff_t x_stride, int columns, int rows) const override {
        for (int t = 0; t < rows; ++t) largest[t] = kernel::fixed15::row_magnitude(x + t * x_stride, columns);
    }
    void sums(std::int64_t* s, kernel::packed_matrix const& w, float const* x, std::ptrdiff_t x_stride, int rows,
              std::uint32_t const* magnitudes, float* scratch, crew& threads) const override {
        std::ptrdiff_t const N = w.rows, panels = kernel::panels(w.rows);
        for (std::ptrdiff_t row = 0; row < rows; row += kernel::rows_at_once) {
            int const block = rows - row < kernel::rows_at_once ? static_cast<int>(rows - row) : kernel::rows_at_once;
            threads.share(block, alone / w.columns + 1, [&](std::ptrdiff_t first, std::ptrdiff_t end) {
                float* const to = scratch + first * static_cast<std::ptrdiff_t>(kernel::fixed15::row_codes(w.columns)) / 2;
                kernels_.prepare_part(to, x + (row + first) * x_stride, x_stride, static_cast<int>(end - first), w.columns,
                                      magnitudes + row + first, 0, 1);
            });
            std::ptrdiff_t const of_panel = std::ptrdiff_t{kernel::panel_rows} * block * w.columns;
            threads.share(panels, alone / of_panel + 1, [&](std::ptrdiff_t first, std::ptrdiff_t end) {
                kernels_.sums(s + row * N, N, w, scratch, block, static_cast<int>(first), static_cast<int>(end - first));
            });
        }
    }
    void finish(float* y, std::int64_t const* s, kernel::packed_matrix const& w, int first, int count, std::uint32_t magnitude) const override {
        kernel::fixed15::finish(y, s, w, first, count, magnitude);
    }

private:
    static constexpr std::ptrdiff_t alone = 1 << 15;  ///< codes that one thread has made, or multiplied, before others would have come
    kernel::fixed15::table const& kernels_;
};

}  // namespace tenon::inline v0::device
