// Arrays of float32 for the pages of the specification: xtensor's, row-major. Knows no operation of a model, only what it takes to write one.
// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <tenon/core/error.hpp>
#include <tenon/kernel/float_environment.hpp>

#include <cmath>
#include <cstddef>
#include <new>
#include <string>

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

/// An array of so many axes, the last one contiguous. Storing an expression in one rounds every element.
template <std::size_t Rank>
using array = xt::xtensor<float, Rank, xt::layout_type::row_major, refusing_allocator<float>>;

using xt::all;
using xt::newaxis;
using xt::noalias;
using xt::view;

/// x y + z, rounded once. Not xt::fma, which rounds twice where xsimd has no instruction for it. An object, so that nobody finds the other.
inline constexpr auto fma = []<class X, class Y, class Z>(X&& x, Y&& y, Z&& z) {
    return xt::make_lambda_xfunction([](float a, float b, float c) { return std::fma(a, b, c); }, std::forward<X>(x), std::forward<Y>(y),
                                     std::forward<Z>(z));
};

/// x, rounded here: whatever the compiler contracts, a product in it stays a product.
inline constexpr auto rounded = []<class X>(X&& x) {
    return xt::make_lambda_xfunction(
        [](float a) {
            float volatile const once = a;
            return static_cast<float>(once);
        },
        std::forward<X>(x));
};

/// Indices first, first + 1, ... end - 1 of an axis.
inline xt::xrange<std::ptrdiff_t> range(std::size_t first, std::size_t end) {
    return {static_cast<std::ptrdiff_t>(first), static_cast<std::ptrdiff_t>(end)};
}

/// (n) as (n, 1): one number for every row of a matrix.
inline auto column(array<1> const& x) { return view(x, all(), newaxis()); }

/// Column k of a matrix, likewise.
inline auto column(array<2> const& x, std::size_t k) { return view(x, all(), k, newaxis()); }

}  // namespace tenon::inline v0::device::specification
