// What a tail does with a row of logits, as a value: greedy, or drawn with a seed. Draws nothing itself: runtime/sampling.hpp does.
// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <tenon/core/error.hpp>

#include <cmath>
#include <cstdint>
#include <string>

#if defined(__clang__)
#pragma float_control(precise, on, push)
#endif
namespace tenon::inline v0 {

/// How the next token is chosen. The defaults are greedy.
struct sampling {
    float temperature = 0.0f;  ///< 0: greedy
    int top_k = 0;             ///< keep the k likeliest; 0: all
    float top_p = 1.0f;        ///< then the shortest prefix that holds this share of their probability
    std::uint64_t seed = 0;
    bool operator==(sampling const&) const = default;
};

/// Refuses a sampling contract that means nothing, by name.
template <class = void>
void check(sampling const& s) {
    if (!(s.temperature >= 0.0f) || std::isinf(s.temperature))
        detail::refuse("temperature_is_positive",
                       "temperature is " + std::to_string(s.temperature) + "; 0 (greedy) or a positive number would do");
    if (s.top_k < 0) detail::refuse("top_k_is_positive", "top_k is " + std::to_string(s.top_k) + "; 0 (all) or more would do");
    if (!(s.top_p > 0.0f && s.top_p <= 1.0f))
        detail::refuse("top_p_is_a_share", "top_p is " + std::to_string(s.top_p) + "; a number above 0, at most 1, would do");
}

}  // namespace tenon::inline v0
#if defined(__clang__)
#pragma float_control(pop)
#endif
