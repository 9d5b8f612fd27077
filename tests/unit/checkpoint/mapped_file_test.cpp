// Files as bytes, and what is not such a file.
// SPDX-License-Identifier: Apache-2.0
#include "support.hpp"
#include "support/worker_watch.hpp"

#include <tenon/checkpoint/mapped_file.hpp>

#include <doctest/doctest.h>
#include <algorithm>
#include <cstddef>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

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

TEST_CASE("what has been read of a file can be given back, whole or in part, and is read again") {
    scratch_folder const scratch;
    constexpr std::size_t MiB = std::size_t{1} << 20;
    std::string content(16 * MiB, '\0');
    for (std::size_t i = 0; i < content.size(); ++i) content[i] = static_cast<char>(i * 2654435761U >> 24U);
    scratch.write("large", content);
    scratch.write("other", content);
    mapped_file const file(scratch.path("large")), other(scratch.path("other"));
    auto const mapped = [] {  // files in memory count as shared memory
        return static_cast<std::size_t>(support::status_number("RssFile") + support::status_number("RssShmem")) * 1024;
    };
    auto const touched = [&] {
        CHECK(file.text() == content);
        CHECK(other.text() == content);
        return mapped();
    };
    std::size_t const all = touched();
    file.forget(file.bytes().subspan(5 * MiB, 6 * MiB));  // up to 2 MiB more on either side
    CHECK(mapped() <= all - 6 * MiB + MiB);
    CHECK(mapped() >= all - 10 * MiB - MiB);
    CHECK(touched() + MiB >= all);
    for (auto const& [at, size] :
         {std::pair{std::size_t{0}, std::size_t{1}}, {0, 16 * MiB}, {16 * MiB - 1, 1}, {16 * MiB, 0}, {7 * MiB, 0}}) {
        file.forget(file.bytes().subspan(at, size));
        CHECK(mapped() >= all - 17 * MiB);  // none of the other's
        CHECK(touched() + MiB >= all);
    }
    std::vector<std::byte> own(8 * MiB, std::byte{7});
    file.forget(own);            // neither memory that is no file's,
    file.forget(other.bytes());  // nor another file's
    CHECK(std::count(own.begin(), own.end(), std::byte{7}) == static_cast<std::ptrdiff_t>(own.size()));
    CHECK(mapped() + MiB >= all);
    file.forget();
    CHECK(mapped() <= all - 15 * MiB);
    touched();
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
