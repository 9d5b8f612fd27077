// A device like cpu but for one operation, which throws when it is told to. Knows no runtime.
// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <tenon/core/error.hpp>
#include <tenon/device/cpu.hpp>

#include <array>
#include <atomic>
#include <cstddef>
#include <string_view>

namespace support {

inline std::atomic<int> calls_until_failure{-1};  // of one operation, over all ranks; below 0: never

/// device::cpu, but for a gated unit that may throw.
class failing_backend final : public tenon::device::backend {
public:
    std::string_view name() const noexcept override { return "user"; }
    std::size_t multiply_scratch_floats(int rows, int columns) const noexcept override {
        return cpu().multiply_scratch_floats(rows, columns);
    }
    std::size_t attention_scratch_floats(int head_dim) const noexcept override { return cpu().attention_scratch_floats(head_dim); }
    std::size_t packed_bytes(tenon::kernel::packed_matrix const& m) const noexcept override { return cpu().packed_bytes(m); }
    void pack(void* to, tenon::kernel::packed_matrix const& m, int first, int rows, std::byte const* from, std::ptrdiff_t stride,
              tenon::dtype type) const override {
        cpu().pack(to, m, first, rows, from, stride, type);
    }
    void unpack(void* to, std::ptrdiff_t stride, tenon::kernel::packed_matrix const& m, int first, int rows) const override {
        cpu().unpack(to, stride, m, first, rows);
    }
    void multiply(float* y, std::ptrdiff_t y_stride, tenon::kernel::packed_matrix const& w, float const* x, std::ptrdiff_t x_stride,
                  int rows, float* scratch) const override {
        cpu().multiply(y, y_stride, w, x, x_stride, rows, scratch);
    }
    void rms_norm(float* y, std::ptrdiff_t y_stride, float const* x, std::ptrdiff_t x_stride, float const* gain, int n, float epsilon,
                  int rows) const override {
        cpu().rms_norm(y, y_stride, x, x_stride, gain, n, epsilon, rows);
    }
    void rope(float* x, std::ptrdiff_t stride, int rows, int heads, int head_dim, float const* c, float const* s) const override {
        cpu().rope(x, stride, rows, heads, head_dim, c, s);
    }
    void swiglu(float* y, float const* gate, float const* up, std::size_t n) const override {
        if (calls_until_failure.load() >= 0 && calls_until_failure.fetch_sub(1) == 0)
            tenon::detail::refuse("memory_suffices", "the gated unit found none");
        cpu().swiglu(y, gate, up, n);
    }
    void add(float* out, float const* low, float const* high, std::size_t n) const override { cpu().add(out, low, high, n); }
    void add_bias(float* y, std::ptrdiff_t stride, float const* b, int n, int rows) const override {
        cpu().add_bias(y, stride, b, n, rows);
    }
    void attention(tenon::kernel::attention_call const& call) const override { cpu().attention(call); }
    void exp(float* y, float const* x, std::size_t n) const override { cpu().exp(y, x, n); }

private:
    static tenon::device::backend const& cpu() { return tenon::device::cpu<>::instance("auto"); }
};

template <int... Index>
struct failing {
    static constexpr tenon::device_kind kind = tenon::device_kind::user;
    static constexpr int most_ranks = tenon::most_ranks_of_a_stage;
    static constexpr bool canonical = true;
    static constexpr std::array<tenon::device_id, sizeof...(Index)> devices{tenon::device_id{tenon::device_kind::user, Index}...};
    static tenon::device::backend const& instance(std::string_view) {
        static failing_backend const only;
        return only;
    }
};

}  // namespace support
