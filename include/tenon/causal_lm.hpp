// The static way in: a graph type, checked while it compiled, loads a checkpoint and generates.
// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <tenon/checkpoint/block_scaling.hpp>
#include <tenon/checkpoint/config_json.hpp>
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
        require_same(Graph::model::config, checkpoint::read_config(text, what));
        auto const start = [&](detail::rank_starter const* elsewhere) {
            return causal_lm(std::make_unique<detail::engine>(Graph::view(), std::move(files), checkpoint::read_block_scaling(text, what),
                                                              &Graph::devices::open, options, Runtime::kind, elsewhere));
        };
        return detail::with_starter<typename Graph::devices>(runtime, start);
    }

private:
    explicit causal_lm(std::unique_ptr<detail::engine> e) : language_model(std::move(e)) {}

    static void require_same(model_config const& graph, model_config const& file) {
        if (graph == file) return;
        auto const differs = [](std::string_view what, auto a, auto b) {
            if (a != b)
                detail::refuse("config_is_the_graphs", std::string(what) + " is " + std::to_string(b) + " in the checkpoint and " +
                                                           std::to_string(a) + " in the graph");
        };
        auto const name = [](adapter_id a) { return std::string(model::name_of(a)); };
        if (graph.adapter != file.adapter)
            detail::refuse("config_is_the_graphs",
                           "the checkpoint is a " + name(file.adapter) + ", the graph's model a " + name(graph.adapter));
        differs("layers", graph.layers, file.layers);
        differs("hidden", graph.hidden, file.hidden);
        differs("vocab", graph.vocab, file.vocab);
        differs("max_positions", graph.max_positions, file.max_positions);
        differs("rms_epsilon", graph.rms_epsilon, file.rms_epsilon);
        differs("rope theta", graph.rope.theta, file.rope.theta);
        differs("tied", static_cast<int>(graph.tied), static_cast<int>(file.tied));
        for (int l = 0; l < graph.layers; ++l) {
            block_kind const &a = graph.layer(l), &b = file.layer(l);
            std::string const layer = "layer " + std::to_string(l) + ": ";
            differs(layer + "heads", a.attention.heads, b.attention.heads);
            differs(layer + "kv_heads", a.attention.kv_heads, b.attention.kv_heads);
            differs(layer + "head_dim", a.attention.head_dim, b.attention.head_dim);
            differs(layer + "window", a.attention.window, b.attention.window);
            differs(layer + "q/k/v bias", static_cast<int>(a.attention.qkv_bias), static_cast<int>(b.attention.qkv_bias));
            differs(layer + "output bias", static_cast<int>(a.attention.output_bias), static_cast<int>(b.attention.output_bias));
            differs(layer + "q/k norm", static_cast<int>(a.attention.qk_norm), static_cast<int>(b.attention.qk_norm));
            differs(layer + "ffn", a.ffn.width, b.ffn.width);
            differs(layer + "ffn bias", static_cast<int>(a.ffn.bias), static_cast<int>(b.ffn.bias));
            differs(layer + "experts", a.experts.count, b.experts.count);
            differs(layer + "experts of a token", a.experts.chosen, b.experts.chosen);
            differs(layer + "expert width", a.experts.width, b.experts.width);
            differs(layer + "normalised gates", static_cast<int>(a.experts.normalised), static_cast<int>(b.experts.normalised));
        }
        if (graph.rope != file.rope) detail::refuse("config_is_the_graphs", "the rope scaling of the checkpoint is not the graph's");
        model_config renumbered = file;  // the same layers may stand under other kind numbers
        renumbered.kind_count = graph.kind_count;
        renumbered.kinds = graph.kinds;
        renumbered.kind_of = graph.kind_of;
        bool same = renumbered == graph;
        for (int l = 0; l < graph.layers; ++l) same = same && graph.layer(l) == file.layer(l);
        if (!same) detail::refuse("config_is_the_graphs", "the checkpoint's config is not the graph's");
    }
};

}  // namespace tenon::inline v0
