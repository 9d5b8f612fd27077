// The dynamic way in: a plan that arrives as text, for a checkpoint that nobody knew when the program was compiled. Shares
// config, validation, lowering and engine with causal_lm; differs in when the laws are applied.
// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <tenon/checkpoint/block_scaling.hpp>
#include <tenon/checkpoint/config_json.hpp>
#include <tenon/device/cpu.hpp>
#include <tenon/graph/plan_value.hpp>
#include <tenon/runtime/language_model.hpp>

#include <memory>
#include <string>
#include <utility>

namespace tenon::inline v0 {

/// A causal language model split as a plan says. `Device` and `More` are the backends that the plan may name; devices that it leaves
/// bare are `Device`s.
template <template <int...> class Device = device::cpu, template <int...> class... More>
class dynamic_causal_lm : public language_model {
    using devices = device::backends<Device, More...>;

public:
    /// Loads a Hugging Face directory under a plan, which is checked against its config before a weight is read.
    ///
    /// Throws graph_error for a broken law, refusal for whatever else is wrong, each by name.
    template <runtime::policy Runtime = runtime::threads>
    static dynamic_causal_lm load(std::string const& directory, plan::view plan, Runtime const& runtime = {},
                                  load_options const& options = {}) {
        return detail::with_starter<devices>(
            runtime, [&](detail::rank_starter const* elsewhere) { return load(directory, plan, Runtime::kind, options, elsewhere); });
    }
    /// The same with a runtime of this process that is known when it runs; any other is refused (`runtime_is_of_this_process`).
    static dynamic_causal_lm load(std::string const& directory, plan::view plan, runtime_kind runtime, load_options const& options = {}) {
        if (runtime != runtime_kind::sequential && runtime != runtime_kind::threads)
            detail::refuse("runtime_is_of_this_process",
                           "other processes are asked for by a kind; runtime::processes{} or runtime::mpi{} would do");
        return load(directory, plan, runtime, options, nullptr);
    }
    /// The plan as it was understood: every layer named.
    std::string plan() const { return graph_->spelled(Device<>::kind); }

private:
    static dynamic_causal_lm load(std::string const& directory, plan::view plan, runtime_kind runtime, load_options const& options,
                                  detail::rank_starter const* elsewhere) {
        std::string const what = directory + "/config.json", text(checkpoint::mapped_file(what).text());
        auto graph = std::make_unique<dynamic_graph>(checkpoint::read_config(text, what), plan, devices::available, options.weights);
        checkpoint::folder files(directory);
        auto engine = std::make_unique<detail::engine>(graph->view(), std::move(files), checkpoint::read_block_scaling(text, what),
                                                       &devices::open, options, runtime, elsewhere);
        return dynamic_causal_lm(std::move(graph), std::move(engine));
    }
    dynamic_causal_lm(std::unique_ptr<dynamic_graph> g, std::unique_ptr<detail::engine> e)
        : language_model(std::move(e)), graph_(std::move(g)) {}

    std::unique_ptr<dynamic_graph>
        graph_;  // the engine's views point here; it ends with close() before this does, and reads no graph after
};

}  // namespace tenon::inline v0
