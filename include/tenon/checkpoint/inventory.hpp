// Which tensors a checkpoint of a model must hold: their names, shapes and element types. Knows nothing of ranks.
// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <tenon/checkpoint/block_scaling.hpp>
#include <tenon/checkpoint/folder.hpp>
#include <tenon/core/config.hpp>
#include <tenon/core/error.hpp>
#include <tenon/detail/deferred.hpp>
#include <tenon/detail/sort.hpp>
#include <tenon/graph/lower.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace tenon::inline v0::checkpoint {

/// Where a tensor lies in a checkpoint: in the file tensor of that name and shape, from that row on.
struct tensor_place {
    std::string name;
    std::int64_t first_row = 0;       ///< not 0 where several roles share one fused tensor
    std::vector<std::int64_t> shape;  ///< of the whole file tensor
};

/// Whether every expert of a layer is a tensor of its own, or a slice of two stacked ones: (E, 2 J, H), gate rows before up rows, and
/// (E, H, J).
enum class expert_layout : std::uint8_t { apart, stacked };

namespace detail {
constexpr std::string_view name_in_layer(role what) {
    switch (what) {
        case role::input_norm: return "input_layernorm.weight";
        case role::q: return "self_attn.q_proj.weight";
        case role::k: return "self_attn.k_proj.weight";
        case role::v: return "self_attn.v_proj.weight";
        case role::o: return "self_attn.o_proj.weight";
        case role::q_bias: return "self_attn.q_proj.bias";
        case role::k_bias: return "self_attn.k_proj.bias";
        case role::v_bias: return "self_attn.v_proj.bias";
        case role::o_bias: return "self_attn.o_proj.bias";
        case role::q_norm: return "self_attn.q_norm.weight";
        case role::k_norm: return "self_attn.k_norm.weight";
        case role::post_norm: return "post_attention_layernorm.weight";
        case role::gate: return "mlp.gate_proj.weight";
        case role::up: return "mlp.up_proj.weight";
        case role::down: return "mlp.down_proj.weight";
        case role::gate_bias: return "mlp.gate_proj.bias";
        case role::up_bias: return "mlp.up_proj.bias";
        case role::down_bias: return "mlp.down_proj.bias";
        case role::router: return "gate.weight";
        case role::correction: return "gate.e_score_correction_bias";
        case role::expert_gate: return "gate_proj.weight";
        case role::expert_up: return "up_proj.weight";
        case role::expert_down: return "down_proj.weight";
        case role::shared_gate: return "shared_experts.gate_proj.weight";
        case role::shared_up: return "shared_experts.up_proj.weight";
        case role::shared_down: return "shared_experts.down_proj.weight";
        default: return {};
    }
}

/// The folder of a routed FFN inside a layer; none for the roles outside it.
constexpr std::string_view routed_folder(role what, adapter_id adapter) {
    if (what < role::router || what > role::shared_down) return {};
    return adapter == adapter_id::mixtral ? "block_sparse_moe." : "mlp.";
}

/// A mixtral numbers the matrices of an expert, and not in the order gate, up, down.
constexpr std::string_view name_in_expert(role what, adapter_id adapter) {
    if (adapter != adapter_id::mixtral) return name_in_layer(what);
    return what == role::expert_gate ? "w1.weight" : what == role::expert_up ? "w3.weight" : "w2.weight";
}

/// The fused tensor that a role is a part of, the part's first row and the rows of all parts; none where the name is empty.
struct fused_part {
    std::string_view name{};
    std::int64_t first_row = 0, rows = 0;
};
constexpr fused_part fused_part_of(role what, adapter_id adapter, block_kind const& b) {
    if (adapter != adapter_id::phi3) return {};
    std::int64_t const q = std::int64_t{b.attention.heads} * b.attention.head_dim,
                       k = std::int64_t{b.attention.kv_heads} * b.attention.head_dim, f = b.ffn.width;
    switch (what) {
        case role::q: return {"self_attn.qkv_proj.weight", 0, q + 2 * k};
        case role::k: return {"self_attn.qkv_proj.weight", q, q + 2 * k};
        case role::v: return {"self_attn.qkv_proj.weight", q + k, q + 2 * k};
        case role::gate: return {"mlp.gate_up_proj.weight", 0, 2 * f};
        case role::up: return {"mlp.gate_up_proj.weight", f, 2 * f};
        default: return {};
    }
}
}  // namespace detail

/// Where the tensor of a role lies, as Hugging Face names it. `t` is the role's tensor, lowered; `layer` and `expert` are looked at for
/// what is of a layer or of an expert alone.
template <class = void>
tensor_place place_of(tensor const& t, int layer, int expert, model_config const& config, expert_layout layout) {
    std::vector<std::int64_t> shape{t.rows};
    if (t.is_matrix()) shape.push_back(t.columns);
    switch (t.what) {
        case role::embed: return {"model.embed_tokens.weight", 0, shape};
        case role::final_norm: return {"model.norm.weight", 0, shape};
        case role::head: return {config.tied ? "model.embed_tokens.weight" : "lm_head.weight", 0, shape};
        default: break;
    }
    std::string const prefix = "model.layers." + std::to_string(layer) + "." + std::string(detail::routed_folder(t.what, config.adapter));
    if (t.is_of_expert() && layout == expert_layout::stacked) {
        bool const back = t.what == role::expert_down;
        std::int64_t const rows = back ? t.rows : 2 * std::int64_t{t.rows}, up = t.what == role::expert_up ? t.rows : 0;
        return {prefix + (back ? "experts.down_proj" : "experts.gate_up_proj"), expert * rows + up, {t.experts, rows, t.columns}};
    }
    if (t.is_of_expert())
        return {prefix + "experts." + std::to_string(expert) + "." + std::string(detail::name_in_expert(t.what, config.adapter)), 0, shape};
    detail::fused_part const part = detail::fused_part_of(t.what, config.adapter, config.layer(layer));
    if (part.name.empty()) return {prefix + std::string(detail::name_in_layer(t.what)), 0, shape};
    shape[0] = part.rows;
    return {prefix + std::string(part.name), part.first_row, shape};
}

/// A role whose rows lie in a file tensor, from `first_row` on.
struct tensor_part {
    role what = role::none;
    int expert = 0;
    std::int64_t first_row = 0;
};

/// One file tensor that a model needs, and what it is made of: one role, or the parts of a fused or stacked one.
struct wanted_tensor {
    std::string name;
    int layer = 0;
    std::vector<std::int64_t> shape;
    std::vector<tensor_part> parts;
    bool is_matrix = false;
};

/// Every file tensor of a model once, the table of a tied head included once: the table, the layers in order, the final norm, the head.
/// Read from the model lowered on one rank.
template <class Lazy = void>
std::vector<wanted_tensor> inventory_of(model_config const& config, expert_layout layout = expert_layout::apart) {
    using tenon::v0::detail::deferred;
    struct sink {
        deferred<Lazy, std::vector<tensor>> tensors;
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

    deferred<Lazy, std::vector<wanted_tensor>> wanted;
    auto const want = [&](tensor const& t, int layer, int expert) {
        tensor_place place = place_of(t, layer, expert, config, layout);
        if (place.first_row == 0) return wanted.push_back({place.name, layer, place.shape, {{t.what, expert, 0}}, t.is_matrix()});
        std::size_t first = wanted.size() - 1;  // a later part of a fused or stacked tensor, whose first is an entry or two back
        while (wanted[first].name != place.name) --first;
        wanted[first].parts.push_back({t.what, expert, place.first_row});
    };
    auto const& all = lowered.tensors;
    for (tensor const& t : all)
        if (t.what == role::embed) want(t, 0, 0);
    for (int l = 0; l < config.layers; ++l)
        for (std::size_t i = 0; i < all.size(); ++i) {
            if (!is_of_layer(all[i].what) || all[i].kind != config.kind_of[static_cast<std::size_t>(l)]) continue;
            if (!all[i].is_of_expert())
                want(all[i], l, 0);
            else if (all[i].what == role::expert_gate)  // expert by expert: gate, up and down stand side by side
                for (int e = 0; e < all[i].experts; ++e)
                    for (std::size_t j = i; j < i + 3; ++j) want(all[j], l, e);
        }
    for (tensor const& t : all)
        if (t.what == role::final_norm || (t.what == role::head && !config.tied)) want(t, 0, 0);
    return wanted;
}

/// What the files hold beyond what the model needs.
struct inventory_report {
    std::vector<std::string> unused;  ///< skipped by rule: the legacy rotary table, a head beside a tied table
    bool tied_head_differs = false;   ///< a tied checkpoint ships another lm_head than its table; the table is used
};

namespace detail {
inline constexpr std::string_view scale_suffix = "_scale_inv";

/// Refuses codes without scales, scales without codes, and codes whose blocks the config does not declare. The element type decides,
/// matrix by matrix: where blocks are declared, a matrix may still be floats.
template <class = void>
void check_codes(folder const& files, tensor_view const& t, block_scaling scaling) {
    using tenon::v0::detail::refuse;
    std::string const scale_name = t.name + std::string(scale_suffix);
    tensor_view const* const scale = files.find(scale_name);
    if (t.type != dtype::f8_e4m3) {
        if (scale != nullptr)
            refuse("codes_have_scales",
                   "tensor " + scale_name + " scales " + t.name + ", which is " + std::string(name_of(t.type)) + "; F8_E4M3 would do");
        return;
    }
    if (t.shape.size() != 2)
        refuse("weights_are_floats", "tensor " + t.name + " stacks matrices of F8_E4M3; F32, BF16 or F16, or a tensor for each, would do");
    if (!scaling)
        refuse("weights_are_floats", "tensor " + t.name +
                                         " is F8_E4M3 and the config declares no block scaling; F32, BF16 or F16, or "
                                         "quantization_config with quant_method fp8, would do");
    auto const blocks = [](std::int64_t extent, int block) { return (extent + block - 1) / block; };
    std::vector<std::int64_t> const shape{blocks(t.shape[0], scaling.rows), blocks(t.shape[1], scaling.columns)};
    if (scale == nullptr)
        refuse("codes_have_scales", "tensor " + t.name + " is F8_E4M3 and " + scale_name + " " + show(shape) + " is missing");
    if (scale->shape != shape)
        refuse("tensor_has_shape", "tensor " + scale_name + " has shape " + show(scale->shape) + "; blocks of " +
                                       std::to_string(scaling.rows) + " x " + std::to_string(scaling.columns) + " of " + show(t.shape) +
                                       " ask for " + show(shape));
    if (scale->type != dtype::f32)
        refuse("weights_are_floats", "tensor " + scale_name + " is " + std::string(name_of(scale->type)) + "; F32 would do");
}
}  // namespace detail

/// How the experts of a folder are stored. Refuses a mixture with `experts_are_stored_one_way`.
template <class = void>
expert_layout expert_layout_of(folder const& files) {
    std::string_view apart, stacked;
    for (tensor_view const* const t : files.tensors()) {
        std::string_view const name = t->name;
        if (name.ends_with(".experts.gate_up_proj") || name.ends_with(".experts.down_proj")) stacked = name;
        if (name.find(".experts.") != std::string_view::npos && name.ends_with(".weight")) apart = name;
    }
    if (!apart.empty() && !stacked.empty())
        tenon::v0::detail::refuse("experts_are_stored_one_way", "tensor " + std::string(stacked) + " stacks experts and " +
                                                                    std::string(apart) + " is one of them; either way alone would do");
    return stacked.empty() ? expert_layout::apart : expert_layout::stacked;
}

/// Checks the headers of a folder against a model, before a weight is read.
///
/// Throws refusal `checkpoint_tensors_are_present` (count, the first five names and shapes, what was seen), `tensor_has_shape`,
/// `weights_are_floats`, `codes_have_scales`, `experts_are_stored_one_way` and `checkpoint_tensors_are_known`.
template <class Lazy = void>
inventory_report check_inventory(folder const& files, model_config const& config, block_scaling scaling = {}) {
    using tenon::v0::detail::deferred;
    using tenon::v0::detail::refuse;
    deferred<Lazy, std::vector<wanted_tensor>> const wanted = inventory_of(config, expert_layout_of(files));
    deferred<Lazy, std::vector<std::string>> missing, known, extra;
    for (wanted_tensor const& w : wanted) {
        known.push_back(w.name);
        tensor_view const* const t = files.find(w.name);
        if (t == nullptr) {
            missing.push_back(w.name + " " + show(w.shape));
            continue;
        }
        if (t->shape != w.shape)
            refuse("tensor_has_shape", "tensor " + w.name + " has shape " + show(t->shape) + "; the config asks for " + show(w.shape));
        bool const codes = w.is_matrix && t->type == dtype::f8_e4m3;
        if (!codes && t->type != dtype::f32 && t->type != dtype::bf16 && t->type != dtype::f16)
            refuse("weights_are_floats", "tensor " + w.name + " is " + std::string(name_of(t->type)) + "; F32, BF16 or F16 would do");
        if (w.is_matrix) detail::check_codes(files, *t, scaling);
        if (codes) known.push_back(w.name + std::string(detail::scale_suffix));
    }
    auto const counted = [](std::size_t n, std::string_view noun) {
        return std::to_string(n) + " " + std::string(noun) + (n == 1 ? "" : "s");
    };
    if (!missing.empty())
        refuse("checkpoint_tensors_are_present",
               std::to_string(missing.size()) + " of " + counted(wanted.size(), "tensor") + " missing: " + detail::first_five(missing) +
                   "; seen: " + counted(files.tensors().size(), "tensor") + " in " + counted(files.files().size(), "file"));
    tenon::v0::detail::sort(known);
    deferred<Lazy, inventory_report> report;
    constexpr std::string_view legacy = ".rotary_emb.inv_freq";
    for (tensor_view const* const t : files.tensors()) {
        if (std::binary_search(known.begin(), known.end(), t->name)) continue;
        bool const tied_head = config.tied && t->name == "lm_head.weight";
        if (!tied_head && !t->name.ends_with(legacy)) {
            extra.push_back(t->name + " " + show(t->shape));
            continue;
        }
        report.unused.push_back(t->name);
        if (tied_head) {
            tensor_view const* const table = files.find("model.embed_tokens.weight");
            report.tied_head_differs =
                table->type != t->type || table->shape != t->shape || std::memcmp(table->data.data(), t->data.data(), t->data.size()) != 0;
        }
    }
    if (!extra.empty())
        refuse("checkpoint_tensors_are_known",
               counted(extra.size(), "tensor") + " for which the config has no place: " + detail::first_five(extra));
    return report;
}

}  // namespace tenon::inline v0::checkpoint
