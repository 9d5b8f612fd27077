// Small checkpoints of every family with random weights, dense or routed, written into a folder that vanishes: config.json and model.safetensors from a
// geometry and a seed. Every value is exact in its element type, so that a test can read the same numbers from memory.
// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <tenon/checkpoint/writer.hpp>
#include <tenon/core/config.hpp>
#include <tenon/core/dtype.hpp>

#include <dirent.h>
#include <unistd.h>
#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace support {

/// An empty folder, removed with its files at the end.
class scratch_folder {
public:
    scratch_folder() {
        char const* const parent = std::getenv("TMPDIR");
        path_ = std::string(parent != nullptr && *parent != '\0' ? parent : "/tmp") + "/tenon-test-XXXXXX";
        if (::mkdtemp(path_.data()) == nullptr) std::abort();
    }
    scratch_folder(scratch_folder const&) = delete;
    scratch_folder& operator=(scratch_folder const&) = delete;
    ~scratch_folder() {
        if (::DIR* const folder = ::opendir(path_.c_str())) {
            while (::dirent const* const entry = ::readdir(folder)) ::unlink((path_ + "/" + entry->d_name).c_str());
            ::closedir(folder);
        }
        ::rmdir(path_.c_str());
    }

    std::string const& path() const { return path_; }
    std::string path(std::string_view name) const { return path_ + "/" + std::string(name); }
    void write(std::string_view name, std::string_view text) const {
        std::ofstream(path(name), std::ios::binary).write(text.data(), static_cast<std::streamsize>(text.size()));
    }

private:
    std::string path_;
};

enum class scaling { none, linear, llama3 };

/// The numbers of a checkpoint, as its config.json will say them.
struct geometry {
    std::string name{};
    int layers = 4, hidden = 128, heads = 8, kv_heads = 4;
    int head_dim = 0;  ///< 0: left out, hidden / heads
    int ffn = 256, vocab = 101, max_positions = 256;
    tenon::dtype type = tenon::dtype::f32;
    bool tied = false, attention_bias = false, mlp_bias = false;
    double theta = 10000.0, epsilon = 1e-5;
    scaling rope = scaling::none;
    double factor = 4.0, low = 1.0, high = 4.0;
    int original = 64;
    std::string family = "llama";            ///< as model_type spells it
    int window = 0;                          ///< most keys that a query sees; 0: all
    int first_window_layer = 0;              ///< of qwen2 and qwen3, whose lower layers see all
    tenon::routed_experts experts{};         ///< of the layers that route; a mixtral's width is also its ffn
    int sparse_step = 1;                     ///< of a qwen3_moe
    std::vector<int> dense_layers{};         ///< of a qwen3_moe
    bool stacked = false;                    ///< the experts of a layer are two tensors

    int head_width() const { return head_dim != 0 ? head_dim : hidden / heads; }
    bool is_fused() const { return family == "phi3"; }
    bool is_mixtral() const { return family == "mixtral"; }
    bool norms_heads() const { return family == "qwen3" || family == "qwen3_moe"; }
    bool routes(int layer) const {
        if (experts.count == 0 || std::find(dense_layers.begin(), dense_layers.end(), layer) != dense_layers.end()) return false;
        return (layer + 1) % sparse_step == 0;
    }
    /// Tensors of expert `e` of a layer, in the order gate, up, down.
    std::array<std::string, 3> expert_names(int layer, int e) const {
        std::string const at = routed_folder(layer) + "experts." + std::to_string(e) + ".";
        if (is_mixtral()) return {at + "w1.weight", at + "w3.weight", at + "w2.weight"};
        return {at + "gate_proj.weight", at + "up_proj.weight", at + "down_proj.weight"};
    }
    std::string routed_folder(int layer) const {
        return "model.layers." + std::to_string(layer) + (is_mixtral() ? ".block_sparse_moe." : ".mlp.");
    }
    std::string router_name(int layer) const { return routed_folder(layer) + "gate.weight"; }
    bool biases_qkv() const { return attention_bias || family == "qwen2"; }
    bool biases_output() const { return attention_bias; }
    int window_of(int layer) const { return layer >= first_window_layer ? window : 0; }
};

inline std::uint32_t bits_of(float x) { return std::bit_cast<std::uint32_t>(x); }

/// A binary16 number, which `x` must be.
inline std::uint16_t half_of(float x) {
    auto const sign = static_cast<std::uint32_t>(std::signbit(x) ? 0x8000 : 0);
    float const m = std::fabs(x);
    if (m < 0x1p-14f) return static_cast<std::uint16_t>(sign | static_cast<std::uint32_t>(m * 0x1p24f));
    std::uint32_t const b = bits_of(m);
    return static_cast<std::uint16_t>(sign | (((b >> 23U) - 112U) << 10U) | ((b >> 13U) & 0x3ffU));
}

/// One tensor: its exact values and the bytes that a file holds.
struct stored_tensor {
    std::vector<std::int64_t> shape{};
    tenon::dtype type = tenon::dtype::f32;
    std::vector<float> values{};

    std::vector<std::byte> bytes() const {
        std::vector<std::byte> out(values.size() * (type == tenon::dtype::f32 ? 4 : 2));
        for (std::size_t i = 0; i < values.size(); ++i) {
            if (type == tenon::dtype::f32) {
                std::memcpy(out.data() + 4 * i, &values[i], 4);
                continue;
            }
            std::uint16_t const half =
                type == tenon::dtype::f16 ? half_of(values[i]) : static_cast<std::uint16_t>(bits_of(values[i]) >> 16U);
            std::memcpy(out.data() + 2 * i, &half, 2);
        }
        return out;
    }
};

/// splitmix64. Source: Steele et al. 2014, "Fast splittable pseudorandom number generators".
class random_bits {
public:
    explicit random_bits(std::uint64_t seed) : state_(seed) {}
    std::uint64_t operator()() {
        std::uint64_t z = (state_ += 0x9e3779b97f4a7c15U);
        z = (z ^ (z >> 30U)) * 0xbf58476d1ce4e5b9U;
        z = (z ^ (z >> 27U)) * 0x94d049bb133111ebU;
        return z ^ (z >> 31U);
    }
    int below(int n) { return static_cast<int>((*this)() % static_cast<std::uint64_t>(n)); }

private:
    std::uint64_t state_;
};

inline std::vector<std::int32_t> random_tokens(random_bits& random, int count, int vocab) {
    std::vector<std::int32_t> ids;
    for (int i = 0; i < count; ++i) ids.push_back(random.below(vocab));
    return ids;
}

/// A checkpoint folder for the lifetime of the object, and its values in memory.
class random_model {
public:
    random_model(geometry g, std::uint64_t seed) : shape_(std::move(g)), random_(seed) {
        fill();
        write();
    }

    geometry const& shape() const { return shape_; }
    std::string const& directory() const { return folder_.path(); }
    scratch_folder const& folder() const { return folder_; }
    std::map<std::string, stored_tensor> const& tensors() const { return tensors_; }
    std::map<std::string, stored_tensor>& tensors() { return tensors_; }  ///< change, then `write()`, for a checkpoint that is wrong

    void write() const {
        folder_.write("config.json", config());
        std::vector<std::vector<std::byte>> data;
        data.reserve(tensors_.size());
        std::vector<tenon::checkpoint::tensor_view> views;
        for (auto const& [name, t] : tensors_) {
            data.push_back(t.bytes());
            tenon::checkpoint::tensor_view v{};
            v.name = name;
            v.type = t.type;
            v.shape = t.shape;
            v.data = data.back();
            views.push_back(v);
        }
        tenon::checkpoint::write_safetensors(folder_.path("model.safetensors"), views);
    }

    std::string config() const {
        geometry const& g = shape_;
        auto const field = [](std::string_view name, std::string const& value) {
            return "  \"" + std::string(name) + "\": " + value + ",\n";
        };
        auto const flag = [](bool b) { return std::string(b ? "true" : "false"); };
        std::string text =
            "{\n" + field("hidden_size", std::to_string(g.hidden)) + field("num_hidden_layers", std::to_string(g.layers)) +
            field("num_attention_heads", std::to_string(g.heads)) + field("num_key_value_heads", std::to_string(g.kv_heads)) +
            field("intermediate_size", std::to_string(g.ffn)) + field("vocab_size", std::to_string(g.vocab)) +
            field("max_position_embeddings", std::to_string(g.max_positions)) + field("rms_norm_eps", std::to_string(g.epsilon)) +
            field("rope_theta", std::to_string(g.theta)) + field("tie_word_embeddings", flag(g.tied));
        if (g.family == "llama" || g.norms_heads()) text += field("attention_bias", flag(g.attention_bias));
        if (g.family == "llama") text += field("mlp_bias", flag(g.mlp_bias));
        if (g.family == "mistral" || g.family == "phi3" || g.is_mixtral())
            text += field("sliding_window", g.window > 0 ? std::to_string(g.window) : "null");
        if (g.is_mixtral())
            text += field("num_local_experts", std::to_string(g.experts.count)) + field("num_experts_per_tok", std::to_string(g.experts.chosen));
        if (g.family == "qwen3_moe")
            text += field("num_experts", std::to_string(g.experts.count)) + field("num_experts_per_tok", std::to_string(g.experts.chosen)) +
                    field("moe_intermediate_size", std::to_string(g.experts.width)) + field("norm_topk_prob", flag(g.experts.normalised)) +
                    field("decoder_sparse_step", std::to_string(g.sparse_step)) + field("mlp_only_layers", listed(g.dense_layers));
        if ((g.family == "qwen2" || g.norms_heads()) && g.window > 0)
            text += field("use_sliding_window", "true") + field("sliding_window", std::to_string(g.window)) +
                    field("max_window_layers", std::to_string(g.first_window_layer));
        if (g.head_dim != 0) text += field("head_dim", std::to_string(g.head_dim));
        if (g.rope == scaling::linear)
            text += field("rope_scaling", "{\"type\": \"linear\", \"factor\": " + std::to_string(g.factor) + "}");
        if (g.rope == scaling::llama3)
            text += field("rope_scaling", "{\"rope_type\": \"llama3\", \"factor\": " + std::to_string(g.factor) +
                                              ", \"low_freq_factor\": " + std::to_string(g.low) +
                                              ", \"high_freq_factor\": " + std::to_string(g.high) +
                                              ", \"original_max_position_embeddings\": " + std::to_string(g.original) + "}");
        return text + "  \"model_type\": \"" + g.family + "\"\n}\n";
    }

private:
    static std::string listed(std::vector<int> const& numbers) {
        std::string text = "[";
        for (int const n : numbers) text += (text.size() == 1 ? "" : ", ") + std::to_string(n);
        return text + "]";
    }
    /// `centre` plus numbers of about the given spread, each an integer of few bits times a power of two.
    void add(std::string const& name, std::vector<std::int64_t> dims, double spread, float centre = 0.0f) {
        stored_tensor t{std::move(dims), shape_.type, {}};
        std::int64_t count = 1;
        for (std::int64_t const d : t.shape) count *= d;
        int bits = shape_.type == tenon::dtype::bf16 ? 8 : shape_.type == tenon::dtype::f16 ? 11 : 24;
        int const exponent = static_cast<int>(std::lround(std::log2(spread)));
        if (centre != 0.0f) bits += exponent;  // the sum must be exact too
        int const range = 1 << bits;
        float const unit = std::ldexp(1.0f, exponent - bits);
        t.values.reserve(static_cast<std::size_t>(count));
        for (std::int64_t i = 0; i < count; ++i)
            t.values.push_back(centre + static_cast<float>(random_.below(2 * range - 1) - range + 1) * unit);
        tensors_[name] = std::move(t);
    }
    void project(std::string const& name, int rows, int columns, bool biased) {
        add(name + ".weight", {rows, columns}, std::sqrt(3.0 / columns));
        if (biased) add(name + ".bias", {rows}, 0.5);
    }
    void fill() {
        geometry const& g = shape_;
        int const D = g.head_width();
        add("model.embed_tokens.weight", {g.vocab, g.hidden}, g.tied ? 0.25 : 1.0);
        for (int l = 0; l < g.layers; ++l) {
            std::string const at = "model.layers." + std::to_string(l) + ".";
            add(at + "input_layernorm.weight", {g.hidden}, 0.25, 0.5f);
            if (g.is_fused()) {
                project(at + "self_attn.qkv_proj", (g.heads + 2 * g.kv_heads) * D, g.hidden, false);
            } else {
                project(at + "self_attn.q_proj", g.heads * D, g.hidden, g.biases_qkv());
                project(at + "self_attn.k_proj", g.kv_heads * D, g.hidden, g.biases_qkv());
                project(at + "self_attn.v_proj", g.kv_heads * D, g.hidden, g.biases_qkv());
            }
            if (g.norms_heads()) {
                add(at + "self_attn.q_norm.weight", {D}, 0.25, 0.5f);
                add(at + "self_attn.k_norm.weight", {D}, 0.25, 0.5f);
            }
            project(at + "self_attn.o_proj", g.hidden, g.heads * D, g.biases_output());
            add(at + "post_attention_layernorm.weight", {g.hidden}, 0.25, 0.5f);
            if (g.routes(l)) {
                fill_experts(l);
                continue;
            }
            if (g.is_fused()) {
                project(at + "mlp.gate_up_proj", 2 * g.ffn, g.hidden, false);
            } else {
                project(at + "mlp.gate_proj", g.ffn, g.hidden, g.mlp_bias);
                project(at + "mlp.up_proj", g.ffn, g.hidden, g.mlp_bias);
            }
            project(at + "mlp.down_proj", g.hidden, g.ffn, g.mlp_bias);
        }
        add("model.norm.weight", {g.hidden}, 0.25, 0.5f);
        if (!g.tied) project("lm_head", g.vocab, g.hidden, false);
    }

    void fill_experts(int layer) {
        geometry const& g = shape_;
        tenon::routed_experts const& e = g.experts;
        std::string const at = g.routed_folder(layer);
        add(g.router_name(layer), {e.count, g.hidden}, 4.0 * std::sqrt(3.0 / g.hidden));
        if (e.correction) add(at + "gate.e_score_correction_bias", {e.count}, 0.25);
        if (g.stacked) {
            add(at + "experts.gate_up_proj", {e.count, 2 * e.width, g.hidden}, std::sqrt(3.0 / g.hidden));
            add(at + "experts.down_proj", {e.count, g.hidden, e.width}, std::sqrt(3.0 / e.width));
        }
        for (int i = 0; i < (g.stacked ? 0 : e.count); ++i) {
            auto const names = g.expert_names(layer, i);
            for (std::size_t m = 0; m < 2; ++m) add(names[m], {e.width, g.hidden}, std::sqrt(3.0 / g.hidden));
            add(names[2], {g.hidden, e.width}, std::sqrt(3.0 / e.width));
        }
        if (e.shared_width == 0) return;
        project(at + "shared_experts.gate_proj", e.shared_width, g.hidden, false);
        project(at + "shared_experts.up_proj", e.shared_width, g.hidden, false);
        project(at + "shared_experts.down_proj", g.hidden, e.shared_width, false);
    }

    geometry shape_;
    random_bits random_;
    std::map<std::string, stored_tensor> tensors_;
    scratch_folder folder_;
};

}  // namespace support
