// Loading: what comes back is what the files hold, and what is wrong with them is named before a thread is left behind.
// SPDX-License-Identifier: Apache-2.0
#include "support/families.hpp"
#include "support/random_model.hpp"
#include "support/runs.hpp"

#include <doctest/doctest.h>
#include <tenon/causal_lm.hpp>
#include <tenon/dynamic_causal_lm.hpp>
#include <tenon/model/llama.hpp>

#include <dirent.h>
#include <sys/stat.h>
#include <algorithm>
#include <chrono>
#include <cstring>
#include <fstream>
#include <map>
#include <cmath>
#include <string>
#include <thread>

using namespace tenon;
using namespace support;

namespace {
geometry small() {
    return {.name = "small", .layers = 2, .hidden = 64, .heads = 8, .kv_heads = 4, .ffn = 256, .vocab = 67, .max_positions = 64};
}

int threads_here() {
    ::DIR* const tasks = ::opendir("/proc/self/task");
    if (tasks == nullptr) return 1;
    int count = 0;
    while (::dirent const* const entry = ::readdir(tasks)) count += entry->d_name[0] != '.';
    ::closedir(tasks);
    return count;
}

/// A joined thread may stand in the kernel's list for a moment longer: the smallest of several counts.
int settled_threads() {
    int least = threads_here();
    for (int i = 0; i < 10 && least > 1; ++i) {
        std::this_thread::sleep_for(std::chrono::milliseconds(2));
        least = std::min(least, threads_here());
    }
    return least;
}
bool threads_are(int expected) {
    for (int i = 0; i < 200 && threads_here() != expected; ++i) std::this_thread::sleep_for(std::chrono::milliseconds(5));
    return threads_here() == expected;
}

std::string law_of_load(std::string const& directory, std::string const& text = "0@0,1;1@2,3") {
    return law_of([&] { dynamic_causal_lm<>::load(directory, plan::parse(text)); });
}
std::string law_of_load(random_model const& files) {
    int const before = settled_threads();
    std::string const law = law_of_load(files.directory());
    CHECK(threads_are(before));
    return law;
}

void check_parameters(random_model const& files, std::string const& text, weights format) {
    CAPTURE(text);
    CAPTURE(name_of(format));
    load_options o;
    o.weights = format;
    auto m = dynamic_causal_lm<>::load(files.directory(), plan::parse(text), runtime::sequential{}, o);
    std::vector<parameter> const all = m.parameters();
    CHECK(all.size() == files.tensors().size());
    for (parameter const& p : all) {
        CAPTURE(p.name);
        auto const at = files.tensors().find(p.name);
        REQUIRE(at != files.tensors().end());
        stored_tensor const& t = at->second;
        CHECK(p.shape == t.shape);
        if (p.type == t.type) {
            CHECK(p.data == t.bytes());
        } else if (p.type == dtype::f32) {
            REQUIRE(p.data.size() == t.values.size() * 4);
            CHECK(std::memcmp(p.data.data(), t.values.data(), p.data.size()) == 0);
        } else {
            CHECK(format == weights::bf16);
            CHECK(p.type == dtype::bf16);
        }
    }
}
}  // namespace

TEST_CASE("parameters() are bit-equal to the files under every split") {
    for (dtype const type : {dtype::f32, dtype::bf16, dtype::f16})
        for (bool const tied : {false, true}) {
            geometry g = small();
            g.type = type;
            g.tied = tied;
            g.attention_bias = g.mlp_bias = type != dtype::bf16;
            random_model const files(g, 41);
            for (std::string const text : {"all@0", "0@0;1@1", "all@0,1", "all@0,1,2,3:tensor.reduce", "all@0,1,2,3,4,5,6,7",
                                           "all@0,1,2,3,4,5,6,7:tensor.reduce", "0@0,1,2,3:tensor.reduce;1@4,5"})
                for (weights const w : {weights::stored, weights::f32, weights::bf16}) check_parameters(files, text, w);
        }
}

TEST_CASE("parameters() of routed models are bit-equal to the files under every split, experts apart or stacked") {
    for (geometry g : routed_families())
        for (bool const stacked : {false, true}) {
            g.stacked = stacked;
            random_model const files(g, 47);
            CAPTURE(g.name);
            for (std::string const text : {"all@0", "all@0,1,2:expert", "all@0,1:expert_width", "all@0,1:expert_width.reduce", "all@0,1:tensor+expert",
                                           "all@0,1,2,3:tensor.reduce+expert_width.reduce", "0-1@0,1:expert;2-3@2"})
                for (weights const w : {weights::stored, weights::f32, weights::bf16}) check_parameters(files, text, w);
        }
}

TEST_CASE("parameters() in q8 are the blocks of the files' rows under every split, and what takes no format comes back as it is stored") {
    for (dtype const type : {dtype::f32, dtype::bf16, dtype::f16}) {
        geometry g = small();
        g.type = type;
        g.head_dim = 32;
        g.tied = type == dtype::bf16;
        random_model const files(g, 41);
        for (std::string const text : {"all@0", "0@0;1@1", "all@0,1", "all@0,1,2,3:tensor.reduce", "all@0,1,2,3,4,5,6,7:tensor.reduce"}) {
            CAPTURE(text);
            auto m = dynamic_causal_lm<>::load(files.directory(), plan::parse(text), runtime::sequential{}, {.weights = weights::q8});
            cost_view const cost(m.graph(), weights::q8, type);
            for (int r = 0; r < m.ranks(); ++r) CHECK(m.weight_bytes({r}) == cost.weight_bytes(rank_index{r}));
            for (parameter const& p : m.parameters()) {
                CAPTURE(p.name);
                stored_tensor const& t = files.tensors().at(p.name);
                bool const projects = p.name.find("_proj.weight") != std::string::npos || p.name == "lm_head.weight";
                CHECK((p.format == held_as::q8) == projects);
                CHECK(p.shape == t.shape);
                if (!projects) {
                    CHECK(p.type == (type == dtype::bf16 && p.shape.size() == 2 ? dtype::bf16 : dtype::f32));
                    continue;
                }
                CHECK(p.type == dtype::u8);
                std::vector<std::byte> const bytes = t.bytes();
                auto const K = static_cast<int>(p.shape[1]);
                std::vector<std::byte> expected(kernel::row_bytes(kernel::panel_format::q8, K) * static_cast<std::size_t>(p.shape[0]));
                kernel::store_row(expected.data(), kernel::panel_format::q8, bytes.data(), type, static_cast<int>(t.values.size()));
                CHECK(p.data == expected);
            }
        }
    }
}

TEST_CASE("A matrix of the files that is held as stored has the file's type") {
    geometry g = small();
    g.type = dtype::bf16;
    random_model const files(g, 42);
    auto m = dynamic_causal_lm<>::load(files.directory(), plan::parse("all@0,1"));
    for (parameter const& p : m.parameters()) CHECK((p.type == dtype::bf16) == (p.shape.size() == 2));
}

TEST_CASE("A missing tensor is named, and no thread is left") {
    random_model files(small(), 43);
    files.tensors().erase("model.layers.1.mlp.up_proj.weight");
    files.write();
    CHECK(law_of_load(files) == "checkpoint_tensors_are_present");
}

TEST_CASE("An extra tensor is named, and no thread is left") {
    random_model files(small(), 44);
    files.tensors()["model.layers.0.self_attn.q_norm.weight"] = {{8}, dtype::f32, floats(8)};
    files.write();
    CHECK(law_of_load(files) == "checkpoint_tensors_are_known");
}

TEST_CASE("A tensor of another shape is named, and no thread is left") {
    random_model files(small(), 45);
    stored_tensor& t = files.tensors()["model.layers.0.self_attn.q_proj.weight"];
    t.shape = {32, 128};
    files.write();
    CHECK(law_of_load(files) == "tensor_has_shape");
}

TEST_CASE("A tensor of another type is named, and no thread is left") {
    random_model files(small(), 46);
    stored_tensor& t = files.tensors()["model.norm.weight"];
    t.type = dtype::i16;  // two bytes each, as bf16 has
    files.write();
    CHECK(law_of_load(files) == "weights_are_floats");
}

TEST_CASE("An infinity or a NaN in embedding, final norm or head is named with its row, whoever owns it") {
    for (dtype const type : {dtype::f32, dtype::bf16, dtype::f16})
        for (std::string const name : {"model.embed_tokens.weight", "model.norm.weight", "lm_head.weight"})
            for (float const bad : {INFINITY, -INFINITY}) {
                CAPTURE(name);
                random_model files({.name = "not finite", .layers = 2, .hidden = 64, .heads = 4, .kv_heads = 2, .ffn = 64, .vocab = 61, .type = type}, 71);
                stored_tensor& t = files.tensors().at(name);
                t.values.back() = type == dtype::f16 ? std::copysign(0x1p16f, bad) : bad;  // the bits of an infinity in f16
                files.write();
                for (std::string const text : {"all@0", "0@0;1@1,2"})
                    CHECK_THROWS_WITH(dynamic_causal_lm<>::load(files.directory(), plan::parse(text)), doctest::Contains("weights_are_finite"));
            }
}

TEST_CASE("A truncated file is named, and no thread is left") {
    random_model const files(small(), 47);
    std::string const path = files.folder().path("model.safetensors");
    std::ifstream file(path, std::ios::binary | std::ios::ate);
    auto const size = static_cast<long>(file.tellg());
    REQUIRE(::truncate(path.c_str(), size - 5) == 0);
    std::string const cut = law_of_load(files);
    CHECK(cut.substr(0, 12) == "safetensors_");
    REQUIRE(::truncate(path.c_str(), 4) == 0);
    CHECK(law_of_load(files).substr(0, 12) == "safetensors_");
    REQUIRE(::truncate(path.c_str(), 0) == 0);
    CHECK(law_of_load(files).substr(0, 12) == "safetensors_");
}

TEST_CASE("A config, plan or instruction set that does not fit is refused before threads start") {
    random_model const files(small(), 48);
    int const before = settled_threads();
    CHECK_THROWS_AS(dynamic_causal_lm<>::load(files.directory(), plan::parse("all@0,1,2")), graph_error);
    CHECK_THROWS_AS(dynamic_causal_lm<>::load(files.directory(), plan::parse("0-5@0")), graph_error);
    load_options o;
    o.isa = "sse9";
    CHECK(law_of([&] { dynamic_causal_lm<>::load(files.directory(), plan::parse("all@0,1"), runtime::threads{}, o); }) == "isa_is_known");
    CHECK(law_of_load(files.directory() + "/nowhere") == "file_opens");
    CHECK(threads_are(before));
}

TEST_CASE("The caller serves the first device, a thread each other one, and they end with the model") {
    random_model const files(small(), 49);
    int const before = settled_threads();
    {
        auto m = dynamic_causal_lm<>::load(files.directory(), plan::parse("0@0,1;1@1,0"));
        CHECK(threads_are(before + 1));
        auto serial = dynamic_causal_lm<>::load(files.directory(), plan::parse("0@0,1;1@1,0"), runtime::sequential{});
        CHECK(threads_are(before + 1));
        m.close();
        CHECK(threads_are(before));
    }
    { auto m = dynamic_causal_lm<>::load(files.directory(), plan::parse("all@0,1,2,3,4,5,6,7")); }
    CHECK(threads_are(before));
}

TEST_CASE("An observer hears of every byte once, and may end the loading") {
    random_model const files(small(), 50);
    struct listener final : load_observer {
        std::int64_t done = 0, total = 0, calls = 0, give_up_after = -1;
        void loaded(std::string_view, std::int64_t bytes_done, std::int64_t bytes_total) override {
            CHECK(bytes_done > done);
            done = bytes_done;
            total = bytes_total;
            if (++calls == give_up_after) throw 7;
        }
    };
    for (std::string const text : {"all@0", "0@0,1;1@2,3", "all@0,1,2,3:tensor.reduce"}) {
        CAPTURE(text);
        listener heard;
        load_options o;
        o.observer = &heard;
        auto m = dynamic_causal_lm<>::load(files.directory(), plan::parse(text), runtime::threads{}, o);
        std::int64_t held = 0;
        for (int r = 0; r < m.ranks(); ++r) held += m.weight_bytes({r});
        CHECK(heard.done == held);
        CHECK(heard.total == held);

        listener narrowed;  // converted at load: the total is of what is held
        o.observer = &narrowed;
        o.weights = weights::bf16;
        auto half = dynamic_causal_lm<>::load(files.directory(), plan::parse(text), runtime::threads{}, o);
        CHECK(narrowed.done == narrowed.total);
        CHECK(narrowed.total < held);
    }
    int const before = settled_threads();
    listener impatient;
    impatient.give_up_after = 3;
    load_options o;
    o.observer = &impatient;
    CHECK_THROWS_AS(dynamic_causal_lm<>::load(files.directory(), plan::parse("0@0,1;1@2,3"), runtime::threads{}, o), int);
    CHECK(threads_are(before));
}

namespace {
struct other_model {
    static constexpr auto config =
        model::llama({.layers = 2, .hidden = 64, .heads = 8, .kv_heads = 8, .ffn = 256, .vocab = 67, .max_positions = 64});
};
}  // namespace

TEST_CASE("A graph refuses a checkpoint of another model by name") {
    random_model const files(small(), 51);
    CHECK(law_of([&] { causal_lm<graph<other_model, stage<layers<0, 1>>>>::load(files.directory()); }) == "config_is_the_graphs");
}
