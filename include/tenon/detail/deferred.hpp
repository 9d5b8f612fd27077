// A type that a compiler looks into only when the template around it is instantiated: what a program that merely includes a
// header does not pay for. clang instantiates the standard containers' constexpr members as it reads a body that names them.
// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace tenon::inline v0::detail {

template <class, class T>
struct deferred_type {
    using type = T;
};

/// T, seen through the template parameter `Lazy`.
template <class Lazy, class T>
using deferred = typename deferred_type<Lazy, T>::type;

}  // namespace tenon::inline v0::detail
