// A bundle, its view, and what a tail gives.
// SPDX-License-Identifier: Apache-2.0
#include "support.hpp"

#include <tenon/boundary/bundle.hpp>
#include <tenon/boundary/tail_output.hpp>

#include <doctest/doctest.h>
#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <vector>

using namespace tenon::boundary;
using boundary_test::ragged;

static_assert(shape_of(6, 1, 4) == residual_shape{2, {6, 4, 0, 0}});
static_assert(shape_of(6, 4, 32) == residual_shape{3, {6, 4, 32, 0}});
static_assert(bundle_view{}.schema == 1 && bundle_view{}.tensor == "residual_stream" && !bundle_view{}.normalized);
static_assert(bundle_view{}.profile == "canonical_1" && bundle_view{}.streams == 1);
static_assert(bundle_view{} == bundle_view{} && !(bundle_view{.schema = 2} == bundle_view{}));
static_assert(!(bundle_view{.order = byte_order::little} == bundle_view{.order = byte_order::big}));

TEST_CASE("a view refers to the bundle's own memory") {
    bundle const b = ragged();
    bundle_view const v = b;
    CHECK(v.residual.data() == reinterpret_cast<std::byte const*>(b.residual.data()));
    CHECK(v.residual.size() == 4 * b.residual.size());
    CHECK(v.positions.data() == b.positions.data());
    CHECK(v.row_offsets.data() == b.row_offsets.data());
    CHECK(v.adapter.data() == b.adapter.data());
    CHECK(v.order == native_order);
}

TEST_CASE("elements that are not float32 are the encoded bytes") {
    bundle b = ragged();
    b.element = tenon::dtype::bf16;
    b.encoded.assign(48, std::byte{1});
    CHECK(bundle_view(b).residual.data() == b.encoded.data());
    CHECK(bundle_view(b).residual.size() == 48);
}

TEST_CASE("equality is of every field, and of bits") {
    using change = void (*)(bundle&);
    constexpr change changes[]{
        [](bundle& b) { b.adapter = "qwen3"; },       [](bundle& b) { b.schema = 2; },          [](bundle& b) { b.tensor = "x"; },
        [](bundle& b) { b.normalized = true; },       [](bundle& b) { b.next_layer = 3; },      [](bundle& b) { b.profile = "x"; },
        [](bundle& b) { b.shape.extents[3] = 1; },    [](bundle& b) { b.streams = 2; },         [](bundle& b) { b.row_offsets[1] = 2; },
        [](bundle& b) { b.positions.pop_back(); },    [](bundle& b) { b.residual[3] += 1.0f; }, [](bundle& b) { b.element = tenon::dtype::f16; },
        [](bundle& b) { b.residual.push_back(0.0f); }};
    bundle const original = ragged();
    CHECK(original == ragged());
    for (change const& apply : changes) {
        bundle b = original;
        apply(b);
        CHECK_FALSE(b == original);
    }
    bundle zero = ragged(), minus = ragged(), nan = ragged();
    zero.residual[0] = 0.0f;
    minus.residual[0] = -0.0f;
    CHECK_FALSE(zero == minus);
    nan.residual[0] = std::numeric_limits<float>::quiet_NaN();
    CHECK(nan == bundle(nan));
}

TEST_CASE("a tail's output is the wanted rows, in order, with the contract that chose") {
    tail_output out{.vocab = 3, .logits = {1, 2, 3, 4, 5, 6}, .sequences = {0, 2}, .positions = {7, 63}};
    CHECK(out.rows() == 2);
    CHECK(out.row(1).size() == 3);
    CHECK(out.row(1)[0] == 4.0f);
    CHECK(out.row(1).data() == out.logits.data() + 3);
    CHECK_FALSE(out.contract.has_value());
    CHECK(out.chosen.empty());
    out.contract = tenon::sampling{.temperature = 0.5f, .seed = 7};
    CHECK(out.contract == tenon::sampling{.temperature = 0.5f, .seed = 7});
    CHECK_FALSE(out.contract == tenon::sampling{});
    CHECK(boundary_test::law_of([] { check(tenon::sampling{.top_k = -1}); }) == "top_k_is_positive");
}
