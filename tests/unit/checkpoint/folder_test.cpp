// Which files a folder is read from, and what an index may not say.
// SPDX-License-Identifier: Apache-2.0
#include "support.hpp"

#include <tenon/checkpoint/folder.hpp>
#include <tenon/checkpoint/writer.hpp>

#include <doctest/doctest.h>
#include <initializer_list>
#include <utility>

using namespace checkpoint_test;
using namespace tenon::checkpoint;

namespace {
std::string const golden = TENON_TEST_DATA "/golden/";

// A file of one-byte tensors with these names.
std::string file_of(std::initializer_list<std::string_view> names) {
    std::vector<tensor_view> tensors;
    for (std::string_view const name : names) tensors.push_back({std::string(name), tenon::dtype::u8, {1}, bytes_of("x")});
    return safetensors_bytes(tensors);
}
std::string refused(scratch_folder const& scratch) {
    return refusal_of([&] { folder f(scratch.path()); });
}
std::string law(scratch_folder const& scratch) {
    return law_of([&] { folder f(scratch.path()); });
}
constexpr std::string_view index_name = "model.safetensors.index.json";
}  // namespace

TEST_CASE("the golden checkpoints open: one file, and three shards by their index") {
    folder const one(golden + "llama_mha_f32");
    CHECK(one.files().size() == 1);
    REQUIRE(one.find("model.embed_tokens.weight") != nullptr);
    CHECK(one.find("model.embed_tokens.weight")->shape == std::vector<std::int64_t>{128, 64});
    CHECK(one.find("model.embed_tokens.weight")->type == tenon::dtype::f32);
    CHECK(one.tensors().size() == 3 + 4 * 9);
    CHECK(contains(one.config_text(), "\"num_hidden_layers\""));

    folder opened(golden + "llama_gqa_bf16_sharded");
    folder const three = std::move(opened);
    CHECK(three.file_names().size() == 3);
    CHECK(three.tensors().size() == 3 + 4 * 9);
    REQUIRE(three.find("model.layers.3.self_attn.k_proj.weight") != nullptr);
    CHECK(three.find("model.layers.3.self_attn.k_proj.weight")->shape == std::vector<std::int64_t>{16, 64});
    CHECK(three.find("model.layers.4.self_attn.k_proj.weight") == nullptr);
    auto const names = three.names();
    CHECK(names.size() == three.tensors().size());
    for (std::size_t i = 1; i < names.size(); ++i) CHECK(names[i - 1] < names[i]);
}

TEST_CASE("the single file wins over an index, and a lone file of any name is read") {
    scratch_folder const scratch;
    scratch.write("weights.safetensors", file_of({"w"}));
    CHECK(folder(scratch.path()).file_names()[0] == "weights.safetensors");
    scratch.write(index_name, R"({"weight_map":{"w":"gone.safetensors"}})");
    CHECK(law(scratch) == "checkpoint_shards_are_present");
    scratch.write("model.safetensors", file_of({"m"}));
    folder const both(scratch.path());
    CHECK(both.find("m") != nullptr);
    CHECK(both.find("w") == nullptr);
}

TEST_CASE("a link to nowhere is opened and refused, not passed over for another file") {
    scratch_folder const scratch;
    scratch.write("s1", file_of({"a"}));
    scratch.write("other.safetensors", file_of({"a"}));
    REQUIRE(::symlink("nowhere", scratch.path(index_name).c_str()) == 0);
    CHECK(contains(refused(scratch), "file_opens: " + scratch.path(index_name)));
    REQUIRE(::unlink(scratch.path(index_name).c_str()) == 0);
    scratch.write(index_name, R"({"weight_map":{"a":"s1"}})");
    CHECK(law(scratch) == "nothing is refused");
    REQUIRE(::symlink("nowhere", scratch.path("model.safetensors").c_str()) == 0);
    CHECK(contains(refused(scratch), "file_opens: " + scratch.path("model.safetensors")));
}

TEST_CASE("several files without an index are refused with their names, and so is a folder without any") {
    scratch_folder const scratch;
    CHECK(law(scratch) == "checkpoint_folder_has_tensors");
    scratch.write("b.safetensors", file_of({"b"}));
    scratch.write("a.safetensors", file_of({"a"}));
    scratch.write("a.safetensors.txt", "");
    CHECK(contains(refused(scratch),
                   "checkpoint_shards_are_indexed: " + scratch.path() + ": 2 files and no index: a.safetensors, b.safetensors;"));
    CHECK(contains(refusal_of([&] { folder f(scratch.path("gone")); }),
                   "checkpoint_folder_opens: " + scratch.path("gone") + ": No such file or directory"));
    CHECK(law_of([&] { folder f(scratch.path("a.safetensors")); }) == "checkpoint_folder_opens");
    CHECK(law_of([&] { folder(golden + "containers/"); }) == "checkpoint_shards_are_indexed");
    CHECK(law_of([] { folder f(std::string("/tmp\0x", 6)); }) == "checkpoint_folder_opens");
}

TEST_CASE("the index is followed whatever the shards are called, and its informative fields are not believed") {
    scratch_folder const scratch;
    scratch.write("model.safetensors-00001-of-00002.safetensors", file_of({"a"}));
    scratch.write("rest.bin", file_of({"b", "c"}));
    scratch.write(
        index_name,
        R"({"metadata":{"total_size":1},"weight_map":{"c":"rest.bin","a":"model.safetensors-00001-of-00002.safetensors","b":"rest.bin"}})");
    folder const f(scratch.path());
    CHECK(f.names() == std::vector<std::string_view>{"a", "b", "c"});
    for (std::string const name : {".hidden", "a b", "\xC3\xA9", "...", "-", "model.safetensors.index", "config.yaml"}) {
        scratch.write(name, file_of({"d"}));
        scratch.write(index_name, "{\"weight_map\":{\"d\":\"" + name + "\"}}");
        CHECK_MESSAGE(folder(scratch.path()).file_names()[0] == name, name);
    }
}

TEST_CASE("scalars, empty tensors and shards without tensors are listed like others") {
    scratch_folder const scratch;
    std::vector<tensor_view> const tensors{{"empty", tenon::dtype::f32, {3, 0}, {}},
                                           {"flat", tenon::dtype::bf16, {0}, {}},
                                           {"scalar", tenon::dtype::f64, {}, bytes_of("12345678")}};
    scratch.write("s1", safetensors_bytes(tensors));
    scratch.write("s2", safetensors_bytes({}));
    scratch.write(index_name, R"({"weight_map":{"empty":"s1","flat":"s1","scalar":"s1"}})");
    folder const f(scratch.path());
    REQUIRE(f.tensors().size() == 3);
    CHECK(f.find("empty")->data.empty());
    CHECK(f.find("empty")->shape == std::vector<std::int64_t>{3, 0});
    CHECK(f.find("scalar")->data.size() == 8);
    scratch.write("model.safetensors", safetensors_bytes({}));
    CHECK(folder(scratch.path()).tensors().empty());
}

TEST_CASE("missing shards are listed") {
    scratch_folder const scratch;
    scratch.write("s1", file_of({"a"}));
    scratch.write(index_name, R"({"weight_map":{"a":"s1","b":"s2","c":"s3"}})");
    CHECK(refused(scratch) ==
          "checkpoint_shards_are_present: " + scratch.path() + ": 1 of the 3 files that the index names are here; missing: s2, s3");
    REQUIRE(::symlink("nowhere", scratch.path("s2").c_str()) == 0);  // as an unfinished download leaves it
    scratch.write("s3", file_of({"c"}));
    CHECK(refused(scratch) ==
          "checkpoint_shards_are_present: " + scratch.path() + ": 2 of the 3 files that the index names are here; missing: s2");
}

TEST_CASE("a tensor is where the index says, and nowhere else") {
    scratch_folder const scratch;
    scratch.write("s1", file_of({"a"}));
    scratch.write("s2", file_of({"b"}));
    scratch.write(index_name, R"({"weight_map":{"a":"s1"}})");
    CHECK(law(scratch) == "nothing is refused");  // s2 is not named, so it is not read
    scratch.write(index_name, R"({"weight_map":{"a":"s1","b":"s2","c":"s2","d":"s1"}})");
    CHECK(refused(scratch) == "checkpoint_tensors_are_present: " + scratch.path() +
                                  ": 2 of the 4 tensors that the index maps are not in their files: \"c\" (s2), \"d\" (s1)");
    scratch.write("s2", file_of({"b", "c"}));
    scratch.write(index_name, R"({"weight_map":{"a":"s1","b":"s2"}})");
    CHECK(refused(scratch) == "checkpoint_tensor_is_mapped: " + scratch.path() + ": tensor \"c\" is in s2, and the index does not map it");
    scratch.write(index_name, R"({"weight_map":{"a":"s1","b":"s2","c":"s1"}})");
    CHECK(refused(scratch) == "checkpoint_tensor_is_mapped: " + scratch.path() + ": tensor \"c\" is in s2, and the index maps it to s1");
    scratch.write("s1", file_of({"a", "c"}));
    CHECK(refused(scratch) == "checkpoint_tensor_is_in_one_shard: " + scratch.path() +
                                  ": tensor \"c\" is in s2 and in s1, to which the index maps it; one of them would do");
}

TEST_CASE("the file names of an index are bare") {
    scratch_folder const scratch;
    scratch.write("s1", file_of({"a"}));
    for (char const* const name : {"", ".", "..", "/etc/passwd", "../s1", "./s1", "sub/s1", "sub\\\\s1", "s1\\u0000", "s1/"}) {
        scratch.write(index_name, "{\"weight_map\":{\"a\":\"" + std::string(name) + "\"}}");
        CHECK_MESSAGE(law(scratch) == "checkpoint_shard_name_is_bare", name);
    }
}

TEST_CASE("an index that is none is refused") {
    scratch_folder const scratch;
    scratch.write("s1", file_of({"a"}));
    for (char const* const text : {"[]", "{}", "null", R"({"weight_map":null})", R"({"weight_map":{}})", R"({"weight_map":[]})",
                                   R"({"weight_map":{"a":1}})", R"({"weight_map":{"a":["s1"]}})"}) {
        scratch.write(index_name, text);
        CHECK_MESSAGE(law(scratch) == "checkpoint_index_is_complete", text);
    }
    scratch.write(index_name, R"({"weight_map":{"a":"s1","a":"s1"}})");
    CHECK(law(scratch) == "json_keys_are_unique");
    scratch.write(index_name, R"({"weight_map":{"a":"s1"})");
    CHECK(law(scratch) == "json_is_well_formed");
}

TEST_CASE("each shard is checked by itself") {
    scratch_folder const scratch;
    scratch.write("s1", file_of({"a"}));
    scratch.write("s2", file_of({"b"}).substr(0, 40));
    scratch.write(index_name, R"({"weight_map":{"a":"s1","b":"s2"}})");
    CHECK(contains(refused(scratch), "safetensors_header_fits: " + scratch.path("s2")));
    scratch.write("s2", file_of({"b"}) + "x");
    CHECK(contains(refused(scratch), "safetensors_ends_with_data: " + scratch.path("s2")));
    REQUIRE(::unlink(scratch.path(index_name).c_str()) == 0);
    scratch.write("model.safetensors", file_of({"b"}));
    CHECK(law_of([&] { static_cast<void>(folder(scratch.path()).config_text()); }) == "file_opens");
}
