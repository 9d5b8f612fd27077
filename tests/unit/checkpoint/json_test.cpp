// The strict reader: what it accepts exactly, and what it refuses at which byte.
// SPDX-License-Identifier: Apache-2.0
#include <iomanip>  // first: std::quoted must not be found where the reader quotes

#include "support.hpp"

#include <tenon/checkpoint/json.hpp>

#include <doctest/doctest.h>
#include <cstdint>
#include <limits>

using namespace checkpoint_test;
namespace json = tenon::checkpoint::json;

namespace {
json::value parse(std::string_view text) { return json::parse(text, "t"); }
std::string refused(std::string_view text) {
    return refusal_of([text] { json::parse(text, "t"); });
}
std::string law(std::string_view text) {
    return law_of([text] { json::parse(text, "t"); });
}
}  // namespace

TEST_CASE("every kind of value is read, with white space wherever the grammar allows it") {
    json::value const v = parse(" \t\r\n{ \"a\" : [ 1 , -2.5e3 , true , false , null ] , \"b\" : { } , \"c\" : \"x\" , \"d\":[ ] } \n");
    REQUIRE(v.is(json::kind::object));
    REQUIRE(v.children.size() == 4);
    CHECK(v.children[0].key == "a");
    json::value const& a = *v.find("a");
    REQUIRE(a.children.size() == 5);
    CHECK(a.children[0].as_int64() == 1);
    CHECK(a.children[1].as_double() == -2500.0);
    CHECK(a.children[2].as_bool() == true);
    CHECK(a.children[3].as_bool() == false);
    CHECK(a.children[4].is(json::kind::null));
    CHECK(v.find("b")->is(json::kind::object));
    CHECK(*v.find("c")->as_string() == "x");
    CHECK(v.find("d")->children.empty());
    CHECK(v.find("e") == nullptr);
    CHECK(a.find("e") == nullptr);
}

TEST_CASE("numbers keep their spelling: an integer is exact over 64 bits and differs from a fraction") {
    CHECK(parse("9223372036854775807").as_int64() == std::numeric_limits<std::int64_t>::max());
    CHECK(parse("-9223372036854775808").as_int64() == std::numeric_limits<std::int64_t>::min());
    CHECK(!parse("9223372036854775808").as_int64());
    CHECK(parse("9007199254740993").as_int64() == 9007199254740993);
    for (char const* const text : {"1.0", "1e0", "-0", "0.5", "\"1\"", "true", "null"}) CHECK_MESSAGE(!parse(text).as_int64(), text);
    CHECK(parse("1.0").as_double() == 1.0);
    CHECK(parse("1e-05").as_double() == 1e-5);
    CHECK(!parse("1e999").as_double());
    CHECK(!parse("\"1\"").as_double());
    CHECK(parse("1.50").text == "1.50");
}

TEST_CASE("escapes are decoded, surrogate pairs too") {
    CHECK(parse(R"("\"\\\/\b\f\n\r\t")").text == "\"\\/\b\f\n\r\t");
    CHECK(parse(R"("\u0041\u00e9\u20AC\uD83D\uDE00")").text == "A\xC3\xA9\xE2\x82\xAC\xF0\x9F\x98\x80");
    CHECK(parse(R"("\u0000")").text == std::string(1, '\0'));
    CHECK(parse("\"\xF0\x9F\x98\x80\xED\x9F\xBF\xEE\x80\x80\"").text == "\xF0\x9F\x98\x80\xED\x9F\xBF\xEE\x80\x80");
}

TEST_CASE("malformed texts are refused") {
    for (char const* const text : {"",           " ",          "{",         "}",         "[",
                                   "]",          "{}}",        "[1",        "[1,",       "[1,]",
                                   "[,1]",       "[1 2]",      "{\"a\"",    "{\"a\":",   "{\"a\":1",
                                   "{\"a\":1,",  "{\"a\":1,}", "{a:1}",     "{'a':1}",   "{\"a\" 1}",
                                   "{1:1}",      "{,}",        "nul",       "nulll",     "True",
                                   "TRUE",       "NaN",        "Infinity",  "-Infinity", "-",
                                   "+1",         "01",         "-01",       "1.",        ".5",
                                   "1.e1",       "1e",         "1e+",       "0x10",      "1_000",
                                   "\"",         "\"a",        "\"\\x\"",   "\"\\u12\"", "\"\\u12G4\"",
                                   "\"\\",       "\"\\u",      "\"a\nb\"",  "\"\t\"",    "1 1",
                                   "{} {}",      "// c\n1",    "/* c */ 1", "[1,2]x",    "\xEF\xBB\xBF{}",
                                   "\"\\U0041\""})
        CHECK_MESSAGE(law(text) == "json_is_well_formed", text);
    CHECK(law(std::string_view("\0", 1)) == "json_is_well_formed");
    CHECK(law(std::string_view("{}\0", 3)) == "json_is_well_formed");
    CHECK(law(std::string_view("\"a\0b\"", 5)) == "json_is_well_formed");
}

TEST_CASE("a refusal names the text, the byte and what was expected") {
    CHECK(refused("{\"a\" 1}") == "json_is_well_formed: t: byte 5 of 7 is \"1\"; a colon was expected after the key \"a\"");
    CHECK(refused("[1") == "json_is_well_formed: t: byte 2 of 2 is the end; a comma or ] was expected");
}

TEST_CASE("what is not UTF-8 is refused") {
    for (char const* const text :
         {"\"\x80\"", "\"\xC0\x80\"", "\"\xC1\xBF\"", "\"\xC3\"", "\"\xE0\x80\x80\"", "\"\xE2\x82\"", "\"\xED\xA0\x80\"",
          "\"\xED\xBF\xBF\"", "\"\xF0\x80\x80\x80\"", "\"\xF4\x90\x80\x80\"", "\"\xF5\x80\x80\x80\"", "\"\xFF\"", "\xFE"})
        CHECK(law(text) == "json_is_utf8");
    CHECK(refused("[\"\xFF\"]") == "json_is_utf8: t: byte 2 of 5 is not the beginning of a UTF-8 sequence");
}

TEST_CASE("half of a surrogate pair is refused, as it has no UTF-8") {
    for (char const* const text :
         {R"("\uD800")", R"("\uDC00")", R"("\uD800x")", R"("\uD800\n")", R"("\uD800\uD800")", R"("\uDE00\uD83D")", R"("\uD800A")"})
        CHECK_MESSAGE(law(text) == "json_is_utf8", text);
}

TEST_CASE("duplicate keys are refused at every depth, by their decoded names") {
    CHECK(law(R"({"a":1,"a":1})") == "json_keys_are_unique");
    CHECK(law(R"({"a":1,"\u0061":1})") == "json_keys_are_unique");
    CHECK(law(R"([{"x":{"":1,"b":2,"":3}}])") == "json_keys_are_unique");
    CHECK(law(R"([{"a":1},{"a":1}])") == "nothing is refused");
    CHECK(refused(R"({"a":1,"b":2,"a":3})") ==
          "json_keys_are_unique: t: byte 17 of 19 begins a second value of the duplicate key \"a\"; the first is at byte 5, one of them "
          "would do");
}

TEST_CASE("nesting is limited, so that no text can use up the stack") {
    auto const nested = [](int depth) {
        return std::string(static_cast<std::size_t>(depth), '[') + std::string(static_cast<std::size_t>(depth), ']');
    };
    CHECK(law(nested(json::most_depth)) == "nothing is refused");
    CHECK(law(nested(json::most_depth + 1)) == "json_nesting_fits");
    CHECK(law(std::string(1'000'000, '[')) == "json_nesting_fits");
    CHECK(law(std::string(1'000'000, '{')) == "json_is_well_formed");
}

TEST_CASE("two values are the same when they mean the same") {
    CHECK(json::same(parse(R"({"a":1,"b":[true,null]})"), parse(R"({"b":[true,null],"a":1.0})")));
    CHECK(!json::same(parse(R"({"a":1})"), parse(R"({"a":2})")));
    CHECK(!json::same(parse(R"({"a":1})"), parse(R"({"b":1})")));
    CHECK(!json::same(parse("[1,2]"), parse("[2,1]")));
    CHECK(!json::same(parse("1"), parse("\"1\"")));
    CHECK(!json::same(parse("true"), parse("false")));
}

TEST_CASE("a value is shown short, on one line and without a broken character") {
    CHECK(json::show(parse(R"("a\nb\"")")) == R"("a\u000ab\"")");
    CHECK(json::quoted(std::string(79, 'a') + "\xC3\xA9" + "b") == "\"" + std::string(79, 'a') + "...\"");
    CHECK(json::show(parse("[]")) == "an array");
    CHECK(json::show(parse("1e5")) == "1e5");
}
