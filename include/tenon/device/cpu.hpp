// device::cpu at run time: the kernels of an instruction set behind the interface that every backend has.
// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <tenon/device/attention_ranges.hpp>
#include <tenon/device/backend.hpp>
#include <tenon/device/concept.hpp>
#include <tenon/device/cpu_exact.hpp>
#include <tenon/kernel/kernels.hpp>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <span>
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
template <class Lazy = void>
class basic_cpu_backend final : public backend {
public:
    explicit basic_cpu_backend(kernel::isa i) : kernels_(kernel::table_of(i)), exact_(kernel::fixed15::table_of(i)) {}

    std::string_view name() const noexcept override { return "cpu"; }
    std::string_view isa() const noexcept override { return kernel::name_of(kernels_.which); }
    bool has_threads() const noexcept override { return true; }
    bool reads(kv_format) const noexcept override { return true; }
    bool holds(kernel::panel_format) const noexcept override { return true; }
    exact_products const* exact() const noexcept override { return &exact_; }

    std::size_t packed_bytes(kernel::packed_matrix const& shape) const noexcept override {
        return kernel::packed_bytes(shape.format, shape.rows, shape.columns);
    }
    void pack(void* to, kernel::packed_matrix const& shape, int first_row, int rows, std::byte const* source,
              std::ptrdiff_t row_stride_bytes, dtype type) const override {
        if (shape.format == kernel::panel_format::fixed15)
            return kernel::fixed15::pack_codes(to, shape.rows, shape.columns, first_row, rows, source, row_stride_bytes, type);
        kernel::pack(to, shape, first_row, rows, source, row_stride_bytes, type);
    }
    void unpack(void* to, std::ptrdiff_t row_stride_bytes, kernel::packed_matrix const& m, int first_row, int rows) const override {
        kernel::unpack(to, row_stride_bytes, m, first_row, rows);
    }

    std::size_t multiply_scratch_floats(int rows, int columns) const noexcept override {
        return kernel::matmul_scratch_floats(rows, columns);
    }
    std::size_t attention_scratch_floats(int head_dim) const noexcept override { return kernel::attention_scratch_floats(head_dim); }
    std::size_t multiply_all_scratch_floats(int rows, int columns, int threads) const noexcept override {
        return kernel::prepared_floats(rows, columns) + static_cast<std::size_t>(threads) * kernel::stack_floats(rows);
    }
    std::size_t attend_all_scratch_floats(std::span<kernel::attention_call const> calls, int threads) const noexcept override {
        // a window touches one block more at some positions than at others
        std::size_t const of_items = backend::attend_all_scratch_floats(calls, threads),
                          of_ranges = detail::attention_ranges(calls, threads, 1).scratch_floats();
        return static_cast<std::size_t>(threads) * (std::max)(of_items, of_ranges);
    }

    void multiply(float* y, std::ptrdiff_t y_stride, kernel::packed_matrix const& w, float const* x, std::ptrdiff_t x_stride, int rows,
                  float* scratch) const override {
        kernel::matmul(products_of(w), y, y_stride, w, x, x_stride, rows, 0, kernel::panels(w.rows), scratch);
    }
    void multiply_all(std::span<product const> list, float* scratch, crew& threads) const override;
    void attend_all(std::span<kernel::attention_call const> calls, float* scratch, crew& threads) const override;
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
    void attention(kernel::attention_call const& call) const override { attend(call, 0, kernel::attention_items(call), call.scratch); }
    void exp(float* y, float const* x, std::size_t n) const override { kernels_.exp(y, x, n); }
    void combine(kernel::combine_call const& call) const override { kernels_.combine(call); }

private:
    kernel::product_kernels const& products_of(kernel::packed_matrix const& w) const {
        return w.format == kernel::panel_format::fixed15 ? exact_.kernels().product : kernels_.products[static_cast<int>(w.format)];
    }
    void attend(kernel::attention_call const& c, int first, int count, float* scratch) const {
        if (c.fixed15) return exact_.kernels().attend(c, first, count, scratch);
        kernels_.attend(c, first, count, scratch);
    }
    /// Whether `b` reads what was laid out for `a`.
    static bool share_activations(product const& a, product const& b) {
        return a.x == b.x && a.x_stride == b.x_stride && a.rows == b.rows && a.w->columns == b.w->columns && a.w->format == b.w->format;
    }
    void attend_ranges(detail::attention_ranges const& ranges, float* scratch, crew& threads) const;
    void multiply_block(std::span<product const> list, int first_row, int rows, float* scratch, crew& threads) const;

    /// Fewer activations to lay out, multiplications or sums to merge one thread has done before others would have come.
    static constexpr std::ptrdiff_t worth_sharing = 1 << 15;

    kernel::table const& kernels_;
    basic_cpu_exact<Lazy> exact_;
};
using cpu_backend = basic_cpu_backend<>;  // lazy: instantiated by who runs a model

// A block is as many rows as are laid out at once: of one product and those that read the same, or, where they are few (the experts of some
// tokens), of one product after the other, so that threads meet once and not for each.
template <class Lazy>
void basic_cpu_backend<Lazy>::multiply_all(std::span<product const> list, float* scratch, crew& threads) const {
    while (!list.empty()) {
        int rows = list[0].rows;
        std::size_t count = 1;
        for (; count < list.size(); ++count) {
            int const more = share_activations(list[count - 1], list[count]) ? 0 : list[count].rows;
            if (rows + more > kernel::rows_at_once && more > 0) break;
            rows += more;
        }
        std::span<product const> const block = list.first(count);
        if (rows <= kernel::rows_at_once)
            multiply_block(block, 0, rows, scratch, threads);
        else
            for (int row = 0; row < rows; row += kernel::rows_at_once)
                multiply_block(block, row, rows - row < kernel::rows_at_once ? rows - row : kernel::rows_at_once, scratch, threads);
        list = list.subspan(count);
    }
}

/// Rows [first_row, first_row + rows) of every product, all rows where they are several.
template <class Lazy>
void basic_cpu_backend<Lazy>::multiply_block(std::span<product const> list, int first_row, int rows, float* scratch, crew& threads) const {
    auto const rows_of = [rows, &list](product const& p) { return share_activations(list[0], p) ? (std::min)(p.rows, rows) : p.rows; };
    int widest = 0, total = 0;
    std::ptrdiff_t multiplications = 0;
    for (product const& p : list) {
        widest = (std::max)(widest, p.w->columns);
        total += kernel::panels(p.w->rows);
        multiplications += std::ptrdiff_t{rows_of(p)} * p.w->rows * p.w->columns;
    }
    // where a product's activations are: those of a list that shares none follow each other
    auto const each_prepared = [&](auto visit) {
        float* at = scratch;
        for (std::size_t i = 0; i < list.size(); ++i) {
            bool const shares = i > 0 && share_activations(list[i - 1], list[i]);
            if (i > 0 && !shares) at += static_cast<std::ptrdiff_t>(rows_of(list[i - 1])) * list[i - 1].w->columns;
            visit(list[i], at, !shares);
        }
    };
    auto const prepare = [&](int part, int parts) {
        each_prepared([&](product const& p, float* to, bool is_first) {
            if (is_first)
                products_of(*p.w).prepare(to, p.x + first_row * p.x_stride, p.x_stride, rows_of(p), p.w->columns, part, parts);
        });
    };
    if (threads.size() == 1 || std::ptrdiff_t{rows} * widest < worth_sharing)
        prepare(0, 1);
    else
        threads.each([&](int part) { prepare(part, threads.size()); });
    std::ptrdiff_t const stacks = static_cast<std::ptrdiff_t>(rows) * widest;
    // Panels of all products, counted through.
    auto const multiply_part = [&](int part, int parts) {
        int const begin = static_cast<int>(std::int64_t{total} * part / parts), end = static_cast<int>(std::int64_t{total} * (part + 1) / parts);
        float* const stack = scratch + stacks + part * static_cast<std::ptrdiff_t>(kernel::stack_floats(rows));
        int panel = 0;
        each_prepared([&](product const& p, float* prepared, bool) {
            int const count = kernel::panels(p.w->rows), from = (std::max)(begin - panel, 0), to = (std::min)(end - panel, count);
            panel += count;
            if (from >= to) return;
            float* const y = p.y + first_row * p.y_stride;
            products_of(*p.w).multiply(y, p.y_stride, *p.w, prepared, rows_of(p), from, to - from, stack);
            if (p.bias != nullptr) {
                int const column = from * kernel::panel_rows, width = (std::min)(to * kernel::panel_rows, p.w->rows) - column;
                kernels_.add_bias(y + column, p.y_stride, p.bias + column, width, rows_of(p));
            }
        });
    };
    if (threads.size() == 1 || multiplications < worth_sharing)
        multiply_part(0, 1);
    else
        threads.each([&](int part) { multiply_part(part, threads.size()); });
}

// Query heads of one KV head and some rows are an item; threads take one after the other, since a causal item's work grows with its position.
template <class Lazy>
void basic_cpu_backend<Lazy>::attend_all(std::span<kernel::attention_call const> calls, float* scratch, crew& threads) const {
    std::int64_t multiplications = 0;
    for (kernel::attention_call const& c : calls)
        multiplications += 2 * std::int64_t{c.rows} * c.heads * c.head_dim * (c.first_position + c.rows);
    if (threads.size() == 1 || multiplications < worth_sharing) {
        for (kernel::attention_call const& call : calls) attend(call, 0, kernel::attention_items(call), scratch);
        return;
    }
    detail::attention_ranges const ranges(calls, threads.size());
    if (ranges.worth_it()) return attend_ranges(ranges, scratch, threads);
    std::atomic<int> next{0};
    threads.each([&](int part) {
        int item = next.fetch_add(1, std::memory_order_relaxed), before = 0;
        for (kernel::attention_call const& call : calls) {
            int const items = kernel::attention_items(call);
            float* const own = scratch + part * static_cast<std::ptrdiff_t>(kernel::attention_scratch_floats(call.head_dim));
            for (; item < before + items; item = next.fetch_add(1, std::memory_order_relaxed)) attend(call, item - before, 1, own);
            before += items;
        }
    });
}

/// Every thread a range of blocks; then what an item's later ranges have left is merged in order, its rows shared out where that is much.
template <class Lazy>
void basic_cpu_backend<Lazy>::attend_ranges(detail::attention_ranges const& ranges, float* scratch, crew& threads) const {
    std::size_t const own = ranges.scratch_floats(), left = ranges.left_floats();
    auto const merged_by = [&](int range) { return scratch + static_cast<std::size_t>(range) * own; };
    threads.each([&](int part) {
        ranges.each([&](detail::attention_piece const& p) {
            if (p.range == part) kernels_.attend_blocks(*p.call, p.item, 1, p.begin, p.end, merged_by(part) + (p.begin > 0 ? left : 0));
        });
    });
    auto const merge = [&](int part, int parts) {
        float* first = nullptr;
        ranges.each([&](detail::attention_piece const& p) {
            if (p.begin == 0) first = merged_by(p.range);
            int const row = p.rows * part / parts, end = p.rows * (part + 1) / parts;
            if (p.begin > 0 && row < end)
                kernels_.merge_blocks(*p.call, p.item, row, end - row, p.begin, p.end, first, merged_by(p.range) + left);
        });
    };
    if (ranges.all_left_floats() < worth_sharing)
        merge(0, 1);
    else
        threads.each([&](int part) { merge(part, threads.size()); });
}

/// The backend of one instruction set. Refuses with `isa_is_known` and `isa_is_supported`.
template <class Lazy = void>
backend const& cpu_backend_of(std::string_view isa) {
    auto const of = [](kernel::isa i) -> backend const& {
        switch (i) {
            case kernel::isa::avx2: {
                static basic_cpu_backend<Lazy> const b(kernel::isa::avx2);
                return b;
            }
            case kernel::isa::avx512: {
                static basic_cpu_backend<Lazy> const b(kernel::isa::avx512);
                return b;
            }
            case kernel::isa::neon: {
                static basic_cpu_backend<Lazy> const b(kernel::isa::neon);
                return b;
            }
            default: {
                static basic_cpu_backend<Lazy> const b(kernel::isa::portable);
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
