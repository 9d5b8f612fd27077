// SPDX-License-Identifier: Apache-2.0
#include <doctest/doctest.h>
#include <tenon/core/profile.hpp>
#include <tenon/core/share.hpp>
#include <tenon/kernel/attention.hpp>
#include <tenon/kernel/q8.hpp>

using namespace tenon;

TEST_CASE("A profile's name stands for its constants: another constant needs another name") {
    // Written out, so that whoever changes a constant meets this line. Rows are only ever added.
    constexpr numeric_profile published[]{{"canonical_1", 8, 32, 32, 64, 8, 32, product_rule::chains, true},
                                          {"bf16_pair_1", 8, 32, 32, 64, 8, 32, product_rule::bf16_pairs, true},
                                          {"fixed15_1", 8, 32, 32, 64, 8, 32, product_rule::fixed_point, true},
                                          {"fast", 8, 32, 32, 64, 8, 32, product_rule::chains, false}};
    for (numeric_profile const& p : numeric::all) {
        int found = 0;
        for (numeric_profile const& was : published) found += p == was;
        CHECK(found == 1);
    }
    CHECK(numeric::all.front() == numeric::canonical_1);
    CHECK(most_segments == 8);
    CHECK(granule_of(96) == 32);
    CHECK(granule_of(56) == 1);
    CHECK(kernel::kv_block == 64);
    CHECK(kernel::q8_block == 32);
}
