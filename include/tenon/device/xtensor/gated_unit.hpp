// The gated unit of a feed-forward network. (The law, rules 5 and 8.)
// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <tenon/device/xtensor/exp.hpp>

namespace tenon::inline v0::device::specification {

/// silu(x) = x / (1 + exp(0 - x))
inline matrix silu(matrix const& x) { return x / (1.0f + exp(0.0f - x)); }

/// y = silu(gate) up.   Source: Shazeer 2020, "GLU variants improve transformer", section 2.
inline matrix gated_unit(matrix const& gate, matrix const& up) { return silu(gate) * up; }

}  // namespace tenon::inline v0::device::specification
