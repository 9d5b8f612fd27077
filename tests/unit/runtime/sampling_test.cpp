// Choosing a token: the generator's vectors, and small rows worked out by hand.
// SPDX-License-Identifier: Apache-2.0
#include "support/runs.hpp"

#include <doctest/doctest.h>
#include <tenon/device/cpu.hpp>
#include <tenon/runtime/sampling.hpp>

#include <cmath>
#include <cstdint>
#include <limits>
#include <set>
#include <vector>

using namespace tenon;
using support::law_of;

namespace {
constexpr float nan_ = std::numeric_limits<float>::quiet_NaN(), inf = std::numeric_limits<float>::infinity();
using row = std::vector<float>;

device::backend const& ops() { return device::cpu<>::instance("auto"); }

// Salmon et al. 2011, the reference implementation's known answers.
static_assert(detail::philox({0x243f6a88U, 0x85a308d3U, 0x13198a2eU, 0x03707344U}, {0xa4093822U, 0x299f31d0U}) ==
              std::array<std::uint32_t, 4>{0xd16cfe09U, 0x94fdccebU, 0x5001e420U, 0x24126ea1U});
// The top 24 bits of the first word: key = seed, counter = (position, sequence), low words first.
static_assert(detail::uniform(0, 0, 0) == static_cast<float>(0x6627e8U) * 0x1p-24f);
static_assert(detail::uniform(0xffffffffffffffffU, 0xffffffffffffffffU, 0xffffffffffffffffU) == static_cast<float>(0x408f27U) * 0x1p-24f);
static_assert(detail::uniform(0x299f31d0a4093822U, 0x85a308d3243f6a88U, 0x0370734413198a2eU) == static_cast<float>(0xd16cfeU) * 0x1p-24f);

/// Every token that some of many draws gives.
std::set<token_id> drawn(row const& logits, sampling how, int draws = 2000) {
    std::set<token_id> seen;
    for (int i = 0; i < draws; ++i) seen.insert(tenon::next_token(logits, how, static_cast<std::uint64_t>(i), 3, ops()));
    return seen;
}
using tokens = std::set<token_id>;
}  // namespace

TEST_CASE("Greedy takes the largest, the lowest of equals, and no NaN") {
    CHECK(greedy(row{1, 3, 2}) == 1);
    CHECK(greedy(row{3, 1, 3}) == 0);
    CHECK(greedy(row{-0.0f, 0.0f}) == 0);
    CHECK(greedy(row{nan_, -5, nan_, -4}) == 3);
    CHECK(greedy(row{nan_, -inf}) == 1);
    CHECK(greedy(row{1, inf, nan_}) == 1);
    CHECK(law_of([] { (void)greedy(row{nan_, nan_}); }) == "logits_are_numbers");
    CHECK(tenon::next_token(row{1, 3, 2}, {}, 9, 9, ops()) == 1);
}

TEST_CASE("The token is the first whose running sum passes u times the whole") {
    // Four equal logits: a quarter each, in the order of their ids.
    for (std::uint64_t position = 0; position < 200; ++position) {
        float const u = detail::uniform(5, position, 7);
        CHECK(tenon::next_token(row{2, 2, 2, 2}, {.temperature = 1.0f, .seed = 5}, position, 7, ops()) == static_cast<token_id>(u * 4));
    }
    // exp(-40) adds nothing to 1 in binary32: the likelier of two always wins, wherever it stands.
    CHECK(drawn(row{-20, 20}, {.temperature = 1.0f}) == tokens{1});
    CHECK(drawn(row{-20, 20}, {.temperature = 100.0f}) == tokens{0, 1});
}

TEST_CASE("Frequencies follow the softmax") {
    int count = 0;
    for (std::uint64_t i = 0; i < 4000; ++i)
        count += tenon::next_token(row{0, std::log(3.0f)}, {.temperature = 1.0f, .seed = 11}, i, 0, ops()) == 1;
    CHECK(count > 2850);  // 3000 expected, standard deviation 27
    CHECK(count < 3150);
}

TEST_CASE("Top-k keeps the k likeliest, the lower id of equals") {
    CHECK(drawn(row{1, 1, 1, 1}, {.temperature = 1.0f, .top_k = 2}) == tokens{0, 1});
    CHECK(drawn(row{0, 2, 1, 2}, {.temperature = 1.0f, .top_k = 1}) == tokens{1});
    CHECK(drawn(row{0, 2, 1, 2}, {.temperature = 1.0f, .top_k = 3}) == tokens{1, 2, 3});
    CHECK(drawn(row{0, 1, 2}, {.temperature = 1.0f, .top_k = 100}) == tokens{0, 1, 2});
    CHECK(drawn(row{0, 1, 2}, {.temperature = 1.0f, .top_k = 0}) == tokens{0, 1, 2});
}

TEST_CASE("Top-p keeps the shortest prefix that holds the share") {
    row const half_quarter_quarter{0, std::log(2.0f) * 1.01f, 0};  // a little more than a half, and two of a little less than a quarter
    CHECK(drawn(half_quarter_quarter, {.temperature = 1.0f, .top_p = 0.5f}) == tokens{1});
    CHECK(drawn(half_quarter_quarter, {.temperature = 1.0f, .top_p = 0.51f}) == tokens{0, 1});
    CHECK(drawn(half_quarter_quarter, {.temperature = 1.0f, .top_p = 0.8f}) == tokens{0, 1, 2});
    CHECK(drawn(half_quarter_quarter, {.temperature = 1.0f, .top_p = 1e-9f}) == tokens{1});
    CHECK(drawn(row{1, 1, 1, 1}, {.temperature = 1.0f, .top_p = 0.5f}) == tokens{0, 1});  // c[1] = 2 >= 0.5 * 4
    // The share is of what top-k kept: of 4 equal, 2 kept, half of them is one.
    CHECK(drawn(row{1, 1, 1, 1}, {.temperature = 1.0f, .top_k = 2, .top_p = 0.5f}) == tokens{0});
}

TEST_CASE("NaN is dropped before anything is kept, and a row of it refused") {
    CHECK(drawn(row{nan_, 1, nan_, 1}, {.temperature = 1.0f}) == tokens{1, 3});
    CHECK(drawn(row{nan_, 1, nan_, 0}, {.temperature = 1.0f, .top_k = 1}) == tokens{1});
    CHECK(law_of([] { (void)tenon::next_token(row{nan_, nan_}, {.temperature = 1.0f}, 0, 0, ops()); }) == "logits_are_numbers");
    CHECK(drawn(row{-inf, 0, -inf}, {.temperature = 1.0f}) == tokens{1});
}

TEST_CASE("Infinite logits give a token that is in the row") {
    for (row const& r : {row{inf, 0, inf}, row{-inf, -inf}, row{inf, nan_}}) {
        token_id const t = tenon::next_token(r, {.temperature = 1.0f}, 1, 1, ops());
        CHECK(t >= 0);
        CHECK(t < static_cast<token_id>(r.size()));
        CHECK(r[static_cast<std::size_t>(t)] == r[static_cast<std::size_t>(t)]);
    }
}

TEST_CASE("Position, sequence and seed each give other numbers") {
    float const u = detail::uniform(1, 2, 3);
    CHECK(u != detail::uniform(2, 2, 3));
    CHECK(u != detail::uniform(1, 3, 3));
    CHECK(u != detail::uniform(1, 2, 4));
    CHECK(u != detail::uniform(1ULL << 32U | 1, 2, 3));
    CHECK(u != detail::uniform(1, 1ULL << 32U | 2, 3));
    CHECK(u != detail::uniform(1, 2, 1ULL << 32U | 3));
}

TEST_CASE("A contract that means nothing is refused by name") {
    CHECK(law_of([] { check({.temperature = -1.0f}); }) == "temperature_is_positive");
    CHECK(law_of([] { check({.temperature = nan_}); }) == "temperature_is_positive");
    CHECK(law_of([] { check({.temperature = inf}); }) == "temperature_is_positive");
    CHECK(law_of([] { check({.top_k = -1}); }) == "top_k_is_positive");
    for (float const p : {0.0f, -0.5f, 1.5f, nan_}) CHECK(law_of([p] { check({.top_p = p}); }) == "top_p_is_a_share");
    CHECK(law_of([] { check({.temperature = 0.7f, .top_k = 5, .top_p = 1.0f}); }) == "nothing is refused");
}

TEST_CASE("An infinite first logit leaves only the largest") {
    float const inf = std::numeric_limits<float>::infinity();
    CHECK(tenon::next_token(row{0, inf, 1}, {.temperature = 1.0f, .seed = 3}, 4, 0, ops()) == 1);
    CHECK(tenon::next_token(row{-inf, -inf}, {.temperature = 1.0f, .seed = 3}, 4, 0, ops()) == 0);
    CHECK(tenon::next_token(row{1, 3, 2}, {.temperature = 1e-45f, .seed = 3}, 4, 0, ops()) == 1);
}
