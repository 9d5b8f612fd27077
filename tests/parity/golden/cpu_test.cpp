// SPDX-License-Identifier: Apache-2.0
#include <tenon/device/cpu.hpp>

namespace {
template <int... Index>
using on = tenon::device::cpu<Index...>;
constexpr bool every_plan = true;
}  // namespace

#include "parity/golden/cases.hpp"
