// Every rule of the format, by a file that keeps it and one that breaks it.
// SPDX-License-Identifier: Apache-2.0
#include "support.hpp"

#include <tenon/checkpoint/safetensors.hpp>
#include <tenon/core/convert.hpp>

#include <doctest/doctest.h>
#include <type_traits>
#include <utility>

using namespace checkpoint_test;
using namespace tenon::checkpoint;
using tenon::load_bf16;
using tenon::load_f32;

namespace {
std::vector<tensor_view> read(std::string const& file) { return read_safetensors(bytes_of(file), "f"); }
std::string law(std::string_view header, std::string_view data = {}) {
    return law_of([&] { read(container(header, data)); });
}
std::string refused(std::string_view header, std::string_view data = {}) {
    return refusal_of([&] { read(container(header, data)); });
}
std::string const eight(8, 'x');
std::string const containers = TENON_TEST_DATA "/golden/containers/";
}  // namespace

static_assert(!std::is_copy_constructible_v<safetensors_file> && std::is_nothrow_move_constructible_v<safetensors_file>);

TEST_CASE("the golden containers get their verdicts, and the malformed ones the law that they break") {
    struct verdict {
        std::string_view file, law;
    };
    constexpr verdict verdicts[]{{"ok_plain", ""},
                                 {"ok_unaligned", ""},
                                 {"ok_order", ""},
                                 {"ok_empty_file", ""},
                                 {"ok_scalar_and_zero", ""},
                                 {"ok_metadata", ""},
                                 {"bad_short", "safetensors_header_fits"},
                                 {"bad_header_past_end", "safetensors_header_fits"},
                                 {"bad_header_huge", "safetensors_header_fits"},
                                 {"bad_not_json", "json_is_well_formed"},
                                 {"bad_array", "safetensors_header_is_object"},
                                 {"bad_utf8", "json_is_utf8"},
                                 {"bad_hole", "safetensors_has_no_hole"},
                                 {"bad_overlap", "safetensors_does_not_overlap"},
                                 {"bad_trailing", "safetensors_ends_with_data"},
                                 {"bad_truncated", "safetensors_ends_with_data"},
                                 {"bad_size", "safetensors_size_matches_shape"},
                                 {"bad_dtype", "safetensors_dtype_is_known"},
                                 {"bad_duplicate", "json_keys_are_unique"},
                                 {"bad_negative", "safetensors_shape_is_counts"}};
    mapped_file const file(containers + "manifest.json");
    json::value const manifest = json::parse(file.text(), file.path());
    json::value const& files = *manifest.find("files");
    CHECK(files.children.size() == std::size(verdicts));
    for (verdict const& v : verdicts) {
        std::string const name = std::string(v.file) + ".safetensors";
        CAPTURE(name);
        REQUIRE(files.find(name) != nullptr);
        CHECK(files.find(name)->find("valid")->as_bool() == v.law.empty());
        CHECK(law_of([&] { safetensors_file(containers + name); }) == (v.law.empty() ? "nothing is refused" : v.law));
    }
}

TEST_CASE("a tensor is found with its type, shape and bytes, wherever the header lists it") {
    safetensors_file file(containers + "ok_order.safetensors");
    safetensors_file const moved = std::move(file);
    std::size_t bytes = 0;
    for (tensor_view const& t : moved.tensors()) {
        bytes += t.data.size();
        CHECK(moved.find(t.name) == &t);
    }
    CHECK(bytes > 0);
    CHECK(moved.find("nowhere") == nullptr);
}

TEST_CASE("views are sorted by name and hold the values") {
    std::string const file =
        container(R"({"b":{"dtype":"F32","shape":[1,1],"data_offsets":[4,8]},"a":{"shape":[2],"data_offsets":[0,4],"dtype":"BF16"}})",
                  std::string_view("\x80\x3F\x00\xC0\x00\x00\x80\x3F", 8));
    auto const tensors = read(file);
    REQUIRE(tensors.size() == 2);
    CHECK(tensors[0].name == "a");
    CHECK(tensors[0].type == tenon::dtype::bf16);
    CHECK(tensors[0].shape == std::vector<std::int64_t>{2});
    CHECK(load_bf16(tensors[0].data.data()) == 1.0F);
    CHECK(load_bf16(tensors[0].data.data() + 2) == -2.0F);
    CHECK(tensors[1].shape == std::vector<std::int64_t>{1, 1});
    CHECK(load_f32(tensors[1].data.data()) == 1.0F);
}

TEST_CASE("no tensors, scalars, zero extents, metadata and padding are legal") {
    CHECK(law("{}") == "nothing is refused");
    CHECK(law("{}      ") == "nothing is refused");
    CHECK(law(R"({"__metadata__":{}})") == "nothing is refused");
    CHECK(law(R"({"__metadata__":{"format":"pt","":""}})") == "nothing is refused");
    CHECK(law(R"({"s":{"dtype":"F64","shape":[],"data_offsets":[0,8]}})", eight) == "nothing is refused");
    CHECK(law(R"({"z":{"dtype":"F32","shape":[3,0],"data_offsets":[0,0]}})") == "nothing is refused");
    // empty tensors may stand before, between and after others
    CHECK(
        law(R"({"a":{"dtype":"U8","shape":[8],"data_offsets":[0,8]},"z":{"dtype":"F32","shape":[0],"data_offsets":[8,8]},"y":{"dtype":"F32","shape":[0],"data_offsets":[0,0]}})",
            eight) == "nothing is refused");
    CHECK(law(R"({"../../etc/passwd":{"dtype":"U8","shape":[8],"data_offsets":[0,8]}})", eight) == "nothing is refused");
}

TEST_CASE("every type of the table is listed, with its size") {
    for (tenon::dtype_words const& words : tenon::dtype_table) {
        std::string const size = std::to_string(words.bytes);
        std::string const header =
            "{\"t\":{\"dtype\":\"" + std::string(words.name) + "\",\"shape\":[1],\"data_offsets\":[0," + size + "]}}";
        auto const tensors = read(container(header, std::string_view(eight).substr(0, static_cast<std::size_t>(words.bytes))));
        CHECK(name_of(tensors.at(0).type) == words.name);
    }
}

TEST_CASE("a header length that does not fit is refused, without an overflow and before anything is allocated") {
    auto const with_length = [](std::uint64_t length, std::string_view rest) {
        std::string file(8, '\0');
        for (std::size_t i = 0; i < 8; ++i) file[i] = static_cast<char>(static_cast<unsigned char>(length >> (8 * i)));
        return law_of([&] { read(file.append(rest)); });
    };
    for (std::uint64_t const length :
         {std::uint64_t{3}, std::uint64_t{1} << 31U, std::uint64_t{1} << 63U, ~std::uint64_t{0}, ~std::uint64_t{0} - 7})
        CHECK(with_length(length, "{}") == "safetensors_header_fits");
    scratch_folder const scratch;  // a file that would hold a header beyond the limit, without a block of its own on the disk
    scratch.write("sparse", std::string_view("\x01\xE1\xF5\x05\0\0\0\0{", 9));
    REQUIRE(::truncate(scratch.path("sparse").c_str(), 200'000'000) == 0);
    CHECK(contains(refusal_of([&] { safetensors_file(scratch.path("sparse")); }),
                   "the header claims 100000001 bytes; at most 100000000 would do"));
    CHECK(with_length(2, "{}") == "nothing is refused");
    CHECK(with_length(0, "") == "safetensors_header_is_object");
    for (std::size_t size = 0; size < 8; ++size) CHECK(law_of([&] { read(std::string(size, '\0')); }) == "safetensors_header_fits");
    CHECK(refusal_of([] { read("abc"); }) == "safetensors_header_fits: f: the file has 3 bytes; its header's length alone takes 8");
}

TEST_CASE("a header is one object, from its first byte, with nothing but spaces behind") {
    for (char const* const header : {"[]", " {}", "\n{}", "null", "\xEF\xBB\xBF{}", "{}\n", "{} \t ", "{}\r "})
        CHECK_MESSAGE(law(header) == "safetensors_header_is_object", header);
    for (char const* const header : {"{", "{}x", "{}{}", "{]", "{\"a\"}"}) CHECK_MESSAGE(law(header) == "json_is_well_formed", header);
    CHECK(law(std::string_view("{}\0\0", 4)) == "json_is_well_formed");
}

TEST_CASE("a name that stands twice is refused as a duplicate, not by its offsets") {
    std::string const text =
        refused(R"({"a":{"dtype":"U8","shape":[8],"data_offsets":[0,8]},"a":{"dtype":"U8","shape":[8],"data_offsets":[0,8]}})", eight);
    CHECK(contains(text, "json_keys_are_unique: f, header: "));
    CHECK(contains(text, "duplicate key \"a\""));
    CHECK(law(R"({"a":{"dtype":"U8","dtype":"I8","shape":[8],"data_offsets":[0,8]}})", eight) == "json_keys_are_unique");
    CHECK(law(R"({"__metadata__":{},"__metadata__":{}})") == "json_keys_are_unique");
}

TEST_CASE("metadata maps strings to strings") {
    for (char const* const header : {R"({"__metadata__":1})", R"({"__metadata__":null})", R"({"__metadata__":[]})",
                                     R"({"__metadata__":{"a":1}})", R"({"__metadata__":{"a":null}})", R"({"__metadata__":{"a":{}}})"})
        CHECK_MESSAGE(law(header) == "safetensors_metadata_is_strings", header);
    CHECK(refused(R"({"__metadata__":{"a":1}})") == "safetensors_metadata_is_strings: f: __metadata__ \"a\" is 1; a string would do");
}

TEST_CASE("an entry has exactly dtype, shape and data_offsets") {
    for (char const* const header :
         {R"({"a":{}})", R"({"a":[]})", R"({"a":null})", R"({"a":"F32"})", R"({"a":{"dtype":"U8","shape":[8]}})",
          R"({"a":{"dtype":"U8","data_offsets":[0,8]}})", R"({"a":{"shape":[8],"data_offsets":[0,8]}})",
          R"({"a":{"dtype":"U8","shape":[8],"data_offsets":[0,8],"strides":[1]}})", R"({"a":{"dtype":"U8","shape":[8],"offsets":[0,8]}})"})
        CHECK_MESSAGE(law(header, eight) == "safetensors_entry_is_complete", header);
    CHECK(refused(R"({"a":{"dtype":"U8","shape":[8]}})", eight) ==
          "safetensors_entry_is_complete: f: tensor \"a\": has \"dtype\", \"shape\"; exactly dtype, shape and data_offsets would do");
}

TEST_CASE("a type that is unknown, or known and not supported, is refused by name") {
    auto const with_type = [](std::string_view type) {
        return refused("{\"a\":{\"dtype\":" + std::string(type) + ",\"shape\":[2,8],\"data_offsets\":[0,8]}}", eight);
    };
    for (char const* const type :
         {"\"F4\"", "\"F6_E2M3\"", "\"F6_E3M2\"", "\"F8_E8M0\"", "\"F8_E4M3FNUZ\"", "\"F8_E5M2FNUZ\"", "\"C64\""}) {
        CHECK(contains(with_type(type),
                       std::string("safetensors_dtype_is_known: f: tensor \"a\": dtype ") + type + " is known, not supported; BOOL, U8,"));
    }
    for (char const* const type : {"\"F33\"", "\"f32\"", "\"\"", "32", "null", "[\"F32\"]"})
        CHECK(contains(with_type(type), std::string("safetensors_dtype_is_known: f: tensor \"a\": dtype ") +
                                            (type[0] == '[' ? "an array" : type) + " is unknown; "));
}

TEST_CASE("extents and offsets are counts, spelled as integers") {
    for (char const* const shape :
         {"[-1]", "[8.0]", "[8e0]", "[true]", "[\"8\"]", "[null]", "[[8]]", "[-0]", "[9223372036854775808]", "8", "null", "{}"})
        CHECK_MESSAGE(law("{\"a\":{\"dtype\":\"U8\",\"shape\":" + std::string(shape) + ",\"data_offsets\":[0,8]}}", eight) ==
                          "safetensors_shape_is_counts",
                      shape);
    for (char const* const offsets : {"[-1,4]", "[0,8.0]", "[0,8e0]", "[-0,8]", "[0,1e400]", "[\"0\",\"8\"]", "[false,8]", "[0,null]",
                                      "[0]", "[]", "[0,8,8]", "8", "{}", "[0,18446744073709551616]"})
        CHECK_MESSAGE(law("{\"a\":{\"dtype\":\"U8\",\"shape\":[8],\"data_offsets\":" + std::string(offsets) + "}}", eight) ==
                          "safetensors_offsets_are_counts",
                      offsets);
    CHECK(law(R"({"a":{"dtype":"U8","shape":[8],"data_offsets":[8,4]}})", eight) == "safetensors_offsets_ascend");
    CHECK(refused(R"({"a":{"dtype":"U8","shape":[-2],"data_offsets":[0,8]}})", eight) ==
          "safetensors_shape_is_counts: f: tensor \"a\": extent -2 is not a count; a whole number from 0 to 2^63 - 1 would do");
}

TEST_CASE("a shape and its range have the same size, and the product does not overflow") {
    CHECK(refused(R"({"w":{"dtype":"F32","shape":[1000,1000],"data_offsets":[0,4]}})", "xxxx") ==
          "safetensors_size_matches_shape: f: tensor \"w\": shape [1000, 1000] of F32 takes 4000000 bytes, data_offsets [0, 4) span 4");
    for (char const* const shape :
         {"[4294967296,4294967296]", "[4611686018427387904,4,0]", "[2305843009213693952]", "[4294967296,4294967296,2]"}) {
        std::string const text = refused("{\"a\":{\"dtype\":\"F64\",\"shape\":" + std::string(shape) + ",\"data_offsets\":[0,0]}}");
        CHECK_MESSAGE(contains(text, "safetensors_size_matches_shape"), shape);
        CHECK_MESSAGE(contains(text, "more bytes than 64 bits can count"), shape);
    }
    CHECK(law(R"({"a":{"dtype":"F64","shape":[0,4611686018427387904,4],"data_offsets":[0,0]}})") == "nothing is refused");
}

TEST_CASE("the ranges cover the data once: no hole, no overlap, no rest") {
    CHECK(refused(R"({"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]},"b":{"dtype":"U8","shape":[4],"data_offsets":[4,8]}})", eight) ==
          "safetensors_has_no_hole: f: tensor \"b\": begins at byte 4 of the data; 2 would do, where \"a\" ends");
    CHECK(refused(R"({"b":{"dtype":"U8","shape":[4],"data_offsets":[4,8]}})", eight) ==
          "safetensors_has_no_hole: f: tensor \"b\": begins at byte 4 of the data; 0 would do, where the data begin");
    CHECK(refused(R"({"a":{"dtype":"U8","shape":[6],"data_offsets":[0,6]},"b":{"dtype":"U8","shape":[4],"data_offsets":[4,8]}})", eight) ==
          "safetensors_does_not_overlap: f: tensor \"b\": begins at byte 4 of the data; 6 would do, where \"a\" ends");
    CHECK(law(R"({"a":{"dtype":"U8","shape":[8],"data_offsets":[0,8]},"z":{"dtype":"U8","shape":[0],"data_offsets":[4,4]}})", eight) ==
          "safetensors_does_not_overlap");
    CHECK(refused(R"({"a":{"dtype":"U8","shape":[6],"data_offsets":[0,6]}})", eight) ==
          "safetensors_ends_with_data: f: the tensors end at byte 6 of the data, the file has 8; 2 bytes belong to no tensor");
    CHECK(contains(refused(R"({"a":{"dtype":"U8","shape":[9],"data_offsets":[0,9]}})", eight),
                   "safetensors_ends_with_data: f: tensor \"a\": data_offsets [0, 9) end beyond the file's 8 bytes"));
    CHECK(law("{}", "x") == "safetensors_ends_with_data");
    CHECK(contains(refused(R"({"a":{"dtype":"U8","shape":[9223372036854775807],"data_offsets":[0,9223372036854775807]}})", eight),
                   "9223372036854775799 bytes are missing, as in a download that was cut short"));
}

TEST_CASE("tied tensors that share their bytes are refused, and told where ties are declared") {
    std::string const text = refused(
        R"({"embed":{"dtype":"U8","shape":[8],"data_offsets":[0,8]},"head":{"dtype":"U8","shape":[8],"data_offsets":[0,8]}})", eight);
    CHECK(contains(text, "safetensors_does_not_overlap: f: tensor \"head\""));
    std::string_view const hint = "tied tensors are declared in the config (tie_word_embeddings)";
    CHECK(contains(text, hint));
    CHECK(contains(
        refused(R"({"embed":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},"head":{"dtype":"U8","shape":[2,4],"data_offsets":[0,8]}})",
                eight),
        hint));
    CHECK(!contains(  // a part of another tensor is no tie
        refused(R"({"embed":{"dtype":"U8","shape":[8],"data_offsets":[0,8]},"head":{"dtype":"U8","shape":[4],"data_offsets":[4,8]}})",
                eight),
        hint));
}
