// Which tensors a checkpoint of a model must hold: their names, shapes and element types. Knows nothing of ranks.
// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <tenon/checkpoint/folder.hpp>
#include <tenon/core/config.hpp>
#include <tenon/core/error.hpp>
#include <tenon/graph/lower.hpp>

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace tenon::inline v0::checkpoint {

/// The checkpoint name of a tensor, as Hugging Face spells it. `layer` is looked at for the tensors of a layer alone.
template <class = void>
std::string name_of(role what, int layer, bool tied) {
    auto const in_layer = [layer](std::string_view rest) { return "model.layers." + std::to_string(layer) + "." + std::string(rest); };
    switch (what) {
        case role::embed: return "model.embed_tokens.weight";
        case role::final_norm: return "model.norm.weight";
        case role::head: return tied ? "model.embed_tokens.weight" : "lm_head.weight";
        case role::input_norm: return in_layer("input_layernorm.weight");
        case role::q: return in_layer("self_attn.q_proj.weight");
        case role::k: return in_layer("self_attn.k_proj.weight");
        case role::v: return in_layer("self_attn.v_proj.weight");
        case role::o: return in_layer("self_attn.o_proj.weight");
        case role::q_bias: return in_layer("self_attn.q_proj.bias");
        case role::k_bias: return in_layer("self_attn.k_proj.bias");
        case role::v_bias: return in_layer("self_attn.v_proj.bias");
        case role::o_bias: return in_layer("self_attn.o_proj.bias");
        case role::post_norm: return in_layer("post_attention_layernorm.weight");
        case role::gate: return in_layer("mlp.gate_proj.weight");
        case role::up: return in_layer("mlp.up_proj.weight");
        case role::down: return in_layer("mlp.down_proj.weight");
        case role::gate_bias: return in_layer("mlp.gate_proj.bias");
        case role::up_bias: return in_layer("mlp.up_proj.bias");
        case role::down_bias: return in_layer("mlp.down_proj.bias");
        case role::none: break;
    }
    return {};
}

/// One tensor that a model needs.
struct wanted_tensor {
    std::string name;
    role what = role::none;
    int layer = 0;
    std::vector<std::int64_t> shape;
};

/// Every tensor of a model once, the table of a tied head included once. Read from the model lowered on one rank.
template <class = void>
std::vector<wanted_tensor> inventory_of(model_config const& config) {
    struct sink {
        std::vector<tensor> tensors;
        int add(tensor const& t) {
            tensors.push_back(t);
            return 0;
        }
        int add(node const&) { return 0; }
        void add(edge const&) {}
    } lowered;
    device_id const device{device_kind::cpu, 0};
    stage_traits const whole{0, config.layers - 1, {&device, 1}, {}, {}, 1};
    lower(config, {&whole, 1}, lowered);

    std::vector<wanted_tensor> wanted;
    for (tensor const& t : lowered.tensors) {
        if (t.what == role::head && config.tied) continue;
        std::vector<std::int64_t> const shape =
            t.is_matrix() ? std::vector<std::int64_t>{t.rows, t.columns} : std::vector<std::int64_t>{t.rows};
        bool const once = t.what == role::embed || t.what == role::final_norm || t.what == role::head;
        for (int l = 0; l < (once ? 1 : config.layers); ++l)
            if (once || config.kind_of[static_cast<std::size_t>(l)] == t.kind)
                wanted.push_back({name_of(t.what, l, config.tied), t.what, l, shape});
    }
    return wanted;
}

/// What the files hold beyond what the model needs.
struct inventory_report {
    std::vector<std::string> unused;  ///< skipped by rule: the legacy rotary table, a head beside a tied table
    bool tied_head_differs = false;   ///< a tied checkpoint ships another lm_head than its table; the table is used
};

/// Checks the headers of a folder against a model, before a weight is read.
///
/// Throws refusal `checkpoint_tensors_are_present` (count, the first five names and shapes, what was seen), `tensor_has_shape`,
/// `weights_are_floats` and `checkpoint_tensors_are_known`.
template <class = void>
inventory_report check_inventory(folder const& files, model_config const& config) {
    using tenon::v0::detail::refuse;
    std::vector<wanted_tensor> const wanted = inventory_of(config);
    std::vector<std::string> missing, known;
    for (wanted_tensor const& w : wanted) {
        known.push_back(w.name);
        tensor_view const* const t = files.find(w.name);
        if (t == nullptr) {
            missing.push_back(w.name + " " + show(w.shape));
            continue;
        }
        if (t->shape != w.shape)
            refuse("tensor_has_shape", "tensor " + w.name + " has shape " + show(t->shape) + "; the config asks for " + show(w.shape));
        if (t->type != dtype::f32 && t->type != dtype::bf16 && t->type != dtype::f16)
            refuse("weights_are_floats",
                   "tensor " + w.name + " is " + std::string(tenon::v0::name_of(t->type)) + "; F32, BF16 or F16 would do");
    }
    if (!missing.empty())
        refuse("checkpoint_tensors_are_present", std::to_string(missing.size()) + " of " + std::to_string(wanted.size()) +
                                                     " tensors are missing: " + detail::first_five(missing) +
                                                     "; seen: " + std::to_string(files.tensors().size()) + " tensors in " +
                                                     std::to_string(files.files().size()) + " files");
    std::sort(known.begin(), known.end());
    inventory_report report;
    std::vector<std::string> extra;
    constexpr std::string_view legacy = ".rotary_emb.inv_freq";
    for (tensor_view const* const t : files.tensors()) {
        if (std::binary_search(known.begin(), known.end(), t->name)) continue;
        bool const tied_head = config.tied && t->name == "lm_head.weight";
        bool const old_table =
            t->name.size() > legacy.size() && t->name.compare(t->name.size() - legacy.size(), legacy.size(), legacy) == 0;
        if (!tied_head && !old_table) {
            extra.push_back(t->name + " " + show(t->shape));
            continue;
        }
        report.unused.push_back(t->name);
        if (tied_head) {
            tensor_view const* const table = files.find("model.embed_tokens.weight");
            report.tied_head_differs =
                table->data.size() != t->data.size() || std::memcmp(table->data.data(), t->data.data(), t->data.size()) != 0;
        }
    }
    if (!extra.empty())
        refuse("checkpoint_tensors_are_known",
               std::to_string(extra.size()) + " tensors belong to nothing in the config: " + detail::first_five(extra));
    return report;
}

}  // namespace tenon::inline v0::checkpoint
