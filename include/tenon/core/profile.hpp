// The numeric profiles: the constants that the arithmetic's order is made of, and the rule of its products, under the name that they
// define; another value is another profile with another name. What each means is on docs/numerics.md.
// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <array>
#include <cstdint>
#include <string_view>

namespace tenon::inline v0 {

/// How the products of projections, experts and the head are computed.
enum class product_rule : std::uint8_t {
    chains,       ///< rule 1: float32 by float32, or by what a weight is held in
    bf16_pairs,   ///< rule 9: bf16 by bf16, two inputs at a time
    fixed_point,  ///< integer codes of fifteen bits
};

/// A numeric profile.
struct numeric_profile {
    std::string_view name{};
    int segments = 0;       ///< most segments of a product
    int granule = 0;        ///< inputs that stay together where a width divides by it
    int lanes = 0;          ///< of a sum over a row
    int kv_block = 0;       ///< positions of one block of attention
    int expert_groups = 0;  ///< leaves of the sum over a token's experts
    int weight_block = 0;   ///< inputs under one scale of a weight in 8 bits
    product_rule products = product_rule::chains;
    bool is_law = true;   ///< fixes every bit; if not, a tolerance is all it promises
    bool operator==(numeric_profile const&) const = default;
};

namespace numeric {
/// The default: docs/numerics.md, rules 1 to 8.
inline constexpr numeric_profile canonical_1{"canonical_1", 8, 32, 32, 64, 8, 32};
/// The same but for its products, which are those of rule 9. Every weight that they read is held in bf16.
inline constexpr numeric_profile bf16_pair_1{"bf16_pair_1", 8, 32, 32, 64, 8, 32, product_rule::bf16_pairs};
/// Exact products of integers of fifteen bits, of attention's scores too.
inline constexpr numeric_profile fixed15_1{"fixed15_1", 8, 32, 32, 64, 8, 32, product_rule::fixed_point};
/// No law: free to take what is quicker, of what keeps the tolerance. So far the canonical arithmetic.
inline constexpr numeric_profile fast{"fast", 8, 32, 32, 64, 8, 32, product_rule::chains, false};

/// Every name that has been taken.
inline constexpr std::array<numeric_profile, 4> all{canonical_1, bf16_pair_1, fixed15_1, fast};
}  // namespace numeric

}  // namespace tenon::inline v0
