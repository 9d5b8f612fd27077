// A config.json as a model_config. Knows the fields of the certified architectures and what an absent one means there; whatever
// it does not implement is refused by name, never ignored. Knows no tensors.
// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <tenon/checkpoint/json.hpp>
#include <tenon/core/config.hpp>
#include <tenon/core/error.hpp>
#include <tenon/core/explain.hpp>
#include <tenon/graph/validate.hpp>
#include <tenon/model/registry.hpp>

#include <cstddef>
#include <initializer_list>
#include <limits>
#include <string>
#include <string_view>
#include <utility>

namespace tenon::inline v0::checkpoint {

namespace detail {

template <class = void>
class basic_fields;
using fields = basic_fields<>;  // lazy: instantiated by who uses it

/// One object of a config, with typed fields. Null and absent mean the same.
template <class>
class basic_fields {
public:
    basic_fields(json::value const* object, std::string where) : object_(object), where_(std::move(where)) {}

    json::value const* find(std::string_view name) const noexcept {
        json::value const* const found = object_ == nullptr ? nullptr : object_->find(name);
        return found == nullptr || found->is(json::kind::null) ? nullptr : found;
    }
    bool has(std::string_view name) const noexcept { return find(name) != nullptr; }
    json::value const* object() const noexcept { return object_; }

    /// "config.json: rope_scaling.factor = 0"
    std::string show(std::string_view name, json::value const& v) const { return where_ + std::string(name) + " = " + json::show(v); }

    [[noreturn]] void refuse(std::string_view law, std::string_view name, json::value const& v, std::string_view remedy) const {
        tenon::v0::detail::refuse(law, show(name, v) + "; " + std::string(remedy) + " would do");
    }

    [[noreturn]] void require(std::string_view list, std::string_view name) const {
        tenon::v0::detail::refuse("config_field_is_present",
                                  where_ + std::string(list) + " is missing; " + std::string(name) + " would do");
    }

    bool boolean(std::string_view name, bool otherwise) const {
        json::value const* const v = find(name);
        if (v == nullptr) return otherwise;
        if (!v->is(json::kind::boolean)) refuse("config_field_has_type", name, *v, "true or false");
        return v->truth;
    }

    double positive(std::string_view name, double otherwise) const {
        json::value const* const v = find(name);
        if (v == nullptr) return otherwise;
        if (!v->is(json::kind::number)) refuse("config_field_has_type", name, *v, "a number");
        auto const number = v->as_double();
        if (!number || !(*number > 0)) refuse("config_value_is_supported", name, *v, "a number above 0, inside the range of double,");
        return *number;
    }

    /// A whole number from 1, spelled as an integer or not: 4096, 4096.0, 4.096e3.
    int count(std::string_view name, int otherwise) const {
        json::value const* const v = find(name);
        if (v == nullptr) return otherwise;
        constexpr int most = std::numeric_limits<int>::max();
        auto const number = v->as_double();
        bool const inside = number && *number >= 1 && *number <= most;
        bool const whole = inside && *number == static_cast<double>(static_cast<int>(*number));
        if (!v->is(json::kind::number) || (inside && !whole)) refuse("config_field_has_type", name, *v, "a whole number");
        if (!inside) refuse("config_value_is_supported", name, *v, "a whole number from 1 to " + std::to_string(most));
        return static_cast<int>(*number);
    }

    std::string_view string(std::string_view name, std::string_view otherwise) const {
        json::value const* const v = find(name);
        if (v == nullptr) return otherwise;
        if (!v->is(json::kind::string)) refuse("config_field_has_type", name, *v, "a string");
        return v->text;
    }

private:
    json::value const* object_;
    std::string where_;
};

/// The dictionary of RoPE fields: `rope_scaling` unless it is empty, else `rope_parameters`. One that is keyed by layer type
/// stands for its values when they are all equal.
template <class = void>
fields rope_fields(fields const& top, std::string const& where) {
    for (std::string_view const name : {"rope_scaling", "rope_parameters"}) {
        json::value const* const v = top.find(name);
        if (v == nullptr) continue;
        if (!v->is(json::kind::object)) top.refuse("config_field_has_type", name, *v, "an object or null");
        if (v->children.empty()) continue;
        std::string const inside = where + std::string(name) + ".";
        std::size_t objects = 0;
        for (json::value const& child : v->children) objects += child.is(json::kind::object) ? 1U : 0U;
        if (objects == 0) return {v, inside};
        json::value const& first = v->children.front();
        for (json::value const& child : v->children)
            if (!json::same(first, child))
                tenon::v0::detail::refuse("config_value_is_supported", inside + child.key + " differs from " + first.key +
                                                                           "; the same values for every layer type would do");
        return {&first, inside + first.key + "."};
    }
    return {nullptr, where};
}

template <class = void>
std::string_view rope_type(fields const& dictionary) {
    std::string_view const type = dictionary.string("type", ""), rope_type = dictionary.string("rope_type", type);
    if (dictionary.has("type") && type != rope_type)
        dictionary.refuse("config_keys_agree", "type", *dictionary.find("type"),
                          "rope_type is " + json::quoted(rope_type) + ", one of the keys, or the same value in both,");
    if (dictionary.has("rope_type") || dictionary.has("type")) return rope_type;
    if (json::value const* const factor = dictionary.find("factor"))
        dictionary.refuse("config_field_is_present", "factor", *factor,
                          "the kind of scaling is not given: rope_type \"linear\" or \"llama3\" beside it");
    return "default";
}

template <class = void>
rope read_rope(fields const& top, std::string const& where, int max_positions) {
    fields const dictionary = rope_fields(top, where);
    rope result;
    result.theta = dictionary.positive("rope_theta", top.positive("rope_theta", 10000.0));
    // The tables are exact for angles below 2^31: with a theta or a factor below 1 a pair turns by more than the position.
    constexpr double largest_angle = 2147483648.0;
    double const widest = static_cast<double>(max_positions) / (result.theta < 1.0 ? result.theta : 1.0);
    if (!(widest < largest_angle)) {
        fields const& place = dictionary.has("rope_theta") ? dictionary : top;
        place.refuse("config_value_is_supported", "rope_theta", *place.find("rope_theta"), "1 or more");
    }
    for (fields const* const place : {&dictionary, &top})
        if (place->positive("partial_rotary_factor", 1.0) != 1.0)
            place->refuse("config_value_is_supported", "partial_rotary_factor", *place->find("partial_rotary_factor"),
                          "1, which rotates the whole head,");
    if (json::value const* const sections = dictionary.find("mrope_section"))
        dictionary.refuse("config_value_is_supported", "mrope_section", *sections, "mrope is not supported; none");
    std::string_view const type = rope_type(dictionary);
    // `dynamic` changes nothing up to max_position_embeddings, and the config allows no longer runs.
    if (type == "default" || type == "dynamic") return result;
    if (type != "linear" && type != "llama3")
        dictionary.refuse("config_value_is_supported", dictionary.has("rope_type") ? "rope_type" : "type",
                          *dictionary.find(dictionary.has("rope_type") ? "rope_type" : "type"),
                          "\"default\", \"linear\", \"dynamic\" or \"llama3\"");
    if (!dictionary.has("factor")) dictionary.require("factor", "the factor by which positions are stretched");
    result.scaling = type == "linear" ? rope_scaling::linear : rope_scaling::llama3;
    result.factor = dictionary.positive("factor", 1.0);
    if (!(widest / result.factor < largest_angle))
        dictionary.refuse("config_value_is_supported", "factor", *dictionary.find("factor"), "1 or more");
    if (result.scaling == rope_scaling::linear) return result;
    for (std::string_view const name : {"low_freq_factor", "high_freq_factor"})
        if (!dictionary.has(name)) dictionary.require(name, "a number, as llama3 scaling needs one,");
    result.low_freq_factor = dictionary.positive("low_freq_factor", 1.0);
    result.high_freq_factor = dictionary.positive("high_freq_factor", 4.0);
    if (!(result.high_freq_factor > result.low_freq_factor))
        dictionary.refuse("config_value_is_supported", "high_freq_factor", *dictionary.find("high_freq_factor"),
                          "more than low_freq_factor, " + json::show(*dictionary.find("low_freq_factor")) + ",");
    result.original_positions = dictionary.count("original_max_position_embeddings", max_positions);
    return result;
}

/// Refuses what would change the arithmetic of a dense Llama: weights in codes, windows, experts, norms and caps of other families.
template <class = void>
void refuse_foreign_fields(fields const& top) {
    for (std::string_view const name : {"quantization_config", "compression_config"})
        if (json::value const* const v = top.find(name)) {
            json::value const* const method = v->find("quant_method");
            tenon::v0::detail::refuse("config_value_is_supported",
                                      top.show(name, *v) + " with quant_method " + (method == nullptr ? "absent" : json::show(*method)) +
                                          "; weights stored as F32, BF16 or F16, without this field, would do");
        }
    for (std::string_view const name :
         {"sliding_window", "attention_chunk_size", "kv_lora_rank", "q_lora_rank", "num_experts", "num_local_experts", "n_routed_experts",
          "moe_intermediate_size", "linear_attn_config", "attn_logit_softcapping", "final_logit_softcapping", "clip_qkv", "no_rope_layers",
          "query_pre_attn_scalar", "block_configs"})
        if (json::value const* const v = top.find(name)) top.refuse("config_value_is_supported", name, *v, "a plain Llama has none; null");
    for (std::string_view const name :
         {"use_qk_norm", "qk_layernorm", "qkv_bias", "use_qkv_bias", "use_sliding_window", "attn_output_gate", "alibi"})
        if (top.boolean(name, false)) top.refuse("config_value_is_supported", name, *top.find(name), "false");
    if (json::value const* const types = top.find("layer_types")) {
        if (!types->is(json::kind::array)) top.refuse("config_field_has_type", "layer_types", *types, "an array of strings");
        for (json::value const& type : types->children)
            if (!type.is(json::kind::string) || type.text != "full_attention")
                top.refuse("config_value_is_supported", "layer_types[...]", type, "\"full_attention\" for every layer");
    }
}

/// The names in `wanted` that the object lacks, "a, b"; empty when it has them all.
template <class = void>
std::string missing(fields const& top, std::initializer_list<std::string_view> wanted) {
    std::string text;
    for (std::string_view const name : wanted)
        if (!top.has(name)) text += (text.empty() ? "" : ", ") + std::string(name);
    return text;
}

template <class = void>
model_config read_llama(fields const& top, fields const& outer, std::string const& where) {
    refuse_foreign_fields(top);
    std::string const absent = missing(top, {"hidden_size", "num_hidden_layers", "num_attention_heads", "vocab_size", "intermediate_size"});
    if (!absent.empty()) top.require(absent, "a whole number for each, as this reader guesses no widths,");
    for (std::string_view const name : {"hidden_act", "hidden_activation"})
        if (std::string_view const act = top.string(name, "silu"); act != "silu" && act != "swish")
            top.refuse("config_value_is_supported", name, *top.find(name), "\"silu\" or \"swish\"");

    model_config result;
    result.layers = top.count("num_hidden_layers", 0);
    result.hidden = top.count("hidden_size", 0);
    result.vocab = top.count("vocab_size", 0);
    result.max_positions = top.count("max_position_embeddings", 2048);
    result.rms_epsilon = top.positive("rms_norm_eps", 1e-6);
    result.rope = read_rope(top, where, result.max_positions);
    result.tied = top.boolean("tie_word_embeddings", outer.boolean("tie_word_embeddings", false));
    if (outer.boolean("tie_word_embeddings", result.tied) != result.tied)
        outer.refuse("config_keys_agree", "tie_word_embeddings", *outer.find("tie_word_embeddings"), "the value that text_config has");

    grouped_attention& attention = result.kinds[0].attention;
    attention.heads = top.count("num_attention_heads", 0);
    attention.kv_heads = top.count("num_key_value_heads", attention.heads);
    if (!top.has("head_dim") && result.hidden % attention.heads != 0)
        top.refuse(
            "heads_make_the_width", "num_attention_heads", *top.find("num_attention_heads"),
            "hidden_size = " + std::to_string(result.hidden) + " does not divide by it and head_dim is absent; an explicit head_dim");
    attention.head_dim = top.count("head_dim", result.hidden / attention.heads);
    attention.qkv_bias = attention.output_bias = top.boolean("attention_bias", false);
    result.kinds[0].ffn = {top.count("intermediate_size", 0), top.boolean("mlp_bias", false)};
    result.kind_count = 1;
    tenon::v0::detail::require(tenon::v0::detail::broken_by_shape(result));
    return result;
}

}  // namespace detail

/// Reads the text of a config.json. `model_type` selects the architecture, `architectures` is a hint for messages; when there is
/// a `text_config`, the model is described there. `what` names the text in messages.
/// Refuses with the laws of json.hpp, `architecture_is_known`, `architecture_is_certified`, `config_field_is_present`,
/// `config_field_has_type`, `config_value_is_supported`, `config_keys_agree`, `heads_make_the_width`, and with the laws of a
/// model (`shape_is_positive`, `shape_fits`, `heads_share_kv_heads`, `head_dim_is_even`).
template <class = void>
model_config read_config(std::string_view text, std::string_view what = "config.json") {
    json::value const root = json::parse(text, what);
    std::string where = std::string(what) + ": ";
    if (!root.is(json::kind::object))
        tenon::v0::detail::refuse("config_field_has_type", where + "the text is " + json::show(root) + "; an object would do");
    detail::fields const outer(&root, where);
    json::value const* const nested = outer.find("text_config");
    if (nested != nullptr && !nested->is(json::kind::object)) outer.refuse("config_field_has_type", "text_config", *nested, "an object");
    if (nested != nullptr) where += "text_config.";
    detail::fields const top(nested != nullptr ? nested : &root, where);

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
    if (nested != nullptr && (outer.has("quantization_config") || outer.has("compression_config"))) detail::refuse_foreign_fields(outer);
    switch (adapter.id) {
        case model::adapter_id::llama: return detail::read_llama(top, outer, where);
    }
    tenon::v0::detail::refuse("architecture_is_certified", std::string(adapter.name) + " has no reader");
}

}  // namespace tenon::inline v0::checkpoint
