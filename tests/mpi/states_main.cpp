// Sequences that are saved under one number of processes and go on under another: one half of that, as a program. What it saves and how it
// goes on is the same under `plain`, in one process without MPI. Exit status 0 where everything held. SPDX-License-Identifier: Apache-2.0
//
//   states_main save plain|mpi PLAN FOLDER      FOLDER gets a snapshot of each model, and the logits that follow
//   states_main restore plain|mpi PLAN FOLDER   goes on from those snapshots, and compares; then what must be refused
#include "support/families.hpp"
#include "support/runs.hpp"

#include <tenon/dynamic_causal_lm.hpp>
#include <tenon/runtime/mpi.hpp>

#include <cstdio>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

using namespace tenon;
using namespace support;

namespace {
using bytes = std::vector<std::byte>;
constexpr std::size_t kept = 70, all_tokens = 93;  // more than one block of 64 positions

int own = 0, failures = 0;

void check(bool holds, std::string const& what) {
    if (holds) return;
    ++failures;
    std::printf("process %d: %s\n", own, what.c_str());
}

bytes read(std::string const& path) {
    std::ifstream file(path, std::ios::binary);
    std::vector<char> const text{std::istreambuf_iterator<char>(file), {}};
    auto const view = std::as_bytes(std::span(text));
    return {view.begin(), view.end()};
}

/// By process 0 alone.
void write(std::string const& path, std::span<std::byte const> b) {
    if (own != 0) return;
    std::ofstream file(path, std::ios::binary);
    file.write(reinterpret_cast<char const*>(b.data()), static_cast<std::streamsize>(b.size()));
    check(file.good(), path + " cannot be written");
}

floats fed(language_model& m, state& s, std::span<token_id const> tokens) {
    feed const one{&s, tokens};
    floats rows;
    append(rows, m.forward({&one, 1}, rows_wanted::all));
    return rows;
}

void save(language_model& m, ids const& tokens, std::string const& to) {
    state s = m.make_state();
    fed(m, s, std::span(tokens).first(kept));
    bytes const saved = m.snapshot(s);
    write(to, saved);
    check(saved == m.snapshot(s), to + ": other bytes from the same state");
    floats const after = fed(m, s, std::span(tokens).subspan(kept));
    write(to + ".rows", std::as_bytes(std::span(after)));
}

void restore(language_model& m, ids const& tokens, std::string const& from) {
    bytes const saved = read(from), expected = read(from + ".rows");
    state s = m.restore(saved);
    check(s.length() == static_cast<std::int64_t>(kept), from + ": another length");
    write(from + ".again", m.snapshot(s));
    std::span<token_id const> const rest = std::span(tokens).subspan(kept);
    floats const whole = rows_of(m, tokens);
    for (int again = 0; again < 2; ++again) {
        floats const after = fed(m, s, rest);
        check(std::ranges::equal(std::as_bytes(std::span(after)), expected), from + ": other bits than where it was saved");
        std::size_t const before = kept * static_cast<std::size_t>(m.config().vocab);
        check(first_difference(std::span(whole).subspan(before), after).empty(), from + ": other bits than of never having stopped");
        m.truncate(s, static_cast<std::int64_t>(kept));  // and the same once more
    }
    bytes damaged = saved;
    damaged[saved.size() / 2] ^= std::byte{1};
    check(law_of([&] { m.restore(damaged); }) == "snapshot_checksum_matches", from + ": damage");
    check(law_of([&] { m.restore(std::span(saved).first(saved.size() - 1)); }) == "snapshot_is_whole", from + ": a part");
    check(m.restore(saved).length() == static_cast<std::int64_t>(kept), from + ": a call after a refusal");
}

template <class Runtime>
void run(bool saves, std::string const& plan, std::string const& folder, Runtime how) {
    int number = 0;
    for (geometry const& g : {dense_families()[0], dense_families()[1], routed_families()[1]}) {
        random_model const files(g, 211), others(g, 212);  // every process has files of its own, as on a machine of its own
        random_bits random(17);
        ids const tokens = random_tokens(random, all_tokens, g.vocab);
        std::string const at = folder + "/" + std::to_string(number++);
        auto m = dynamic_causal_lm<>::load(files.directory(), plan::parse(plan), how);
        if (saves) {
            save(m, tokens, at);
            continue;
        }
        restore(m, tokens, at);
        auto twin = dynamic_causal_lm<>::load(others.directory(), plan::parse(plan), how);
        check(law_of([&] { twin.restore(read(at)); }) == "snapshot_weights_are_the_models", at + ": another model's weights");
        check(rows_of(twin, {1, 2}).size() == 2 * static_cast<std::size_t>(g.vocab), at + ": a call after that");
    }
}
}  // namespace

int main(int argc, char** argv) {
    if (argc != 5) return 2;
    bool const saves = std::string(argv[1]) == "save";
    int all = 0, processes = 1;
    if (std::string(argv[2]) == "plain") {
        run(saves, argv[3], argv[4], runtime::sequential{});
        all = failures;
    } else {
        MPI_Init(&argc, &argv);
        MPI_Comm_rank(MPI_COMM_WORLD, &own);
        MPI_Comm_size(MPI_COMM_WORLD, &processes);
        run(saves, argv[3], argv[4], runtime::mpi{});
        MPI_Allreduce(&failures, &all, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
        MPI_Finalize();
    }
    if (own == 0) std::printf("%d processes: %d failed checks\n", processes, all);
    return all == 0 ? 0 : 1;
}
