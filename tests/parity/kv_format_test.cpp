// Keys and values in bf16: every split, runtime, batch and chunk has the bits of plain with such a cache; every canonical backend and
// instruction set reads it alike, and what a call has just written as it is stored; and what cannot read it is refused by name.
// SPDX-License-Identifier: Apache-2.0
#include "support/baseline.hpp"
#include "support/families.hpp"

#include <doctest/doctest.h>
#include <tenon/device/eigen.hpp>
#include <tenon/device/xtensor.hpp>
#include <tenon/dynamic_causal_lm.hpp>

#include <string>
#include <vector>

using namespace tenon;
using namespace support;

namespace {
load_options narrow(std::string_view isa = "auto", int threads = 1) {
    load_options how;
    how.kv = kv_format::bf16;
    how.isa = isa;
    how.threads = threads;
    return how;
}
}  // namespace

TEST_CASE("A cache in bf16 gives plain's bits under every split, batch and chunk") {
    std::vector<geometry> all = dense_families();
    all.push_back(routed_families()[0]);
    for (geometry const& g : all) {
        CAPTURE(g.name);
        random_model const files(g, 91);
        baseline const b(files.directory(), narrow());
        check_plans(b, {"all@0", "all@0,1", "0@0;1-3@1,2,3,4:tensor.reduce"}, false);
        auto wide = dynamic_causal_lm<>::load(files.directory(), plan::parse("all@0"), runtime::sequential{});
        CHECK_NE(first_difference(b.rows[0], rows_of(wide, b.sequences[0])), "");  // it is another model's bits
        for (std::string_view const isa : {"portable", "avx2", "avx512", "neon"}) {
            if (!kernel::supported(v0::detail::isa_named(isa))) continue;
            auto m = dynamic_causal_lm<>::load(files.directory(), plan::parse("all@0"), runtime::sequential{}, narrow(isa, 2));
            CHECK_EQ(first_difference(b.rows[0], rows_of(m, b.sequences[0], 7)), "");
        }
        using reference = dynamic_causal_lm<device::xtensor, device::cpu>;
        auto mixed = reference::load(files.directory(), plan::parse("0-1@0;2-3@cpu.1"), runtime::sequential{}, narrow());
        CHECK_EQ(first_difference(b.rows[1], rows_of(mixed, b.sequences[1], 2)), "");
        CHECK_EQ(first_difference(b.rows[0], rows_of(mixed, b.sequences[0])), "");
    }
}

TEST_CASE("A snapshot of a cache in bf16 goes on under another plan, is half as long, and is refused where caches are wider") {
    random_model const files(dense_families()[0], 92);
    auto const load = [&](char const* text, load_options const& how) { return dynamic_causal_lm<>::load(files.directory(), plan::parse(text), runtime::sequential{}, how); };
    auto plain = load("all@0", narrow()), split = load("0-1@0,1;2-3@2", narrow()), wide = load("all@0", {});
    ids const prompt{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13};
    state s = plain.make_state(), w = wide.make_state();
    plain.prefill(s, prompt);
    wide.prefill(w, prompt);
    std::vector<std::byte> const bytes = plain.snapshot(s), longer = wide.snapshot(w);
    std::size_t const layers = 4, values = layers * 2 * prompt.size() * 4 * 8;
    CHECK(longer.size() - bytes.size() == 2 * values - 1);  // "bf16" is a letter longer than "f32"
    state there = split.restore(bytes);
    for (token_id const id : {14, 15, 16}) {
        std::span<float const> const row = plain.step(s, id);
        floats const expected(row.begin(), row.end());
        CHECK_EQ(first_difference(expected, split.step(there, id)), "");
    }
    CHECK_THROWS_WITH_AS((void)wide.restore(bytes), doctest::Contains("snapshot_kv_format_is_the_models"), refusal);
    CHECK_THROWS_WITH_AS((void)plain.restore(longer), doctest::Contains("snapshot_kv_format_is_the_models"), refusal);
    CHECK(2 * s.kv_bytes(0) == w.kv_bytes(0));
    cost_view const cost(plain.graph(), weights::f32, dtype::f32);
    CHECK(s.kv_bytes(0) == cost.kv_bytes(rank_index{0}, static_cast<int>(prompt.size()), kv_format::bf16));
}

TEST_CASE("A backend that reads no cache in bf16 is refused before a weight is read") {
    random_model const files(dense_families()[0], 93);
    CHECK_THROWS_WITH_AS((dynamic_causal_lm<device::eigen>::load(files.directory(), plan::parse("all@0"), runtime::sequential{}, narrow())),
                         doctest::Contains("device_reads_kv_format"), refusal);
}
