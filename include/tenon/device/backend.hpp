// What a device backend does when a model runs: it keeps matrices in a layout of its own and computes the operations of a layer on
// float32 rows in host memory. Knows no graph, no checkpoint and no threads: ranks of one stage may call one backend at the same time.
// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <tenon/core/dtype.hpp>
#include <tenon/device/crew.hpp>
#include <tenon/device/exact_products.hpp>
#include <tenon/kernel/attention.hpp>
#include <tenon/kernel/packed_matrix.hpp>
#include <tenon/kernel/routing.hpp>

#include <cstddef>
#include <span>
#include <string_view>

namespace tenon::inline v0::device {

/// One product of several that are computed together.
struct product {
    float* y = nullptr;  ///< (T, N)
    std::ptrdiff_t y_stride = 0;
    kernel::packed_matrix const* w = nullptr;
    float const* x = nullptr;  ///< (T, K)
    std::ptrdiff_t x_stride = 0;
    int rows = 0;                 ///< T
    float const* bias = nullptr;  ///< (N), added after the root of the tree; none where null
};

/// The operations of one backend. Extents as everywhere: T rows, H hidden, Q query heads, D head_dim; strides are in floats.
///
/// What every backend owes: a value has the same bits whatever batch, chunk or shard it is computed in. A row of a product must not depend
/// on the other rows of the call, nor an output on which outputs this rank owns (`packed_matrix::first_row` says where they lie in the
/// unsplit matrix), and the partial products of `segments` must be added in the tree of docs/numerics.md. A canonical backend owes
/// more: the bits of that page. No function keeps a pointer that it was given. None allocates once warm, and so none throws; `xtensor`
/// alone allocates in every call. What an operation throws ends the call and leaves its states as they were.
class backend {
public:
    virtual std::string_view name() const noexcept = 0;  ///< as a plan spells its devices
    virtual std::string_view isa() const noexcept { return "portable"; }

    /// Whether `multiply_all` and `attend_all` use the threads that they are given; the loader refuses several otherwise (`device_has_threads`).
    virtual bool has_threads() const noexcept { return false; }

    /// Whether matrices can be held in that format and multiplied by its rule; the loader refuses the others by name
    /// (`device_holds_format`, `device_computes_profile`). Others than f32 and bf16 are held by who says so.
    virtual bool holds(kernel::panel_format f) const noexcept { return f == kernel::panel_format::f32 || f == kernel::panel_format::bf16; }

    /// What it has beyond its own products for the profile fixed15_1; without, the loader refuses that (`device_computes_profile`). Who has
    /// it holds kernel::panel_format::fixed15 and reads attention_call::fixed15.
    virtual exact_products const* exact() const noexcept { return nullptr; }

    /// Whether attention reads caches of that format; the loader refuses the others by name (`device_reads_kv_format`).
    virtual bool reads(kv_format f) const noexcept { return f == kv_format::f32; }

    // Matrices. The defaults keep N rows, row-major, of K elements or K / 32 blocks; a backend with another layout overrides all three.

    /// Bytes of a packed matrix: of `shape` everything but `data` is set.
    virtual std::size_t packed_bytes(kernel::packed_matrix const& shape) const noexcept;
    /// Writes rows [first_row, first_row + rows), counted in this shard, from row-major elements of `type` (f32, bf16, f16), not aligned.
    /// bf16 and f16 widen exactly; what becomes bf16 rounds to nearest even, and q8 is made of f32 by rule 1. Codes of fixed15 are made by the
    /// exponents that `exact_products::pack_exponents` has written. Rows come in ascending order, the last ones last.
    virtual void pack(void* to, kernel::packed_matrix const& shape, int first_row, int rows, std::byte const* source,
                      std::ptrdiff_t row_stride_bytes, dtype type) const;
    /// The inverse: row-major elements of the matrix's own format (floats, or bf16 bits), its blocks (kernel/q8.hpp), or, of fixed15, the
    /// floats that codes stand for.
    virtual void unpack(void* to, std::ptrdiff_t row_stride_bytes, kernel::packed_matrix const& m, int first_row, int rows) const;

    // Scratch, which the caller owns: 64-byte aligned, one for every rank.

    virtual std::size_t multiply_scratch_floats(int /*rows*/, int /*columns*/) const noexcept { return 0; }
    virtual std::size_t attention_scratch_floats(int /*head_dim*/) const noexcept { return 0; }
    /// Of `multiply_all` on so many threads: for products of `rows` rows in all, K = `columns` at most.
    virtual std::size_t multiply_all_scratch_floats(int rows, int columns, int /*threads*/) const noexcept {
        return multiply_scratch_floats(rows, columns);
    }
    /// Of `attend_all` on so many threads: for calls of these shapes, at these positions or earlier ones. Where their elements lie is not
    /// looked at.
    virtual std::size_t attend_all_scratch_floats(std::span<kernel::attention_call const> calls, int /*threads*/) const noexcept {
        std::size_t most = 0;
        for (kernel::attention_call const& c : calls) {
            std::size_t const of_call = attention_scratch_floats(c.head_dim);
            most = of_call > most ? of_call : most;
        }
        return most;
    }

    // Operations.

    /// y[t][n] = sum over k of x[t][k] w[n][k], for all N outputs: per segment, then the tree.  y (T, N), x (T, K)
    virtual void multiply(float* y, std::ptrdiff_t y_stride, kernel::packed_matrix const& w, float const* x, std::ptrdiff_t x_stride,
                          int rows, float* scratch) const = 0;
    /// y = (x * (1 / sqrt(sum(x^2) / n + epsilon))) * gain, row by row. y may be x.
    virtual void rms_norm(float* y, std::ptrdiff_t y_stride, float const* x, std::ptrdiff_t x_stride, float const* gain, int n,
                          float epsilon, int rows) const = 0;
    /// Rotates the halves of every head in place.  x (T, Q, D); cosines, sines (T, D / 2)
    virtual void rope(float* x, std::ptrdiff_t stride, int rows, int heads, int head_dim, float const* cosines,
                      float const* sines) const = 0;
    /// y = silu(gate) * up. y may be gate or up.
    virtual void swiglu(float* y, float const* gate, float const* up, std::size_t n) const = 0;
    /// out = low + high, in this order; out may be either.
    virtual void add(float* out, float const* low, float const* high, std::size_t n) const = 0;
    /// y[t] = y[t] + bias.  y (T, n)
    virtual void add_bias(float* y, std::ptrdiff_t stride, float const* bias, int n, int rows) const = 0;
    /// Causal attention over the cache whose layout kernel/attention.hpp fixes for every backend.
    virtual void attention(kernel::attention_call const& call) const = 0;
    /// y = exp(x), for sampling and for the scores of a router. y may be x.
    virtual void exp(float* y, float const* x, std::size_t n) const = 0;

    // Several calls at once, on the threads of one rank. The defaults do one after the other on the caller's.

    /// Products that do not depend on each other. Activations that follow each other in the list and are the same are laid out once.
    virtual void multiply_all(std::span<product const> list, float* scratch, crew& threads) const;
    /// Attention of several sequences; their own `scratch` is not looked at.
    virtual void attend_all(std::span<kernel::attention_call const> calls, float* scratch, crew& threads) const;

    // Routed experts. The defaults compute what every canonical backend owes, with `exp` alone of what this one has.

    /// Router logits become scores, and every row gets its experts, ids ascending, and their gates. Returns the first row that has nothing
    /// but NaN to choose by, or -1; its ids are ids all the same.
    virtual int route(kernel::routing_call const& call) const;
    /// One token's routed output: a chain over the chosen experts of each of the law's groups, then the tree over all groups.
    virtual void combine(kernel::combine_call const& call) const;

protected:
    ~backend() = default;
};

// The default layout: row r at r * K elements.

inline std::size_t backend::packed_bytes(kernel::packed_matrix const& shape) const noexcept {
    return static_cast<std::size_t>(shape.rows) * kernel::row_bytes(shape.format, shape.columns);
}
inline void backend::pack(void* to, kernel::packed_matrix const& shape, int first_row, int rows, std::byte const* source,
                          std::ptrdiff_t row_stride_bytes, dtype type) const {
    std::size_t const row_bytes = kernel::row_bytes(shape.format, shape.columns);
    for (int r = 0; r < rows; ++r)
        kernel::store_row(static_cast<std::byte*>(to) + static_cast<std::size_t>(first_row + r) * row_bytes, shape.format,
                          source + r * row_stride_bytes, type, shape.columns);
}
inline void backend::unpack(void* to, std::ptrdiff_t row_stride_bytes, kernel::packed_matrix const& m, int first_row, int rows) const {
    std::size_t const row_bytes = kernel::row_bytes(m.format, m.columns);
    for (int r = 0; r < rows; ++r)
        std::memcpy(static_cast<std::byte*>(to) + r * row_stride_bytes,
                    static_cast<std::byte const*>(m.data) + static_cast<std::size_t>(first_row + r) * row_bytes, row_bytes);
}

inline void backend::multiply_all(std::span<product const> list, float* scratch, crew&) const {
    for (product const& p : list) {
        multiply(p.y, p.y_stride, *p.w, p.x, p.x_stride, p.rows, scratch);
        if (p.bias != nullptr) add_bias(p.y, p.y_stride, p.bias, p.w->rows, p.rows);
    }
}
inline void backend::attend_all(std::span<kernel::attention_call const> calls, float* scratch, crew&) const {
    for (kernel::attention_call call : calls) {
        call.scratch = scratch;
        attention(call);
    }
}

inline int backend::route(kernel::routing_call const& call) const {
    return kernel::route(call, [this](float* y, float const* x, std::size_t n) { exp(y, x, n); });
}
inline void backend::combine(kernel::combine_call const& call) const { kernel::combine(call); }

}  // namespace tenon::inline v0::device
