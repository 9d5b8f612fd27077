// Sorting for loading and refusing: a heap, which a compiler takes a third of the time of std::sort for, at every type. Not for hot paths.
// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <algorithm>

namespace tenon::inline v0::detail {

/// Ascending by `less`. Equal elements end in some order that the input fixes.
template <class Range, class Less>
void sort(Range& range, Less less) {
    std::make_heap(range.begin(), range.end(), less);
    std::sort_heap(range.begin(), range.end(), less);
}
template <class Range>
void sort(Range& range) {
    std::make_heap(range.begin(), range.end());
    std::sort_heap(range.begin(), range.end());
}

}  // namespace tenon::inline v0::detail
