// SPDX-License-Identifier: Apache-2.0
#include <doctest/doctest.h>
#include <tenon/core/profile.hpp>
#include <tenon/core/share.hpp>
#include <tenon/kernel/attention.hpp>

using namespace tenon;

TEST_CASE("A profile's name stands for its constants: another constant needs another name") {
    // Written out, so that whoever changes a constant meets this line. Rows are only ever added.
    constexpr numeric_profile published[]{{"canonical_1", 8, 32, 32, 64, 8}};
    for (numeric_profile const& p : published)
        if (p.name == numeric::canonical_1.name) CHECK(p == numeric::canonical_1);
    CHECK(most_segments == 8);
    CHECK(granule_of(96) == 32);
    CHECK(granule_of(56) == 1);
    CHECK(kernel::kv_block == 64);
}
