// The writer against the reader, and against itself.
// SPDX-License-Identifier: Apache-2.0
#include "support.hpp"

#include <tenon/checkpoint/writer.hpp>

#include <doctest/doctest.h>

using namespace checkpoint_test;
using namespace tenon::checkpoint;

namespace {
tensor_view tensor(std::string name, tenon::dtype type, std::vector<std::int64_t> shape, std::string_view data) {
    return {std::move(name), type, std::move(shape), bytes_of(data)};
}
}  // namespace

TEST_CASE("the same tensors give the same bytes in any order, padded to 8, and read back as they were") {
    tensor_view const tensors[]{tensor("w", tenon::dtype::f32, {1, 2}, "abcdefgh"), tensor("a\"\n\xC3\xA9", tenon::dtype::u8, {3}, "xyz"),
                                tensor("empty", tenon::dtype::i64, {0, 7}, ""), tensor("scalar", tenon::dtype::bf16, {}, "st")};
    tensor_view const backwards[]{tensors[3], tensors[2], tensors[1], tensors[0]};
    std::string const bytes = safetensors_bytes(tensors);
    CHECK(bytes == safetensors_bytes(backwards));
    std::size_t const header = static_cast<unsigned char>(bytes[0]) + 256U * static_cast<unsigned char>(bytes[1]);
    CHECK(header % 8 == 0);
    auto const back = read_safetensors(bytes_of(bytes), "written");
    REQUIRE(back.size() == 4);
    for (tensor_view const& t : tensors) {
        tensor_view const* const found = find(back, t.name);
        REQUIRE(found != nullptr);
        CHECK(found->type == t.type);
        CHECK(found->shape == t.shape);
        CHECK(detail::characters(found->data) == detail::characters(t.data));
    }
    CHECK(safetensors_bytes(back) == bytes);
    CHECK(safetensors_bytes({}) == container("{}      "));
}

TEST_CASE("a file is written as the bytes are, also over the one that is being read") {
    scratch_folder const scratch;
    tensor_view const one[]{tensor("one", tenon::dtype::u8, {4}, "1234")};
    write_safetensors(scratch.path("f"), one);
    safetensors_file const read(scratch.path("f"));
    CHECK(mapped_file(scratch.path("f")).text() == safetensors_bytes(one));
    tensor_view const two[]{tensor("two", tenon::dtype::u8, {4}, "5678"), read.tensors()[0]};
    write_safetensors(scratch.path("f"), two);
    CHECK(detail::characters(read.tensors()[0].data) == "1234");
    CHECK(safetensors_file(scratch.path("f")).tensors().size() == 2);
    CHECK(contains(refusal_of([&] { write_safetensors(scratch.path("no/f"), one); }),
                   "file_is_written: " + scratch.path("no/f") + ": No such file or directory"));
    CHECK(law_of([&] { write_safetensors(scratch.path(), one); }) == "file_is_written");
}

TEST_CASE("what the reader would refuse is not written") {
    auto const law = [](std::vector<tensor_view> const& tensors) { return law_of([&] { safetensors_bytes(tensors); }); };
    CHECK(law({tensor("a", tenon::dtype::u8, {1}, "x"), tensor("a", tenon::dtype::u8, {1}, "x")}) == "json_keys_are_unique");
    CHECK(law({tensor("a", tenon::dtype::f32, {2}, "abcd")}) == "safetensors_size_matches_shape");
    CHECK(law({tensor("a", tenon::dtype::u8, {-1}, "")}) == "safetensors_size_matches_shape");
    CHECK(law({tensor("a", tenon::dtype::f64, {1LL << 62, 4, 0}, "")}) == "safetensors_size_matches_shape");
    CHECK(law({tensor("\xFF", tenon::dtype::u8, {1}, "x")}) == "json_is_utf8");
    CHECK(law({tensor("__metadata__", tenon::dtype::u8, {1}, "x")}) == "safetensors_entry_is_complete");
}
