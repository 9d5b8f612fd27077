// Device against device: `xtensor` has the bits of `cpu`, and mixes with it; `eigen` has its own bits under every split, batch and
// chunk, and a product whose shape depends on the batch is noticed.
// SPDX-License-Identifier: Apache-2.0
#include "support/families.hpp"
#include "support/runs.hpp"

#include <doctest/doctest.h>
#include <tenon/device/eigen.hpp>
#include <tenon/device/xtensor.hpp>
#include <tenon/dynamic_causal_lm.hpp>

#include <string>
#include <vector>

using namespace tenon;
using namespace support;

namespace {
using plans = std::vector<std::string>;

/// A few sequences, and what one backend gives for each alone.
struct baseline {
    std::vector<ids> sequences;
    std::vector<floats> rows;

    baseline(language_model& m, int count) {
        random_bits random(42);
        for (int i = 0; i < count; ++i) sequences.push_back(random_tokens(random, i == 0 ? 70 : 1 + (i * 5) % 13, m.config().vocab));
        for (ids const& s : sequences) rows.push_back(rows_of(m, s));
    }
};

/// Empty when every row has its bits, in one piece, in chunks and in ragged batches of every size.
std::string difference(language_model& m, baseline const& b, std::vector<std::size_t> const& batches) {
    for (std::size_t const chunk : {std::size_t{0}, std::size_t{7}, std::size_t{1}})
        if (std::string const d = first_difference(b.rows[1], rows_of(m, b.sequences[1], chunk)); !d.empty())
            return "chunk " + std::to_string(chunk) + ": " + d;
    for (std::size_t const size : batches) {
        std::vector<floats> const got = ragged_rows_of(m, std::span<ids const>(b.sequences).first(size));
        for (std::size_t i = 0; i < size; ++i)
            if (std::string const d = first_difference(b.rows[i], got[i]); !d.empty()) return "batch " + std::to_string(size) + ": " + d;
    }
    return {};
}

plans const gathered{"all@0,1", "all@0,1,2,3,4,5,6,7", "0-1@0;2-3@1", "0@0;1@1;2@2;3@3", "0-1@0,1;2-3@2,3,4,5"};
plans const reduced{"all@0,1:tensor.reduce", "all@0,1,2,3:tensor.reduce", "0@0;1-2@1,2:tensor.reduce;3@0,1,2,3,4,5,6,7:tensor.reduce"};

/// Eigen's backend with the product that it must not have: one whose shape depends on the batch.
template <int... Index>
struct batch_shaped {
    static constexpr device_kind kind = device_kind::eigen;
    static constexpr int most_ranks = most_ranks_of_a_stage;
    static constexpr bool canonical = false;
    static constexpr std::array<device_id, sizeof...(Index)> devices{device_id{device_kind::eigen, Index}...};
    static device::backend const& instance(std::string_view) {
        static device::eigen_backend const wrong(true);
        return wrong;
    }
};
}  // namespace

TEST_CASE("xtensor has the bits of cpu for every family, whole, split and mixed with it") {
    for (geometry const& g : dense_families()) {
        CAPTURE(g.name);
        random_model const files(g, 31);
        auto fast = dynamic_causal_lm<>::load(files.directory(), plan::parse("all@0"), runtime::sequential{});
        baseline const b(fast, 3);
        for (std::string const text : {"all@0", "all@0,1:tensor.reduce", "0-1@0,1;2-3@2", "0-1@cpu.0;2-3@xtensor.0,1", "0@0;1-3@cpu.0,cpu.1:tensor.reduce"}) {
            CAPTURE(text);
            auto m = dynamic_causal_lm<device::xtensor, device::cpu>::load(files.directory(), plan::parse(text));
            CHECK_EQ(difference(m, b, {3}), "");
        }
    }
}

TEST_CASE("eigen has its own bits under every split, join, batch and chunk") {
    for (geometry const& g : dense_families()) {
        CAPTURE(g.name);
        random_model const files(g, 32);
        for (weights const format : {weights::stored, weights::bf16}) {
            load_options how;
            how.weights = format;
            auto whole = dynamic_causal_lm<device::eigen>::load(files.directory(), plan::parse("all@0"), runtime::sequential{}, how);
            baseline const b(whole, 17);
            CHECK_EQ(difference(whole, b, {1, 2, 3, 4, 5, 7, 8, 9, 15, 16, 17}), "");
            for (plans const* const list : {&gathered, &reduced})
                for (std::string const& text : *list) {
                    CAPTURE(text);
                    auto m = dynamic_causal_lm<device::eigen>::load(files.directory(), plan::parse(text), runtime::sequential{}, how);
                    CHECK_EQ(difference(m, b, {5, 17}), "");
                }
            auto threaded = dynamic_causal_lm<device::eigen>::load(files.directory(), plan::parse(gathered[0]), runtime::threads{}, how);
            CHECK_EQ(difference(threaded, b, {5}), "");
        }
    }
}

TEST_CASE("Ranks that do not divide widths or the vocabulary evenly leave eigen's bits alone") {
    random_model const files({.name = "six heads", .hidden = 78, .heads = 6, .kv_heads = 3, .head_dim = 10, .ffn = 77, .vocab = 65}, 9);
    auto whole = dynamic_causal_lm<device::eigen>::load(files.directory(), plan::parse("all@0"), runtime::sequential{});
    baseline const b(whole, 9);
    for (std::string const text : {"all@0,1,2", "all@0,1,2,3,4,5", "0-1@0;2-3@1,2,3"}) {
        CAPTURE(text);
        auto m = dynamic_causal_lm<device::eigen>::load(files.directory(), plan::parse(text), runtime::sequential{});
        CHECK_EQ(difference(m, b, {3, 9}), "");
    }
}

TEST_CASE("A product whose shape depends on the batch turns eigen's parity red") {
    random_model const files(dense_families()[0], 33);
    auto wrong = dynamic_causal_lm<batch_shaped>::load(files.directory(), plan::parse("all@0"), runtime::sequential{});
    baseline const b(wrong, 17);
    CHECK_NE(difference(wrong, b, {1, 2, 3, 5, 8, 17}), "");
}

TEST_CASE("A graph does not mix eigen's arithmetic with the canonical one") {
    random_model const files(dense_families()[0], 34);
    auto const load = [&](std::string const& text) {
        return dynamic_causal_lm<device::cpu, device::eigen>::load(files.directory(), plan::parse(text)).plan();
    };
    CHECK_THROWS_WITH_AS(load("0-1@0;2-3@eigen.1"), doctest::Contains("stages_share_arithmetic"), graph_error);
    CHECK_THROWS_WITH_AS(load("0-1@eigen.0;2-3@0"), doctest::Contains("stages_share_arithmetic"), graph_error);
    CHECK_THROWS_WITH_AS(load("0-1@0;2-3@xtensor.1"), doctest::Contains("device_is_available"), graph_error);
    CHECK(load("0-1@eigen.0;2-3@eigen.1") == "0-1@eigen.0;2-3@eigen.1");
}
