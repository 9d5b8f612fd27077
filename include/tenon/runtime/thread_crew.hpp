// The threads of one rank: a team that spins for the next piece of work and sleeps when none comes.
// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <tenon/device/crew.hpp>
#include <tenon/runtime/team.hpp>

namespace tenon::inline v0::detail {

/// A worker and `threads - 1` helpers.
class thread_crew final : public device::crew {
public:
    thread_crew(int threads, int all, int first_core) : team_(threads, all, first_core), size_(threads) {}

    int size() const noexcept override { return size_; }
    void run(work& w) override {
        struct parts final : thread_team::job {
            work* of = nullptr;
            void run(int part) override { of->run(part); }
        } job;
        job.of = &w;
        team_.run(job);
    }

private:
    thread_team team_;
    int size_;
};

}  // namespace tenon::inline v0::detail
