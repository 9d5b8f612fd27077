// Every rule of a contract, with its name, numbers and place, and the order in which they are looked at.
// SPDX-License-Identifier: Apache-2.0
#include "support.hpp"

#include <tenon/boundary/contract.hpp>

#include <doctest/doctest.h>
#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <string>
#include <string_view>
#include <vector>

using namespace tenon::boundary;
using boundary_test::law_of;
using boundary_test::ragged;
using boundary_test::refusal_of;
using boundary_test::stage;

namespace {

// A rule is a value: at compile time its test is one line.
constexpr std::int64_t offsets[]{0, 1}, positions[]{5}, negative[]{-1};
constexpr std::array<std::byte, 16> zeros{};
constexpr bundle_view valid() {
    return {.adapter = "llama", .next_layer = 2, .shape = {2, {1, 4, 0, 0}}, .row_offsets = offsets, .positions = positions, .residual = zeros};
}
constexpr bundle_view with(bundle_view b, auto&& change) {
    change(b);
    return b;
}
static_assert(!find_fault(valid(), stage));
static_assert(find_fault(with(valid(), [](bundle_view& b) { b.next_layer = 3; }), stage) ==
              fault{.law = "bundle_layer_is_the_stages", .what = "next_layer", .seen = 3, .least = 2, .most = 2});
static_assert(find_fault(with(valid(), [](bundle_view& b) { b.positions = negative; }), stage) ==
              fault{.law = "bundle_positions_fit_the_model", .what = "the position", .seen = -1, .least = 0, .most = 63, .place = "row"});
static_assert(find_fault(with(valid(), [](bundle_view& b) { b.adapter = " LlamaForCausalLM\n"; }), stage) == fault{});

constexpr std::int64_t huge = std::numeric_limits<std::int64_t>::max();

// The breakages of a valid bundle, in the documented order of the rules; and the whole sentence of each.
struct breakage {
    void (*apply)(bundle&);
    std::string_view refusal;
};
constexpr breakage breakages[]{
    {[](bundle& b) { b.adapter = "llama2"; },
     "bundle_adapter_is_certified: the adapter is llama2; llama would do; certified: llama, mistral, qwen2, qwen3, phi3, mixtral, qwen3_moe"},
    {[](bundle& b) { b.adapter = "Qwen3ForCausalLM"; }, "bundle_adapter_is_the_stages: the adapter is Qwen3ForCausalLM; llama would do"},
    {[](bundle& b) { b.schema = 2; }, "bundle_schema_is_the_stages: the schema is 2; 1 would do"},
    {[](bundle& b) { b.tensor = "hidden_states"; }, "bundle_tensor_is_the_stages: the tensor is hidden_states; residual_stream would do"},
    {[](bundle& b) { b.normalized = true; }, "bundle_is_not_normalized: normalized is true; false would do"},
    {[](bundle& b) { b.next_layer = 1; }, "bundle_layer_is_the_stages: next_layer is 1; 2 would do"},
    {[](bundle& b) { b.profile = "canonical_2"; }, "bundle_profile_is_the_stages: the numeric profile is canonical_2; canonical_1 would do"},
    {[](bundle& b) { b.shape.rank = 3; }, "bundle_rank_is_the_stages: the residual's rank is 3; 2 would do"},
    {[](bundle& b) { b.shape.extents[0] = -6; }, "bundle_rows_are_counted: the number of rows is -6; 0 or more would do"},
    {[](bundle& b) { b.shape.extents[1] = 8; }, "bundle_shape_is_the_stages: axis 1: the extent is 8; 4 would do"},
    {[](bundle& b) { b.element = tenon::dtype::bf16; }, "bundle_dtype_is_the_stages: the dtype is BF16; F32 would do"},
    {[](bundle& b) { b.streams = 4; }, "bundle_streams_are_the_stages: the number of streams is 4; 1 would do"},
    {[](bundle& b) { b.row_offsets[0] = 1; }, "bundle_row_offsets_begin_at_zero: the first row offset is 1; 0 would do"},
    {[](bundle& b) { b.row_offsets[2] = 1; }, "bundle_row_offsets_ascend: sequence 1: the end of its rows is 1; 2 or more would do"},
    {[](bundle& b) { b.row_offsets[3] = 7; }, "bundle_row_offsets_cover_the_rows: the last row offset is 7; 6 would do"},
    {[](bundle& b) { b.positions.pop_back(); }, "bundle_positions_are_the_rows: the number of positions is 5; 6 would do"},
    {[](bundle& b) { b.positions[3] = 0; }, "bundle_positions_follow_on: row 3: the position is 0; 2 would do"},
    {[](bundle& b) { b.positions[4] = 63, b.positions[5] = 64; },
     "bundle_positions_fit_the_model: row 5: the position is 64; 0 to 63 would do"},
    {[](bundle& b) { b.residual.pop_back(); }, "bundle_payload_is_the_shapes: the residual's size in bytes is 92; 96 would do"},
    {[](bundle& b) { b.residual[13] = std::numeric_limits<float>::infinity(); },
     "bundle_values_are_finite: value 13: the number is infinite; a finite one would do"},
};

}  // namespace

TEST_CASE("a bundle that keeps its contract is taken") {
    CHECK_NOTHROW(check(ragged(), stage));
    for (char const* alias : {"Dense-Llama", "dense_llama", "LLAMAMODEL", "  llama\t"}) {
        bundle b = ragged();
        b.adapter = alias;
        CHECK_NOTHROW(check(b, stage));
    }
}

TEST_CASE("each rule is refused by name, with its numbers and what would do") {
    for (breakage const& broken : breakages) {
        bundle b = ragged();
        broken.apply(b);
        CHECK(refusal_of([&b] { check(b, stage); }) == broken.refusal);
    }
}

TEST_CASE("of a bundle that breaks two rules the first in the order is reported") {
    // The adapter can be wrong in one way only, and of two wrong positions the row decides.
    auto const field = [](std::size_t i) { return i == 1 ? std::size_t{0} : i == 17 ? std::size_t{16} : i; };
    for (std::size_t first = 0; first < std::size(breakages); ++first)
        for (std::size_t second = first + 1; second < std::size(breakages); ++second) {
            if (field(first) == field(second)) continue;
            bundle b = ragged();
            breakages[second].apply(b);
            breakages[first].apply(b);
            std::string_view const expected = breakages[first].refusal.substr(0, breakages[first].refusal.find(':'));
            CHECK_MESSAGE(law_of([&b] { check(b, stage); }) == expected, "rules " << first << " and " << second);
        }
    bundle all = ragged();
    for (std::size_t i = std::size(breakages); i > 0; --i) breakages[i - 1].apply(all);
    CHECK(law_of([&all] { check(all, stage); }) == "bundle_adapter_is_certified");
}

TEST_CASE("the errors have classes") {
    bundle unknown = ragged(), other = ragged();
    unknown.adapter = "gemma2";
    other.schema = 0;
    CHECK_THROWS_AS(check(unknown, stage), uncertified_architecture);
    CHECK_THROWS_AS(check(other, stage), contract_error);
    CHECK_THROWS_AS(check(other, stage), boundary_error);
    CHECK_THROWS_AS(check(other, stage), tenon::refusal);
}

TEST_CASE("a name from outside is shown cut and clean") {
    bundle b = ragged();
    b.adapter = std::string("\n\x1b[2J\xff") + std::string(1000, 'x');
    std::string const text = refusal_of([&b] { check(b, stage); });
    CHECK(text.find("the adapter is ??[2J?xxx") != std::string::npos);
    CHECK(text.size() < 300);
    b.adapter.clear();
    CHECK(refusal_of([&b] { check(b, stage); }).find("the adapter is empty; llama would do") != std::string::npos);
}

TEST_CASE("no rows are a bundle, a sequence without rows is none") {
    bundle b = ragged();
    b.shape = shape_of(0, 1, 4);
    b.row_offsets = {0};
    b.positions.clear();
    b.residual.clear();
    CHECK_NOTHROW(check(b, stage));
    b.row_offsets = {0, 0};
    CHECK(refusal_of([&b] { check(b, stage); }) == "bundle_row_offsets_ascend: sequence 0: the end of its rows is 0; 1 or more would do");
    b.row_offsets.clear();
    CHECK(refusal_of([&b] { check(b, stage); }) ==
          "bundle_row_offsets_begin_at_zero: the number of row offsets is 0; 1 or more would do");
}

TEST_CASE("extremes of offsets, positions and extents are refused and overflow nothing") {
    bundle b = ragged();
    b.row_offsets = {0, huge, huge, 6};
    CHECK(law_of([&b] { check(b, stage); }) == "bundle_row_offsets_ascend");
    b = ragged();
    b.row_offsets = {0, std::numeric_limits<std::int64_t>::min(), 4, 6};
    CHECK(law_of([&b] { check(b, stage); }) == "bundle_row_offsets_ascend");
    b = ragged();
    b.positions[1] = huge;
    b.positions[2] = std::numeric_limits<std::int64_t>::min();
    CHECK(law_of([&b] { check(b, stage); }) == "bundle_positions_fit_the_model");
    b = ragged();
    b.shape.extents[0] = huge;
    CHECK(law_of([&b] { check(b, stage); }) == "bundle_row_offsets_cover_the_rows");
    b.row_offsets.back() = huge;
    CHECK(law_of([&b] { check(b, stage); }) == "bundle_positions_are_the_rows");
    b = ragged();
    b.shape.extents[1] = huge / 8;
    contract wide = stage;
    wide.hidden = huge / 8;
    CHECK(refusal_of([&] { check(b, wide); }) == "bundle_payload_is_the_shapes: the shape's size in bytes is 2^63 or more; less would do");
    b.shape.extents[1] = wide.hidden = -1;
    CHECK(law_of([&] { check(b, wide); }) == "bundle_payload_is_the_shapes");
    b = ragged();
    b.shape.rank = -1;
    CHECK(law_of([&b] { check(b, stage); }) == "bundle_rank_is_the_stages");
    b = ragged();
    b.element = static_cast<tenon::dtype>(200);
    CHECK(refusal_of([&b] { check(b, stage); }) == "bundle_dtype_is_the_stages: the dtype is unknown; F32 would do");
    contract none = stage;
    none.max_positions = 0;
    CHECK(refusal_of([&none] { check(ragged(), none); }) == "bundle_positions_fit_the_model: row 0: the position is 7; none would do");
}

TEST_CASE("several streams are an axis of their own") {
    contract four = stage;
    four.streams = 4;
    bundle b = ragged();
    CHECK(law_of([&] { check(b, four); }) == "bundle_rank_is_the_stages");
    b.shape = shape_of(6, 4, 4);
    b.residual.resize(96);
    CHECK(law_of([&] { check(b, four); }) == "bundle_streams_are_the_stages");
    b.streams = 4;
    CHECK_NOTHROW(check(b, four));
    b.shape.extents[1] = 3;
    CHECK(refusal_of([&] { check(b, four); }) == "bundle_shape_is_the_stages: axis 1: the extent is 3; 4 would do");
}

TEST_CASE("finite numbers are a policy, in either byte order") {
    std::int64_t const row_offsets[]{0, 1}, at[]{0};
    for (unsigned char const fraction : {std::uint8_t{0}, std::uint8_t{1}}) {
        unsigned char const little[16]{0, 0, 0x80, 0x3F, fraction, 0, 0x80, 0xFF}, big[16]{0x3F, 0x80, 0, 0, 0xFF, 0x80, 0, fraction};
        for (byte_order const order : {byte_order::little, byte_order::big}) {
            bundle_view b{.adapter = "llama", .next_layer = 2, .shape = {2, {1, 4, 0, 0}}, .row_offsets = row_offsets, .positions = at};
            b.order = order;
            b.residual = std::as_bytes(std::span(order == byte_order::little ? little : big));
            CHECK(refusal_of([&b] { check(b, stage); }) == std::string("bundle_values_are_finite: value 1: the number is ") +
                                                              (fraction == 0 ? "infinite" : "NaN") + "; a finite one would do");
            contract trusting = stage;
            trusting.values = finiteness::off;
            CHECK_NOTHROW(check(b, trusting));
        }
    }
    bundle b = ragged();
    b.residual[0] = std::numeric_limits<float>::max();
    b.residual[1] = std::numeric_limits<float>::denorm_min();
    b.residual[2] = -0.0f;
    CHECK_NOTHROW(check(b, stage));
}

TEST_CASE("numbers of other widths are finite or not as well") {
    struct row {
        tenon::dtype element;
        std::vector<unsigned char> finite, other;
    };
    for (row const& r : {row{tenon::dtype::bf16, {0x7F, 0x7F}, {0x80, 0x7F}}, row{tenon::dtype::f16, {0xFF, 0x7B}, {0x01, 0xFC}},
                         row{tenon::dtype::f64, {255, 255, 255, 255, 255, 255, 0xEF, 0x7F}, {0, 0, 0, 0, 0, 0, 0xF0, 0x7F}},
                         row{tenon::dtype::f8_e5m2, {0x7B}, {0x7C}}, row{tenon::dtype::f8_e4m3, {0x7E}, {0xFF}}, row{tenon::dtype::u8, {255}, {}}}) {
        contract one = stage;
        one.element = r.element;
        one.hidden = 1;
        std::int64_t const row_offsets[]{0, 1}, at[]{0};
        bundle_view b{.adapter = "llama", .next_layer = 2, .shape = {2, {1, 1, 0, 0}}, .element = r.element, .row_offsets = row_offsets, .positions = at};
        b.order = byte_order::little;
        b.residual = std::as_bytes(std::span(r.finite));
        CHECK_FALSE(find_fault(b, one));
        b.residual = std::as_bytes(std::span(r.other));
        if (!r.other.empty()) CHECK(find_fault(b, one).law == "bundle_values_are_finite");
    }
}

TEST_CASE("a sequence goes on where the receiver's state ends") {
    std::vector<std::int64_t> held{7, 0, 62};
    CHECK_NOTHROW(check(ragged(), stage, held));
    held[2] = 61;
    CHECK(refusal_of([&held] { check(ragged(), stage, held); }) ==
          "bundle_positions_continue_the_states: sequence 2: the first position is 62; 61 would do");
    held.pop_back();
    CHECK(refusal_of([&held] { check(ragged(), stage, held); }) == "bundle_sequences_are_the_states: the number of sequences is 3; 2 would do");
    bundle empty;
    CHECK(law_of([&] { check(empty, stage, held); }) == "bundle_adapter_is_certified");  // the contract comes first
}

TEST_CASE("a stage's contract is its model's and its first layer's") {
    static constexpr tenon::model_config model{
        .adapter = tenon::adapter_id::qwen3, .layers = 4, .hidden = 32, .vocab = 64, .max_positions = 128};
    constexpr contract c = contract_of(model, 3);
    static_assert(c == contract{.adapter = tenon::adapter_id::qwen3, .first_layer = 3, .hidden = 32, .max_positions = 128});
    static_assert(contract_of(model, 1, {.schema = 7}).schema == 7);
    for (int const layer : {-1, 0, 4})
        CHECK(refusal_of([layer] { (void)contract_of(model, layer); }) == "seam_is_inside_the_model: a stage that takes a bundle begins at layer " +
                                                                              std::to_string(layer) + " of 4; 1 to 3 would do");
}

TEST_CASE("the bundle made for a contract keeps it and copies nothing") {
    bundle const source = ragged();
    for (int const streams : {1, 2}) {
        contract next = stage;
        next.streams = streams;
        std::vector<float> residual(24 * static_cast<std::size_t>(streams), 1.0f);
        bundle_view const made = bundle_for(next, source.row_offsets, source.positions, residual);
        CHECK_NOTHROW(check(made, next));
        CHECK(static_cast<void const*>(made.residual.data()) == residual.data());
        residual.pop_back();
        CHECK(law_of([&] { check(bundle_for(next, source.row_offsets, source.positions, residual), next); }) == "bundle_payload_is_the_shapes");
    }
}
