// Whether a checkpoint's config is the one that a graph was written for, number for number, and if not, which number.
// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <tenon/core/config.hpp>
#include <tenon/core/error.hpp>
#include <tenon/model/registry.hpp>

#include <string>
#include <string_view>

namespace tenon::inline v0::checkpoint {

/// Throws refusal `config_is_the_graphs`, with the first number that differs.
template <class = void>
void require_same_config(model_config const& graph, model_config const& file) {
    if (graph == file) return;
    auto const differs = [](std::string_view what, auto a, auto b) {
        if (a != b)
            tenon::v0::detail::refuse("config_is_the_graphs", std::string(what) + " is " + std::to_string(b) + " in the checkpoint and " +
                                                                  std::to_string(a) + " in the graph");
    };
    auto const name = [](adapter_id a) { return std::string(model::name_of(a)); };
    if (graph.adapter != file.adapter)
        tenon::v0::detail::refuse("config_is_the_graphs",
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
    if (graph.rope != file.rope) tenon::v0::detail::refuse("config_is_the_graphs", "the rope scaling of the checkpoint is not the graph's");
    model_config renumbered = file;  // the same layers may stand under other kind numbers
    renumbered.kind_count = graph.kind_count;
    renumbered.kinds = graph.kinds;
    renumbered.kind_of = graph.kind_of;
    bool same = renumbered == graph;
    for (int l = 0; l < graph.layers; ++l) same = same && graph.layer(l) == file.layer(l);
    if (!same) tenon::v0::detail::refuse("config_is_the_graphs", "the checkpoint's config is not the graph's");
}

}  // namespace tenon::inline v0::checkpoint
