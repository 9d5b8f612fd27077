// Which tensors a model asks for, and what a checkpoint that has others is told.
// SPDX-License-Identifier: Apache-2.0
#include "model_files.hpp"

#include <tenon/checkpoint/inventory.hpp>

#include <doctest/doctest.h>
#include <algorithm>
#include <array>
#include <utility>

using namespace checkpoint_test;
using namespace tenon::checkpoint;
using tenon::adapter_id;
using tenon::dtype;
using tenon::model_config;
using tenon::role;

namespace {
using shape = std::vector<std::int64_t>;
using named_shapes = std::vector<std::pair<std::string, shape>>;

constexpr std::array every_family{adapter_id::llama, adapter_id::mistral, adapter_id::qwen2,    adapter_id::qwen3,
                                  adapter_id::phi3,  adapter_id::mixtral, adapter_id::qwen3_moe};
constexpr block_scaling three_by_five{3, 5};

// What Hugging Face calls the tensors of a layer of `small`, written out.
named_shapes layer_of(adapter_id family) {
    if (family == adapter_id::phi3)
        return {{"input_layernorm.weight", {8}},          {"self_attn.qkv_proj.weight", {48, 8}}, {"self_attn.o_proj.weight", {8, 24}},
                {"post_attention_layernorm.weight", {8}}, {"mlp.gate_up_proj.weight", {20, 8}},   {"mlp.down_proj.weight", {8, 10}}};
    named_shapes all{{"input_layernorm.weight", {8}},      {"self_attn.q_proj.weight", {24, 8}}, {"self_attn.k_proj.weight", {12, 8}},
                     {"self_attn.v_proj.weight", {12, 8}}, {"self_attn.o_proj.weight", {8, 24}}, {"post_attention_layernorm.weight", {8}},
                     {"mlp.gate_proj.weight", {10, 8}},    {"mlp.up_proj.weight", {10, 8}},      {"mlp.down_proj.weight", {8, 10}}};
    named_shapes more;
    if (routes(family)) {
        bool const numbered = family == adapter_id::mixtral;
        std::string const at = numbered ? "block_sparse_moe." : "mlp.";
        all.resize(all.size() - 3);
        more = {{at + "gate.weight", {3, 8}}};
        for (std::string const e : {"0", "1", "2"}) {
            more.push_back({at + "experts." + e + (numbered ? ".w1.weight" : ".gate_proj.weight"), {7, 8}});
            more.push_back({at + "experts." + e + (numbered ? ".w2.weight" : ".down_proj.weight"), {8, 7}});
            more.push_back({at + "experts." + e + (numbered ? ".w3.weight" : ".up_proj.weight"), {7, 8}});
        }
    }
    if (family == adapter_id::qwen3_moe) {
        more.push_back({"self_attn.q_norm.weight", {6}});
        more.push_back({"self_attn.k_norm.weight", {6}});
    }
    if (family == adapter_id::qwen2)
        more = {{"self_attn.q_proj.bias", {24}}, {"self_attn.k_proj.bias", {12}}, {"self_attn.v_proj.bias", {12}}};
    if (family == adapter_id::qwen3) more = {{"self_attn.q_norm.weight", {6}}, {"self_attn.k_norm.weight", {6}}};
    all.insert(all.end(), more.begin(), more.end());
    return all;
}

named_shapes names_of(adapter_id family, bool tied) {
    named_shapes all{{"model.embed_tokens.weight", {13, 8}}, {"model.norm.weight", {8}}};
    if (!tied) all.push_back({"lm_head.weight", {13, 8}});
    for (std::string const layer : {"0", "1"})
        for (auto const& [name, extents] : layer_of(family)) all.push_back({"model.layers." + layer + "." + name, extents});
    std::sort(all.begin(), all.end());
    return all;
}

named_shapes sorted(std::vector<wanted_tensor> const& wanted) {
    named_shapes all;
    for (wanted_tensor const& w : wanted) all.push_back({w.name, w.shape});
    std::sort(all.begin(), all.end());
    return all;
}

inventory_report report_of(model_files const& files, model_config const& config, block_scaling scaling = {}) {
    scratch_folder const scratch;
    files.write(scratch);
    return check_inventory(folder(scratch.path()), config, scaling);
}

// What the files of a model are told after one change to them.
template <class Change>
std::string refused(model_config const& config, dtype type, block_scaling scaling, Change change) {
    model_files files(config, type, scaling ? scaling : three_by_five);
    change(files);
    return refusal_of([&] { report_of(files, config, scaling); });
}
template <class Change>
std::string refused(adapter_id family, Change change) {
    return refused(small(family), dtype::bf16, {}, change);
}
}  // namespace

TEST_CASE("each family asks for the tensors that its checkpoints have, by name and shape, in one order") {
    for (adapter_id const family : every_family)
        for (bool const tied : {false, true}) {
            CAPTURE(static_cast<int>(family));
            std::vector<wanted_tensor> const wanted = inventory_of(small(family, tied));
            CHECK(sorted(wanted) == names_of(family, tied));
            CHECK(wanted.front().name == "model.embed_tokens.weight");
            CHECK(wanted.back().name == (tied ? "model.norm.weight" : "lm_head.weight"));
            auto const layer = [](wanted_tensor const& a, wanted_tensor const& b) { return a.layer < b.layer; };
            CHECK(std::is_sorted(wanted.begin() + 1, wanted.end() - (tied ? 1 : 2), layer));
            for (wanted_tensor const& w : wanted) CHECK(w.is_matrix == (w.shape.size() == 2));
        }
    model_config biased = small(adapter_id::llama);
    biased.kinds[0].attention.qkv_bias = biased.kinds[0].attention.output_bias = biased.kinds[0].ffn.bias = true;
    named_shapes const all = sorted(inventory_of(biased));
    CHECK(all.size() == names_of(adapter_id::llama, false).size() + 2 * 7);
    for (auto const& [name, extent] : {std::pair{"self_attn.q_proj.bias", 24},
                                       {"self_attn.k_proj.bias", 12},
                                       {"self_attn.v_proj.bias", 12},
                                       {"self_attn.o_proj.bias", 8},
                                       {"mlp.gate_proj.bias", 10},
                                       {"mlp.up_proj.bias", 10},
                                       {"mlp.down_proj.bias", 8}})
        CHECK(std::binary_search(all.begin(), all.end(), std::pair{"model.layers.1." + std::string(name), shape{extent}}));
}

TEST_CASE("a fused tensor is wanted once, with the rows at which its parts begin") {
    model_config deep = small(adapter_id::phi3);
    deep.layers = tenon::most_layers;
    std::vector<wanted_tensor> const wanted = inventory_of(deep);
    CHECK(wanted.size() == 3 + 6 * 256);
    int fused = 0;
    for (wanted_tensor const& w : wanted) {
        std::vector<std::pair<role, std::int64_t>> parts;
        for (tensor_part const& p : w.parts) parts.emplace_back(p.what, p.first_row);
        if (w.name.ends_with("qkv_proj.weight")) {
            CHECK(parts == decltype(parts){{role::q, 0}, {role::k, 24}, {role::v, 36}});
        } else if (w.name.ends_with("gate_up_proj.weight")) {
            CHECK(parts == decltype(parts){{role::gate, 0}, {role::up, 10}});
        } else {
            CHECK(parts.size() == 1);
            continue;
        }
        CHECK(w.name.starts_with("model.layers." + std::to_string(w.layer) + "."));
        ++fused;
    }
    CHECK(fused == 2 * 256);
}

TEST_CASE("experts are asked for one by one, or stacked with gate rows before up rows, each once") {
    for (adapter_id const family : {adapter_id::mixtral, adapter_id::qwen3_moe}) {
        std::string const at = std::string("model.layers.1.") + (family == adapter_id::mixtral ? "block_sparse_moe" : "mlp") + ".experts.";
        std::vector<wanted_tensor> const stacked = inventory_of(small(family), expert_layout::stacked);
        int seen = 0;
        for (wanted_tensor const& w : stacked) {
            std::vector<std::array<std::int64_t, 3>> parts;
            for (tensor_part const& p : w.parts) parts.push_back({static_cast<std::int64_t>(p.what), p.expert, p.first_row});
            constexpr auto gate = static_cast<std::int64_t>(role::expert_gate), up = static_cast<std::int64_t>(role::expert_up),
                           down = static_cast<std::int64_t>(role::expert_down);
            if (w.name == at + "gate_up_proj") {
                CHECK(w.shape == shape{3, 14, 8});
                CHECK(parts == decltype(parts){{gate, 0, 0}, {up, 0, 7}, {gate, 1, 14}, {up, 1, 21}, {gate, 2, 28}, {up, 2, 35}});
                ++seen;
            }
            if (w.name == at + "down_proj") {
                CHECK(w.shape == shape{3, 8, 7});
                CHECK(parts == decltype(parts){{down, 0, 0}, {down, 1, 8}, {down, 2, 16}});
                ++seen;
            }
        }
        CHECK(seen == 2);
        CHECK(stacked.size() + 2 * (9 - 2) == inventory_of(small(family)).size());
    }
}

TEST_CASE("experts are stored one way: stacked files pass, a mixture of both is refused, and so are stacked codes") {
    for (adapter_id const family : {adapter_id::mixtral, adapter_id::qwen3_moe}) {
        model_config const c = small(family);
        for (dtype const type : {dtype::f32, dtype::bf16, dtype::f16}) {
            model_files const files(c, type, {}, expert_layout::stacked);
            CHECK(refusal_of([&] { CHECK(report_of(files, c).unused.empty()); }) == "nothing is refused");
        }
        std::string const at = std::string("model.layers.0.") + (family == adapter_id::mixtral ? "block_sparse_moe" : "mlp") + ".experts.";
        std::string const one = at + (family == adapter_id::mixtral ? "1.w3.weight" : "1.up_proj.weight");
        model_files mixed(c, dtype::bf16, {}, expert_layout::stacked);
        mixed.put(one, dtype::bf16, {7, 8});
        CHECK(refusal_of([&] { report_of(mixed, c); }) == "experts_are_stored_one_way: tensor model.layers.1." + at.substr(15) +
                                                              "gate_up_proj stacks experts and " + one + " is one of them; either way alone would do");
        model_files codes(c, dtype::bf16, {}, expert_layout::stacked);
        codes.put(at + "down_proj", dtype::f8_e4m3, {3, 8, 7});
        CHECK(refusal_of([&] { report_of(codes, c, three_by_five); }) ==
              "weights_are_floats: tensor " + at + "down_proj stacks matrices of F8_E4M3; F32, BF16 or F16, or a tensor for each, would do");
        CHECK(contains(refused(family, [&](model_files& f) { f.tensors.erase(one); }), "1 of"));
        CHECK(contains(refused(family, [&](model_files& f) { f.put(one, dtype::bf16, {8, 7}); }), "tensor_has_shape: tensor " + one + " has shape [8, 7]"));
        CHECK(contains(refused(family, [&](model_files& f) { f.put(at + "3.gate_proj.weight", dtype::bf16, {7, 8}); }), "checkpoint_tensors_are_known"));
    }
}

TEST_CASE("layers of several kinds are asked for in their order, each with its own extents") {
    model_config mixed = small(adapter_id::qwen3);
    mixed.layers = 4;
    mixed.kind_count = 2;
    mixed.kinds[1] = mixed.kinds[0];
    mixed.kinds[1].ffn.width = 12;
    mixed.kind_of[1] = mixed.kind_of[3] = 1;
    int layer = 0;
    for (wanted_tensor const& w : inventory_of(mixed))
        if (w.name.ends_with("up_proj.weight")) {
            CHECK(w.layer == layer);
            CHECK(w.shape == shape{layer % 2 == 0 ? 10 : 12, 8});
            ++layer;
        }
    CHECK(layer == 4);
}

TEST_CASE("the golden checkpoints hold what their models ask for") {
    struct row {
        std::string_view folder;
        adapter_id family;
        int layers, hidden, vocab, heads, kv_heads, head_dim, ffn;
        bool tied;
        block_scaling scaling;
    };
    constexpr row rows[]{{"llama_mha_f32", adapter_id::llama, 4, 64, 128, 8, 8, 8, 64, false, {}},
                         {"llama_gqa_bf16_sharded", adapter_id::llama, 4, 64, 128, 8, 2, 8, 96, false, {}},
                         {"mistral_nemo_f16", adapter_id::mistral, 4, 80, 130, 4, 2, 16, 96, false, {}},
                         {"mistral_swa_bf16", adapter_id::mistral, 4, 64, 128, 8, 2, 8, 96, false, {}},
                         {"qwen2_f32", adapter_id::qwen2, 3, 64, 128, 4, 4, 16, 40, false, {}},
                         {"qwen2_tied_bf16", adapter_id::qwen2, 4, 96, 128, 6, 2, 16, 56, true, {}},
                         {"qwen3_bf16", adapter_id::qwen3, 4, 64, 128, 4, 2, 32, 96, true, {}},
                         {"qwen3_fp8", adapter_id::qwen3, 4, 96, 128, 4, 2, 32, 160, false, {128, 128}}};
    for (row const& r : rows) {
        CAPTURE(r.folder);
        model_config c = small(r.family, r.tied);
        c.layers = r.layers;
        c.hidden = r.hidden;
        c.vocab = r.vocab;
        c.kinds[0].attention.heads = r.heads;
        c.kinds[0].attention.kv_heads = r.kv_heads;
        c.kinds[0].attention.head_dim = r.head_dim;
        c.kinds[0].ffn.width = r.ffn;
        folder const files(std::string(TENON_TEST_DATA "/golden/") + std::string(r.folder));
        CHECK(refusal_of([&] { CHECK(check_inventory(files, c, r.scaling).unused.empty()); }) == "nothing is refused");
    }
}

TEST_CASE("files in any of the three float types pass, mixed too") {
    for (adapter_id const family : every_family)
        for (dtype const type : {dtype::f32, dtype::bf16, dtype::f16}) {
            model_files files(small(family), type);
            CHECK(report_of(files, small(family)).unused.empty());
            files.put("model.layers.0.self_attn.o_proj.weight", dtype::f32, {8, 24});
            files.put("model.norm.weight", dtype::bf16, {8});
            CHECK(report_of(files, small(family)).unused.empty());
        }
}

TEST_CASE("what is missing is named with its shape, five at most, beside what was seen") {
    CHECK(refused(adapter_id::qwen2, [](model_files& f) { f.tensors.erase("model.layers.1.self_attn.k_proj.bias"); }) ==
          "checkpoint_tensors_are_present: 1 of 27 tensors missing: model.layers.1.self_attn.k_proj.bias [12]; seen: 26 tensors in 1 file");
    for (adapter_id const family : every_family)
        for (auto const& [name, extents] : names_of(family, false)) {
            std::string const text = refused(family, [&name = name](model_files& f) { f.tensors.erase(name); });
            CHECK_MESSAGE(contains(text, "checkpoint_tensors_are_present: 1 of "), text);
            CHECK_MESSAGE(contains(text, " missing: " + name + " " + show(extents) + "; seen: "), text);
        }
    CHECK(contains(refused(adapter_id::llama, [](model_files& f) { f.tensors.clear(); }),
                   "21 of 21 tensors missing: model.embed_tokens.weight [13, 8], model.layers.0.input_layernorm.weight [8], "
                   "model.layers.0.self_attn.q_proj.weight [24, 8], model.layers.0.self_attn.k_proj.weight [12, 8], "
                   "model.layers.0.self_attn.v_proj.weight [12, 8] and 16 more; seen: 0 tensors in 1 file"));
}

TEST_CASE("a download that was cut short is told by its shards: at the index if that knows them, else at the tensors") {
    model_config const config = small(adapter_id::llama);
    model_files files(config);
    scratch_folder const scratch;
    files.write_shards(scratch, 3);
    CHECK(check_inventory(folder(scratch.path()), config).unused.empty());
    for (std::string const lost : {"shard-1", "shard-2"}) {
        files.write_shards(scratch, 3);
        REQUIRE(::unlink(scratch.path(lost).c_str()) == 0);
        CHECK(contains(refusal_of([&] { folder f(scratch.path()); }), "2 of the 3 files that the index names are here; missing: " + lost));
    }
    // An index that maps two of three shards is whole by itself; the third begins with this tensor.
    files.write_shards(scratch, 3);
    std::string index(mapped_file(scratch.path("model.safetensors.index.json")).text());
    index.resize(index.find(",\n\"model.layers.1.mlp.up_proj.weight\""));
    scratch.write("model.safetensors.index.json", index + "}}");
    CHECK(refusal_of([&] { check_inventory(folder(scratch.path()), config); }) ==
          "checkpoint_tensors_are_present: 7 of 21 tensors missing: model.layers.1.self_attn.q_proj.weight [24, 8], "
          "model.layers.1.self_attn.k_proj.weight [12, 8], model.layers.1.self_attn.v_proj.weight [12, 8], "
          "model.layers.1.self_attn.o_proj.weight [8, 24], model.layers.1.post_attention_layernorm.weight [8] and 2 more; seen: 14 tensors "
          "in 2 files");
}

TEST_CASE("a shape is the one that the config asks for: not its transpose, not with an axis more or less") {
    for (adapter_id const family : every_family)
        for (auto const& [name, extents] : names_of(family, false)) {
            shape const turned(extents.rbegin(), extents.rend());
            shape longer = extents, deeper = extents, flat{1};
            ++longer[0];
            deeper.insert(deeper.begin(), 1);
            for (std::int64_t const n : extents) flat[0] *= n;
            for (shape const& other : {turned, longer, deeper, flat, shape{}, shape{0}}) {
                if (other == extents) continue;
                std::string const text = refused(family, [&, &name = name](model_files& f) { f.put(name, dtype::bf16, other); });
                CHECK_MESSAGE(
                    text == "tensor_has_shape: tensor " + name + " has shape " + show(other) + "; the config asks for " + show(extents),
                    text);
            }
        }
}

TEST_CASE("a weight of another type is refused by its name and the type's") {
    for (auto const& [name, extents] : names_of(adapter_id::qwen2, false))
        for (std::size_t i = 0; i < tenon::dtype_table.size(); ++i) {
            auto const type = static_cast<dtype>(i);
            std::string const text =
                refused(adapter_id::qwen2, [&, &name = name, &extents = extents](model_files& f) { f.put(name, type, extents); });
            bool const codes = type == dtype::f8_e4m3 && extents.size() == 2;
            if (type == dtype::f32 || type == dtype::bf16 || type == dtype::f16)
                CHECK_MESSAGE(text == "nothing is refused", text);
            else
                CHECK_MESSAGE(
                    text == "weights_are_floats: tensor " + name + " is " + std::string(tenon::name_of(type)) +
                                (codes ? " and the config declares no block scaling; F32, BF16 or F16, or quantization_config with "
                                         "quant_method fp8, would do"
                                       : "; F32, BF16 or F16 would do"),
                    text);
        }
}

TEST_CASE("a tensor that the config has no place for is refused, one of a type that no weight has too") {
    auto const extra = [](adapter_id family, std::string const& name, dtype type, shape const& extents) {
        return refused(family, [&](model_files& f) { f.put(name, type, extents); });
    };
    auto const told = [](std::string const& what) {
        return "checkpoint_tensors_are_known: 1 tensor for which the config has no place: " + what;
    };
    std::string const o_bias = "model.layers.0.self_attn.o_proj.bias", old = "model.layers.0.self_attn.q_proj.weight";
    CHECK(extra(adapter_id::qwen2, o_bias, dtype::bf16, {8}) == told(o_bias + " [8]"));
    CHECK(extra(adapter_id::llama, "spare", dtype::f8_e4m3, {2, 3}) == told("spare [2, 3]"));
    CHECK(extra(adapter_id::llama, "spare", dtype::i64, {}) == told("spare []"));
    CHECK(extra(adapter_id::llama, "spare", dtype::f8_e5m2, {3, 0}) == told("spare [3, 0]"));
    CHECK(extra(adapter_id::llama, "model.layers.2.input_layernorm.weight", dtype::bf16, {8}) ==
          told("model.layers.2.input_layernorm.weight [8]"));
    CHECK(extra(adapter_id::phi3, old, dtype::bf16, {24, 8}) == told(old + " [24, 8]"));
    CHECK(extra(adapter_id::qwen2, "model.layers.0.self_attn.q_norm.weight", dtype::bf16, {6}) ==
          told("model.layers.0.self_attn.q_norm.weight [6]"));
    CHECK(extra(adapter_id::llama, "model.norm.weight_scale_inv", dtype::f32, {1, 1}) == told("model.norm.weight_scale_inv [1, 1]"));
    CHECK(refused(adapter_id::llama, [](model_files& f) {
              for (char const c : {'a', 'b', 'c', 'd', 'e', 'f', 'g'}) f.put(std::string(1, c), dtype::u8, {1});
          }) == "checkpoint_tensors_are_known: 7 tensors for which the config has no place: a [1], b [1], c [1], d [1], e [1] and 2 more");
}

TEST_CASE("the legacy rotary table of a layer is skipped and reported, whatever its type") {
    model_files files(small(adapter_id::llama));
    std::string const name = "model.layers.1.self_attn.rotary_emb.inv_freq";
    for (dtype const type : {dtype::f32, dtype::f64, dtype::f8_e4m3}) {
        files.put(name, type, {3});
        CHECK(report_of(files, small(adapter_id::llama)).unused == std::vector<std::string>{name});
    }
    CHECK(contains(refused(adapter_id::llama, [](model_files& f) { f.put("inv_freq", dtype::f32, {3}); }), "inv_freq [3]"));
}

TEST_CASE("a head beside a tied table is reported unused, and whether it differs from the table") {
    model_config const tied = small(adapter_id::qwen2, true);
    model_files files(tied, dtype::bf16);
    CHECK(!report_of(files, tied).tied_head_differs);
    stored const table = files.tensors.at("model.embed_tokens.weight");
    auto const differs = [&] {
        inventory_report const report = report_of(files, tied);
        CHECK(report.unused == std::vector<std::string>{"lm_head.weight"});
        return report.tied_head_differs;
    };
    stored& head = files.tensors["lm_head.weight"] = table;
    CHECK(!differs());
    head.data.back() = static_cast<char>(head.data.back() ^ 1);
    CHECK(differs());
    head = table;
    head.type = dtype::f16;  // the same bytes, other numbers
    CHECK(differs());
    head = table;
    head.shape = {8, 13};
    CHECK(differs());
    files.put("lm_head.weight", dtype::f8_e4m3, {0});
    CHECK(differs());
    CHECK(
        contains(refused(adapter_id::qwen2, [](model_files& f) { f.tensors.erase("lm_head.weight"); }), "missing: lm_head.weight [13, 8]"));
}

TEST_CASE("codes have scales, one a block, and the config declares the blocks") {
    for (adapter_id const family : every_family)
        for (block_scaling const scaling : {block_scaling{1, 1}, three_by_five, block_scaling{128, 128}})
            CHECK(report_of(model_files(small(family), dtype::f8_e4m3, scaling), small(family), scaling).unused.empty());

    model_config const config = small(adapter_id::qwen3);
    std::string const name = "model.layers.1.self_attn.q_proj.weight", scales = name + "_scale_inv";  // [24, 8]: [8, 2] blocks
    auto const told = [&](block_scaling scaling, auto change) { return refused(config, dtype::f8_e4m3, scaling, change); };
    auto const nothing = [](model_files&) {};
    CHECK(told(three_by_five, [&](model_files& f) { f.tensors.erase(scales); }) ==
          "codes_have_scales: tensor " + name + " is F8_E4M3 and " + scales + " [8, 2] is missing");
    CHECK(told(three_by_five, [&](model_files& f) {
              f.put(name, dtype::bf16, {24, 8});
          }) == "codes_have_scales: tensor " + scales + " scales " + name + ", which is BF16; F8_E4M3 would do");
    CHECK(refused(config, dtype::f32, {}, [&](model_files& f) {
              f.put_scales(scales, {8, 2});
          }) == "codes_have_scales: tensor " + scales + " scales " + name + ", which is F32; F8_E4M3 would do");
    for (shape const& other : {shape{2, 8}, shape{8, 1}, shape{9, 2}, shape{16}, shape{}, shape{8, 2, 1}})
        CHECK(told(three_by_five, [&](model_files& f) { f.put_scales(scales, other); }) ==
              "tensor_has_shape: tensor " + scales + " has shape " + show(other) + "; blocks of 3 x 5 of [24, 8] ask for [8, 2]");
    for (dtype const type : {dtype::bf16, dtype::f64, dtype::i32, dtype::f8_e4m3})
        CHECK(told(three_by_five, [&](model_files& f) {
                  f.put(scales, type, {8, 2});
              }) == "weights_are_floats: tensor " + scales + " is " + std::string(tenon::name_of(type)) + "; F32 would do");
    CHECK(contains(told({}, nothing),
                   "weights_are_floats: tensor model.embed_tokens.weight is F8_E4M3 and the config declares no block scaling"));
    CHECK(contains(told({5, 3}, [&](model_files& f) { f.put_scales(scales, {8, 2}); }), "blocks of 5 x 3 of [24, 8] ask for [5, 3]"));
    CHECK(told(three_by_five, [](model_files& f) { f.put("model.layers.0.self_attn.q_norm.weight", dtype::f8_e4m3, {6}); }) ==
          "weights_are_floats: tensor model.layers.0.self_attn.q_norm.weight is F8_E4M3; F32, BF16 or F16 would do");
    CHECK(told(three_by_five, [](model_files& f) {  // as released: some matrices keep floats
              f.put("lm_head.weight", dtype::bf16, {13, 8});
              f.tensors.erase("lm_head.weight_scale_inv");
          }) == "nothing is refused");
}
