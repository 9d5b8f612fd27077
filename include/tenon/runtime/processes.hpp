// runtime::processes: every worker is an isolated process of its own, for one device. The same bits as threads.
// SPDX-License-Identifier: Apache-2.0
#pragma once
#if !defined(__linux__)
#error "runtime::processes needs Linux: memfd, futex and pidfd"
#endif
#include <tenon/runtime/processes/host.hpp>
#include <tenon/runtime/processes/worker.hpp>
#include <tenon/runtime/runtime.hpp>

#include <memory>
#include <string>

namespace tenon::inline v0 {

namespace runtime {

/// One persistent worker process for every distinct device of the graph, which builds and loads its own part alone. The host holds no
/// weights.
///
/// A worker is the running program, executed again: whoever loads a model with this policy compiles a hook in, which takes over before
/// `main` where the environment says that the process is a worker. Static objects of the program may be made in a worker too, and nothing
/// else of it runs. Where the program is not one's own (a plug-in of an interpreter), `worker_program` names one that was built with the
/// same backends.
///
/// Refusals beside those of a load: `workers_start`, `worker_is_of_this_build`, `worker_is_no_host`, `worker_reads_the_hosts_checkpoint`,
/// `shared_memory_suffices`; `workers_compute` when a worker throws, after which the model is as it was; and `workers_live` when one dies,
/// hangs or talks nonsense: then all workers of the model are ended and reaped, and every later call is refused by the same name. The
/// program goes on.
struct processes {
    static constexpr runtime_kind kind = runtime_kind::processes;
    static constexpr std::string_view name = "processes";

    std::string worker_program{};   ///< path of the program that workers run; empty: this one
    double start_seconds = 30.0;    ///< most for a worker to say who it is
    double hang_seconds = 10.0;     ///< most without a step of any worker: a long call is no hang, as every step counts
    testing::worker_fault fault{};  ///< for tests alone

    /// What starts the ranks of a model whose backends are `Devices`.
    template <class Devices>
    class starter final : public detail::rank_starter {
    public:
        explicit starter(processes const& how) : how_{how.worker_program, how.start_seconds, how.hang_seconds, how.fault} {
            static_cast<void>(&detail::worker_hook<Devices>::taken);  // compiles the hook in
        }
        std::unique_ptr<detail::executor> start(graph_view graph, checkpoint::folder const& files, checkpoint::block_scaling scaling,
                                                opener open, load_options const& options) const override {
            return std::make_unique<detail::basic_process_executor<void>>(graph, files, scaling, open, options, how_,
                                                                          detail::number_of_backends<Devices>());
        }

    private:
        detail::process_options how_;
    };
};

static_assert(policy<processes>);

}  // namespace runtime

}  // namespace tenon::inline v0
