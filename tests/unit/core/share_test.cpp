// Which part of an axis a rank owns, and how many segments a product has.
// SPDX-License-Identifier: Apache-2.0
#include <doctest/doctest.h>
#include <tenon/core/share.hpp>
#include <array>

using namespace tenon;

// NUMERICS rule 1's examples: heads in a row, and widths with their granule.
static_assert(segments_of(14 * 64, 64) == 2 && segments_of(9 * 64, 64) == 1 && segments_of(6 * 64, 64) == 2 && segments_of(32 * 64, 64) == 8);
static_assert(segments_of(96, granule_of(96)) == 1 && segments_of(56, granule_of(56)) == 8 && segments_of(5632, granule_of(5632)) == 8);
static_assert(segments_of(1, 1) == 1 && segments_of(101, granule_of(101)) == 1 && segments_of(128, granule_of(128)) == 4);

// Experts and widths that do not divide.
static_assert(share_of(8, 0, 3).size() == 3 && share_of(8, 1, 3).size() == 3 && share_of(8, 2, 3).size() == 2);
static_assert(share_of(9, 0, 3).size() == 3 && share_of(9, 2, 3) == share{6, 9});
static_assert(share_of(101, 0, 2) == share{0, 51} && share_of(101, 1, 2) == share{51, 101});
static_assert(share_of(3, 0, 4) == share{0, 1} && share_of(3, 3, 4).size() == 0);

// Products of two extents do not fit 32 bits; the share of the last rank must.
static_assert(share_of(1 << 24, 1007, 1008).end == 1 << 24);
static_assert(share_of(2147483647, 63, 64).end == 2147483647);

// 4 KV heads on 8 ranks stand twice each, on neighbours.
static_assert(kv_share_of(4, 0, 8) == share{0, 1} && kv_share_of(4, 1, 8) == share{0, 1} && kv_share_of(4, 7, 8) == share{3, 4});
static_assert(kv_share_of(6, 1, 3) == share{2, 4} && kv_share_of(1, 27, 28) == share{0, 1});

TEST_CASE("30 experts on 8 ranks are 4, 4, 4, 3, 4, 4, 4, 3, never an implicit pile-up") {
    constexpr std::array sizes{4, 4, 4, 3, 4, 4, 4, 3};
    for (int r = 0; r < 8; ++r) CHECK(share_of(30, r, 8).size() == sizes[static_cast<std::size_t>(r)]);
}

TEST_CASE("shares are neighbours, cover the axis, differ by at most one, and hold index i on rank floor(i R / n)") {
    for (int n = 1; n <= 70; ++n)
        for (int ranks = 1; ranks <= 33; ++ranks) {
            int next = 0, least = n, most = 0;
            for (int r = 0; r < ranks; ++r) {
                share const s = share_of(n, r, ranks);
                REQUIRE(s.begin == next);
                next = s.end;
                least = s.size() < least ? s.size() : least;
                most = s.size() > most ? s.size() : most;
                for (int i = s.begin; i < s.end; ++i) REQUIRE(i * ranks / n == r);
            }
            REQUIRE(next == n);
            REQUIRE(most - least <= 1);
        }
}

TEST_CASE("KV heads of a rank serve its query heads, repeated or not") {
    for (int kv = 1; kv <= 16; ++kv)
        for (int ranks = 1; ranks <= 32; ++ranks) {
            if (kv % ranks != 0 && ranks % kv != 0) continue;
            for (int group = 1; group <= 4; ++group) {
                int const heads = kv * group;
                if (heads % ranks != 0) continue;
                for (int r = 0; r < ranks; ++r)
                    for (int h = share_of(heads, r, ranks).begin; h < share_of(heads, r, ranks).end; ++h) {
                        share const own = kv_share_of(kv, r, ranks);
                        REQUIRE(own.begin <= h / group);
                        REQUIRE(h / group < own.end);
                    }
            }
        }
}

TEST_CASE("segments are a power of two up to 8 that divides the units, and the largest such") {
    for (int units = 1; units <= 200; ++units) {
        int const s = segments_of(units * 6, 6);
        REQUIRE((s == 1 || s == 2 || s == 4 || s == 8));
        REQUIRE(units % s == 0);
        REQUIRE((s == 8 || units % (2 * s) != 0));
    }
}
