// latency-mpi-bench: a join and a hand-over between two MPI processes, beside bare messages of the same bytes. For `mpirun -n 2`.
//
// The library's arms are the message place of a call and the rank programs, driven by hand as in latency_bench.cpp: `meet` sends what a
// rank has published and receives what its peer has. The bare arms: for a join MPI_Sendrecv of half the partial sums, the sum of one half
// with the same kernel, MPI_Sendrecv of the halves, and the addition to a stream; for a hand-over MPI_Send and MPI_Recv, there and back.
// SPDX-License-Identifier: Apache-2.0
#include "latency.hpp"

#include <tenon/runtime/mpi.hpp>

namespace {

using namespace latency;

class runner {
public:
    runner(narrow_model const& files, int number)
        : hidden_(static_cast<std::size_t>(files.config.hidden)),
          me_(number),
          tensor_(files, "all@0,1:tensor.reduce"),
          pipeline_(files, "0@0;1@1;2@0") {
        tensor_.ranks.reserve(batch_, nullptr, me_);
        pipeline_.ranks.reserve(batch_, nullptr, me_);
        for (std::vector<float>* const v : {&in_, &other_, &sum_, &fresh_, &stream_}) v->resize(hidden_);
    }

    std::vector<double> play(std::vector<arm>& arms) {
        check();
        arms = {{"join", [this](int rounds) { join(rounds); }},
                {"join", [this](int rounds) { bare_join(rounds); }},
                {"hand-over", [this](int rounds) { hand_over(rounds); }, 2},
                {"hand-over", [this](int rounds) { bare_hand_over(rounds); }, 2}};
        return medians(arms, hidden_ > 4096 ? 10 : 50);
    }

private:
    void join(int rounds) {
        detail::basic_message_place<void> place(tensor_.ranks, batch_, me_, MPI_COMM_WORLD, room_);
        auto& rank = tensor_.ranks.rank(me_);
        float* const partial = partial_of(tensor_, batch_, me_);
        for (int i = 0; i < rounds; ++i) {
            std::memcpy(partial, fresh_.data(), hidden_ * sizeof(float));
            place.meet(0, static_cast<std::size_t>(me_), attends);
            rank.run(joins, batch_);
            place.meet(0, static_cast<std::size_t>(me_), joins);
            rank.run(finishes, batch_);
        }
    }
    void bare_join(int rounds) {
        std::size_t const half = hidden_ / 2, own = me_ == 0 ? 0 : half, others = half - own;
        device::backend const& ops = tensor_.ranks.tail_ops();
        for (int i = 0; i < rounds; ++i) {
            std::memcpy(in_.data(), fresh_.data(), hidden_ * sizeof(float));
            swap(in_.data() + others, other_.data() + own, half);
            ops.add(sum_.data() + own, (me_ == 0 ? in_ : other_).data() + own, (me_ == 0 ? other_ : in_).data() + own, half);
            swap(sum_.data() + own, sum_.data() + others, half);
            ops.add(stream_.data(), stream_.data(), sum_.data(), hidden_);
        }
    }
    void swap(float const* out, float* in, std::size_t count) const {
        MPI_Sendrecv(out, static_cast<int>(count), MPI_FLOAT, 1 - me_, 0, in, static_cast<int>(count), MPI_FLOAT, 1 - me_, 0,
                     MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    }

    void hand_over(int rounds) {
        auto &first = pipeline_.ranks.rank(0), &second = pipeline_.ranks.rank(1);
        for (int i = 0; i < rounds; ++i) {
            detail::basic_message_place<void> place(pipeline_.ranks, batch_, me_, MPI_COMM_WORLD, room_);
            if (me_ == 0) {
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
        auto const count = static_cast<int>(hidden_);
        for (int i = 0; i < rounds; ++i) {
            if (me_ == 0) MPI_Send(stream_.data(), count, MPI_FLOAT, 1, 0, MPI_COMM_WORLD);
            MPI_Recv(stream_.data(), count, MPI_FLOAT, 1 - me_, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
            if (me_ == 1) MPI_Send(stream_.data(), count, MPI_FLOAT, 0, 0, MPI_COMM_WORLD);
        }
    }

    void check() {
        auto const sum = [](std::size_t i) { return 2.0f * static_cast<float>(i % 1000) + 1.0f; };
        for (std::size_t i = 0; i < hidden_; ++i) fresh_[i] = static_cast<float>(i % 1000) + static_cast<float>(me_);
        join(1);
        bare_join(1);
        for (std::size_t i = 0; i < hidden_; ++i) {
            require(tensor_.ranks.rank(me_).residual()[i] == sum(i), "join");
            require(stream_[i] == sum(i), "bare join");
        }
        if (me_ == 0) std::memcpy(pipeline_.ranks.rank(0).residual_place(), fresh_.data(), hidden_ * sizeof(float));
        hand_over(1);
        for (std::size_t i = 0; i < hidden_; ++i)
            require(pipeline_.ranks.rank(me_).residual()[i] == static_cast<float>(i % 1000), "hand-over");
        fresh_.assign(hidden_, 0.001f);
    }

    std::size_t hidden_;
    int me_;
    detail::batch batch_ = one_row();
    loaded_ranks tensor_, pipeline_;
    detail::message_room room_;
    std::vector<float> in_, other_, sum_, fresh_, stream_;
};

}  // namespace

int main(int argc, char** argv) {
    MPI_Init(&argc, &argv);
    int me = 0, processes = 0;
    MPI_Comm_rank(MPI_COMM_WORLD, &me);
    MPI_Comm_size(MPI_COMM_WORLD, &processes);
    if (processes == 2) {
        if (me == 0) show_head();
        for (int const hidden : {2048, 16384}) {
            narrow_model const files(hidden);
            runner own(files, me);
            std::vector<arm> arms;
            std::vector<double> const times = own.play(arms);
            if (me == 0) show("MPI processes", hidden, arms, times);
        }
    } else if (me == 0) {
        std::fprintf(stderr, "%d processes; mpirun -n 2 would do\n", processes);
    }
    MPI_Finalize();
    return processes == 2 ? 0 : 1;
}
