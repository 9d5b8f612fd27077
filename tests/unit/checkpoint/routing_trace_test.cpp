// Traces that are read, every refusal with its line and words, and a writer that writes what the reader reads.
// SPDX-License-Identifier: Apache-2.0
#include "support.hpp"

#include <tenon/checkpoint/routing_trace.hpp>

#include <doctest/doctest.h>
#include <cstdint>
#include <limits>
#include <sstream>
#include <streambuf>
#include <string>
#include <string_view>
#include <vector>

using namespace checkpoint_test;
using tenon::routed_row;
using tenon::routing_shape;
using tenon::routing_trace_reader;
using tenon::routing_trace_writer;

static_assert(tenon::checkpoint::detail::plain_number("0") == 0 && tenon::checkpoint::detail::plain_number("1024") == 1024);
static_assert(tenon::checkpoint::detail::plain_number("9223372036854775807") == std::numeric_limits<std::int64_t>::max());
static_assert(tenon::checkpoint::detail::plain_number("9223372036854775808") == -1 && tenon::checkpoint::detail::plain_number("18446744073709551617") == -1);
static_assert(tenon::checkpoint::detail::plain_number("") == -1 && tenon::checkpoint::detail::plain_number("00") == -1);

namespace {

constexpr std::string_view valid =
    "tenon-routing-trace 1 experts=4 chosen=2\n"
    "0 0 0 1 3\n"
    "2 0 0 0 1\n"
    "0 7 9223372036854775807 2 3\n";

// A row that owns its ids.
struct kept_row {
    int layer = 0;
    std::int64_t sequence = 0, position = 0;
    std::vector<std::int32_t> experts{};
    bool operator==(kept_row const&) const = default;
};

std::vector<kept_row> const expected{{0, 0, 0, {1, 3}}, {2, 0, 0, {0, 1}}, {0, 7, std::numeric_limits<std::int64_t>::max(), {2, 3}}};

std::vector<kept_row> rows_of(std::string_view text) {
    routing_trace_reader reader(text, "run.trace");
    std::vector<kept_row> rows;
    for (routed_row row; reader.next(row);) rows.push_back({row.layer, row.sequence, row.position, {row.experts.begin(), row.experts.end()}});
    routed_row beyond;
    CHECK_FALSE(reader.next(beyond));
    return rows;
}

std::string written(routing_shape shape, std::vector<kept_row> const& rows) {
    std::ostringstream out;
    routing_trace_writer writer(out, shape);
    for (kept_row const& r : rows) writer.write({r.layer, r.sequence, r.position, r.experts});
    writer.finish();
    return out.str();
}

std::string refused(std::string_view text) {
    return refusal_of([text] { rows_of(text); });
}

// The refusal of the valid trace with its second line replaced.
std::string refused_line(std::string_view line) {
    return refused("tenon-routing-trace 1 experts=4 chosen=2\n" + std::string(line) + "\n0 0 0 1 3\n");
}

// Takes so many bytes, and no more.
class small_disk : public std::streambuf {
public:
    explicit small_disk(std::size_t room) : room_(room) {}

private:
    int_type overflow(int_type c) override { return room_ == 0 ? traits_type::eof() : (--room_, c); }
    std::size_t room_;
};

// Takes every byte into its buffer, and fails when they are to go on.
class full_when_flushed : public std::stringbuf {
    int sync() override { return -1; }
};

}  // namespace

TEST_CASE("a trace is read line by line, in its own order") {
    CHECK(routing_trace_reader(valid, "run.trace").shape() == routing_shape{4, 2});
    CHECK(rows_of(valid) == expected);
    CHECK(rows_of("tenon-routing-trace 1 experts=1 chosen=1\n").empty());
    CHECK(rows_of("tenon-routing-trace 1 experts=1024 chosen=1\n255 0 0 1023\n") == std::vector<kept_row>{{255, 0, 0, {1023}}});
}

TEST_CASE("a first line that is another is refused with the one that would do") {
    for (std::string_view const line :
         {"", "tenon-routing-trace", "tenon-routing-trace 2 experts=4 chosen=2", "tenon-routing-trace 1 experts=4", "tenon-routing-trace 1 chosen=2 experts=4",
          "tenon-routing-trace 1 experts=4 chosen=2 ", " tenon-routing-trace 1 experts=4 chosen=2", "tenon-routing-trace 1  experts=4 chosen=2",
          "tenon-routing-trace 1 experts=04 chosen=2", "tenon-routing-trace 1 experts=4 chosen=", "tenon-routing-trace 1 experts= chosen=2",
          "tenon-routing-trace 1 experts=4 chosen=2 chosen=2", "tenon-routing-trace 1 experts=-4 chosen=2", "tenon-routing-trace 1 experts=4.0 chosen=2",
          "tenon-routing-trace 1 experts=99999999999999999999 chosen=2", "\xEF\xBB\xBFtenon-routing-trace 1 experts=4 chosen=2", "0 0 0 1 3"})
        CHECK(refused(std::string(line) + "\n0 0 0 1 3\n") == "routing_trace_header_is_known: run.trace: line 1: the line is \"" + std::string(line) +
                                                                  "\"; \"tenon-routing-trace 1 experts=E chosen=K\" would do");
    CHECK(law_of([] { rows_of(""); }) == "routing_trace_header_is_known");
}

TEST_CASE("the counts of the first line are those of a model, and are shown as they stand") {
    struct counts {
        std::string_view spelled, says;
    };
    for (counts const& c : {counts{"experts=0 chosen=0", "experts=0; 1 to 1024 would do"}, counts{"experts=1025 chosen=2", "experts=1025; 1 to 1024 would do"},
                            counts{"experts=9223372036854775807 chosen=2", "experts=9223372036854775807; 1 to 1024 would do"},
                            counts{"experts=4 chosen=0", "chosen=0 of experts=4; chosen=1 to 4 would do"},
                            counts{"experts=4 chosen=5", "chosen=5 of experts=4; chosen=1 to 4 would do"}})
        CHECK(refused("tenon-routing-trace 1 " + std::string(c.spelled) + "\n") == "routing_trace_shape_fits: run.trace: line 1: " + std::string(c.says));
}

TEST_CASE("every refusal of a line has its name, the line, the numbers, and what would do") {
    struct refusal {
        std::string_view line, says;
    };
    constexpr refusal refusals[]{
        {"", "routing_trace_number_is_plain: run.trace: line 2: the layer is \"\"; a number below 2^63 in digits alone, one space from the next, would do"},
        {"0 0 0 1  3", "routing_trace_number_is_plain: run.trace: line 2: the expert is \"\"; a number below 2^63 in digits alone, one space from the next, would do"},
        {" 0 0 0 1 3", "routing_trace_number_is_plain: run.trace: line 2: the layer is \"\"; a number below 2^63 in digits alone, one space from the next, would do"},
        {"0 0 0 1 3 ", "routing_trace_number_is_plain: run.trace: line 2: the expert is \"\"; a number below 2^63 in digits alone, one space from the next, would do"},
        {"0 -1 0 1 3", "routing_trace_number_is_plain: run.trace: line 2: the sequence is \"-1\"; a number below 2^63 in digits alone, one space from the next, would do"},
        {"0 0 1.0 1 3", "routing_trace_number_is_plain: run.trace: line 2: the position is \"1.0\"; a number below 2^63 in digits alone, one space from the next, would do"},
        {"0 0 1e0 1 3", "routing_trace_number_is_plain: run.trace: line 2: the position is \"1e0\"; a number below 2^63 in digits alone, one space from the next, would do"},
        {"0 0 9223372036854775808 1 3",
         "routing_trace_number_is_plain: run.trace: line 2: the position is \"9223372036854775808\"; a number below 2^63 in digits alone, one space from the next, would do"},
        {"0 0 0 01 3", "routing_trace_number_is_plain: run.trace: line 2: the expert is \"01\"; a number below 2^63 in digits alone, one space from the next, would do"},
        {"0 0 0 1\t3", "routing_trace_number_is_plain: run.trace: line 2: the expert is \"1\\u00093\"; a number below 2^63 in digits alone, one space from the next, would do"},
        {"0 0 0 1", "routing_trace_row_is_whole: run.trace: line 2: 4 numbers; 5, which are layer, sequence, position and 2 experts, would do"},
        {"0 0", "routing_trace_row_is_whole: run.trace: line 2: 2 numbers; 5, which are layer, sequence, position and 2 experts, would do"},
        {"0 0 0 1 2 3", "routing_trace_row_is_whole: run.trace: line 2: 6 numbers; 5, which are layer, sequence, position and 2 experts, would do"},
        {"0 0 0 1 4", "routing_trace_expert_exists: run.trace: line 2: expert 4; 0 to 3 would do"},
        {"0 0 0 9223372036854775807 3", "routing_trace_expert_exists: run.trace: line 2: expert 9223372036854775807; 0 to 3 would do"},
        {"0 0 0 3 3", "routing_trace_experts_are_distinct: run.trace: line 2: expert 3 twice; every expert once would do"},
        {"0 0 0 3 1", "routing_trace_experts_ascend: run.trace: line 2: expert 1 after 3; ascending ids would do"},
        {"256 0 0 1 3", "routing_trace_layer_fits: run.trace: line 2: layer 256; 0 to 255 would do"},
        {"0 0 0 1 3\r", "routing_trace_line_ends: run.trace: line 2: the line has a carriage return; a line feed alone at its end would do"},
    };
    for (refusal const& r : refusals) CHECK(refused_line(r.line) == r.says);
    CHECK(refused("tenon-routing-trace 1 experts=4 chosen=2\n0 0 0 1 3\n0 0 1 1") ==
          "routing_trace_line_ends: run.trace: line 3: the text ends inside the line; a line feed at its end would do");
}

TEST_CASE("a trace that ends early is refused, except between two lines") {
    for (std::size_t cut = 0; cut < valid.size(); ++cut) {
        std::string_view const part = valid.substr(0, cut);
        if (cut == 0 || part.back() != '\n') CHECK(refused(part) != "nothing is refused");
        else CHECK(refused(part) == "nothing is refused");
    }
}

TEST_CASE("what is written is the text that is read, whatever the order of the rows") {
    CHECK(written({4, 2}, expected) == valid);
    CHECK(written({1, 1}, {}) == "tenon-routing-trace 1 experts=1 chosen=1\n");
    CHECK(rows_of(written({4, 2}, {expected[2], expected[0]})) == std::vector<kept_row>{expected[2], expected[0]});
}

TEST_CASE("what the reader would refuse is not written, by the same name") {
    auto const said = [](routing_shape shape, kept_row const& row) { return refusal_of([&] { written(shape, {expected[0], row}); }); };
    std::string const line3 = ": the routing trace to be written: line 3: ";
    CHECK(said({4, 2}, {-1, 0, 0, {1, 3}}) == "routing_trace_number_is_plain" + line3 + "a layer, sequence or position is -1; 0 or more would do");
    CHECK(said({4, 2}, {0, -1, 0, {1, 3}}) == "routing_trace_number_is_plain" + line3 + "a layer, sequence or position is -1; 0 or more would do");
    CHECK(said({4, 2}, {0, 0, -1, {1, 3}}) == "routing_trace_number_is_plain" + line3 + "a layer, sequence or position is -1; 0 or more would do");
    CHECK(said({4, 2}, {256, 0, 0, {1, 3}}) == "routing_trace_layer_fits" + line3 + "layer 256; 0 to 255 would do");
    CHECK(said({4, 2}, {0, 0, 0, {1}}) == "routing_trace_row_is_whole" + line3 + "1 experts; 2 would do");
    CHECK(said({4, 2}, {0, 0, 0, {-1, 3}}) == "routing_trace_expert_exists" + line3 + "expert -1; 0 to 3 would do");
    CHECK(said({4, 2}, {0, 0, 0, {1, 4}}) == "routing_trace_expert_exists" + line3 + "expert 4; 0 to 3 would do");
    CHECK(said({4, 2}, {0, 0, 0, {1, 1}}) == "routing_trace_experts_are_distinct" + line3 + "expert 1 twice; every expert once would do");
    CHECK(said({4, 2}, {0, 0, 0, {3, 1}}) == "routing_trace_experts_ascend" + line3 + "expert 1 after 3; ascending ids would do");
    for (routing_shape const shape : {routing_shape{0, 0}, routing_shape{1025, 2}, routing_shape{4, 0}, routing_shape{4, 5}, routing_shape{4, -1}})
        CHECK(law_of([shape] { written(shape, {}); }) == "routing_trace_shape_fits");
}

TEST_CASE("a stream that takes no more is refused, at once or when it is flushed") {
    for (std::size_t room = 0; room <= valid.size(); ++room) {
        std::string const law = law_of([room] {
            small_disk disk(room);
            std::ostream out(&disk);
            routing_trace_writer writer(out, {4, 2});
            for (kept_row const& r : expected) writer.write({r.layer, r.sequence, r.position, r.experts});
            writer.finish();
        });
        CHECK(law == (room < valid.size() ? "file_is_written" : "nothing is refused"));
    }
    full_when_flushed disk;
    std::ostream out(&disk);
    routing_trace_writer writer(out, {4, 2});
    CHECK(refusal_of([&] { writer.finish(); }) ==
          "file_is_written: the routing trace to be written: line 2: the stream takes no more; a file on a device with room would do");
}
