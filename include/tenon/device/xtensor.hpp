// device::xtensor at run time: the arithmetic law as array expressions, the executable specification of every other canonical backend.
// It shares no kernel with them. A page of device/xtensor/ is one operation; here they read and write the rows of a model.
// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <tenon/device/backend.hpp>
#include <tenon/device/concept.hpp>
#include <tenon/device/xtensor/attention.hpp>
#include <tenon/device/xtensor/combine.hpp>
#include <tenon/device/xtensor/exp.hpp>
#include <tenon/device/xtensor/gated_unit.hpp>
#include <tenon/device/xtensor/linear.hpp>
#include <tenon/device/xtensor/linear_q8.hpp>
#include <tenon/device/xtensor/rms_norm.hpp>
#include <tenon/device/xtensor/rope.hpp>
#include <tenon/device/xtensor/route.hpp>

#include <array>
#include <cstddef>
#include <string_view>

namespace tenon::inline v0::device {
namespace specification {

/// Matrices row-major, operations as the law writes them. Canonical: bit for bit what device::cpu computes, slowly.
///
/// Unlike the other backends it allocates in every call, since its expressions become matrices; memory that is not there is refused by name
/// (`memory_suffices`).
class xtensor_backend final : public backend {
public:
    std::string_view name() const noexcept override { return "xtensor"; }
    bool holds(kernel::panel_format f) const noexcept override { return f != kernel::panel_format::bf16_pair; }
    bool reads(kv_format) const noexcept override { return true; }

    void multiply(float* y, std::ptrdiff_t y_stride, kernel::packed_matrix const& w, float const* x, std::ptrdiff_t x_stride, int rows,
                  float* /*scratch*/) const override {
        matrix const in = read(x, x_stride, rows, w.columns);
        if (w.format == kernel::panel_format::q8)
            write(y, y_stride, specification::linear_q8(in, held_in_q8(w), w.segments));
        else
            write(y, y_stride, specification::linear(in, widened(w), w.segments));
    }
    void rms_norm(float* y, std::ptrdiff_t y_stride, float const* x, std::ptrdiff_t x_stride, float const* gain, int n, float epsilon,
                  int rows) const override {
        write(y, y_stride, specification::rms_norm(read(x, x_stride, rows, n), read(gain, 0, 1, n), epsilon));
    }
    void rope(float* x, std::ptrdiff_t stride, int rows, int heads, int head_dim, float const* cosines, float const* sines) const override {
        int const half = head_dim / 2;
        matrix const c = read(cosines, half, rows, half), s = read(sines, half, rows, half);
        for (int h = 0; h < heads; ++h, x += head_dim) write(x, stride, specification::rope(read(x, stride, rows, head_dim), c, s));
    }
    void swiglu(float* y, float const* gate, float const* up, std::size_t n) const override {
        write(y, specification::gated_unit(read(gate, n), read(up, n)));
    }
    void add(float* out, float const* low, float const* high, std::size_t n) const override { write(out, read(low, n) + read(high, n)); }
    void add_bias(float* y, std::ptrdiff_t stride, float const* bias, int n, int rows) const override {
        write(y, stride, read(y, stride, rows, n) + read(bias, 0, 1, n));
    }
    void attention(kernel::attention_call const& call) const override { specification::attention(call); }
    void exp(float* y, float const* x, std::size_t n) const override { write(y, specification::exp(read(x, n))); }
    int route(kernel::routing_call const& call) const override { return specification::route(call); }
    void combine(kernel::combine_call const& call) const override { specification::combine(call); }
};

}  // namespace specification
using specification::xtensor_backend;

/// The law as array expressions. Canonical. An index names a worker, not a core; an instruction set makes no difference.
template <int... Index>
struct xtensor {
    static constexpr device_kind kind = device_kind::xtensor;
    static constexpr int most_ranks = most_ranks_of_a_stage;
    static constexpr bool canonical = true;
    static constexpr std::array<device_id, sizeof...(Index)> devices{device_id{device_kind::xtensor, Index}...};
    static backend const& instance(std::string_view /*isa*/) {
        static xtensor_backend const specification;
        return specification;
    }
};
static_assert(policy<xtensor<0>>);

}  // namespace tenon::inline v0::device
