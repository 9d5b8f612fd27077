// Files as bytes, and what is not such a file.
// SPDX-License-Identifier: Apache-2.0
#include "support.hpp"

#include <tenon/checkpoint/mapped_file.hpp>

#include <doctest/doctest.h>
#include <type_traits>
#include <utility>

using namespace checkpoint_test;
using tenon::checkpoint::mapped_file;

static_assert(!std::is_copy_constructible_v<mapped_file> && std::is_nothrow_move_constructible_v<mapped_file>);

TEST_CASE("a mapped file has the bytes of the file, and keeps them in place when it moves") {
    scratch_folder const scratch;
    scratch.write("five", std::string_view("ab\0cd", 5));
    mapped_file first(scratch.path("five"));
    auto const* const where = first.bytes().data();
    CHECK(first.text() == std::string_view("ab\0cd", 5));
    CHECK(first.path() == scratch.path("five"));
    mapped_file second(std::move(first));
    CHECK(second.bytes().data() == where);
    scratch.write("one", "x");
    mapped_file third(scratch.path("one"));
    third = std::move(second);
    CHECK(third.bytes().data() == where);
    CHECK(third.bytes().size() == 5);
}

TEST_CASE("an empty file is legal and has no bytes") {
    scratch_folder const scratch;
    scratch.write("empty", "");
    mapped_file const file(scratch.path("empty"));
    CHECK(file.bytes().empty());
    CHECK(file.text().empty());
}

TEST_CASE("what cannot be opened is refused with its path and the system's words") {
    scratch_folder const scratch;
    std::string const absent = refusal_of([&] { mapped_file(scratch.path("absent")); });
    CHECK(absent == "file_opens: " + scratch.path("absent") + ": No such file or directory; a regular file that can be read would do");
    CHECK(contains(refusal_of([&] { mapped_file(scratch.path()); }), "file_opens: " + scratch.path() + ": is a directory"));
    CHECK(law_of([] { mapped_file(std::string("a\0b", 3)); }) == "file_opens");
    REQUIRE(::mkfifo(scratch.path("pipe").c_str(), 0600) == 0);  // must not wait for a writer
    CHECK(contains(refusal_of([&] { mapped_file(scratch.path("pipe")); }), "is not a regular file"));
}
