// SPDX-License-Identifier: Apache-2.0
#include <tenon/device/xtensor.hpp>

namespace {
template <int... Index>
using on = tenon::device::xtensor<Index...>;
constexpr bool every_plan = false;
}  // namespace

#include "parity/golden/cases.hpp"
