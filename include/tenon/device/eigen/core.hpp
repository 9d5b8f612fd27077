// Eigen as the device backend includes it: silent under every warning, wherever the include path came from.
// SPDX-License-Identifier: Apache-2.0
#pragma once
#pragma GCC system_header  // holds for what is included from here too, also on a plain -I (measured: 75 warnings without it on clang 14)

#if defined(EIGEN_USE_BLAS) || defined(EIGEN_USE_MKL_ALL) || defined(EIGEN_USE_MKL)
#error "tenon: device::eigen needs Eigen's own products: an external BLAS picks its order by shape and threads"
#endif

#if defined(__GNUC__) && !defined(__clang__)  // g++'s own AVX-512 header, inlined into Eigen
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#pragma GCC diagnostic ignored "-Wuninitialized"
#endif
#include <Eigen/Core>
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic pop
#endif

static_assert(EIGEN_VERSION_AT_LEAST(3, 4, 0), "tenon: device::eigen needs Eigen 3.4");
