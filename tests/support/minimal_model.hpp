// A checkpoint so small that starting a model is all that it costs.
// SPDX-License-Identifier: Apache-2.0
#pragma once
#include "random_model.hpp"

namespace support {

inline geometry tiny() { return {.name = "tiny", .layers = 2, .hidden = 16, .heads = 2, .kv_heads = 2, .ffn = 16, .vocab = 11, .max_positions = 64}; }

}  // namespace support
