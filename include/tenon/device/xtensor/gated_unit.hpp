// The gated unit of a feed-forward network. (The law, rules 5 and 8.)
// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <tenon/device/xtensor/exp.hpp>

namespace tenon::inline v0::device::specification {

/// silu(x) = x / (1 + exp(0 - x))
inline array<1> silu(array<1> const& x) { return x / (1.0f + exp(array<1>(0.0f - x))); }

/// y = silu(gate) up.   Source: Shazeer 2020, "GLU variants improve transformer", section 2.
inline array<1> gated_unit(array<1> const& gate, array<1> const& up) { return silu(gate) * up; }

}  // namespace tenon::inline v0::device::specification
