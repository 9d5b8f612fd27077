// The next token of a sequence from a row of logits: greedy, or drawn with a counter-based generator, so that the same seed
// gives the same tokens on every split and in every batch.
// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <tenon/core/config.hpp>
#include <tenon/core/error.hpp>
#include <tenon/core/sampling.hpp>
#include <tenon/device/backend.hpp>
#include <tenon/kernel/float_environment.hpp>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#if defined(__clang__)
#pragma float_control(precise, on, push)
#endif
namespace tenon::inline v0 {

namespace detail {
/// Philox4x32-10: four random words from a 128-bit counter and a 64-bit key.
/// Source: Salmon et al. 2011, "Parallel random numbers: as easy as 1, 2, 3", section 3.
constexpr std::array<std::uint32_t, 4> philox(std::array<std::uint32_t, 4> counter, std::array<std::uint32_t, 2> key) {
    for (int round = 0; round < 10; ++round) {
        std::uint64_t const a = std::uint64_t{0xD2511F53U} * counter[0], b = std::uint64_t{0xCD9E8D57U} * counter[2];
        counter = {static_cast<std::uint32_t>(b >> 32U) ^ counter[1] ^ key[0], static_cast<std::uint32_t>(b),
                   static_cast<std::uint32_t>(a >> 32U) ^ counter[3] ^ key[1], static_cast<std::uint32_t>(a)};
        key = {key[0] + 0x9E3779B9U, key[1] + 0xBB67AE85U};
    }
    return counter;
}
// The vectors of the paper's reference implementation.
static_assert(philox({0, 0, 0, 0}, {0, 0}) == std::array<std::uint32_t, 4>{0x6627e8d5U, 0xe169c58dU, 0xbc57ac4cU, 0x9b00dbd8U});
static_assert(philox({0xffffffffU, 0xffffffffU, 0xffffffffU, 0xffffffffU}, {0xffffffffU, 0xffffffffU}) ==
              std::array<std::uint32_t, 4>{0x408f276dU, 0x41c83b0eU, 0xa20bc7c6U, 0x6d5451fdU});

/// A number in [0, 1) for the new token at `position` of sequence `sequence`.
constexpr float uniform(std::uint64_t seed, std::uint64_t position, std::uint64_t sequence) {
    auto const low = [](std::uint64_t x) { return static_cast<std::uint32_t>(x); };
    auto const high = [](std::uint64_t x) { return static_cast<std::uint32_t>(x >> 32U); };
    std::uint32_t const word = philox({low(position), high(position), low(sequence), high(sequence)}, {low(seed), high(seed)})[0];
    return static_cast<float>(word >> 8U) * 0x1p-24f;
}

[[noreturn]] inline void refuse_nan_row(std::size_t vocab) {
    refuse("logits_are_numbers", "all " + std::to_string(vocab) + " logits of the row are NaN; a token needs one that is a number");
}
}  // namespace detail

/// The largest logit's index; equal ones go to the lowest, NaN never wins. Throws refusal `logits_are_numbers` for a row of NaN alone.
inline token_id greedy(std::span<float const> logits) {
    kernel::flush_to_zero_guard const exact;
    std::size_t best = logits.size();
    for (std::size_t i = 0; i < logits.size(); ++i)
        if (best == logits.size() ? logits[i] == logits[i] : logits[i] > logits[best]) best = i;
    if (best == logits.size()) detail::refuse_nan_row(logits.size());
    return static_cast<token_id>(best);
}

/// The token for `position` of sequence `sequence`.
///
///   logits  (V)
///
/// Throws refusal `logits_are_numbers` for a row of NaN alone.
template <class = void>
token_id next_token(std::span<float const> logits, sampling const& how, std::uint64_t position, std::uint64_t sequence,
                    device::backend const& ops) {
    if (how.temperature == 0.0f) return greedy(logits);
    kernel::flush_to_zero_guard const exact;
    std::vector<float> scaled(logits.size());
    std::vector<token_id> order;
    order.reserve(logits.size());
    for (std::size_t i = 0; i < logits.size(); ++i) {
        scaled[i] = logits[i] / how.temperature;
        if (scaled[i] == scaled[i]) order.push_back(static_cast<token_id>(i));
    }
    if (order.empty()) detail::refuse_nan_row(logits.size());
    auto const likelier = [&scaled](token_id a, token_id b) {
        float const x = scaled[static_cast<std::size_t>(a)], y = scaled[static_cast<std::size_t>(b)];
        return x != y ? x > y : a < b;
    };
    std::size_t const k = how.top_k > 0 ? (std::min)(order.size(), static_cast<std::size_t>(how.top_k)) : order.size();
    std::partial_sort(order.begin(), order.begin() + static_cast<std::ptrdiff_t>(k), order.end(), likelier);
    // exp(inf - inf) is no number: an infinite first logit leaves only the largest.
    if (std::isinf(scaled[static_cast<std::size_t>(order[0])])) return greedy(logits);
    std::vector<float> e(k), running(k);
    for (std::size_t i = 0; i < k; ++i) e[i] = scaled[static_cast<std::size_t>(order[i])] - scaled[static_cast<std::size_t>(order[0])];
    ops.exp(e.data(), e.data(), k);
    float sum = 0.0f;
    for (std::size_t i = 0; i < k; ++i) running[i] = sum = sum + e[i];
    float const enough = how.top_p * running[k - 1];
    std::size_t kept = 0;
    while (kept + 1 < k && !(running[kept] >= enough)) ++kept;
    float const mark = detail::uniform(how.seed, position, sequence) * running[kept];
    std::size_t chosen = 0;
    while (chosen < kept && !(running[chosen] > mark)) ++chosen;
    return order[chosen];
}

}  // namespace tenon::inline v0
#if defined(__clang__)
#pragma float_control(pop)
#endif
