// Matrices of float32 for the pages of the specification. Knows no operation of a model, only what it takes to write one.
// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <tenon/core/error.hpp>
#include <tenon/kernel/float_environment.hpp>

#include <cmath>
#include <cstddef>
#include <new>
#include <string>
#include <utility>

// What xtensor's templates say under a user's warnings is not the user's business, nor are macros called min and max xtensor's.
#pragma push_macro("min")
#pragma push_macro("max")
#undef min
#undef max
#if defined(__clang__)
#pragma float_control(precise, on, push)
#endif
#if defined(__GNUC__)
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wall"
#pragma GCC diagnostic ignored "-Wextra"
#pragma GCC diagnostic ignored "-Wpedantic"
#pragma GCC diagnostic ignored "-Wshadow"
#pragma GCC diagnostic ignored "-Wconversion"
#pragma GCC diagnostic ignored "-Wsign-conversion"
#endif
#include <xtensor/xadapt.hpp>
#include <xtensor/xmath.hpp>
#include <xtensor/xnoalias.hpp>
#include <xtensor/xtensor.hpp>
#include <xtensor/xview.hpp>
#if defined(__GNUC__)
#pragma GCC diagnostic pop
#endif
#if defined(__clang__)
#pragma float_control(pop)
#endif
#pragma pop_macro("max")
#pragma pop_macro("min")

namespace tenon::inline v0::device::specification {

/// Memory, or a refusal by name.
template <class T>
struct refusing_allocator {
    using value_type = T;
    refusing_allocator() = default;
    template <class U>
    refusing_allocator(refusing_allocator<U> const&) noexcept {}

    T* allocate(std::size_t n) {
        void* const p = n > static_cast<std::size_t>(-1) / sizeof(T) ? nullptr : ::operator new(n * sizeof(T), std::nothrow);
        if (p == nullptr) v0::detail::refuse("memory_suffices", "no memory for an array of " + std::to_string(n) + " elements");
        return static_cast<T*>(p);
    }
    void deallocate(T* p, std::size_t) noexcept { ::operator delete(p); }
    bool operator==(refusing_allocator const&) const = default;
};

/// What every page computes with: (rows, columns). A row is (1, n), a column (n, 1), and one of them meets a matrix in every row or column.
/// An expression rounds every element when it becomes a matrix.
using matrix = xt::xtensor<float, 2, xt::layout_type::row_major, refusing_allocator<float>>;

inline matrix zeros(std::size_t rows, std::size_t columns) { return xt::zeros<float>({rows, columns}); }

/// Columns first, first + 1, ... end - 1 of a matrix.
inline matrix columns(matrix const& x, std::size_t first, std::size_t end) { return xt::view(x, xt::all(), xt::range(first, end)); }
inline matrix column(matrix const& x, std::size_t k) { return columns(x, k, k + 1); }
inline matrix row(matrix const& x, std::size_t k) { return xt::view(x, xt::range(k, k + 1), xt::all()); }

/// Writes columns first, first + 1, ... of a matrix.
inline void put(matrix& to, std::size_t first, matrix const& columns) {
    xt::noalias(xt::view(to, xt::all(), xt::range(first, first + columns.shape(1)))) = columns;
}

/// f of every element.
template <class F, class... Matrices>
matrix each(F f, Matrices const&... x) {
    return xt::make_lambda_xfunction(std::move(f), x...);
}

/// x y + z, rounded once. Not xt::fma, which rounds twice where xsimd has no instruction for it; an object, so that the other is not found.
inline constexpr auto fma = [](matrix const& x, matrix const& y, matrix const& z) {
    return each([](float a, float b, float c) { return std::fma(a, b, c); }, x, y, z);
};

/// x > y ? x : y, which a NaN in x does not enter.
inline matrix larger(matrix const& x, matrix const& y) {
    return each([](float a, float b) { return a > b ? a : b; }, x, y);
}

/// x, rounded whatever the compiler contracts: a product stays a product.
inline matrix rounded(matrix const& x) {
    return each(
        [](float a) {
            float volatile const once = a;
            return float{once};
        },
        x);
}

}  // namespace tenon::inline v0::device::specification
