// The static way in: a graph type, checked while it compiled, loads a checkpoint and generates.
// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <tenon/checkpoint/block_scaling.hpp>
#include <tenon/checkpoint/config_json.hpp>
#include <tenon/checkpoint/same_config.hpp>
#include <tenon/device/cpu.hpp>
#include <tenon/graph/graph.hpp>
#include <tenon/runtime/language_model.hpp>

#include <memory>
#include <string>
#include <utility>

namespace tenon::inline v0 {

/// A causal language model split as `Graph` says.
template <graph_type Graph>
class causal_lm : public language_model {
public:
    /// Loads a Hugging Face directory. Its config.json must describe Graph's model, number for number.
    ///
    /// Throws refusal `config_is_the_graphs` when it does not, and whatever the checkpoint breaks by name.
    template <runtime::policy Runtime = runtime::threads>
    static causal_lm load(std::string const& directory, Runtime const& runtime = {}, load_options const& options = {}) {
        checkpoint::folder files(directory);
        std::string const text = files.config_text(), what = directory + "/config.json";
        checkpoint::require_same_config(Graph::model::config, checkpoint::read_config(text, what));
        auto const start = [&](detail::rank_starter const* elsewhere) {
            return causal_lm(std::make_unique<detail::engine>(Graph::view(), std::move(files), checkpoint::read_block_scaling(text, what),
                                                              &Graph::devices::open, options, Runtime::kind, elsewhere));
        };
        return detail::with_starter<typename Graph::devices>(runtime, start);
    }

private:
    explicit causal_lm(std::unique_ptr<detail::engine> e) : language_model(std::move(e)) {}
};

}  // namespace tenon::inline v0
