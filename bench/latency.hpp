// What the benchmarks of latency share: a model whose ranks hold next to nothing but a residual stream of the wanted width, two runners
// that make the same calls, and medians of arms that take turns. SPDX-License-Identifier: Apache-2.0
#pragma once
#include <tenon/checkpoint/writer.hpp>
#include <tenon/tenon.hpp>

#include <sched.h>
#include <unistd.h>
#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace latency {

using namespace tenon;
using devices = device::backends<device::cpu>;

inline double seconds() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

/// A runner on a core of its own, where there are as many. `thread` as the system numbers them; 0: the caller.
inline void stay_on_core(int runner, ::pid_t thread = 0) {
    ::cpu_set_t all, own;
    CPU_ZERO(&own);
    ::sched_getaffinity(0, sizeof all, &all);
    if (CPU_COUNT(&all) <= runner) return;
    for (int cpu = 0, seen = 0; cpu < CPU_SETSIZE; ++cpu)
        if (CPU_ISSET(cpu, &all) && seen++ == runner) CPU_SET(cpu, &own);
    ::sched_setaffinity(thread, sizeof own, &own);
}

/// The same for every thread of this process and then for its workers, as long as there are cores.
inline void stay_apart() {
    std::vector<::pid_t> threads, workers;
    for (auto const& one : std::filesystem::directory_iterator("/proc/self/task")) {
        threads.push_back(std::stoi(one.path().filename().string()));
        std::ifstream children(one.path() / "children");
        for (::pid_t id = 0; children >> id;) workers.push_back(id);
    }
    std::sort(threads.begin(), threads.end());
    threads.insert(threads.end(), workers.begin(), workers.end());
    for (std::size_t i = threads.size(); i-- > 0;)
        stay_on_core(static_cast<int>(i), threads[i]);  // the caller, whose cores are looked at, last
}

/// A checkpoint of three layers of two heads of 16, removed at the end. Its matrices are as narrow as a graph allows.
class narrow_model {
public:
    explicit narrow_model(int hidden)
        : config(model::llama({.layers = 3, .hidden = hidden, .heads = 2, .head_dim = 16, .ffn = 64, .vocab = 32, .max_positions = 64})) {
        if (::mkdtemp(path_.data()) == nullptr) std::abort();
        std::ofstream(path_ + "/config.json")
            << "{\"model_type\": \"llama\", \"hidden_size\": " << hidden
            << ", \"num_hidden_layers\": 3, \"num_attention_heads\": 2, \"head_dim\": 16, "
            << "\"num_key_value_heads\": 2, \"intermediate_size\": 64, \"vocab_size\": 32, \"max_position_embeddings\": 64, "
            << "\"rms_norm_eps\": 1e-5, \"rope_theta\": 10000.0, \"tie_word_embeddings\": false}\n";
        std::vector<checkpoint::wanted_tensor> const wanted = checkpoint::inventory_of(config);
        std::vector<std::vector<float>> values;
        std::vector<checkpoint::tensor_view> tensors;
        std::uint64_t random = 0x9E3779B97F4A7C15U;
        for (checkpoint::wanted_tensor const& w : wanted) {
            std::size_t count = 1;
            for (std::int64_t const extent : w.shape) count *= static_cast<std::size_t>(extent);
            std::vector<float>& v = values.emplace_back(count);
            for (float& x : v) {
                random ^= random << 13U;
                random ^= random >> 7U;
                random ^= random << 17U;
                x = static_cast<float>(random >> 40U) * 0x1p-24f - 0.5f;
            }
        }
        for (std::size_t i = 0; i < wanted.size(); ++i) {
            checkpoint::tensor_view t;
            t.name = wanted[i].name;
            t.type = dtype::f32;
            t.shape = wanted[i].shape;
            t.data = std::as_bytes(std::span(values[i]));
            tensors.push_back(std::move(t));
        }
        checkpoint::write_safetensors(path_ + "/model.safetensors", tensors);
    }
    narrow_model(narrow_model const&) = delete;
    narrow_model& operator=(narrow_model const&) = delete;
    ~narrow_model() {
        if (made_by_ != ::getpid()) return;
        for (char const* const name : {"/config.json", "/model.safetensors"}) ::unlink((path_ + name).c_str());
        ::rmdir(path_.c_str());
    }

    std::string const& path() const { return path_; }
    model_config config;

private:
    std::string path_ = "/tmp/tenon-latency-XXXXXX";
    ::pid_t made_by_ = ::getpid();
};

/// One row of a batch, without a sequence: a join and a hand-over look at its rows alone.
inline detail::batch one_row() {
    detail::batch b;
    b.tokens = {0};
    return b;
}

/// The ranks of a plan, loaded, as a runtime has them.
struct loaded_ranks {
    loaded_ranks(narrow_model const& files, char const* plan_text)
        : graph(files.config, plan::parse(plan_text)), ranks(graph.view(), &devices::open, {}, numeric::canonical_1, testing::fault::none, false) {
        checkpoint::folder const folder(files.path());
        ranks.load(-1, {checkpoint::tensor_source(folder, files.config, {})});
    }
    dynamic_graph graph;
    detail::machine ranks;
};

inline detail::step const attends{detail::step_kind::attend, 0}, joins{detail::step_kind::attention_join, 0},
    finishes{detail::step_kind::finish, 0};

/// Where a rank leaves its partial sums for a join.
inline float* partial_of(loaded_ranks& of, detail::batch const& b, int rank) {
    float* at = nullptr;
    of.ranks.rank(rank).publications(attends, b, of.ranks.rank(rank),
                                     [&at](detail::publication const& p) { at = static_cast<float*>(p.data); });
    return at;
}

/// One way to do something `rounds` times; the other runner does its part of it.
struct arm {
    char const* what;
    std::function<void(int rounds)> run;
    int exchanges_a_round = 1;
};

/// Seconds of one exchange of each arm, the median of many runs that take turns, each shorter than what a system gives a thread at once:
/// where others want the cores as well, a long run measures them. Both runners call it.
inline std::vector<double> medians(std::vector<arm> const& arms, int rounds) {
    constexpr std::size_t trials = 1001, warm = 20;
    std::vector<std::vector<double>> times(arms.size());
    for (std::size_t t = 0; t < trials + warm; ++t)
        for (std::size_t a = 0; a < arms.size(); ++a) {
            double const begin = seconds();
            arms[a].run(rounds);
            if (t >= warm) times[a].push_back((seconds() - begin) / rounds / arms[a].exchanges_a_round);
        }
    std::vector<double> middle;
    for (std::vector<double>& all : times) {
        std::nth_element(all.begin(), all.begin() + trials / 2, all.end());
        middle.push_back(all[trials / 2]);
    }
    return middle;
}

inline void require(bool right, char const* what) {
    if (right) return;
    std::fprintf(stderr, "%s: wrong numbers, nothing is timed\n", what);
    std::exit(1);
}

/// Arms go in pairs: the library's, then the bare one of the same medium.
inline void show(char const* medium, int hidden, std::vector<arm> const& arms, std::vector<double> const& times) {
    for (std::size_t a = 0; a + 1 < arms.size(); a += 2)
        std::printf("| %s | %s | %d KiB | %.2f | %.2f | %.2f |\n", medium, arms[a].what, hidden * 4 / 1024, times[a] * 1e6,
                    times[a + 1] * 1e6, times[a] / times[a + 1]);
    std::fflush(stdout);
}

inline void show_head() {
    std::printf("| between | what | residual | tenon, us | bare, us | ratio |\n|---|---|---|---|---|---|\n");
    std::fflush(stdout);
}

}  // namespace latency
