// How a product over K inputs is cut into segments: a property of the model, never of the plan. (The law, rule 1.)
// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace tenon::inline v0::kernel {

inline constexpr int most_segments = 8;

/// The largest power of two <= 8 that divides width / granule. The granule is what a shard may not split: one head's width for the
/// attention output, otherwise 32 where 32 divides the width, else 1.
constexpr int segments_of(int width, int granule) {
    int const units = granule > 0 ? width / granule : 0;
    int segments = 1;
    while (segments < most_segments && units > 0 && units % (2 * segments) == 0) segments *= 2;
    return segments;
}

}  // namespace tenon::inline v0::kernel
