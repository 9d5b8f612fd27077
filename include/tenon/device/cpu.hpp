// device::cpu at run time: the kernels of an instruction set behind the interface that every backend has.
// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <tenon/device/backend.hpp>
#include <tenon/device/concept.hpp>
#include <tenon/kernel/kernels.hpp>

#include <cstddef>
#include <cstdlib>
#include <string>
#include <string_view>

namespace tenon::inline v0 {

namespace detail {
/// `auto` is the environment's TENON_ISA where it is set, else the best that the machine runs.
inline kernel::isa isa_named(std::string_view name) {
    if (name == "auto" || name.empty()) {
        char const* const forced = std::getenv("TENON_ISA");
        if (forced == nullptr || *forced == '\0' || std::string_view(forced) == "auto") return kernel::best_isa();
        return isa_named(forced);
    }
    for (kernel::isa i : {kernel::isa::portable, kernel::isa::avx2, kernel::isa::avx512, kernel::isa::neon})
        if (kernel::name_of(i) == name) return i;
    refuse("isa_is_known", "instruction set " + std::string(name) + " is unknown; auto, portable, avx2, avx512 or neon would do");
}
}  // namespace detail

namespace device {

/// Matrices in panels, operations from a table of kernels. Canonical: every table gives the same bits.
template <class = void>
class basic_cpu_backend final : public backend {
public:
    explicit basic_cpu_backend(kernel::table const& kernels) : kernels_(kernels) {}

    std::string_view name() const noexcept override { return "cpu"; }
    std::string_view isa() const noexcept override { return kernel::name_of(kernels_.which); }

    std::size_t packed_bytes(kernel::packed_matrix const& shape) const noexcept override {
        return kernel::packed_bytes(shape.format, shape.rows, shape.columns);
    }
    void pack(void* to, kernel::packed_matrix const& shape, int first_row, int rows, std::byte const* source,
              std::ptrdiff_t row_stride_bytes, dtype type) const override {
        kernel::pack(to, shape, first_row, rows, source, row_stride_bytes, type);
    }
    void unpack(void* to, std::ptrdiff_t row_stride_bytes, kernel::packed_matrix const& m, int first_row, int rows) const override {
        kernel::unpack(to, row_stride_bytes, m, first_row, rows);
    }

    std::size_t multiply_scratch_floats(int rows, int columns) const noexcept override {
        return kernel::matmul_scratch_floats(rows, columns);
    }
    std::size_t attention_scratch_floats(int head_dim) const noexcept override { return kernel::attention_scratch_floats(head_dim); }

    void multiply(float* y, std::ptrdiff_t y_stride, kernel::packed_matrix const& w, float const* x, std::ptrdiff_t x_stride, int rows,
                  float* scratch) const override {
        kernels_.matmul(y, y_stride, w, x, x_stride, rows, 0, kernel::panels(w.rows), scratch);
    }
    void rms_norm(float* y, std::ptrdiff_t y_stride, float const* x, std::ptrdiff_t x_stride, float const* gain, int n, float epsilon,
                  int rows) const override {
        kernels_.rms_norm(y, y_stride, x, x_stride, gain, n, epsilon, rows);
    }
    void rope(float* x, std::ptrdiff_t stride, int rows, int heads, int head_dim, float const* cosines, float const* sines) const override {
        kernels_.rope(x, stride, rows, heads, head_dim, cosines, sines);
    }
    void swiglu(float* y, float const* gate, float const* up, std::size_t n) const override { kernels_.swiglu(y, gate, up, n); }
    void add(float* out, float const* low, float const* high, std::size_t n) const override { kernels_.add_pair(out, low, high, n); }
    void add_bias(float* y, std::ptrdiff_t stride, float const* bias, int n, int rows) const override {
        kernels_.add_bias(y, stride, bias, n, rows);
    }
    void attention(kernel::attention_call const& call) const override { kernels_.attention(call); }
    void exp(float* y, float const* x, std::size_t n) const override { kernels_.exp(y, x, n); }
    void combine(kernel::combine_call const& call) const override { kernels_.combine(call); }

private:
    kernel::table const& kernels_;
};
using cpu_backend = basic_cpu_backend<>;  // lazy: instantiated by who runs a model

/// The backend of one instruction set. Refuses with `isa_is_known` and `isa_is_supported`.
template <class Lazy = void>
backend const& cpu_backend_of(std::string_view isa) {
    auto const of = [](kernel::isa i) -> backend const& {
        switch (i) {
            case kernel::isa::avx2: {
                static basic_cpu_backend<Lazy> const b(kernel::table_of(kernel::isa::avx2));
                return b;
            }
            case kernel::isa::avx512: {
                static basic_cpu_backend<Lazy> const b(kernel::table_of(kernel::isa::avx512));
                return b;
            }
            case kernel::isa::neon: {
                static basic_cpu_backend<Lazy> const b(kernel::table_of(kernel::isa::neon));
                return b;
            }
            default: {
                static basic_cpu_backend<Lazy> const b(kernel::table_of(kernel::isa::portable));
                return b;
            }
        }
    };
    return of(v0::detail::isa_named(isa));
}

template <int... Index>
backend const& cpu<Index...>::instance(std::string_view isa) {
    return cpu_backend_of<>(isa);
}

}  // namespace device
}  // namespace tenon::inline v0
