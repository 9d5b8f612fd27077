// The kernels, one table of functions per instruction set. All tables give the same bits; one is faster than the other.
// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <tenon/core/error.hpp>
#include <tenon/kernel/attention.hpp>
#include <tenon/kernel/detail/number.hpp>
#include <tenon/kernel/detail/tiles.hpp>
#include <tenon/kernel/fixed15.hpp>
#include <tenon/kernel/isa.hpp>
#include <tenon/kernel/packed_matrix.hpp>
#include <tenon/kernel/routing.hpp>

#include <cstddef>
#include <cstdint>
#include <string>
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__CUDACC__)
#include <immintrin.h>
#elif defined(__aarch64__) && defined(__GNUC__) && !defined(__CUDACC__)
#include <arm_neon.h>
#endif

namespace tenon::inline v0::kernel {

/// Rows of one prepared block: packed activations stay in the second and third cache.
inline constexpr int rows_at_once = 224;

/// Floats of one block of prepared activations.
constexpr std::size_t prepared_floats(int rows, int columns) {
    return static_cast<std::size_t>(rows < rows_at_once ? rows : rows_at_once) * static_cast<std::size_t>(columns);
}
/// Floats of the partial sums that one thread keeps while it multiplies a block.
constexpr std::size_t stack_floats(int rows) {
    std::size_t const block = static_cast<std::size_t>(rows < rows_at_once ? rows : rows_at_once);
    std::size_t const panels = block * detail::matmul_panel_group * panel_rows, single = detail::matmul_tile_sums;
    return detail::matmul_slots * (panels > single ? panels : single);
}
/// Floats of scratch for a product of `rows` activations with K = `columns`, on one thread.
constexpr std::size_t matmul_scratch_floats(int rows, int columns) { return prepared_floats(rows, columns) + stack_floats(rows); }

/// The products of one weight format, in two halves, so that threads can share the first and split the second.
struct product_kernels {
    /// Lays the activations of one block (at most rows_at_once rows) out as `multiply` reads them: part `part` of `parts` of the work.
    ///
    ///   to  prepared_floats(rows, K)   x  (rows, K)
    void (*prepare)(void* to, float const* x, std::ptrdiff_t x_stride, int rows, int columns, int part, int parts) = nullptr;

    /// y[m][n] for every output n of panels [first_panel, first_panel + panel_count), n counted from the matrix's first row: the tree over
    /// S segments of chains over k. Nothing beyond output N is written. `stack`: stack_floats(rows).
    void (*multiply)(float* y, std::ptrdiff_t y_stride, packed_matrix const& w, void const* prepared, int rows, int first_panel,
                     int panel_count, float* stack) = nullptr;
};

/// A product on one thread, of any number of rows.  scratch: matmul_scratch_floats(rows, K)
inline void matmul(product_kernels const& of, float* y, std::ptrdiff_t y_stride, packed_matrix const& w, float const* x,
                   std::ptrdiff_t x_stride, int rows, int first_panel, int panel_count, float* scratch) {
    float* const stack = scratch + prepared_floats(rows, w.columns);
    for (int row = 0; row < rows; row += rows_at_once) {
        int const block = rows - row < rows_at_once ? rows - row : rows_at_once;
        of.prepare(scratch, x + row * x_stride, x_stride, block, w.columns, 0, 1);
        of.multiply(y + row * y_stride, y_stride, w, scratch, block, first_panel, panel_count, stack);
    }
}

/// What one instruction set can do. Strides are in floats; extents as in the law: T rows, H hidden, D head_dim.
struct table {
    isa which = isa::portable;

    product_kernels products[panel_formats]{};  ///< by panel_format; fixed15's are in fixed15_table.hpp

    /// y = (x * (1 / sqrt(sum(x^2) / n + epsilon))) * gain, row by row. y may be x.
    void (*rms_norm)(float* y, std::ptrdiff_t y_stride, float const* x, std::ptrdiff_t x_stride, float const* gain, int n, float epsilon,
                     int rows) = nullptr;

    /// Rotates the halves of every head in place. cosines, sines: (rows, D / 2).
    void (*rope)(float* x, std::ptrdiff_t stride, int rows, int heads, int head_dim, float const* cosines, float const* sines) = nullptr;

    /// y = silu(gate) * up. y may be gate or up.
    void (*swiglu)(float* y, float const* gate, float const* up, std::size_t n) = nullptr;

    /// x = x + y.
    void (*add)(float* x, float const* y, std::size_t n) = nullptr;

    /// y[t] = y[t] + bias.
    void (*add_bias)(float* y, std::ptrdiff_t stride, float const* bias, int n, int rows) = nullptr;

    /// out = low + high: two sub-trees of a row-parallel product, the lower rank's first. out may be either.
    void (*add_pair)(float* out, float const* low, float const* high, std::size_t n) = nullptr;

    /// Of items [first, first + count) of a call, of attention_items(call), the blocks [begin, end). From block 0 on they are merged in `left`,
    /// and all of them give the item's output. From a later one on, of one item, they are left one after the other.
    ///
    ///   left  attention_left_floats(rows of the item, D), from a later block on for each; for whole items attention_scratch_floats(D)
    void (*attend_blocks)(attention_call const&, int first, int count, std::int64_t begin, std::int64_t end, float* left) = nullptr;

    /// Merges such blocks into `first`, which those before them have left, for rows [row, row + rows) of an item; the last give its output.
    void (*merge_blocks)(attention_call const&, int item, int row, int rows, std::int64_t begin, std::int64_t end, float* first,
                         float const* left) = nullptr;

    /// y = exp(x). y may be x.
    void (*exp)(float* y, float const* x, std::size_t n) = nullptr;

    /// y = exp(x - max) / sum. y may be x.
    void (*softmax)(float* y, float const* x, std::size_t n) = nullptr;

    /// n columns of a token's routed output: z[g] = fma(gate[e], part[e], z[g]) from +0 over the chosen e of group g, then the tree over z.
    void (*combine)(combine_call const&) = nullptr;

    void matmul(float* y, std::ptrdiff_t y_stride, packed_matrix const& w, float const* x, std::ptrdiff_t x_stride, int rows,
                int first_panel, int panel_count, float* scratch) const {
        kernel::matmul(products[static_cast<int>(w.format)], y, y_stride, w, x, x_stride, rows, first_panel, panel_count, scratch);
    }
    /// Whole items.  scratch: attention_scratch_floats(D)
    void attend(attention_call const& call, int first, int count, float* scratch) const {
        if (count > 0) attend_blocks(call, first, count, 0, INT64_MAX, scratch);
    }
    /// A call on one thread, with its own scratch.
    void attention(attention_call const& call) const { attend(call, 0, attention_items(call), call.scratch); }
};

}  // namespace tenon::inline v0::kernel

#if defined(__clang__)
#pragma float_control(precise, on, push)
#endif
namespace tenon::inline v0::kernel {
namespace portable {
#define TENON_TARGET
#define TENON_VECTOR <tenon/kernel/detail/vector_portable.inc>
#define TENON_PAIRS <tenon/kernel/detail/pairs_by_fma.inc>
#define TENON_PAIRS_ALONE 0
#define TENON_DOT <tenon/kernel/detail/dot_portable.inc>
#define TENON_REGISTERS 0
#include <tenon/kernel/detail/instruction_set.inc>
}  // namespace portable
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__CUDACC__)
namespace avx2 {
#define TENON_TARGET __attribute__((target("avx2,fma")))
#define TENON_VECTOR <tenon/kernel/detail/vector_avx2.inc>
#define TENON_PAIRS <tenon/kernel/detail/pairs_flushing.inc>
#define TENON_PAIRS_ALONE 0
#define TENON_DOT <tenon/kernel/detail/dot_avx2.inc>
#define TENON_REGISTERS 1
#include <tenon/kernel/detail/instruction_set.inc>
}  // namespace avx2
namespace avx512 {
#define TENON_TARGET __attribute__((target("avx2,fma,avx512f,avx512bw,avx512dq,avx512vl")))
#define TENON_VECTOR <tenon/kernel/detail/vector_avx512.inc>
#define TENON_PAIRS <tenon/kernel/detail/pairs_flushing.inc>
#define TENON_PAIRS_ALONE 0
#define TENON_DOT <tenon/kernel/detail/dot_avx512.inc>
#define TENON_FAST_DOT <tenon/kernel/detail/dot_vnni.inc>
#define TENON_FAST_TARGET __attribute__((target("avx2,fma,avx512f,avx512bw,avx512dq,avx512vl,avx512vnni")))
#define TENON_REGISTERS 1
#include <tenon/kernel/detail/instruction_set.inc>

/// The table with the instruction for products of bytes where this machine has it.
template <class = void>
table const& best() {
    return multiplies_bytes() ? all<isa::avx512, fast_dot::tiled<fast_dot::q8_product>>() : all<isa::avx512>();
}
}  // namespace avx512
namespace avx512_bf16 {
#define TENON_TARGET __attribute__((target("avx2,fma,avx512f,avx512bw,avx512dq,avx512vl,avx512bf16")))
#define TENON_VECTOR <tenon/kernel/detail/vector_avx512.inc>
#define TENON_PAIRS <tenon/kernel/detail/pairs_native.inc>
#define TENON_PAIRS_ALONE 1
#define TENON_REGISTERS 1
#include <tenon/kernel/detail/instruction_set.inc>

/// The kernels of avx512, products over pairs by the instruction for them: all of them, or a single row's.
template <bool OfManyRows>
inline table const& all() {
    static constexpr product_kernels single{&prepare_pairs<1>, &tiled<pair_product<1>>::multiply};
    static table const t = [] {
        table with = avx512::best<>();
        product_kernels& pairs = with.products[static_cast<int>(panel_format::bf16_pair)];
        if constexpr (OfManyRows) {
            pairs = {&prepare_pairs<matmul_tile_rows>, &tiled<pair_product<matmul_tile_rows>>::multiply};
        } else {
            static constexpr product_kernels many{&avx512::prepare_floats<avx512::pair_product>, &avx512::tiled<avx512::pair_product>::multiply};
            pairs = {[](void* to, float const* x, std::ptrdiff_t x_stride, int rows, int columns, int part, int parts) {
                         (rows == 1 ? single : many).prepare(to, x, x_stride, rows, columns, part, parts);
                     },
                     [](float* y, std::ptrdiff_t y_stride, packed_matrix const& w, void const* prepared, int rows, int first_panel,
                        int panel_count, float* stack) {
                         (rows == 1 ? single : many).multiply(y, y_stride, w, prepared, rows, first_panel, panel_count, stack);
                     }};
        }
        return with;
    }();
    return t;
}
}  // namespace avx512_bf16
#elif defined(__aarch64__) && defined(__GNUC__) && !defined(__CUDACC__)
namespace neon {
#define TENON_TARGET
#define TENON_VECTOR <tenon/kernel/detail/vector_neon.inc>
#define TENON_PAIRS <tenon/kernel/detail/pairs_by_fma.inc>
#define TENON_PAIRS_ALONE 0
#define TENON_DOT <tenon/kernel/detail/dot_neon.inc>
#define TENON_REGISTERS 1
#include <tenon/kernel/detail/instruction_set.inc>
}  // namespace neon
#endif

/// The kernels for one instruction set; refuses what this machine lacks.
template <class = void>
table const& table_of(isa i) {
    if (!supported(i))
        v0::detail::refuse("isa_is_supported", std::string("this machine does not run ") + std::string(name_of(i)) + "; " +
                                                   std::string(name_of(best_isa())) + " is the best it has");
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__CUDACC__)
    if (i == isa::avx2) return avx2::all<isa::avx2>();
    if (i == isa::avx512) {
        if (!has_native_pairs()) return avx512::best<>();
        return native_pairs_are_fast() ? avx512_bf16::all<true>() : avx512_bf16::all<false>();
    }
#elif defined(__aarch64__) && defined(__GNUC__) && !defined(__CUDACC__)
    if (i == isa::neon) return neon::all<isa::neon>();
#endif
    return portable::all<isa::portable>();
}

}  // namespace tenon::inline v0::kernel
#if defined(__clang__)
#pragma float_control(pop)
#endif
