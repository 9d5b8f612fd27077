// The fields of a config.json that say which layers route experts, and which experts. Knows the families that route and no others.
// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <tenon/checkpoint/config_fields.hpp>
#include <tenon/core/config.hpp>
#include <tenon/model/kinds.hpp>

#include <cstddef>
#include <string>
#include <string_view>

namespace tenon::inline v0::checkpoint::detail {

/// Whether some layers of a family may route experts.
constexpr bool routes_experts(adapter_id family) { return family == adapter_id::mixtral || family == adapter_id::qwen3_moe; }

/// Refuses what says of experts something that the family does not have.
template <class = void>
void refuse_foreign_experts(fields const& top, adapter_id family, std::string const& none) {
    auto const foreign = [&top, &none](std::string_view name) {
        if (json::value const* const v = top.find(name)) top.refuse("config_value_is_supported", name, *v, none);
    };
    for (std::string_view const name :
         {"n_routed_experts", "num_experts_per_token", "n_group", "num_expert_group", "topk_group", "topk_method", "routed_scaling_factor",
          "scoring_func", "moe_renormalize", "moe_router_activation_func", "first_k_dense_replace", "moe_layer_freq"})
        foreign(name);
    for (std::string_view const name : {"n_shared_experts", "num_shared_experts", "shared_expert_intermediate_size"})
        if (top.count(name, 0, 0) != 0) foreign(name);  // a 0 says the same as null: Qwen3-Coder's files have one
    if (!routes_experts(family))
        for (std::string_view const name : {"num_local_experts", "num_experts_per_tok"}) foreign(name);
    if (family != adapter_id::qwen3_moe)
        for (std::string_view const name :
             {"num_experts", "moe_intermediate_size", "norm_topk_prob", "decoder_sparse_step", "mlp_only_layers"})
            foreign(name);
}

/// The layers that `mlp_only_layers` lists.
template <class = void>
model::layer_set read_dense_layers(fields const& top, int layers) {
    model::layer_set dense;
    json::value const* const list = top.find("mlp_only_layers");
    if (list == nullptr) return dense;
    if (!list->is(json::kind::array)) top.refuse("config_field_has_type", "mlp_only_layers", *list, "an array of whole numbers");
    for (std::size_t i = 0; i < list->children.size(); ++i) {
        std::string const name = "mlp_only_layers[" + std::to_string(i) + "]";
        json::value const& v = list->children[i];
        int const layer = top.count_of(name, v, 0);
        if (layer >= layers) top.refuse("config_value_is_supported", name, v, "a layer from 0 to " + std::to_string(layers - 1));
        dense.add(layer);
    }
    return dense;
}

/// The number of experts, which a qwen3_moe may spell in two ways.
template <class = void>
int read_expert_count(fields const& top, adapter_id family) {
    if (family == adapter_id::mixtral) return top.count("num_local_experts", 0);
    int const count = top.count("num_experts", top.count("num_local_experts", 0, 0), 0);
    if (top.count("num_local_experts", count, 0) != count)
        top.refuse("config_keys_agree", "num_local_experts", *top.find("num_local_experts"),
                   "num_experts is " + std::to_string(count) + ", one of the keys, or the same value in both,");
    return count;
}

/// The model of which those layers route that the fields name; the others keep their FFN.
template <class = void>
model_config with_read_experts(fields const& top, model_config const& plain) {
    bool const is_mixtral = plain.adapter == adapter_id::mixtral;
    std::string lacking = is_mixtral ? missing(top, {"num_local_experts", "num_experts_per_tok"})
                                     : missing(top, {"num_experts_per_tok", "moe_intermediate_size"});
    if (!is_mixtral && !top.has("num_experts") && !top.has("num_local_experts"))
        lacking = "num_experts" + (lacking.empty() ? lacking : ", " + lacking);
    if (!lacking.empty()) top.require(lacking, "a whole number for each, as this reader guesses no experts,");
    int const step = top.count("decoder_sparse_step", 1);
    model::layer_set const dense = read_dense_layers(top, plain.layers);
    routed_experts const experts{.count = read_expert_count(top, plain.adapter),
                                 .chosen = top.count("num_experts_per_tok", 0),
                                 .width = top.count(is_mixtral ? "intermediate_size" : "moe_intermediate_size", 0),
                                 .normalised = is_mixtral || top.boolean("norm_topk_prob", false)};
    return experts ? model::with_experts(plain, experts, model::every_nth{step, dense}) : plain;
}

}  // namespace tenon::inline v0::checkpoint::detail
