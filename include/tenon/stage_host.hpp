// One stage alone in a process, for who brings a transport: of a graph type, or of a plan that arrives as text. The whole graph is
// checked, and the headers of the whole checkpoint; only the stage's own weights are read.
// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <tenon/checkpoint/block_scaling.hpp>
#include <tenon/checkpoint/config_json.hpp>
#include <tenon/checkpoint/same_config.hpp>
#include <tenon/device/cpu.hpp>
#include <tenon/graph/graph.hpp>
#include <tenon/graph/plan_value.hpp>
#include <tenon/runtime/hosted_stage.hpp>

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <utility>

namespace tenon::inline v0 {

namespace detail {
/// A runtime whose ranks are in this process.
template <class R>
concept runtime_of_this_process = runtime::policy<R> &&(R::kind == runtime_kind::sequential || R::kind == runtime_kind::threads);

template <class Graph, int I>
struct stage_is_of_the_graph {
    static constexpr int stages = static_cast<int>(Graph::view().stages.size());
    static_assert(!Graph::lawful || (I >= 0 && I < stages), "stage_host<Graph, I>: the graph's stages are numbered from 0");
};
}  // namespace detail

/// Stage `I` of `Graph`, from 0.
template <graph_type Graph, int I>
class stage_host : public hosted_stage {
    static_assert(sizeof(detail::stage_is_of_the_graph<Graph, I>) != 0);
    static constexpr detail::stage_place place{I, detail::stage_is_of_the_graph<Graph, I>::stages};

public:
    /// What `forward` gives: a tail's output, or a bundle.
    using output = std::conditional_t<place.is_tail(), boundary::tail_output, boundary::bundle>;

    /// Loads the stage's part of a Hugging Face directory, whose config.json must describe Graph's model, number for number.
    ///
    /// Throws refusal `config_is_the_graphs` when it does not, and whatever the checkpoint breaks by name.
    template <detail::runtime_of_this_process Runtime = runtime::threads>
    static stage_host load(std::string const& directory, Runtime const& = {}, load_options const& options = {}) {
        checkpoint::folder files(directory);
        std::string const text = files.config_text(), what = directory + "/config.json";
        checkpoint::require_same_config(Graph::model::config, checkpoint::read_config(text, what));
        return stage_host(std::make_unique<detail::stage_engine>(
            Graph::view(), I, std::move(files), checkpoint::read_block_scaling(text, what), &Graph::devices::open, options, Runtime::kind));
    }
    static stage_host load(std::string const& directory, load_options const& options) {
        return load(directory, runtime::threads{}, options);
    }

    /// As of a hosted_stage.
    output forward(stage_input const& in, stage_call const& how = {}) { return taken(hosted_stage::forward(in, how)); }
    output forward(std::span<feed const> feeds, stage_call const& how = {}) { return taken(hosted_stage::forward(feeds, how)); }
    output forward(boundary::bundle_view const& bundle, std::span<state* const> states, stage_call const& how = {}) {
        return taken(hosted_stage::forward(bundle, states, how));
    }

private:
    explicit stage_host(std::unique_ptr<detail::stage_engine> e) : hosted_stage(std::move(e)) {}

    template <class Output>
    static output taken(Output&& all) {
        if constexpr (place.is_tail())
            return std::move(all.tail);
        else
            return std::move(all.bundle);
    }
};

/// A stage of a plan, counted in the order of layers. `Device` and `More` are the backends that the plan may name; devices that it leaves
/// bare are `Device`s.
template <template <int...> class Device = device::cpu, template <int...> class... More>
class dynamic_stage_host : public hosted_stage {
    using devices = device::backends<Device, More...>;

public:
    /// Loads the stage's part of a Hugging Face directory under a plan, which is checked, whole, against its config before a weight is
    /// read.
    ///
    /// Throws graph_error for a broken law, refusal for whatever else is wrong, each by name (`stage_exists`,
    /// `runtime_is_of_this_process`).
    template <detail::runtime_of_this_process Runtime = runtime::threads>
    static dynamic_stage_host load(std::string const& directory, plan::view plan, int stage, Runtime const& = {},
                                   load_options const& options = {}) {
        std::string const what = directory + "/config.json", text(checkpoint::mapped_file(what).text());
        auto graph = std::make_unique<dynamic_graph>(checkpoint::read_config(text, what), plan, devices::available, options.weights);
        detail::require_stage(graph->view(), stage);
        checkpoint::folder files(directory);
        auto engine = std::make_unique<detail::stage_engine>(
            graph->view(), stage, std::move(files), checkpoint::read_block_scaling(text, what), &devices::open, options, Runtime::kind);
        return dynamic_stage_host(std::move(graph), std::move(engine));
    }
    static dynamic_stage_host load(std::string const& directory, plan::view plan, int stage, load_options const& options) {
        return load(directory, plan, stage, runtime::threads{}, options);
    }

    /// The whole plan as it was understood: every layer named.
    std::string plan() const { return graph_->spelled(Device<>::kind); }
    /// How many stages it has: 0 to one less are numbers of hosts.
    int stages() const { return static_cast<int>(graph_->view().stages.size()); }

private:
    dynamic_stage_host(std::unique_ptr<dynamic_graph> g, std::unique_ptr<detail::stage_engine> e)
        : hosted_stage(std::move(e)), graph_(std::move(g)) {}

    std::unique_ptr<dynamic_graph> graph_;  // the engine's views point here; it reads no graph when it ends
};

}  // namespace tenon::inline v0
