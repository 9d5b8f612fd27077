// How a config.json says that matrices are stored as 8-bit codes with one scale a block. Knows the declaration, no tensors.
// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <string>
#include <string_view>
#include <tenon/checkpoint/json.hpp>
#include <tenon/core/error.hpp>

namespace tenon::inline v0::checkpoint {

/// Rows and columns that share one scale. 0, 0 where nothing is scaled.
struct block_scaling {
    int rows = 0, columns = 0;
    bool operator==(block_scaling const&) const = default;
    constexpr explicit operator bool() const { return rows > 0; }
};

}  // namespace tenon::inline v0::checkpoint
