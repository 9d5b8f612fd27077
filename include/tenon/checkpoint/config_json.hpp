// A config.json as a model_config. Knows the fields of the certified architectures and what an absent one means there; whatever
// it does not implement is refused by name, never ignored. Knows no tensors.
// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <tenon/checkpoint/block_scaling.hpp>
#include <tenon/checkpoint/config_fields.hpp>
#include <tenon/checkpoint/expert_fields.hpp>
#include <tenon/core/config.hpp>
#include <tenon/core/error.hpp>
#include <tenon/core/explain.hpp>
#include <tenon/graph/validate.hpp>
#include <tenon/model/dense.hpp>
#include <tenon/model/registry.hpp>

#include <cstddef>
#include <string>
#include <string_view>

namespace tenon::inline v0::checkpoint {

namespace detail {

/// What an absent field means where the families differ.
struct family_defaults {
    int max_positions = 0;
    double rms_epsilon = 1e-6;
    bool shares_heads = true;  ///< num_key_value_heads may be absent: as many as heads
    int head_dim = 0;          ///< 0: hidden_size / num_attention_heads
    int window = 0;
    double rope_theta = 10000.0;
};

constexpr family_defaults defaults_of(adapter_id family) {
    switch (family) {
        case adapter_id::llama: return {.max_positions = 2048};
        case adapter_id::mistral: return {.max_positions = 131072, .shares_heads = false, .window = 4096};
        case adapter_id::qwen2: return {.max_positions = 32768, .shares_heads = false};
        case adapter_id::qwen3: return {.max_positions = 32768, .head_dim = 128};
        case adapter_id::phi3: return {.max_positions = 4096, .rms_epsilon = 1e-5};
        case adapter_id::mixtral: return {.max_positions = 131072, .rms_epsilon = 1e-5, .shares_heads = false, .rope_theta = 1e6};
        case adapter_id::qwen3_moe: return {.max_positions = 32768, .shares_heads = false};
    }
    return {};
}

/// Whether layers are windowed by a switch; in the other families by `sliding_window` alone, and all of them.
constexpr bool switches_windows(adapter_id family) {
    return family == adapter_id::qwen2 || family == adapter_id::qwen3 || family == adapter_id::qwen3_moe;
}

/// Whether a family norms every query and key head.
constexpr bool norms_heads(adapter_id family) { return family == adapter_id::qwen3 || family == adapter_id::qwen3_moe; }

/// Refuses what would change the arithmetic of the family: experts, norms, caps and rotations of others.
template <class = void>
void refuse_foreign_fields(fields const& top, adapter_id family) {
    std::string const none = std::string(model::name_of(family)) + " has none; null";
    for (std::string_view const name :
         {"attention_chunk_size", "kv_lora_rank", "q_lora_rank", "linear_attn_config", "attn_logit_softcapping", "final_logit_softcapping",
          "clip_qkv", "no_rope_layers", "query_pre_attn_scalar", "block_configs"})
        if (json::value const* const v = top.find(name)) top.refuse("config_value_is_supported", name, *v, none);
    refuse_foreign_experts(top, family, none);
    if (json::value const* const v = top.find("sliding_window"); v != nullptr && family == adapter_id::llama)
        top.refuse("config_value_is_supported", "sliding_window", *v, none);
    for (std::string_view const name : {"qk_layernorm", "use_mrope", "attn_output_gate", "alibi"}) top.expect(name, false);
    top.expect("use_qk_norm", norms_heads(family));
    if (family != adapter_id::qwen2)  // whose biases no key switches
        for (std::string_view const name : {"qkv_bias", "use_qkv_bias"}) top.expect(name, false);
    if (family == adapter_id::mistral || family == adapter_id::mixtral || family == adapter_id::phi3) top.expect("attention_bias", false);
    if (family != adapter_id::llama) top.expect("mlp_bias", false);
    for (std::string_view const name : {"hidden_act", "hidden_activation"})
        if (std::string_view const act = top.string(name, "silu"); act != "silu" && act != "swish")
            top.refuse("config_value_is_supported", name, *top.find(name), "\"silu\" or \"swish\"");
}

/// A phi3 is certified without scaling: what stretches its positions is `longrope`, once named `su`.
template <class = void>
void refuse_scaling(fields const& top) {
    json::value const* const v = top.find("rope_scaling");
    if (v == nullptr) return;
    fields const inside(v, top.where() + "rope_scaling.");
    for (std::string_view const name : {"rope_type", "type"})
        if (json::value const* const type = inside.find(name))
            inside.refuse("config_value_is_supported", name, *type, "a rope_scaling of null");
    top.refuse(v->is(json::kind::object) ? "config_value_is_supported" : "config_field_has_type", "rope_scaling", *v, "null");
}

template <class = void>
grouped_attention read_attention(fields const& top, adapter_id family, int hidden) {
    grouped_attention a{.heads = top.count("num_attention_heads", 0)};
    a.kv_heads = top.count("num_key_value_heads", a.heads);
    int const head_dim = defaults_of(family).head_dim;
    if (head_dim == 0 && !top.has("head_dim") && hidden % a.heads != 0)
        top.refuse("heads_make_the_width", "num_attention_heads", *top.find("num_attention_heads"),
                   "hidden_size = " + std::to_string(hidden) + " does not divide by it and head_dim is absent; an explicit head_dim");
    a.head_dim = top.count("head_dim", head_dim != 0 ? head_dim : hidden / a.heads);
    bool const asked = family != adapter_id::qwen2 && top.boolean("attention_bias", false);
    a.qkv_bias = asked || family == adapter_id::qwen2;
    a.output_bias = asked;
    a.qk_norm = norms_heads(family);
    return a;
}

/// The list that says of every layer whether it is windowed, or nullptr.
template <class = void>
json::value const* read_layer_types(fields const& top, int layers) {
    json::value const* const types = top.find("layer_types");
    if (types == nullptr) return nullptr;
    if (!types->is(json::kind::array)) top.refuse("config_field_has_type", "layer_types", *types, "an array of strings");
    for (std::size_t i = 0; i < types->children.size(); ++i)
        if (json::value const& type = types->children[i]; type.text != "full_attention" && type.text != "sliding_attention")
            top.refuse(type.is(json::kind::string) ? "config_value_is_supported" : "config_field_has_type",
                       "layer_types[" + std::to_string(i) + "]", type, "\"full_attention\" or \"sliding_attention\"");
    if (types->children.size() != static_cast<std::size_t>(layers))
        tenon::v0::detail::refuse("config_keys_agree", top.where() + "layer_types has " + std::to_string(types->children.size()) +
                                                           " entries; " + std::to_string(layers) + ", as num_hidden_layers says, would do");
    return types;
}

template <class = void>
void require_layer_types(fields const& top, json::value const* types, std::string_view type, std::string_view why) {
    for (std::size_t i = 0; types != nullptr && i < types->children.size(); ++i)
        if (json::value const& t = types->children[i]; t.text != type)
            top.refuse("config_value_is_supported", "layer_types[" + std::to_string(i) + "]", t,
                       json::quoted(type) + " for every layer" + std::string(why));
}

/// Every layer windowed, or none: `sliding_window` says which, and no other field may say otherwise.
template <class = void>
model_config with_one_window(fields const& top, model_config const& plain) {
    int const window = top.count("sliding_window", top.absent("sliding_window") ? defaults_of(plain.adapter).window : 0);
    top.expect("use_sliding_window", window != 0);
    if (window != 0 && top.count("max_window_layers", 0, 0) != 0)
        top.refuse("config_value_is_supported", "max_window_layers", *top.find("max_window_layers"), "0, as every layer has the window,");
    require_layer_types(top, read_layer_types(top, plain.layers), window == 0 ? "full_attention" : "sliding_attention", "");
    return model::with_window(plain, window, [](int) { return true; });
}

/// Windows by `use_sliding_window`: in every layer of a qwen3_moe, elsewhere in those of `layer_types` or from `max_window_layers` on.
template <class = void>
model_config with_switched_window(fields const& top, model_config const& plain) {
    bool const on = top.boolean("use_sliding_window", false), in_all = plain.adapter == adapter_id::qwen3_moe;
    if (on && top.absent("sliding_window")) top.require("sliding_window", "a number of keys, or null for no window,");
    int const stated = top.count("sliding_window", 0, on ? 1 : 0), window = on ? stated : 0;
    int const first = in_all ? 0 : top.count("max_window_layers", 28, 0);
    json::value const* const types = read_layer_types(top, plain.layers);
    if (window == 0) require_layer_types(top, types, "full_attention", ", or a sliding_window with use_sliding_window true,");
    if (window != 0 && in_all) require_layer_types(top, types, "sliding_attention", ", as use_sliding_window says,");
    if (types == nullptr) return model::with_window(plain, window, [first](int layer) { return layer >= first; });
    return model::with_window(plain, window,
                              [types](int layer) { return types->children[static_cast<std::size_t>(layer)].text == "sliding_attention"; });
}

template <class = void>
model_config read_model(fields const& top, fields const& outer, adapter_id family) {
    refuse_foreign_fields(top, family);
    family_defaults const absent = defaults_of(family);
    std::string lacking = missing(top, {"hidden_size", "num_hidden_layers", "num_attention_heads", "vocab_size", "intermediate_size"});
    if (!absent.shares_heads && !top.has("num_key_value_heads"))
        lacking += (lacking.empty() ? "" : ", ") + std::string("num_key_value_heads");
    if (!lacking.empty()) top.require(lacking, "a whole number for each, as this reader guesses no widths,");

    model_config result{.adapter = family};
    result.layers = top.count("num_hidden_layers", 0);
    result.hidden = top.count("hidden_size", 0);
    result.vocab = top.count("vocab_size", 0);
    result.max_positions = top.count("max_position_embeddings", absent.max_positions);
    result.rms_epsilon = top.positive("rms_norm_eps", absent.rms_epsilon);
    if (family == adapter_id::phi3) refuse_scaling(top);
    result.rope = read_rope(top, result.max_positions, absent.rope_theta, family != adapter_id::phi3);
    result.tied = top.boolean("tie_word_embeddings", outer.boolean("tie_word_embeddings", false));
    if (outer.boolean("tie_word_embeddings", result.tied) != result.tied)
        outer.refuse("config_keys_agree", "tie_word_embeddings", *outer.find("tie_word_embeddings"), "the value that text_config has");
    result.kinds[0] = {.attention = read_attention(top, family, result.hidden),
                       .ffn = {.width = top.count("intermediate_size", 0), .bias = top.boolean("mlp_bias", false)}};
    if (routes_experts(family)) result = with_read_experts(top, result);
    result = switches_windows(family) ? with_switched_window(top, result) : with_one_window(top, result);
    tenon::v0::detail::require(tenon::v0::detail::broken_by_shape(result));
    return result;
}

}  // namespace detail

/// Reads the text of a config.json. `model_type` selects the architecture, `architectures` is a hint for messages; when there is
/// a `text_config`, the model is described there. `what` names the text in messages. How matrices are scaled is checked here and
/// told by read_block_scaling.
/// Refuses with the laws of json.hpp, `architecture_is_known`, `architecture_is_certified`, `config_field_is_present`,
/// `config_field_has_type`, `config_value_is_supported`, `config_keys_agree`, `heads_make_the_width`, and with the laws of a
/// model (`shape_is_positive`, `shape_fits`, `heads_share_kv_heads`, `head_dim_is_even`, `chosen_experts_exist`).
template <class = void>
model_config read_config(std::string_view text, std::string_view what = "config.json") {
    detail::document const config(text, what);
    detail::fields const &outer = config.outer, &top = config.top;
    std::string_view const inner_type = top.string("model_type", ""), type = outer.string("model_type", inner_type);
    if (type.empty()) {
        json::value const* const hint = outer.find("architectures");
        bool const named = hint != nullptr && hint->is(json::kind::array) && !hint->children.empty();
        outer.require("model_type", "the name of an architecture (certified: " + model::certified_names() +
                                        (named ? "; architectures names " + json::show(hint->children.front()) : std::string()) + ")");
    }
    model::adapter const& adapter = model::adapter_of(type);
    if (!inner_type.empty() && model::find_adapter(inner_type) != &adapter && inner_type != std::string(type) + "_text")
        top.refuse("config_keys_agree", "model_type", *top.find("model_type"), json::quoted(type) + ", as outside text_config,");
    detail::read_scaling(config);
    return detail::read_model(top, outer, adapter.id);
}

}  // namespace tenon::inline v0::checkpoint
