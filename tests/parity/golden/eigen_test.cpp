// SPDX-License-Identifier: Apache-2.0
#include <tenon/device/eigen.hpp>

namespace {
template <int... Index>
using on = tenon::device::eigen<Index...>;
constexpr bool every_plan = true;
}  // namespace

#include "parity/golden/cases.hpp"
