// What a load holds at its worst: every process the slices of its own ranks, and little beside. Each load runs in a program of its own,
// this one executed again, because a peak is a process's for life; what it prints is held against the promise here.
// SPDX-License-Identifier: Apache-2.0
#define DOCTEST_CONFIG_IMPLEMENT
#include "support/random_model.hpp"
#include "support/worker_watch.hpp"

#include <doctest/doctest.h>
#include <sys/statvfs.h>
#include <tenon/dynamic_causal_lm.hpp>
#include <tenon/runtime/processes.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <iostream>
#include <map>
#include <span>
#include <sstream>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

using namespace tenon;
using namespace support;

namespace {

constexpr std::int64_t MiB = std::int64_t{1} << 20;
/// What a process may hold beside weights, keys and values: the program and its libraries, the bands that are being read, headers.
constexpr std::int64_t beside = 64 * MiB;

constexpr int positions = 8192;

/// A checkpoint in shards that is never whole in memory, of values that are finite, small and of random bits. Gone at the end.
class sharded_files {
public:
    struct wanted {
        std::string name{};
        dtype type = dtype::f32;
        std::vector<std::int64_t> shape{};
        std::size_t bytes() const {
            std::int64_t size = bytes_of(type);
            for (std::int64_t const extent : shape) size *= extent;
            return static_cast<std::size_t>(size);
        }
    };

    sharded_files() {
        struct ::statvfs room {};
        ::statvfs(folder_.path().c_str(), &room);
        std::uint64_t const free = std::uint64_t{room.f_bavail} * room.f_frsize;
        INFO("bytes that are free for ", folder_.path(), ": ", free, "; 3 GB, or another folder in TMPDIR, would do");
        REQUIRE(free >= 3'000'000'000);
    }

    /// Writes one file. All tensors of a type are windows on one run of random bits, as long as the longest.
    void shard(std::string const& name, std::vector<wanted> const& all) {
        std::vector<checkpoint::tensor_view> views;
        std::map<dtype, std::vector<std::uint64_t>> runs;
        for (wanted const& w : all) {
            auto& run = runs[w.type];
            while (run.size() * sizeof run[0] < w.bytes()) run.push_back(finite(random_(), w.type));
        }
        for (wanted const& w : all) {
            checkpoint::tensor_view v{};
            v.name = w.name;
            v.type = w.type;
            v.shape = w.shape;
            v.data = std::as_bytes(std::span(std::as_const(runs[w.type]))).first(w.bytes());
            views.push_back(v);
            bytes_ += w.bytes();
            map_ += (map_.empty() ? "\"" : ", \"") + w.name + "\": \"" + name + ".safetensors\"";
        }
        checkpoint::write_safetensors(folder_.path(name + ".safetensors"), views);
    }
    void describe(std::string const& config) const {
        folder_.write("model.safetensors.index.json", "{\"weight_map\": {" + map_ + "}}");
        folder_.write("config.json", "{" + config + ", \"max_position_embeddings\": " + std::to_string(positions) +
                                         ", \"rms_norm_eps\": 1e-5, \"rope_theta\": 10000.0, \"tie_word_embeddings\": false}");
    }

    std::string const& directory() const { return folder_.path(); }
    std::size_t bytes() const { return bytes_; }  ///< of all tensors

private:
    /// Random signs and fractions under one exponent: 2^-7, and of codes 2^-3.
    static std::uint64_t finite(std::uint64_t bits, dtype type) {
        if (type == dtype::f32) return (bits & 0x807fffff'807fffffU) | 0x3c000000'3c000000U;
        if (type == dtype::bf16) return (bits & 0x807f807f'807f807fU) | 0x3c003c00'3c003c00U;
        return (bits & 0x87878787'87878787U) | 0x20202020'20202020U;
    }

    random_bits random_{17};
    std::size_t bytes_ = 0;
    std::string map_{};
    scratch_folder folder_;
};

/// A dense model with many a tensor that is more than `beside`. Layer 0 and the table are bf16, layer 1 and the head float32; with `codes`
/// the projections are codes with scales.
void write_dense(sharded_files& files, bool codes) {
    constexpr int hidden = 2048, queries = 2048, keys = 512, ffn = 16384, block = 128;
    int const vocab = codes ? 1024 : 32768;
    files.shard("table", {{"model.embed_tokens.weight", dtype::bf16, {vocab, hidden}}});
    for (int l = 0; l < 2; ++l) {
        std::string const at = "model.layers." + std::to_string(l) + ".";
        dtype const floats = l == 0 ? dtype::bf16 : dtype::f32;
        std::vector<sharded_files::wanted> all{{at + "input_layernorm.weight", floats, {hidden}},
                                               {at + "post_attention_layernorm.weight", floats, {hidden}}};
        auto const project = [&](std::string const& name, std::int64_t rows, std::int64_t columns) {
            all.push_back({at + name + ".weight", codes ? dtype::f8_e4m3 : floats, {rows, columns}});
            if (codes) all.push_back({at + name + ".weight_scale_inv", dtype::f32, {rows / block, columns / block}});
        };
        project("self_attn.q_proj", queries, hidden);
        project("self_attn.k_proj", keys, hidden);
        project("self_attn.v_proj", keys, hidden);
        project("self_attn.o_proj", hidden, queries);
        project("mlp.gate_proj", ffn, hidden);
        project("mlp.up_proj", ffn, hidden);
        project("mlp.down_proj", hidden, ffn);
        files.shard("layer-" + std::to_string(l), all);
    }
    files.shard("head", {{"model.norm.weight", dtype::f32, {hidden}}, {"lm_head.weight", dtype::f32, {vocab, hidden}}});
    files.describe(
        std::string(codes ? R"("quantization_config": {"quant_method": "fp8", "fmt": "e4m3", "weight_block_size": [128, 128]}, )" : "") +
        R"("model_type": "llama", "hidden_size": 2048, "num_hidden_layers": 2, "num_attention_heads": 16, "num_key_value_heads": 4,
                      "intermediate_size": 16384, "vocab_size": )" +
        std::to_string(vocab));
}

/// Some thousands of experts, each a few pages: what is mapped around a slice is more than the slice.
void write_experts(sharded_files& files) {
    constexpr int hidden = 256, head_dim = 64, width = 96, vocab = 1024, layers = 16, experts = 128;
    files.shard("ends", {{"model.embed_tokens.weight", dtype::bf16, {vocab, hidden}},
                         {"model.norm.weight", dtype::bf16, {hidden}},
                         {"lm_head.weight", dtype::bf16, {vocab, hidden}}});
    for (int l = 0; l < layers; ++l) {
        std::string const at = "model.layers." + std::to_string(l) + ".";
        std::vector<sharded_files::wanted> all;
        auto const add = [&](std::string const& name, std::vector<std::int64_t> const& shape) {
            all.push_back({at + name + ".weight", dtype::bf16, shape});
        };
        for (char const* const norm : {"input_layernorm", "post_attention_layernorm"}) add(norm, {hidden});
        for (char const* const norm : {"self_attn.q_norm", "self_attn.k_norm"}) add(norm, {head_dim});
        for (char const* const name : {"self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", "self_attn.o_proj"})
            add(name, {hidden, hidden});
        add("mlp.gate", {experts, hidden});
        for (int e = 0; e < experts; ++e) {
            std::string const expert = "mlp.experts." + std::to_string(e) + ".";
            for (char const* const name : {"gate_proj", "up_proj"}) add(expert + name, {width, hidden});
            add(expert + "down_proj", {hidden, width});
        }
        files.shard("layer-" + std::to_string(l), all);
    }
    files.describe(
        R"("model_type": "qwen3_moe", "hidden_size": 256, "num_hidden_layers": 16, "num_attention_heads": 4, "num_key_value_heads": 4,
                      "head_dim": 64, "intermediate_size": 96, "vocab_size": 1024, "num_experts": 128, "num_experts_per_tok": 8,
                      "moe_intermediate_size": 96, "norm_topk_prob": true, "decoder_sparse_step": 1, "mlp_only_layers": [])");
}

weights format_named(std::string_view name) { return name == "bf16" ? weights::bf16 : name == "f32" ? weights::f32 : weights::stored; }

std::int64_t peak_of(std::string const& process) { return status_number("VmHWM", process) * 1024; }

/// What a program of its own prints of one load: of every process, itself first and then its workers, what it peaked at, and what it was to
/// hold of weights, and of keys and values, of which it has no more than was written.
int measure(std::string const& directory, std::string const& runtime, std::string const& plan, std::string const& format) {
    auto const load = [&](auto const& how) {
        auto lm = dynamic_causal_lm<>::load(directory, plan::parse(plan), how, {.weights = format_named(format)});
        bool const apart = runtime == "processes";
        std::vector<std::int64_t> held;
        for (int r = 0; r < lm.ranks(); ++r) held.push_back(lm.weight_bytes({r}));
        std::vector<std::int64_t> peaks;
        for (::pid_t const worker : children()) peaks.push_back(peak_of(std::to_string(worker)));
        if (apart) {
            // Which of the workers is whose only their order says; the promise is sorted, and so is what came of it.
            std::sort(held.begin(), held.end());
            std::sort(peaks.begin(), peaks.end());
            std::cout << peak_of("self") << " 0 0\n";
            for (std::size_t i = 0; i < peaks.size(); ++i) std::cout << peaks[i] << ' ' << held[i] << " 0\n";
            return peaks.size() == held.size() ? 0 : 1;
        }
        state const s = lm.make_state(positions);
        std::int64_t all = 0, room = 0;
        for (int r = 0; r < lm.ranks(); ++r) {
            all += held[static_cast<std::size_t>(r)];
            room += s.kv_bytes(r);
        }
        std::cout << peak_of("self") << ' ' << all << ' ' << room << '\n';
        return peaks.empty() ? 0 : 1;
    };
    try {
        return runtime == "processes" ? load(runtime::processes{.hang_seconds = 60})
               : runtime == "threads" ? load(runtime::threads{})
                                      : load(runtime::sequential{});
    } catch (std::exception const& e) {
        std::cerr << e.what() << '\n';
        return 1;
    }
}

struct held_at_worst {
    std::int64_t peak = 0, own = 0, room = 0;
};

/// The processes of one load, as its program has printed them.
std::vector<held_at_worst> measured(sharded_files const& files, std::string const& runtime, std::string const& plan,
                                    std::string const& format) {
    std::string const command =
        "'" + detail::this_program() + "' measure '" + files.directory() + "' " + runtime + " '" + plan + "' " + format;
    std::FILE* const program = ::popen(command.c_str(), "r");
    REQUIRE(program != nullptr);
    std::string text;
    char some[256];
    while (std::fgets(some, sizeof some, program) != nullptr) text += some;
    REQUIRE(::pclose(program) == 0);
    std::istringstream lines(text);
    std::vector<held_at_worst> all;
    for (held_at_worst h; lines >> h.peak >> h.own >> h.room;) all.push_back(h);
    return all;
}

struct load_case {
    std::string runtime, plan, format;
    std::size_t processes;
};

void check(sharded_files const& files, std::vector<load_case> const& loads) {
    for (load_case const& l : loads) {
        std::string const name = l.runtime + " " + l.plan + " " + l.format;
        CAPTURE(name);
        auto const all = measured(files, l.runtime, l.plan, l.format);
        REQUIRE(all.size() == l.processes);
        for (held_at_worst const& h : all) {
            MESSAGE("own ", h.own / MiB, " MiB, at worst ", h.peak / MiB, " MiB");
            CHECK(h.peak >= h.own);  // or it was not this load that was measured
            CHECK(h.peak <= h.own + h.room + beside);
        }
        CHECK(all.back().own > 2 * beside);  // which is little beside it
    }
}

}  // namespace

TEST_CASE("A process that loads holds the slices of its ranks, and little beside, however the file stores them") {
    if (is_sanitized) {
        MESSAGE("a sanitizer's own memory is not told from the program's: nothing checked");
        return;
    }
    sharded_files files;
    SUBCASE("floats, held as they are stored and converted") {
        write_dense(files, false);
        CHECK(files.bytes() >= 1'000'000'000);
        check(files, {{"processes", "all@0,1", "stored", 3},
                      {"processes", "0@0;1@1", "stored", 3},
                      {"processes", "all@0,1:tensor.reduce", "bf16", 3},
                      {"threads", "all@0,1", "stored", 1},
                      {"sequential", "0@0;1@1", "bf16", 1}});
    }
    SUBCASE("codes with scales") {
        write_dense(files, true);
        check(files, {{"processes", "all@0,1", "stored", 3}, {"threads", "all@0,1:tensor.reduce", "bf16", 1}});
    }
    SUBCASE("many small experts") {
        write_experts(files);
        check(files, {{"processes", "all@0,1:tensor+expert", "stored", 3}, {"threads", "all@0,1:tensor+expert", "stored", 1}});
    }
}

int main(int argc, char** argv) {
    if (argc == 6 && std::string_view(argv[1]) == "measure") return measure(argv[2], argv[3], argv[4], argv[5]);
    return doctest::Context(argc, argv).run();
}
