// device::eigen at run time: Eigen does the arithmetic. Within one build a value has the same bits whatever batch, chunk or shard it is
// computed in; they are not the canonical ones, and another compiler, flag or Eigen may give others.
// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <tenon/device/backend.hpp>
#include <tenon/device/concept.hpp>
#include <tenon/device/eigen/product.hpp>
#include <tenon/device/eigen/rows.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace tenon::inline v0::device {

/// Products in tiles of 48 outputs x 64 inputs x 32, 8 or 1 rows, whose bits agree; see device/eigen/product.hpp.
class eigen_backend final : public backend {
public:
    /// `batch_shaped` is the red arm of the tests: one product per tile over all rows and all of K, as Eigen would be called otherwise.
    explicit eigen_backend(bool batch_shaped = false) noexcept : batch_shaped_(batch_shaped) {}

    std::string_view name() const noexcept override { return "eigen"; }
    /// What the compiler let Eigen use: the choice of a build, not of a call.
    std::string_view isa() const noexcept override {
#if defined(EIGEN_VECTORIZE_AVX512)
        return "avx512";
#elif defined(EIGEN_VECTORIZE_AVX2)
        return "avx2";
#elif defined(EIGEN_VECTORIZE_NEON)
        return "neon";
#else
        return "portable";
#endif
    }

    std::size_t packed_bytes(kernel::packed_matrix const& shape) const noexcept override {
        return static_cast<std::size_t>(detail::tiles_of(shape) * detail::tile_elements(shape)) * kernel::element_bytes(shape.format);
    }
    void pack(void* to, kernel::packed_matrix const& shape, int first_row, int rows, std::byte const* source,
              std::ptrdiff_t row_stride_bytes, dtype type) const override {
        if (shape.format == kernel::panel_format::f32)
            detail::pack_tiles(static_cast<float*>(to), shape, first_row, rows, source, row_stride_bytes, type);
        else
            detail::pack_tiles(static_cast<std::uint16_t*>(to), shape, first_row, rows, source, row_stride_bytes, type);
    }
    void unpack(void* to, std::ptrdiff_t row_stride_bytes, kernel::packed_matrix const& m, int first_row, int rows) const override {
        if (m.format == kernel::panel_format::f32)
            detail::unpack_tiles<float>(static_cast<std::byte*>(to), row_stride_bytes, m, first_row, rows);
        else
            detail::unpack_tiles<std::uint16_t>(static_cast<std::byte*>(to), row_stride_bytes, m, first_row, rows);
    }

    std::size_t attention_scratch_floats(int head_dim) const noexcept override {
        return std::size_t{detail::attention_rows + 1} * static_cast<std::size_t>(head_dim);
    }

    void multiply(float* y, std::ptrdiff_t y_stride, kernel::packed_matrix const& w, float const* x, std::ptrdiff_t x_stride, int rows,
                  float*) const override {
        if (w.format == kernel::panel_format::f32)
            detail::multiply_tiles<float>(y, y_stride, w, x, x_stride, rows, batch_shaped_);
        else
            detail::multiply_tiles<std::uint16_t>(y, y_stride, w, x, x_stride, rows, batch_shaped_);
    }
    void rms_norm(float* y, std::ptrdiff_t y_stride, float const* x, std::ptrdiff_t x_stride, float const* gain, int n, float epsilon,
                  int rows) const override {
        for (int t = 0; t < rows; ++t) detail::rms_norm(y + t * y_stride, x + t * x_stride, gain, n, epsilon);
    }
    void rope(float* x, std::ptrdiff_t stride, int rows, int heads, int head_dim, float const* cosines, float const* sines) const override {
        for (std::ptrdiff_t t = 0; t < rows; ++t)
            for (std::ptrdiff_t h = 0; h < heads; ++h)
                detail::rope(x + t * stride + h * head_dim, head_dim / 2, cosines + t * (head_dim / 2), sines + t * (head_dim / 2));
    }
    void swiglu(float* y, float const* gate, float const* up, std::size_t n) const override {
        detail::swiglu(y, gate, up, static_cast<std::ptrdiff_t>(n));
    }
    void add(float* out, float const* low, float const* high, std::size_t n) const override {
        auto const count = static_cast<std::ptrdiff_t>(n);
        detail::row(out, count) = detail::const_row(low, count) + detail::const_row(high, count);
    }
    void add_bias(float* y, std::ptrdiff_t stride, float const* bias, int n, int rows) const override {
        for (int t = 0; t < rows; ++t) detail::row(y + t * stride, n) += detail::const_row(bias, n);
    }
    void attention(kernel::attention_call const& call) const override { detail::attention(call); }
    void exp(float* y, float const* x, std::size_t n) const override { detail::exp(y, x, static_cast<std::ptrdiff_t>(n)); }

private:
    bool batch_shaped_;
};

/// Eigen's products on fixed shapes, on the host's cores. Not canonical. An index names a worker, not a core.
template <int... Index>
struct eigen {
    static constexpr device_kind kind = device_kind::eigen;
    static constexpr int most_ranks = most_ranks_of_a_stage;
    static constexpr bool canonical = false;
    static constexpr std::array<device_id, sizeof...(Index)> devices{device_id{device_kind::eigen, Index}...};
    /// One backend, whatever instruction set was asked for: the compiler's flags have chosen Eigen's.
    static backend const& instance(std::string_view /*isa*/) {
        static eigen_backend const only;
        return only;
    }
};
static_assert(policy<eigen<0>>);

}  // namespace tenon::inline v0::device
