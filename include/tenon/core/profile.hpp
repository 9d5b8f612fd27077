// The constants that the arithmetic's order is made of, under the name of the profile that they define: another value is another
// profile with another name. What each means is on docs/numerics.md.
// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <string_view>

namespace tenon::inline v0 {

/// A numeric profile.
struct numeric_profile {
    std::string_view name{};
    int segments = 0;       ///< most segments of a product
    int granule = 0;        ///< inputs that stay together where a width divides by it
    int lanes = 0;          ///< of a sum over a row
    int kv_block = 0;       ///< positions of one block of attention
    int expert_groups = 0;  ///< leaves of the sum over a token's experts
    bool operator==(numeric_profile const&) const = default;
};

namespace numeric {
inline constexpr numeric_profile canonical_1{"canonical_1", 8, 32, 32, 64, 8};
}

}  // namespace tenon::inline v0
