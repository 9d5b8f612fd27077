// tenon-bench: how fast a published geometry runs under a plan, on random weights, beside what this machine can read and multiply
// at all, measured in the same process. No checkpoint is needed: a config.json is.
// SPDX-License-Identifier: Apache-2.0
#include <tenon/checkpoint/writer.hpp>
#include <tenon/runtime/processes.hpp>
#include <tenon/tenon.hpp>

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <fstream>
#include <functional>
#include <iostream>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <sys/statvfs.h>
#include <sys/vfs.h>
#include <unistd.h>
#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace {

using namespace tenon;

double seconds() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

// ---- what the machine can do

constexpr int fma_rounds = 2'000'000;

float read_portable(float const* p, std::size_t n) {
    std::uint64_t sum[8] = {}, part[8];
    for (std::size_t i = 0; i < n; i += 16) {
        std::memcpy(part, p + i, sizeof part);
        for (int k = 0; k < 8; ++k) sum[k] += part[k];
    }
    for (int k = 1; k < 8; ++k) sum[0] ^= sum[k];
    return static_cast<float>(sum[0] & 255U);
}

double multiply_portable(float& out) {
    float acc[16], a = 0.999f, b = 0.001f;
    for (int i = 0; i < 16; ++i) acc[i] = b * static_cast<float>(i + 1);
    for (int t = 0; t < fma_rounds; ++t)
        for (float& x : acc) x = x * a + b;
    for (int i = 1; i < 16; ++i) acc[0] += acc[i];
    out = acc[0];
    return 2.0 * 16 * fma_rounds;
}

#if defined(__x86_64__)
// Folds and not inner loops: g++ -O2 leaves a loop over accumulators rolled, and them in memory.
template <std::size_t Streams, std::size_t... V>
__attribute__((target("avx512f"))) float read_avx512(float const* p, std::size_t n, std::index_sequence<V...>) {
    __m512 sum[]{((void)V, _mm512_setzero_ps())...};
    std::size_t const part = n / Streams;
    for (std::size_t i = 0; i < part; i += 16 * sizeof...(V) / Streams)
        ((sum[V] = _mm512_add_ps(sum[V], _mm512_loadu_ps(p + V % Streams * part + i + V / Streams * 16))), ...);
    float out[16];
    ((sum[0] = V == 0 ? sum[0] : _mm512_add_ps(sum[0], sum[V])), ...);
    _mm512_storeu_ps(out, sum[0]);
    return out[0];
}
template <std::size_t Streams>
float read_avx512(float const* p, std::size_t n) { return read_avx512<Streams>(p, n, std::make_index_sequence<16>{}); }

template <std::size_t Streams, std::size_t... V>
__attribute__((target("avx2"))) float read_avx2(float const* p, std::size_t n, std::index_sequence<V...>) {
    __m256 sum[]{((void)V, _mm256_setzero_ps())...};
    std::size_t const part = n / Streams;
    for (std::size_t i = 0; i < part; i += 8 * sizeof...(V) / Streams)
        ((sum[V] = _mm256_add_ps(sum[V], _mm256_loadu_ps(p + V % Streams * part + i + V / Streams * 8))), ...);
    float out[8];
    ((sum[0] = V == 0 ? sum[0] : _mm256_add_ps(sum[0], sum[V])), ...);
    _mm256_storeu_ps(out, sum[0]);
    return out[0];
}
template <std::size_t Streams>
float read_avx2(float const* p, std::size_t n) { return read_avx2<Streams>(p, n, std::make_index_sequence<8>{}); }

template <std::size_t... V>
__attribute__((target("avx512f"))) double multiply_avx512(float& result, std::index_sequence<V...>) {
    __m512 const a = _mm512_set1_ps(0.999f), b = _mm512_set1_ps(0.001f);
    __m512 acc[]{_mm512_set1_ps(0.001f * static_cast<float>(V + 1))...};  // unlike, or the compiler computes one for all
    for (int t = 0; t < fma_rounds; ++t) ((acc[V] = _mm512_fmadd_ps(acc[V], a, b)), ...);
    ((acc[0] = V == 0 ? acc[0] : _mm512_add_ps(acc[0], acc[V])), ...);
    float out[16];
    _mm512_storeu_ps(out, acc[0]);
    result = out[0];
    return 2.0 * 16 * sizeof...(V) * fma_rounds;
}
double multiply_avx512(float& result) { return multiply_avx512(result, std::make_index_sequence<16>{}); }

template <std::size_t... V>
__attribute__((target("avx2,fma"))) double multiply_avx2(float& result, std::index_sequence<V...>) {
    __m256 const a = _mm256_set1_ps(0.999f), b = _mm256_set1_ps(0.001f);
    __m256 acc[]{_mm256_set1_ps(0.001f * static_cast<float>(V + 1))...};
    for (int t = 0; t < fma_rounds; ++t) ((acc[V] = _mm256_fmadd_ps(acc[V], a, b)), ...);
    ((acc[0] = V == 0 ? acc[0] : _mm256_add_ps(acc[0], acc[V])), ...);
    float out[8];
    _mm256_storeu_ps(out, acc[0]);
    result = out[0];
    return 2.0 * 8 * sizeof...(V) * fma_rounds;
}
double multiply_avx2(float& result) { return multiply_avx2(result, std::make_index_sequence<12>{}); }

template <std::size_t... V>
__attribute__((target("avx512f,avx512vnni"))) double multiply_bytes(float& result, std::index_sequence<V...>) {
    __m512i const a = _mm512_set1_epi32(0x01020301), b = _mm512_set1_epi32(0x01010101);
    __m512i acc[]{_mm512_set1_epi32(static_cast<int>(V + 1))...};
    for (int t = 0; t < fma_rounds; ++t) ((acc[V] = _mm512_dpbusd_epi32(acc[V], a, b)), ...);
    ((acc[0] = V == 0 ? acc[0] : _mm512_add_epi32(acc[0], acc[V])), ...);
    std::int32_t out[16];
    _mm512_storeu_si512(out, acc[0]);
    result = static_cast<float>(out[0]);
    return 2.0 * 64 * sizeof...(V) * fma_rounds;
}
double multiply_bytes(float& result) { return multiply_bytes(result, std::make_index_sequence<16>{}); }
#endif

/// The same work on `count` threads that begin together; seconds until the last is done.
double on_threads(int count, std::function<void(int)> const& work) {
    std::atomic<int> ready{0};
    std::atomic<bool> go{false};
    std::vector<std::thread> pool;
    for (int i = 0; i < count; ++i)
        pool.emplace_back([&, i] {
            ++ready;
            while (!go.load(std::memory_order_acquire)) std::this_thread::yield();
            work(i);
        });
    while (ready.load() < count) std::this_thread::yield();
    double const begin = seconds();
    go.store(true, std::memory_order_release);
    for (std::thread& t : pool) t.join();
    return seconds() - begin;
}

/// The middle value; of an even number the upper one.
double median(std::vector<double> values) {
    auto const middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
    std::nth_element(values.begin(), middle, values.end());
    return *middle;
}

/// What so many threads of this machine read and multiply a second: of several plain loops the one with the best median. Loops read as many
/// bytes as a decoded token does, since a third cache may hold a good part of them.
class limits {
public:
    limits(int threads, std::int64_t bytes, bool dots)
        : floats_(std::max(static_cast<std::size_t>(bytes / threads) / 4 / block * block, block)), sink_(static_cast<std::size_t>(threads) * 16) {
        readers_.push_back({read_portable, {}});
        multipliers_.push_back({multiply_portable, {}});
#if defined(__x86_64__)
        if (kernel::supported(kernel::isa::avx2)) {
            readers_.insert(readers_.end(), {{read_avx2<1>, {}}, {read_avx2<4>, {}}});
            multipliers_.push_back({multiply_avx2, {}});
        }
        if (kernel::supported(kernel::isa::avx512)) {
            readers_.insert(readers_.end(), {{read_avx512<1>, {}}, {read_avx512<2>, {}}, {read_avx512<4>, {}}, {read_avx512<8>, {}}});
            multipliers_.push_back({multiply_avx512, {}});
            if (dots && kernel::multiplies_bytes()) dots_.push_back({multiply_bytes, {}});
        }
#endif
        for (int i = 0; i < threads; ++i) {
            memory_.emplace_back(floats_ * sizeof(float));  // in pages like those of weights
            std::fill_n(memory_.back().floats(), floats_, 0.5f);
        }
    }

    /// Runs every loop once more.
    void measure() {
        auto const threads = static_cast<int>(memory_.size());
        for (loop<reader>& l : readers_) {
            double const t = on_threads(threads, [&](int i) {
                auto const at = static_cast<std::size_t>(i);
                sink_[at * 16] = l.run(memory_[at].floats(), floats_);
            });
            l.rates.push_back(static_cast<double>(floats_) * 4.0 * threads / t * 1e-9);
        }
        for (std::vector<loop<multiplier>>* const all : {&multipliers_, &dots_})
            for (loop<multiplier>& l : *all) {
                std::atomic<double> operations{0.0};
                double const t = on_threads(threads, [&](int i) { operations = l.run(sink_[static_cast<std::size_t>(i) * 16]); });
                l.rates.push_back(operations * threads / t * 1e-9);
            }
    }

    double read_gb_per_s() const { return best(readers_); }
    double gflop_per_s() const { return best(multipliers_); }
    double gop_per_s() const { return best(dots_); }  ///< of products of bytes; 0 where there is no such instruction, or nobody asked

private:
    static constexpr std::size_t block = 1024;  // floats: whole steps of every loop
    using reader = float (*)(float const*, std::size_t);
    using multiplier = double (*)(float&);
    template <class Run>
    struct loop {
        Run run;
        std::vector<double> rates;
    };
    template <class Run>
    static double best(std::vector<loop<Run>> const& loops) {
        double most = 0.0;
        for (loop<Run> const& l : loops) most = std::max(most, median(l.rates));
        return most;
    }

    std::size_t floats_;
    std::vector<loop<reader>> readers_;
    std::vector<loop<multiplier>> multipliers_, dots_;
    std::vector<detail::buffer> memory_;
    std::vector<float> sink_;  // a cache line for each thread
};

// ---- random weights

/// A folder that goes away with everything in it that this program put there, also when the program is interrupted.
class temporary_checkpoint {
public:
    explicit temporary_checkpoint(std::string const& where) : path_(where + "/tenon-bench-XXXXXX") {
        if (::mkdtemp(path_.data()) == nullptr) detail::refuse("file_is_written", where + ": no folder can be made there; --directory FOLDER would do");
        for (std::size_t i = 0; i < files_.size(); ++i) files_[i] = path_ + names[i];
        present = this;
        for (int const signal : {SIGINT, SIGTERM, SIGHUP})
            std::signal(signal, [](int number) {
                if (present != nullptr) present->remove();
                ::_exit(128 + number);
            });
    }
    temporary_checkpoint(temporary_checkpoint const&) = delete;
    temporary_checkpoint& operator=(temporary_checkpoint const&) = delete;
    ~temporary_checkpoint() {
        remove();
        present = nullptr;
        for (int const signal : {SIGINT, SIGTERM, SIGHUP}) std::signal(signal, SIG_DFL);
    }
    std::string const& path() const { return path_; }
    std::string const& weights() const { return files_[1]; }

private:
    static constexpr std::array<char const*, 3> names{"/config.json", "/model.safetensors", "/model.safetensors.partial"};
    static inline temporary_checkpoint const* volatile present = nullptr;

    void remove() const {  // calls only what a signal handler may
        for (std::string const& file : files_) ::unlink(file.c_str());
        ::rmdir(path_.c_str());
    }

    std::string path_;
    std::array<std::string, 3> files_;
};

std::int64_t bytes_in_file(std::vector<checkpoint::wanted_tensor> const& wanted, dtype type, std::int64_t& largest) {
    std::int64_t sum = 0;
    for (checkpoint::wanted_tensor const& w : wanted) {
        std::int64_t bytes = bytes_of(type);
        for (std::int64_t const extent : w.shape) bytes *= extent;
        largest = std::max(largest, bytes);
        sum += bytes;
    }
    return sum;
}

std::int64_t free_memory() {
    std::ifstream file("/proc/meminfo");
    for (std::string word; file >> word;)
        if (word == "MemAvailable:") {
            std::int64_t kib = 0;
            file >> kib;
            return kib * 1024;
        }
    return INT64_MAX;
}

/// Refuses by name what this machine has no room for, before anything is written.
void require_room(std::string const& directory, std::int64_t in_file, std::int64_t in_memory) {
    constexpr std::int64_t tmpfs = 0x01021994;
    struct ::statfs kind {};
    bool const on_disk = ::statfs(directory.c_str(), &kind) == 0 && static_cast<std::int64_t>(kind.f_type) != tmpfs;
    struct ::statvfs disk {};
    if (::statvfs(directory.c_str(), &disk) != 0) detail::refuse("file_is_written", directory + ": no such folder; --directory FOLDER would do");
    auto const has = static_cast<std::int64_t>(disk.f_bavail) * static_cast<std::int64_t>(disk.f_frsize);
    if (in_file > has)
        detail::refuse("disk_suffices", "the random checkpoint takes " + std::to_string(in_file) + " bytes; " + directory + " has " + std::to_string(has));
    std::int64_t const needed = in_memory + (on_disk ? 0 : in_file), memory = free_memory();
    if (needed > memory)
        detail::refuse("memory_suffices", "weights, keys and values take " + std::to_string(needed) + " bytes; this machine has " + std::to_string(memory) + " free");
}

bool is_norm(role what) {
    return what == role::input_norm || what == role::post_norm || what == role::final_norm || what == role::q_norm || what == role::k_norm;
}

/// A checkpoint whose matrices are cut from one block of small random numbers and whose norms are 1: the same bytes every time.
void write_random(std::string const& directory, std::string const& config_text, model_config const& config, dtype type) {
    std::vector<checkpoint::wanted_tensor> const wanted = checkpoint::inventory_of(config);
    std::int64_t largest = 0;
    bytes_in_file(wanted, type, largest);
    constexpr std::size_t turn = 1 << 16;  // every tensor begins somewhere else in the block
    auto const size = static_cast<std::size_t>(bytes_of(type));
    std::vector<std::byte> block(static_cast<std::size_t>(largest) + turn), ones(static_cast<std::size_t>(config.hidden) * size);
    std::uint64_t random = 0x9E3779B97F4A7C15U;
    auto const put = [size](std::vector<std::byte>& to, std::size_t at, float value) {
        std::uint32_t bits = 0;
        std::memcpy(&bits, &value, 4);
        std::uint16_t const half = static_cast<std::uint16_t>(bits >> 16U);
        if (size == 2) std::memcpy(to.data() + at, &half, 2);
        else std::memcpy(to.data() + at, &bits, 4);
    };
    for (std::size_t at = 0; at + size <= block.size(); at += size) {
        random ^= random << 13U;
        random ^= random >> 7U;
        random ^= random << 17U;
        put(block, at, (static_cast<float>(random >> 40U) * 0x1p-24f - 0.5f) * 0.08f);
    }
    for (std::size_t at = 0; at + size <= ones.size(); at += size) put(ones, at, 1.0f);

    std::vector<checkpoint::tensor_view> tensors;
    std::size_t begin = 0;
    for (checkpoint::wanted_tensor const& w : wanted) {
        std::size_t bytes = size;
        for (std::int64_t const extent : w.shape) bytes *= static_cast<std::size_t>(extent);
        checkpoint::tensor_view t;
        t.name = w.name;
        t.type = type;
        t.shape = w.shape;
        bool const norm = is_norm(w.parts.front().what);
        t.data = norm ? std::span<std::byte const>(ones).first(bytes) : std::span<std::byte const>(block).subspan(begin, bytes);
        begin = (begin + 4160) % turn / size * size;
        tensors.push_back(std::move(t));
    }
    checkpoint::write_safetensors(directory + "/model.safetensors", tensors);
    std::ofstream(directory + "/config.json") << config_text;
}

// ---- the measurement

struct options {
    std::string config, plan = "all@0", weights = "f32", kv = "f32", profile = "canonical_1", isa = "auto", runtime = "threads", directory;
    int threads = 1, prefill = 128, decode = 16, chunk = 512, repeat = 5;
    bool json = false;
};

struct figures {
    double prefill_seconds = 0.0, decode_seconds = 0.0;  ///< medians
    double best_prefill_seconds = 0.0, best_decode_seconds = 0.0;
    std::int64_t moved_bytes = 0;                        ///< between ranks, for one decoded token
};

std::vector<token_id> random_tokens(int count, int vocab) {
    std::vector<token_id> ids;
    std::uint32_t x = 12345;
    for (int i = 0; i < count; ++i) {
        x = x * 1664525U + 1013904223U;
        ids.push_back(static_cast<token_id>((x >> 8U) % static_cast<std::uint32_t>(vocab)));
    }
    return ids;
}

/// The promise that the speed is worth nothing without: rows of a prefill are the rows of steps.
void require_same_bits(language_model& lm, std::span<token_id const> tokens) {
    state together = lm.make_state(), step_by_step = lm.make_state();
    std::span<float const> row = lm.prefill(together, tokens);
    std::vector<float> const expected(row.begin(), row.end());
    for (token_id const id : tokens) row = lm.step(step_by_step, id);
    if (std::memcmp(expected.data(), row.data(), row.size_bytes()) != 0) throw std::runtime_error("prefill and steps give different bits: nothing is timed");
}

/// Prefill, decode and the plain loops in turn.
figures time_it(language_model& lm, options const& o, limits& limit) {
    std::vector<token_id> const tokens = random_tokens(o.prefill + o.decode, lm.config().vocab);
    std::span<token_id const> const prompt(tokens.data(), static_cast<std::size_t>(o.prefill));
    require_same_bits(lm, std::span(tokens).first(static_cast<std::size_t>(std::min(o.prefill, 3))));
    std::vector<double> prefills, decodes;
    figures found;
    for (int turn = 0; turn < o.repeat; ++turn) {
        limit.measure();
        state s = lm.make_state(o.prefill + o.decode);
        double const begin = seconds();
        lm.prefill(s, prompt, o.chunk);
        prefills.push_back(seconds() - begin);
        std::int64_t const moved = lm.counts().total.bytes;
        double const filled = seconds();
        for (int i = 0; i < o.decode; ++i) lm.step(s, tokens[static_cast<std::size_t>(o.prefill + i)]);
        decodes.push_back(seconds() - filled);
        found.moved_bytes = (lm.counts().total.bytes - moved) / o.decode;
    }
    limit.measure();
    found.prefill_seconds = median(prefills);
    found.decode_seconds = median(decodes);
    found.best_prefill_seconds = *std::min_element(prefills.begin(), prefills.end());
    found.best_decode_seconds = *std::min_element(decodes.begin(), decodes.end());
    return found;
}

/// Bytes of weights that one decoded token reads: every matrix but a table that is only looked up, and of experts those that it chose.
std::int64_t bytes_per_token(graph_view g, weights format, dtype stored) {
    std::int64_t sum = 0;
    for (tensor const& t : g.ir.tensors)
        for (int m = 0; m < t.ranks; ++m) {
            if (!t.is_matrix() || t.what == role::embed) continue;
            std::int64_t const bytes = bytes_of(held_format(t, format, stored, g.config->tied), std::int64_t{t.rows_of(m).size()} * t.columns_of(m).size());
            std::int64_t held = held_count(t, g.stages[static_cast<std::size_t>(t.stage)], *g.config, m);
            if (t.is_of_expert()) held = held * g.config->kinds[static_cast<std::size_t>(t.kind)].experts.chosen / t.experts;
            sum += bytes * held;
        }
    return sum;
}

/// Operations of a prefill: every token through every layer, one row of logits a call.
double prefill_flops(graph_view g, cost_view const& cost, options const& o) {
    std::int64_t each = 0;
    for (int r = 0; r < cost.ranks(); ++r) each += cost.flops_per_token(rank_index{r}, (o.prefill + 1) / 2);
    int const calls = o.chunk > 0 ? (o.prefill + o.chunk - 1) / o.chunk : 1;
    return static_cast<double>(each) * o.prefill - 2.0 * g.config->vocab * g.config->hidden * (o.prefill - calls);
}

/// Seconds in which so many threads copy a file that is in the page cache into fresh memory.
double copy_time(std::string const& path, int threads) {
    checkpoint::mapped_file const file(path);
    std::string_view const bytes = file.text();
    detail::buffer to(bytes.size());
    return on_threads(threads, [&](int i) {
        auto const part = static_cast<std::size_t>(i), parts = static_cast<std::size_t>(threads);
        std::size_t const begin = bytes.size() / parts * part, end = part + 1 == parts ? bytes.size() : bytes.size() / parts * (part + 1);
        std::memcpy(static_cast<char*>(to.data()) + begin, bytes.data() + begin, end - begin);
    });
}

/// Of this process, as the system counts them; 0 where it does not say.
std::int64_t bytes_in_huge_pages() {
    std::ifstream file("/proc/self/smaps_rollup");
    for (std::string word; file >> word;)
        if (word == "AnonHugePages:") {
            std::int64_t kib = 0;
            file >> kib;
            return kib * 1024;
        }
    return 0;
}

std::string read_text(std::string const& path) {
    checkpoint::mapped_file const file(path);
    return std::string(file.text());
}

int bench(options const& o) {
    if (o.prefill < 1 || o.decode < 1 || o.repeat < 1 || o.chunk < 0)
        detail::refuse("counts_are_positive", "--prefill, --decode and --repeat are 1 or more, --chunk 0 or more");
    numeric_profile const& profile = numeric::named(o.profile);
    bool const exact = profile.products == product_rule::fixed_point;  // weights are codes, whatever is in the file
    weights const asked = o.weights == "f32" ? weights::f32 : o.weights == "q8" ? weights::q8 : weights::bf16;
    weights const format = detail::format_under(profile, exact && asked != weights::q8 ? weights::stored : asked);
    kv_format const kv_kept = o.kv == "bf16" ? kv_format::bf16 : kv_format::f32;
    dtype const stored = asked == weights::f32 ? dtype::f32 : dtype::bf16;

    std::string const text = read_text(o.config);
    model_config const config = checkpoint::read_config(text, o.config);
    plan::value const plan = plan::parse(o.plan);
    dynamic_graph const graph(config, plan);
    cost_view const cost = graph.cost(format, stored);
    std::int64_t held = 0, kv = 0, largest = 0;
    std::set<int> devices;
    for (int r = 0; r < cost.ranks(); ++r) {
        held += cost.weight_bytes(rank_index{r});
        kv += cost.kv_bytes(rank_index{r}, o.prefill + o.decode, kv_kept);
        devices.insert(cost.device_of(rank_index{r}).index);
    }
    if (o.prefill + o.decode > config.max_positions)
        detail::refuse("positions_fit_the_model", std::to_string(o.prefill + o.decode) + " positions; the model has " + std::to_string(config.max_positions));
    std::int64_t const in_file = bytes_in_file(checkpoint::inventory_of(config), stored, largest);
    std::int64_t const read = bytes_per_token(graph.view(), format, stored);
    require_room(o.directory, in_file, held + kv + std::max(largest, read) + (std::int64_t{1} << 28));

    // The file goes as soon as it is loaded; its pages then leave the cache without having been written anywhere.
    double load_seconds = 0.0, copy_seconds = 0.0;
    std::optional<dynamic_causal_lm<device::cpu>> lm;
    int const workers = o.runtime == "sequential" ? 1 : static_cast<int>(devices.size());
    {
        temporary_checkpoint const folder(o.directory);
        write_random(folder.path(), text, config, stored);
        load_options how;
        how.weights = format;
        how.isa = o.isa;
        how.threads = o.threads;
        how.kv = kv_kept;
        how.profile = profile;
        copy_seconds = copy_time(folder.weights(), workers * o.threads);
        double const begin = seconds();
        if (o.runtime == "processes")
            lm.emplace(dynamic_causal_lm<device::cpu>::load(folder.path(), plan, runtime::processes{}, how));
        else
            lm.emplace(dynamic_causal_lm<device::cpu>::load(
                folder.path(), plan, o.runtime == "threads" ? runtime_kind::threads : runtime_kind::sequential, how));
        load_seconds = seconds() - begin;
    }
    limits limit(workers * o.threads, read, format == weights::q8);
    figures const f = time_it(*lm, o, limit);

    double const decode_rate = o.decode / f.decode_seconds, prefill_rate = o.prefill / f.prefill_seconds;
    double const gb = static_cast<double>(read) * decode_rate * 1e-9, gflop = prefill_flops(graph.view(), cost, o) / f.prefill_seconds * 1e-9;
    double const best_decode = o.decode / f.best_decode_seconds, best_prefill = o.prefill / f.best_prefill_seconds;
    std::int64_t const huge = bytes_in_huge_pages();
    if (o.json) {
        nlohmann::ordered_json const out{
            {"config", o.config}, {"plan", lm->plan()}, {"weights", o.weights}, {"kv", o.kv}, {"profile", o.profile}, {"isa", lm->isa()}, {"runtime", o.runtime}, {"threads", o.threads},
            {"workers", workers}, {"threads_in_all", workers * o.threads}, {"ranks", lm->ranks()}, {"prefill", o.prefill}, {"decode", o.decode}, {"chunk", o.chunk}, {"repeat", o.repeat},
            {"weight_bytes", held}, {"weight_bytes_per_decoded_token", read}, {"moved_bytes_per_decoded_token", f.moved_bytes}, {"kv_bytes", kv}, {"load_seconds", load_seconds}, {"copy_seconds", copy_seconds},
            {"prefill_tokens_per_s", prefill_rate}, {"decode_tokens_per_s", decode_rate}, {"best_prefill_tokens_per_s", best_prefill}, {"best_decode_tokens_per_s", best_decode}, {"decode_gb_per_s", gb}, {"prefill_gflop_per_s", gflop},
            {"huge_page_bytes", huge}, {"limit_read_gb_per_s", limit.read_gb_per_s()}, {"limit_gflop_per_s", limit.gflop_per_s()}, {"limit_byte_gop_per_s", limit.gop_per_s()},
            {"decode_share_of_limit", gb / limit.read_gb_per_s()}, {"prefill_share_of_limit", gflop / limit.gflop_per_s()}};
        std::cout << out.dump(2) << '\n';
    } else {
        std::printf("%s under %s, %s weights, profile %s, %s, %s runtime, %d worker%s of %d thread%s\n", o.config.c_str(), lm->plan().c_str(), o.weights.c_str(),
                    o.profile.c_str(), std::string(lm->isa()).c_str(), o.runtime.c_str(), workers, workers == 1 ? "" : "s", o.threads, o.threads == 1 ? "" : "s");
        std::printf("loaded   %12.3f seconds, %.2f times what as many threads need to copy the cached file\n", load_seconds, load_seconds / copy_seconds);
        std::printf("held     %12.3f GB of weights, %.3f GB of them read for a decoded token; %.3f GB of all memory in huge pages\n", static_cast<double>(held) * 1e-9,
                    static_cast<double>(read) * 1e-9, static_cast<double>(huge) * 1e-9);
        std::printf("moved    %12lld bytes between ranks for a decoded token\n", static_cast<long long>(f.moved_bytes));
        std::printf("prefill  %12.2f tokens/s (best %.2f)  %9.2f GFLOP/s, %3.0f %% of %.2f (FMA loop)\n", prefill_rate, best_prefill, gflop, 100 * gflop / limit.gflop_per_s(), limit.gflop_per_s());
        if (limit.gop_per_s() > 0.0)
            std::printf("                                                                %3.0f %% of %.2f (loop over products of bytes)\n", 100 * gflop / limit.gop_per_s(), limit.gop_per_s());
        std::printf("decode   %12.2f tokens/s (best %.2f)  %9.2f GB/s, %3.0f %% of %.2f (plain read of as many bytes)\n", decode_rate, best_decode, gb, 100 * gb / limit.read_gb_per_s(), limit.read_gb_per_s());
    }
    return 0;
}

}  // namespace

int main(int argc, char** argv) {
    options o;
    char const* const temporary = std::getenv("TMPDIR");
    o.directory = temporary != nullptr && *temporary != '\0' ? temporary : "/tmp";
    CLI::App app{"Measures prefill and decode of a geometry on random weights, beside the limits of this machine."};
    app.add_option("--config", o.config, "a config.json")->required();
    app.add_option("--plan", o.plan, "who runs what")->capture_default_str();
    app.add_option("--weights", o.weights, "format of the weights, in the file and in memory; in the file bf16 for q8")->check(CLI::IsMember({"f32", "bf16", "q8"}))->capture_default_str();
    app.add_option("--profile", o.profile, "numeric profile")->capture_default_str();
    app.add_option("--kv", o.kv, "format of keys and values")->check(CLI::IsMember({"f32", "bf16"}))->capture_default_str();
    app.add_option("--threads", o.threads, "threads of each rank's worker")->capture_default_str();
    app.add_option("--prefill", o.prefill, "tokens of the prompt")->capture_default_str();
    app.add_option("--decode", o.decode, "tokens fed one by one after it")->capture_default_str();
    app.add_option("--chunk", o.chunk, "most tokens of the prompt in one call; 0: all")->capture_default_str();
    app.add_option("--repeat", o.repeat, "turns; medians count")->capture_default_str();
    app.add_option("--runtime", o.runtime, "who runs the ranks")->check(CLI::IsMember({"threads", "sequential", "processes"}))->capture_default_str();
    app.add_option("--isa", o.isa, "auto, portable, avx2, avx512 or neon")->capture_default_str();
    app.add_option("--directory", o.directory, "where the random checkpoint stands while it is loaded")->capture_default_str();
    app.add_flag("--json", o.json, "print one JSON object");
    try {
        app.parse(argc, argv);
        return bench(o);
    } catch (CLI::ParseError const& e) {
        return app.exit(e) == 0 ? 0 : 1;
    } catch (refusal const& e) {
        std::cerr << "refused: " << e.what() << '\n';
        return 2;
    } catch (std::exception const& e) {
        std::cerr << e.what() << '\n';
        return 1;
    }
}
