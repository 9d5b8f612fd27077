// What every process of an MPI run checks for itself: the bits of one rank, under every plan for as many devices as there are processes;
// and that all refuse what one refuses. Exit status 0 where everything held. With the argument `throws` a step of the last process throws
// instead. SPDX-License-Identifier: Apache-2.0
#include "support/failing_backend.hpp"
#include "support/families.hpp"
#include "support/runs.hpp"

#include <tenon/device/xtensor.hpp>
#include <tenon/dynamic_causal_lm.hpp>
#include <tenon/runtime/mpi.hpp>

#include <cstdio>
#include <string>
#include <string_view>
#include <vector>

using namespace tenon;
using namespace support;

namespace {
int processes = 1, own = 0, failures = 0;

void check(bool holds, std::string const& what) {
    if (holds) return;
    ++failures;
    std::printf("process %d: %s\n", own, what.c_str());
}

/// A checkpoint that process 0 writes and all read.
class shared_model {
public:
    shared_model(geometry const& g, std::uint64_t seed) {
        if (own == 0) files_ = std::make_unique<random_model>(g, seed);
        std::string path = own == 0 ? files_->directory() : std::string();
        int size = static_cast<int>(path.size());
        MPI_Bcast(&size, 1, MPI_INT, 0, MPI_COMM_WORLD);
        path.resize(static_cast<std::size_t>(size));
        MPI_Bcast(path.data(), size, MPI_CHAR, 0, MPI_COMM_WORLD);
        directory_ = path;
    }
    ~shared_model() { MPI_Barrier(MPI_COMM_WORLD); }
    std::string const& directory() const { return directory_; }

private:
    std::unique_ptr<random_model> files_;
    std::string directory_;
};

/// Every choice of a router, in order.
struct choices final : routing_observer {
    ids seen;
    void routed(int layer, std::int64_t sequence, std::int64_t position, std::span<std::int32_t const> experts) override {
        seen.insert(seen.end(), {layer, static_cast<int>(sequence), static_cast<int>(position)});
        seen.insert(seen.end(), experts.begin(), experts.end());
    }
};

bool same_census(rank_census const& a, rank_census const& b) {
    bool same = a.messages == b.messages && a.bytes == b.bytes && a.gathers == b.gathers && a.reductions == b.reductions &&
                a.hand_overs == b.hand_overs && a.products == b.products && a.rows == b.rows && a.experts.size() == b.experts.size();
    for (std::size_t i = 0; same && i < a.experts.size(); ++i)
        same = a.experts[i].dispatched_rows == b.experts[i].dispatched_rows && a.experts[i].returned_rows == b.experts[i].returned_rows &&
               a.experts[i].bytes == b.experts[i].bytes;
    return same;
}

template <template <int...> class Device>
void check_plan(std::string const& directory, std::string const& text, numeric_profile const& profile = numeric::canonical_1) {
    choices ours, theirs;
    load_options how{.profile = profile}, plain{.profile = profile};
    how.routing = &ours;
    plain.routing = &theirs;
    auto m = dynamic_causal_lm<Device>::load(directory, plan::parse(text), runtime::mpi{}, how);
    auto alone = dynamic_causal_lm<Device>::load(directory, plan::parse(text), runtime::sequential{}, plain);
    auto whole = dynamic_causal_lm<Device>::load(directory, plan::parse("all@0"), runtime::sequential{}, {.profile = profile});
    random_bits random(7);
    std::vector<ids> sequences;
    for (int i = 0; i < 5; ++i) sequences.push_back(random_tokens(random, i == 0 ? 66 : 1 + (i * 5) % 13, m.config().vocab));
    for (std::size_t const chunk : {std::size_t{0}, std::size_t{7}}) {
        floats const expected = rows_of(whole, sequences[0]);
        check(first_difference(expected, rows_of(m, sequences[0], chunk)).empty(), text + ": other bits than one rank's");
        rows_of(alone, sequences[0], chunk);
    }
    std::vector<floats> const batch = ragged_rows_of(m, sequences), same = ragged_rows_of(alone, sequences);
    for (std::size_t i = 0; i < batch.size(); ++i)
        check(first_difference(same[i], batch[i]).empty(), text + ": a ragged batch has other bits");
    generation_options options;
    options.max_new_tokens = 6;
    options.sample = {.temperature = 0.9f, .seed = 11};
    check(m.generate(sequences[1], options) == alone.generate(sequences[1], options), text + ": other tokens");
    check(ours.seen == theirs.seen, text + ": other choices of experts");
    census const a = m.counts(), b = alone.counts();
    for (std::size_t r = 0; r < a.ranks.size(); ++r)
        check(same_census(a.ranks[r], b.ranks[r]), text + ": another census of rank " + std::to_string(r));
    for (int r = 0; r < m.ranks(); ++r) check(m.weight_bytes({r}) == alone.weight_bytes({r}), text + ": other weight bytes");
    auto const p = m.parameters(), q = alone.parameters();
    check(p.size() == q.size(), text + ": other parameters");
    for (std::size_t i = 0; i < p.size() && i < q.size(); ++i)
        check(p[i].name == q[i].name && p[i].data == q[i].data, text + ": parameter " + p[i].name);
}

/// Plans of so many devices; legal for the models below.
std::vector<std::string> plans_of(int devices, bool routed) {
    if (devices == 1) return {"all@0"};
    if (devices == 2) {
        std::vector<std::string> all{"all@0,1:tensor", "all@0,1:tensor.reduce", "0-1@0;2-3@1", "0@0;1@1;2@0;3@1", "0-1@1,0:tensor;2-3@0"};
        if (routed)
            for (std::string const rules : {"expert", "tensor+expert", "expert_width", "expert_width.reduce",
                                            "tensor.reduce+expert_width.reduce", "tensor+expert_width"})
                all.push_back("all@0,1:" + rules);
        return all;
    }
    if (devices == 3)
        return routed ? std::vector<std::string>{"all@0,1,2:expert", "0-1@0,1:tensor+expert;2-3@2,0:expert_width"}
                      : std::vector<std::string>{"0@0;1-2@1,2:tensor.reduce;3@0", "0-1@0;2@1;3@2"};
    return routed ? std::vector<std::string>{"all@0,1,2,3:tensor+expert", "0-1@0,1:expert;2-3@2,3:tensor.reduce+expert_width.reduce"}
                  : std::vector<std::string>{"all@0,1,2,3:tensor.reduce", "0-1@0,1:tensor;2-3@2,3:tensor"};
}

std::string refused(std::string const& directory, std::string const& text, load_options const& how = {}) {
    return law_of([&] { dynamic_causal_lm<>::load(directory, plan::parse(text), runtime::mpi{}, how); });
}

/// What one process refuses, all refuse, by its name.
void check_refusals(std::string const& directory) {
    std::string const fits = plans_of(processes, false)[0];
    check(refused(directory, "0@0;1@1;2@2;3@" + std::to_string(processes == 4 ? 0 : 3)) == "mpi_processes_are_the_devices",
          "another number of devices");
    if (processes < 2) return;
    bool const odd = own == processes - 1;
    check(refused(odd ? "/nonexistent" : directory, fits) == "file_opens", "a folder that one process does not have");
    check(refused(directory, odd ? plans_of(processes, false)[1] : fits) == "mpi_processes_agree", "two plans");
    check(refused(directory, odd ? "all@0,1,2:tensor" : fits) == "heads_divide_over_ranks", "a plan that one process refuses");
    load_options narrow;
    if (odd) narrow.weights = weights::bf16;
    check(refused(directory, fits, narrow) == "mpi_processes_agree", "two formats");
    load_options rounded;
    if (odd) rounded.kv = kv_format::bf16;
    check(refused(directory, fits, rounded) == "mpi_processes_agree", "two formats of keys and values");
    load_options pairs{.weights = weights::bf16};
    if (odd) pairs.profile = numeric::bf16_pair_1;
    check(refused(directory, fits, pairs) == "mpi_processes_agree", "two profiles");
    pairs.profile = numeric::bf16_pair_1;
    {
        auto ours = dynamic_causal_lm<>::load(directory, plan::parse(fits), runtime::mpi{}, pairs);
        auto whole = dynamic_causal_lm<>::load(directory, plan::parse("all@0"), runtime::sequential{}, pairs);
        ids const some{1, 2, 3, 4, 5};
        check(first_difference(rows_of(whole, some), rows_of(ours, some)).empty(), "other bits than one rank's under a profile");
    }
    auto m = dynamic_causal_lm<>::load(directory, plan::parse(fits), runtime::mpi{});  // and the next load works
    state s = m.make_state();
    check(law_of([&] { m.step(s, 1 << 20); }) == "token_is_in_vocabulary", "a token that is none");
    m.step(s, 1);
    check(s.length() == 1, "a call after a refusal");
}

/// Threads of a process, and another number of them in each, change no bit, whatever the cache keeps.
void check_threads(std::string const& directory) {
    ids const some{1, 2, 3, 4, 5, 6, 7};
    for (kv_format const kv : {kv_format::f32, kv_format::bf16})
        for (std::string const& text : plans_of(processes, false)) {
            load_options how{.kv = kv};
            auto whole = dynamic_causal_lm<>::load(directory, plan::parse("all@0"), runtime::sequential{}, how);
            how.threads = 2 + own;
            auto ours = dynamic_causal_lm<>::load(directory, plan::parse(text), runtime::mpi{}, how);
            check(first_difference(rows_of(whole, some), rows_of(ours, some, 3)).empty(), text + ": other bits on several threads");
        }
}

/// Of an MPI that was told of no threads.
void check_single(std::string const& directory) {
    load_options how;
    how.threads = 2;
    int provided = 0;
    MPI_Query_thread(&provided);
    check(refused(directory, plans_of(processes, false)[0], how) == (provided < MPI_THREAD_FUNNELED ? "mpi_allows_threads" : "nothing is refused"),
          "several threads of an MPI for one");
    how.threads = 1;
    check(refused(directory, plans_of(processes, false)[0], how) == "nothing is refused", "one thread of an MPI for one");
}

/// One process throws in a step while the others wait for its part: nothing after the step is reached.
void throw_in_a_step(std::string const& directory) {
    auto m = dynamic_causal_lm<failing>::load(directory, plan::parse(plans_of(processes, false)[0]), runtime::mpi{});
    state s = m.make_state();
    m.step(s, 1);
    if (own == processes - 1) calls_until_failure = 1;
    m.step(s, 2);
    std::printf("process %d has gone on\n", own);
}
}  // namespace

int main(int argc, char** argv) {
    std::string_view const mode = argc > 1 ? argv[1] : "";
    int provided = 0;
    MPI_Init_thread(&argc, &argv, mode == "single" ? MPI_THREAD_SINGLE : MPI_THREAD_FUNNELED, &provided);
    MPI_Comm_size(MPI_COMM_WORLD, &processes);
    MPI_Comm_rank(MPI_COMM_WORLD, &own);
    if (mode == "throws") {
        shared_model const files(dense_families()[0], 104);
        throw_in_a_step(files.directory());
    }
    if (mode == "single") {
        shared_model const files(dense_families()[0], 105);
        check_single(files.directory());
    } else {
        geometry dense = dense_families()[0];
        shared_model const files(dense, 101);
        for (std::string const& text : plans_of(processes, false)) {
            check_plan<device::cpu>(files.directory(), text);
            check_plan<device::cpu>(files.directory(), text, numeric::fixed15_1);
        }
        check_refusals(files.directory());
        check_threads(files.directory());
    }
    for (geometry const& g : mode == "single" ? std::vector<geometry>{} : std::vector{routed_families()[0], routed_families()[1]}) {
        shared_model const files(g, 102);
        for (std::string const& text : plans_of(processes, true)) {
            check_plan<device::cpu>(files.directory(), text);
            check_plan<device::cpu>(files.directory(), text, numeric::fixed15_1);
        }
    }
    if (mode != "single") {
        shared_model const files(dense_families()[3], 103);
        check_plan<device::xtensor>(files.directory(), plans_of(processes, false).back());
    }
    int all = 0;
    MPI_Allreduce(&failures, &all, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    if (own == 0) std::printf("%d processes: %d failed checks\n", processes, all);
    MPI_Finalize();
    return all == 0 ? 0 : 1;
}
