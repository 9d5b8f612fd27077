// latency-bench: what it takes to hand a residual stream over a seam, and to join a tensor split, between two threads and between two
// processes, beside bare exchanges of the same bytes over the same memory. With a model's folder: decode steps of it under every runtime.
// With a folder, a plan, a runtime and a number: so many decode steps and nothing else, for syscalls.py.
//
// The library's arms are its own objects, driven by hand: the rank programs of a graph with two ranks, and the meeting place where a decode
// step lets them meet. A round of a join is what a layer does twice: meet, `join_product` of partial sums, meet, `add_pieces` to the
// residual stream; a round of a hand-over is `finish`, `await` and `take_over`, there and back. So nothing has to be subtracted, as it
// would from a whole step. What a step has besides, a look whether somebody has failed and a count of steps, is some nanoseconds. The
// ranks' memory lies where their runtime has it: on the heap of one process, or in the arena that processes share.
//
// The bare arms: for a join each adds one half with the same kernel and stores it into both outputs, between two barriers of one flag each,
// and adds its output to a stream of its own (a sum that nobody reads has not moved); for a hand-over each copies what the other has copied
// before, behind one flag each. A join begins with partial sums that are written anew, in both arms. Both runners are pinned, each to a
// core. SPDX-License-Identifier: Apache-2.0
#include "latency.hpp"

#include <tenon/runtime/processes.hpp>

#include <sys/wait.h>
#include <memory>
#include <optional>
#include <thread>

namespace {

using namespace latency;

/// Flags and buffers of the bare arms.
struct bare_memory {
    alignas(64) std::atomic<std::uint32_t> flags[2][16]{};
    alignas(64) float in[2][16384]{}, out[2][16384]{};
};

void await(std::atomic<std::uint32_t> const& flag, std::uint32_t value) {
    while (flag.load(std::memory_order_acquire) != value) detail::pause_cpu();
}

/// What two runners share.
struct ground {
    narrow_model const* files;
    loaded_ranks *tensor, *pipeline;
    detail::meeting_words tensor_words, pipeline_words;
    detail::shared_word* failed;
    bare_memory* bare;
    bool across_processes;
};

/// One of the two, with its part of every arm.
class runner : ground {
public:
    runner(ground const& shared, int number) : ground(shared), me(number) {}

    std::vector<double> play(std::vector<arm>& arms) {
        stay_on_core(me);
        check();
        arms = {{"join", [this](int rounds) { join(rounds); }},
                {"join", [this](int rounds) { bare_join(rounds); }},
                {"hand-over", [this](int rounds) { hand_over(rounds); }, 2},
                {"hand-over", [this](int rounds) { bare_hand_over(rounds); }, 2}};
        return medians(arms, hidden() > 4096 ? 10 : 50);
    }

private:
    std::size_t hidden() const { return static_cast<std::size_t>(files->config.hidden); }

    void join(int rounds) {
        detail::meeting_place place(tensor_words, tensor->graph.view().stages, 1, *failed, nullptr, patience_);
        auto& rank = tensor->ranks.rank(me);
        float* const partial = partial_of(*tensor, batch_, me);
        for (int i = 0; i < rounds; ++i) {
            std::memcpy(partial, fresh_.data(), hidden() * sizeof(float));
            place.meet(0, static_cast<std::size_t>(me), attends);
            rank.run(joins, batch_);
            place.meet(0, static_cast<std::size_t>(me), joins);
            rank.run(finishes, batch_);
        }
    }
    void bare_join(int rounds) {
        std::size_t const half = hidden() / 2, first = me == 0 ? 0 : half;
        detail::machine const& ranks = tensor->ranks;
        for (int i = 0; i < rounds; ++i) {
            std::memcpy(bare->in[me], fresh_.data(), hidden() * sizeof(float));
            bare_meet();
            ranks.tail_ops().add(bare->out[me] + first, bare->in[0] + first, bare->in[1] + first, half);
            std::memcpy(bare->out[1 - me] + first, bare->out[me] + first, half * sizeof(float));
            bare_meet();
            ranks.tail_ops().add(stream_.data(), stream_.data(), bare->out[me], hidden());
        }
    }
    void bare_meet() {
        bare->flags[me][0].store(++met_, std::memory_order_release);
        while (static_cast<std::int32_t>(bare->flags[1 - me][0].load(std::memory_order_acquire) - met_) < 0) detail::pause_cpu();
    }

    void hand_over(int rounds) {
        auto &first = pipeline->ranks.rank(0), &second = pipeline->ranks.rank(1);
        for (int i = 0; i < rounds; ++i) {
            detail::meeting_place place(pipeline_words, pipeline->graph.view().stages, ++call_, *failed, nullptr, patience_);
            if (me == 0) {
                place.finish(0);
                place.await(1, 0);
                first.take_over(second, batch_);
            } else {
                place.await(0, 0);
                second.take_over(first, batch_);
                place.finish(1);
            }
        }
    }
    void bare_hand_over(int rounds) {
        std::size_t const bytes = hidden() * sizeof(float);
        for (int i = 0; i < rounds; ++i) {
            ++handed_;
            if (me == 0) {
                bare->flags[0][1].store(handed_, std::memory_order_release);
                await(bare->flags[1][1], handed_);
                std::memcpy(bare->in[0], bare->in[1], bytes);
            } else {
                await(bare->flags[0][1], handed_);
                std::memcpy(bare->in[1], bare->in[0], bytes);
                bare->flags[1][1].store(handed_, std::memory_order_release);
            }
        }
    }

    /// Numbers that go through every arm once, and what is there then.
    void check() {
        fresh_.resize(hidden());
        stream_.resize(hidden());
        for (std::size_t i = 0; i < hidden(); ++i) fresh_[i] = static_cast<float>(i % 1000) + static_cast<float>(me);
        auto const sum = [](std::size_t i) { return 2.0f * static_cast<float>(i % 1000) + 1.0f; };
        std::vector<float> before(tensor->ranks.rank(me).residual(), tensor->ranks.rank(me).residual() + hidden());
        join(1);
        bare_join(1);
        for (std::size_t i = 0; i < hidden(); ++i) {
            require(tensor->ranks.rank(me).residual()[i] == before[i] + sum(i), "join");
            require(stream_[i] == sum(i), "bare join");
        }
        if (me == 0) std::memcpy(pipeline->ranks.rank(0).residual_place(), fresh_.data(), hidden() * sizeof(float));
        hand_over(1);
        for (std::size_t i = 0; i < hidden(); ++i)
            require(pipeline->ranks.rank(me).residual()[i] == static_cast<float>(i % 1000), "hand-over");
        fresh_.assign(hidden(), 0.001f);
        bare_meet();
    }

    int me;
    detail::batch batch_ = one_row();
    detail::patience patience_{2, across_processes};
    std::vector<float> fresh_, stream_;
    std::uint32_t met_ = 0, handed_ = 0, call_ = 0;
};

void between_threads(narrow_model const& files) {
    loaded_ranks tensor(files, "all@0,1:tensor.reduce"), pipeline(files, "0@0;1@1;2@0");
    detail::batch const b = one_row();
    tensor.ranks.reserve(b);
    pipeline.ranks.reserve(b);
    std::vector<detail::awaited_word> joined(detail::meeting_words::count(1, 2)), handed(detail::meeting_words::count(3, 2));
    detail::shared_word failed{0};
    auto const bare = std::make_unique<bare_memory>();
    ground const shared{&files, &tensor, &pipeline, {joined.data(), 2}, {handed.data(), 2}, &failed, bare.get(), false};
    std::thread other([&shared] {
        std::vector<arm> arms;
        runner(shared, 1).play(arms);
    });
    std::vector<arm> arms;
    runner first(shared, 0);
    std::vector<double> const times = first.play(arms);
    other.join();
    show("threads", files.config.hidden, arms, times);
}

void between_processes(narrow_model const& files) {
    using detail::control_block, detail::shared_memory, detail::arena;
    loaded_ranks tensor(files, "all@0,1:tensor.reduce"), pipeline(files, "0@0;1@1;2@0");
    detail::batch const b = one_row();
    shared_memory const words[]{shared_memory::make(control_block::bytes_for(1, 2)), shared_memory::make(control_block::bytes_for(3, 2))};
    shared_memory const arenas[]{shared_memory::make(1 << 20), shared_memory::make(1 << 20)},
        flags = shared_memory::make(sizeof(bare_memory));
    control_block const control[]{{words[0].data(), 1, 2}, {words[1].data(), 3, 2}};
    for (control_block c : control) c.initialise();
    arena first_arena(arenas[0].data(), arenas[0].bytes()), second_arena(arenas[1].data(), arenas[1].bytes());
    tensor.ranks.reserve(b, &first_arena);
    pipeline.ranks.reserve(b, &second_arena);
    ground const shared{
        &files, &tensor, &pipeline, control[0].meetings(), control[1].meetings(), &control[0].failed(), ::new (flags.data()) bare_memory,
        true};
    ::pid_t const other = ::fork();
    std::vector<arm> arms;
    runner own(shared, other == 0 ? 1 : 0);
    std::vector<double> const times = own.play(arms);
    if (other == 0) ::_exit(0);
    int status = 0;
    ::waitpid(other, &status, 0);
    require(status == 0, "the other process");
    show("processes", files.config.hidden, arms, times);
}

/// The median decode step of a model, and its last logits.
template <class Runtime>
std::pair<double, std::vector<float>> step_of(std::string const& directory, std::string const& plan_text, Runtime const& runtime) {
    auto lm = dynamic_causal_lm<>::load(directory, plan::parse(plan_text), runtime);
    std::vector<double> all;
    std::vector<float> logits;
    for (int repeat = 0; repeat < 5; ++repeat) {
        state s = lm.make_state(256);
        for (int i = 0; i < 250; ++i) {
            double const begin = seconds();
            std::span<float const> const row = lm.step(s, i % lm.config().vocab);
            if (i >= 50) all.push_back(seconds() - begin);
            logits.assign(row.begin(), row.end());
        }
    }
    std::nth_element(all.begin(), all.begin() + static_cast<std::ptrdiff_t>(all.size() / 2), all.end());
    return {all[all.size() / 2], logits};
}

void steps_of(std::string const& directory) {
    int const layers = checkpoint::read_config(checkpoint::folder(directory).config_text(), "config.json").layers;
    std::string const middle = std::to_string(layers / 2 - 1), next = std::to_string(layers / 2), last = std::to_string(layers - 1);
    std::vector<float> const expected = step_of(directory, "all@0", runtime::sequential{}).second;
    std::printf("\n| decode step of %s, us | sequential | threads | processes |\n|---|---|---|---|\n", directory.c_str());
    for (std::string const& text : {std::string("all@0"), std::string("all@0,1"), "0-" + middle + "@0;" + next + "-" + last + "@1"}) {
        std::printf("| `%s` |", text.c_str());
        for (auto const& [time, logits] : {step_of(directory, text, runtime::sequential{}), step_of(directory, text, runtime::threads{}),
                                           step_of(directory, text, runtime::processes{})}) {
            require(std::memcmp(logits.data(), expected.data(), expected.size() * sizeof(float)) == 0, "decode step");
            std::printf(" %.0f |", time * 1e6);
        }
        std::printf("\n");
    }
}

/// Decode steps alone, for who counts what they ask of the system.
template <class Runtime>
void take_steps(std::string const& directory, std::string const& plan_text, Runtime const& runtime, int count) {
    auto lm = dynamic_causal_lm<>::load(directory, plan::parse(plan_text), runtime);
    state s = lm.make_state(64);
    if (Runtime::kind != runtime_kind::sequential) stay_apart();
    for (int i = 0; i < count; ++i) {
        if (s.length() == 64) lm.truncate(s, 1);
        lm.step(s, i % lm.config().vocab);
    }
}

}  // namespace

int main(int argc, char** argv) {
    if (argc == 2) {
        steps_of(argv[1]);
        return 0;
    }
    if (argc == 5) {  // FOLDER PLAN RUNTIME STEPS
        std::string const name = argv[3];
        int const count = std::atoi(argv[4]);
        if (name == "sequential") take_steps(argv[1], argv[2], runtime::sequential{}, count);
        if (name == "threads") take_steps(argv[1], argv[2], runtime::threads{}, count);
        if (name == "processes") take_steps(argv[1], argv[2], runtime::processes{}, count);
        return 0;
    }
    ::cpu_set_t all;
    ::sched_getaffinity(0, sizeof all, &all);
    show_head();
    for (int const hidden : {2048, 16384}) {
        narrow_model const files(hidden);
        between_processes(files);
        ::sched_setaffinity(0, sizeof all, &all);
        between_threads(files);
        ::sched_setaffinity(0, sizeof all, &all);
    }
    return 0;
}
