// The files of a model as values, so that a test can damage them before they are written. Knows shapes and bytes, no arithmetic.
// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <tenon/checkpoint/inventory.hpp>
#include <tenon/checkpoint/writer.hpp>

#include "support.hpp"

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace checkpoint_test {

/// Whether the small model of a family routes experts.
constexpr bool routes(tenon::adapter_id adapter) { return adapter == tenon::adapter_id::mixtral || adapter == tenon::adapter_id::qwen3_moe; }

/// Two layers whose every extent differs from the others, so that no shape fits by chance: H 8, N 4, G 2, D 6, F 10, V 13; E 3, J 7.
inline tenon::model_config small(tenon::adapter_id adapter, bool tied = false) {
    tenon::model_config c{.adapter = adapter, .layers = 2, .hidden = 8, .vocab = 13, .max_positions = 32, .tied = tied};
    c.kinds[0] = {.attention = {.heads = 4,
                                .kv_heads = 2,
                                .head_dim = 6,
                                .qkv_bias = adapter == tenon::adapter_id::qwen2,
                                .qk_norm = adapter == tenon::adapter_id::qwen3 || adapter == tenon::adapter_id::qwen3_moe},
                  .ffn = {.width = 10}};
    if (routes(adapter)) {
        c.kinds[0].ffn = {};
        c.kinds[0].experts = {.count = 3, .chosen = 2, .width = 7};
    }
    return c;
}

/// The tensors of all layers as one stage, cut over that many ranks.
inline std::vector<tenon::tensor> lowered(tenon::model_config const& config, int ranks = 1,
                                          tenon::join_kind join = tenon::join_kind::gather) {
    struct sink {
        std::vector<tenon::tensor> tensors{};
        int add(tenon::tensor const& t) {
            tensors.push_back(t);
            return 0;
        }
        int add(tenon::node const&) { return 0; }
        void add(tenon::edge const&) {}
    } out;
    std::vector<tenon::device_id> devices;
    for (int i = 0; i < ranks; ++i) devices.push_back({tenon::device_kind::cpu, i});
    tenon::stage_traits const stage{0, config.layers - 1, devices, {.tensor = ranks > 1, .expert_width = ranks > 1 && routes(config.adapter), .tensor_join = join, .width_join = join}};
    lower(config, {&stage, 1}, out);
    return out.tensors;
}

/// A tensor of a file.
struct stored {
    tenon::dtype type = tenon::dtype::f32;
    std::vector<std::int64_t> shape{};
    std::string data{};
};

/// Every tensor that a model needs, of random bytes; f8_e4m3 stands for matrices as codes with random scales beside float32 vectors.
struct model_files {
    std::map<std::string, stored> tensors{};
    support::random_bits random{7};

    explicit model_files(tenon::model_config const& config, tenon::dtype type = tenon::dtype::f32,
                         tenon::checkpoint::block_scaling scaling = {},
                         tenon::checkpoint::expert_layout layout = tenon::checkpoint::expert_layout::apart) {
        bool const codes = type == tenon::dtype::f8_e4m3;
        for (auto const& w : tenon::checkpoint::inventory_of(config, layout)) {
            put(w.name, codes && !w.is_matrix ? tenon::dtype::f32 : type, w.shape);
            if (!codes || !w.is_matrix) continue;
            auto const blocks = [](std::int64_t extent, int block) { return (extent + block - 1) / block; };
            put_scales(w.name + "_scale_inv", {blocks(w.shape[0], scaling.rows), blocks(w.shape[1], scaling.columns)});
        }
    }

    /// Adds or replaces a tensor.
    void put(std::string const& name, tenon::dtype type, std::vector<std::int64_t> shape) {
        stored t{type, std::move(shape), {}};
        t.data.resize(bytes(t));
        for (char& c : t.data) c = static_cast<char>(random.below(256));
        tensors[name] = std::move(t);
    }

    /// Finite numbers of all sizes down to where a product is subnormal; the largest code times the largest of them still fits.
    void put_scales(std::string const& name, std::vector<std::int64_t> shape) {
        put(name, tenon::dtype::f32, std::move(shape));
        std::string& data = tensors[name].data;
        for (std::size_t i = 0; i < data.size(); i += 4) {
            std::uint32_t const number =
                static_cast<std::uint32_t>(random.below(240)) << 23U | static_cast<std::uint32_t>(random.below(1 << 23));
            std::memcpy(&data[i], &number, 4);
        }
    }

    /// One file.
    void write(scratch_folder const& to) const { to.write("model.safetensors", file(0, tensors.size())); }

    /// Shards of as many tensors each, in the order of names, and their index.
    void write_shards(scratch_folder const& to, std::size_t shards) const {
        std::size_t const each = (tensors.size() + shards - 1) / shards;
        std::string map;
        std::size_t i = 0;
        for (auto const& [name, t] : tensors)
            map += (map.empty() ? "" : ",\n") + ("\"" + name + "\":\"shard-" + std::to_string(i++ / each) + "\"");
        for (std::size_t s = 0; s < shards; ++s) to.write("shard-" + std::to_string(s), file(s * each, (s + 1) * each));
        to.write("model.safetensors.index.json", "{\"weight_map\":{" + map + "}}");
    }

private:
    static std::size_t bytes(stored const& t) {
        std::uint64_t n = 0;
        if (!tenon::checkpoint::detail::count_bytes(t.shape, t.type, n)) std::abort();
        return n;
    }

    std::string file(std::size_t begin, std::size_t end) const {
        std::vector<tenon::checkpoint::tensor_view> views;
        std::size_t i = 0;
        for (auto const& [name, t] : tensors)
            if (i++; i > begin && i <= end) views.push_back({name, t.type, t.shape, bytes_of(t.data)});
        return tenon::checkpoint::safetensors_bytes(views);
    }
};

}  // namespace checkpoint_test
