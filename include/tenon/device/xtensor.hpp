// device::xtensor at run time: the arithmetic law as array expressions, the executable specification of every other canonical backend.
// It shares no kernel with them. A page of device/xtensor/ is one operation; here they read and write the rows of a model.
// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <tenon/device/backend.hpp>
#include <tenon/device/concept.hpp>
#include <tenon/device/xtensor/attention.hpp>
#include <tenon/device/xtensor/exp.hpp>
#include <tenon/device/xtensor/gated_unit.hpp>
#include <tenon/device/xtensor/linear.hpp>
#include <tenon/device/xtensor/rms_norm.hpp>
#include <tenon/device/xtensor/rope.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <type_traits>

namespace tenon::inline v0::device {

namespace specification {

inline std::size_t size(int n) { return static_cast<std::size_t>(n); }

/// Somebody else's elements, as an array of that shape; strides in elements.
template <class T, std::size_t Rank>
auto elements(T* data, std::array<std::size_t, Rank> const& shape, std::array<std::ptrdiff_t, Rank> const& strides) {
    std::size_t count = 1;
    for (std::size_t n : shape) count *= n;
    return xt::adapt(data, count, xt::no_ownership(), shape, strides);
}

auto row(auto* x, std::size_t n) { return elements<std::remove_pointer_t<decltype(x)>, 1>(x, {n}, {1}); }
auto rows(auto* x, std::ptrdiff_t stride, int count, int n) {
    return elements<std::remove_pointer_t<decltype(x)>, 2>(x, {size(count), size(n)}, {stride, 1});
}
auto heads(auto* x, std::ptrdiff_t stride, int count, int heads, int head_dim) {
    return elements<std::remove_pointer_t<decltype(x)>, 3>(x, {size(count), size(heads), size(head_dim)}, {stride, head_dim, 1});
}

/// A matrix as it is held, widened exactly.  (N, K)
inline array<2> widened(kernel::packed_matrix const& m) {
    if (m.format == kernel::panel_format::f32) return rows(static_cast<float const*>(m.data), m.columns, m.rows, m.columns);
    return xt::make_lambda_xfunction([](std::uint16_t bits) { return widen_bf16(bits); },
                                     rows(static_cast<std::uint16_t const*>(m.data), m.columns, m.rows, m.columns));
}

}  // namespace specification

/// Matrices row-major, operations as the law writes them. Canonical: bit for bit what device::cpu computes, and slowly.
///
/// Unlike other backends it allocates in every call, because its expressions are arrays; memory that is not there is refused by name
/// (`memory_suffices`).
class xtensor_backend final : public backend {
public:
    std::string_view name() const noexcept override { return "xtensor"; }

    void multiply(float* y, std::ptrdiff_t y_stride, kernel::packed_matrix const& w, float const* x, std::ptrdiff_t x_stride, int rows,
                  float* /*scratch*/) const override {
        specification::noalias(specification::rows(y, y_stride, rows, w.rows)) =
            specification::linear(specification::rows(x, x_stride, rows, w.columns), specification::widened(w), specification::size(w.segments));
    }
    void rms_norm(float* y, std::ptrdiff_t y_stride, float const* x, std::ptrdiff_t x_stride, float const* gain, int n, float epsilon,
                  int rows) const override {
        specification::noalias(specification::rows(y, y_stride, rows, n)) =
            specification::rms_norm(specification::rows(x, x_stride, rows, n), specification::row(gain, specification::size(n)), epsilon);
    }
    void rope(float* x, std::ptrdiff_t stride, int rows, int heads, int head_dim, float const* cosines, float const* sines) const override {
        int const half = head_dim / 2;
        auto turned = specification::heads(x, stride, rows, heads, head_dim);
        specification::noalias(turned) = specification::rope(turned, specification::rows(cosines, half, rows, half), specification::rows(sines, half, rows, half));
    }
    void swiglu(float* y, float const* gate, float const* up, std::size_t n) const override {
        specification::noalias(specification::row(y, n)) = specification::gated_unit(specification::row(gate, n), specification::row(up, n));
    }
    void add(float* out, float const* low, float const* high, std::size_t n) const override {
        specification::noalias(specification::row(out, n)) = specification::row(low, n) + specification::row(high, n);
    }
    void add_bias(float* y, std::ptrdiff_t stride, float const* bias, int n, int rows) const override {
        auto biased = specification::rows(y, stride, rows, n);
        specification::noalias(biased) = biased + specification::row(bias, specification::size(n));
    }
    void attention(kernel::attention_call const& c) const override {
        // blocks of the cache up to the one of the last row; nothing is read but what a row sees
        std::size_t const K = specification::size(c.kv_heads), D = specification::size(c.head_dim), slots = kernel::kv_block,
                          blocks = static_cast<std::size_t>(c.first_position + c.rows) / slots + 1;
        std::ptrdiff_t const block_stride = std::ptrdiff_t{kernel::kv_block} * c.head_dim;
        auto const keys = specification::elements<float const, 4>(c.keys, {K, blocks, D, slots}, {c.kv_head_stride, block_stride, kernel::kv_block, 1});
        auto const values = specification::elements<float const, 4>(c.values, {K, blocks, slots, D}, {c.kv_head_stride, block_stride, c.head_dim, 1});
        specification::noalias(specification::heads(c.out, c.out_stride, c.rows, c.heads, c.head_dim)) =
            specification::attention(specification::heads(c.q, c.q_stride, c.rows, c.heads, c.head_dim), keys, values, c.first_position, c.window, c.scale);
    }
    void exp(float* y, float const* x, std::size_t n) const override {
        specification::noalias(specification::row(y, n)) = specification::exp(specification::array<1>(specification::row(x, n)));
    }
};

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
