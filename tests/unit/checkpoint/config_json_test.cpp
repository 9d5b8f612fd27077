// Published configs, and every field that has a trap.
// SPDX-License-Identifier: Apache-2.0
#include "support.hpp"

#include <tenon/checkpoint/config_json.hpp>
#include <tenon/checkpoint/mapped_file.hpp>

#include <doctest/doctest.h>
#include <cstdint>
#include <vector>

using namespace checkpoint_test;
using tenon::model_config;
using tenon::rope_scaling;
using tenon::checkpoint::mapped_file;
using tenon::checkpoint::read_config;

namespace {

std::string const data = TENON_TEST_DATA;

model_config read_file(std::string const& path) { return read_config(mapped_file(path).text(), path); }

constexpr std::string_view base[]{R"("model_type": "llama")",    R"("hidden_size": 64)", R"("num_hidden_layers": 4)",
                                  R"("num_attention_heads": 8)", R"("vocab_size": 128)", R"("intermediate_size": 96)"};

// The base config, with members added or replaced by key ("hidden_size": 60) and, without a colon, taken out ("hidden_size").
std::string config(std::string_view change_list = {}) {
    auto const key_of = [](std::string_view member) { return member.substr(0, member.find('"', 1) + 1); };
    std::string text = "{";
    for (std::string_view const member : base)
        if (change_list.find(key_of(member)) == std::string_view::npos) text += (text.size() == 1 ? "" : ", ") + std::string(member);
    if (change_list.find(':') != std::string_view::npos) text += (text.size() == 1 ? "" : ", ") + std::string(change_list);
    return text + "}";
}
model_config read(std::string_view changes = {}) { return read_config(config(changes)); }
std::string refused(std::string_view changes) {
    return refusal_of([changes] { read(changes); });
}
std::string law(std::string_view changes) {
    return law_of([changes] { read(changes); });
}

std::string member(std::string_view key, std::string_view value) { return std::string("\"").append(key).append("\": ").append(value); }

struct expected {
    std::string_view file;
    int layers, hidden, heads, kv_heads, head_dim, ffn, vocab, max_positions;
    double theta;
    bool tied;
    double factor;  // 1: no scaling
};

}  // namespace

TEST_CASE("the published Llama configs read to exactly their geometry") {
    constexpr expected table[]{{"Llama-2-7B", 32, 4096, 32, 32, 128, 11008, 32000, 4096, 10000, false, 1},
                               {"TinyLlama-1.1B", 22, 2048, 32, 4, 64, 5632, 32000, 2048, 10000, false, 1},
                               {"Llama-3-8B", 32, 4096, 32, 8, 128, 14336, 128256, 8192, 500000, false, 1},
                               {"Llama-3.1-8B", 32, 4096, 32, 8, 128, 14336, 128256, 131072, 500000, false, 8},
                               {"Llama-3.1-405B", 126, 16384, 128, 8, 128, 53248, 128256, 131072, 500000, false, 8},
                               {"Llama-3.2-1B", 16, 2048, 32, 8, 64, 8192, 128256, 131072, 500000, true, 32},
                               {"SmolLM-135M", 30, 576, 9, 3, 64, 1536, 49152, 2048, 10000, true, 1},
                               {"Yi-6B", 32, 4096, 32, 4, 128, 11008, 64000, 4096, 5000000, false, 1},
                               {"CodeLlama-34B", 48, 8192, 64, 8, 128, 22016, 32000, 16384, 1000000, false, 1}};
    for (expected const& e : table) {
        CAPTURE(e.file);
        model_config want;
        want.layers = e.layers;
        want.hidden = e.hidden;
        want.vocab = e.vocab;
        want.max_positions = e.max_positions;
        want.rms_epsilon = 1e-5;
        want.rope.theta = e.theta;
        if (e.factor != 1) {
            want.rope.scaling = rope_scaling::llama3;
            want.rope.factor = e.factor;
            want.rope.low_freq_factor = 1;
            want.rope.high_freq_factor = 4;
            want.rope.original_positions = 8192;
        }
        want.tied = e.tied;
        want.kinds[0] = {{e.heads, e.kv_heads, e.head_dim, false, false}, {e.ffn, false}};
        CHECK(read_file(data + "/configs/" + std::string(e.file) + ".json") == want);
    }
}

TEST_CASE("the published configs of other families are refused as known, not certified, by their model_type") {
    struct other {
        std::string_view file, type;
    };
    constexpr other table[]{{"Mistral-7B-v0.1", "mistral"}, {"Mistral-Nemo-12B", "mistral"},
                            {"Mixtral-8x7B", "mixtral"},    {"Phi-3-mini", "phi3"},
                            {"Qwen2.5-0.5B", "qwen2"},      {"Qwen2.5-3B", "qwen2"},
                            {"Qwen2.5-7B", "qwen2"},        {"Qwen3-0.6B", "qwen3"},
                            {"Qwen3-4B", "qwen3"},          {"Qwen3-8B", "qwen3"},
                            {"Qwen3-14B", "qwen3"},         {"Qwen3-30B-A3B", "qwen3_moe"},
                            {"Qwen3.5-27B", "qwen3_5"},     {"DeepSeek-V2-Lite", "deepseek_v2"},
                            {"DeepSeek-V3", "deepseek_v3"}, {"DeepSeek-V4-Flash", "deepseek_v4"},
                            {"Kimi-K2", "kimi_k2"},         {"Kimi-Linear-48B-A3B", "kimi_linear"},
                            {"GLM-4.5", "glm4_moe"},        {"gpt-oss-20b", "gpt_oss"},
                            {"Gemma-2-2b", "gemma2"},       {"Gemma-3-1B", "gemma3_text"},
                            {"StableLM-3B", "stablelm"}};
    for (other const& o : table) {
        CAPTURE(o.file);
        CHECK(refusal_of([&] { read_file(data + "/configs/" + std::string(o.file) + ".json"); }) ==
              "architecture_is_certified: " + std::string(o.type) + " is known, not certified; certified: llama");
    }
}

TEST_CASE("every config of the folder is in one of the two tables above") {
    int count = 0;
    ::DIR* const folder = ::opendir((data + "/configs").c_str());
    REQUIRE(folder != nullptr);
    while (::dirent const* const entry = ::readdir(folder)) count += contains(entry->d_name, ".json") ? 1 : 0;
    ::closedir(folder);
    CHECK(count == 9 + 23);
}

TEST_CASE("the golden configs read") {
    model_config const mha = read_file(data + "/golden/llama_mha_f32/config.json");
    CHECK(mha.kinds[0] == tenon::block_kind{{8, 8, 8, false, false}, {64, false}});
    CHECK(mha.rope == tenon::rope{});
    model_config const gqa = read_file(data + "/golden/llama_gqa_bf16_sharded/config.json");
    CHECK(gqa.kinds[0] == tenon::block_kind{{8, 2, 8, false, false}, {96, false}});
    CHECK(gqa.rope == tenon::rope{500000, rope_scaling::llama3, 8, 1, 4, 256});
    CHECK(gqa.max_positions == 512);
}

TEST_CASE("absent and null fields mean what they mean for llama") {
    model_config want;
    want.layers = 4;
    want.hidden = 64;
    want.vocab = 128;
    want.max_positions = 2048;
    want.rms_epsilon = 1e-6;
    want.kinds[0] = {{8, 8, 8, false, false}, {96, false}};
    CHECK(read() == want);
    CHECK(read(R"("num_key_value_heads": null, "head_dim": null, "rms_norm_eps": null, "max_position_embeddings": null, "rope_theta": null,
                  "rope_scaling": null, "rope_parameters": null, "hidden_act": null, "tie_word_embeddings": null, "attention_bias": null,
                  "mlp_bias": null, "sliding_window": null, "quantization_config": null, "text_config": null, "partial_rotary_factor": null)") ==
          want);
    CHECK(
        read(
            R"("attention_dropout": 0.5, "initializer_range": 0.02, "use_cache": true, "pretraining_tp": 2, "eos_token_id": [1, 2], "bos_token_id": null,
                  "torch_dtype": "float16", "dtype": "bfloat16", "transformers_version": "5.0", "architectures": ["MistralForCausalLM"])") ==
        want);
    CHECK(
        read(
            R"("rope_scaling": {}, "rope_parameters": {}, "hidden_act": "swish", "use_sliding_window": false, "layer_types": ["full_attention"])") ==
        want);
}

TEST_CASE("required fields are listed when they are missing") {
    CHECK(refused(R"("hidden_size")") ==
          "config_field_is_present: config.json: hidden_size is missing; a whole number for each, as this reader guesses no widths, would "
          "do");
    CHECK(contains(refusal_of([] { read_config(R"({"model_type":"llama","vocab_size":null})"); }),
                   "hidden_size, num_hidden_layers, num_attention_heads, vocab_size, intermediate_size is missing"));
    std::string const text = refusal_of([] { read_config(R"({"architectures": ["LlamaForCausalLM"], "hidden_size": 64})"); });
    CHECK(contains(text, "config_field_is_present: config.json: model_type is missing"));
    CHECK(contains(text, "architectures names \"LlamaForCausalLM\""));
    CHECK(law(R"("model_type": "gpt2")") == "architecture_is_known");
    CHECK(law(R"("model_type": 1)") == "config_field_has_type");
    for (char const* const whole : {"[]", "1", "null", "\"llama\""}) CHECK(law_of([&] { read_config(whole); }) == "config_field_has_type");
    CHECK(law_of([] { read_config(""); }) == "json_is_well_formed");
    CHECK(law_of([] { read_config(R"({"model_type":"llama","model_type":"llama"})"); }) == "json_keys_are_unique");
}

TEST_CASE("whole numbers may be spelled as fractions, and nothing else passes for them") {
    CHECK(read(R"("hidden_size": 64.0, "num_hidden_layers": 4e0, "vocab_size": 1.28e2)") == read());
    for (char const* const value : {"true", "\"64\"", "64.5", "[64]", "{}"}) {
        CAPTURE(value);
        for (char const* const key : {"hidden_size", "num_hidden_layers", "num_attention_heads", "vocab_size", "intermediate_size",
                                      "num_key_value_heads", "head_dim", "max_position_embeddings"})
            CHECK(law(member(key, value)) == "config_field_has_type");
    }
    for (char const* const value : {"0", "-1", "-0.5", "2147483648", "9223372036854775808", "1e999"}) {
        CAPTURE(value);
        for (char const* const key : {"hidden_size", "num_hidden_layers", "vocab_size", "num_key_value_heads", "head_dim"})
            CHECK(law(member(key, value)) == "config_value_is_supported");
    }
    CHECK(refused(R"("vocab_size": true)") == "config_field_has_type: config.json: vocab_size = true; a whole number would do");
    CHECK(refused(R"("vocab_size": 0)") ==
          "config_value_is_supported: config.json: vocab_size = 0; a whole number from 1 to 2147483647 would do");
}

TEST_CASE("booleans are booleans") {
    for (char const* const key : {"tie_word_embeddings", "attention_bias", "mlp_bias"})
        for (char const* const value : {"0", "1", "\"true\"", "[]"}) CHECK(law(member(key, value)) == "config_field_has_type");
    model_config const c = read(R"("tie_word_embeddings": true, "attention_bias": true, "mlp_bias": true)");
    CHECK(c.tied);
    CHECK(c.kinds[0].attention.qkv_bias);
    CHECK(c.kinds[0].attention.output_bias);
    CHECK(c.kinds[0].ffn.bias);
}

TEST_CASE("an explicit head_dim wins, an absent one is the width of a head") {
    CHECK(read(R"("head_dim": 128)").kinds[0].attention.head_dim == 128);
    CHECK(read(R"("hidden_size": 1792, "num_attention_heads": 24, "head_dim": 64)").kinds[0].attention.head_dim == 64);
    CHECK(refused(R"("hidden_size": 1792, "num_attention_heads": 24)") ==
          "heads_make_the_width: config.json: num_attention_heads = 24; hidden_size = 1792 does not divide by it and head_dim is absent; "
          "an explicit head_dim would do");
    CHECK(law(R"("hidden_size": 4, "num_attention_heads": 8)") == "heads_make_the_width");
    CHECK(law(R"("head_dim": 7)") == "head_dim_is_even");
    CHECK(law(R"("hidden_size": 56)") == "head_dim_is_even");
}

TEST_CASE("the laws of a model hold for what a file says") {
    CHECK(read(R"("num_key_value_heads": 2)").kinds[0].attention.kv_heads == 2);
    CHECK(law(R"("num_key_value_heads": 3)") == "heads_share_kv_heads");
    CHECK(law(R"("num_key_value_heads": 16)") == "heads_share_kv_heads");
    CHECK(read(R"("num_hidden_layers": 256)").layers == 256);
    CHECK(law(R"("num_hidden_layers": 257)") == "shape_fits");
    CHECK(contains(refused(R"("num_hidden_layers": 257)"), "257"));
    CHECK(law(R"("head_dim": 2147483646)") == "shape_fits");
}

TEST_CASE("rope: precedence of dictionary and theta") {
    CHECK(read(R"("rope_theta": 5e5)").rope.theta == 500000);
    CHECK(read(R"("rope_parameters": {"rope_theta": 500000.0, "rope_type": "default"})").rope.theta == 500000);
    CHECK(read(R"("rope_theta": 1, "rope_parameters": {"rope_theta": 2})").rope.theta == 2);
    CHECK(read(R"("rope_theta": 7, "rope_scaling": {"rope_type": "default"}, "rope_parameters": {"rope_theta": 2})").rope.theta == 7);
    CHECK(read(R"("rope_scaling": {}, "rope_parameters": {"rope_theta": 2})").rope.theta == 2);
    CHECK(read(R"("rope_scaling": {"type": "linear", "factor": 2}, "rope_parameters": {"rope_type": "yarn"})").rope.scaling ==
          rope_scaling::linear);
    for (char const* const value : {"0", "-1", "1e999", "1e-9", "5e-324"}) CHECK(law("\"rope_theta\": " + std::string(value)) == "config_value_is_supported");
    for (char const* const value : {"true", "\"1\"", "[]"}) CHECK(law("\"rope_theta\": " + std::string(value)) == "config_field_has_type");
    for (char const* const value : {"2", "\"linear\"", "[]", "false"})
        CHECK(law("\"rope_scaling\": " + std::string(value)) == "config_field_has_type");
}

TEST_CASE("rope: both spellings of the type, kinds that are supported, and the rest by name") {
    tenon::rope linear;
    linear.scaling = rope_scaling::linear;
    linear.factor = 2.5;
    CHECK(read(R"("rope_scaling": {"type": "linear", "factor": 2.5})").rope == linear);
    CHECK(law(R"("rope_scaling": {"type": "linear", "factor": 1e-300})") == "config_value_is_supported");
    CHECK(read(R"("rope_scaling": {"rope_type": "linear", "type": "linear", "factor": 2.5})").rope == linear);
    CHECK(read(R"("rope_scaling": {"type": "dynamic", "factor": 2.0})").rope == tenon::rope{});
    CHECK(read(R"("rope_scaling": {"type": null, "rope_type": "default"})").rope == tenon::rope{});
    for (char const* const type : {"yarn", "longrope", "su", "mrope", "proportional", "", "Linear"}) {
        CAPTURE(type);
        std::string const text = refused("\"rope_scaling\": {\"rope_type\": \"" + std::string(type) + "\", \"factor\": 2}");
        CHECK(text == "config_value_is_supported: config.json: rope_scaling.rope_type = \"" + std::string(type) +
                          "\"; \"default\", \"linear\", \"dynamic\" or \"llama3\" would do");
    }
    CHECK(contains(refused(R"("rope_scaling": {"type": "yarn"})"), "rope_scaling.type = \"yarn\""));
    CHECK(law(R"("rope_scaling": {"type": "linear", "rope_type": "llama3", "factor": 2})") == "config_keys_agree");
    CHECK(law(R"("rope_scaling": {"type": "", "rope_type": "linear", "factor": 2})") == "config_keys_agree");
    CHECK(law(R"("rope_scaling": {"type": 1})") == "config_field_has_type");
    CHECK(law(R"("rope_scaling": {"factor": 2})") == "config_field_is_present");
    CHECK(law(R"("rope_scaling": {"type": "linear"})") == "config_field_is_present");
    CHECK(law(R"("rope_scaling": {"type": "linear", "factor": 0})") == "config_value_is_supported");
    CHECK(law(R"("rope_scaling": {"type": "linear", "factor": "2"})") == "config_field_has_type");
    CHECK(law(R"("rope_scaling": {"type": "default", "mrope_section": [16, 24, 24]})") == "config_value_is_supported");
}

TEST_CASE("rope: llama3 has its four numbers, and the original positions fall back on the config's") {
    tenon::rope const want{10000, rope_scaling::llama3, 8, 1, 4, 256};
    CHECK(
        read(
            R"("rope_scaling": {"rope_type": "llama3", "factor": 8, "low_freq_factor": 1, "high_freq_factor": 4.0, "original_max_position_embeddings": 256, "extra": 1})")
            .rope == want);
    CHECK(
        read(
            R"("max_position_embeddings": 256, "rope_scaling": {"type": "llama3", "factor": 8, "low_freq_factor": 1, "high_freq_factor": 4})")
            .rope == want);
    for (char const* const part : {R"("low_freq_factor": 1, "high_freq_factor": 4)", R"("factor": 8, "high_freq_factor": 4)",
                                   R"("factor": 8, "low_freq_factor": 1)"})
        CHECK(law("\"rope_scaling\": {\"rope_type\": \"llama3\", " + std::string(part) + "}") == "config_field_is_present");
    CHECK(law(R"("rope_scaling": {"rope_type": "llama3", "factor": 8, "low_freq_factor": 4, "high_freq_factor": 4})") ==
          "config_value_is_supported");
    CHECK(
        law(R"("rope_scaling": {"rope_type": "llama3", "factor": 8, "low_freq_factor": 1, "high_freq_factor": 4, "original_max_position_embeddings": 0.5})") ==
        "config_value_is_supported");
    CHECK(
        law(R"("rope_scaling": {"rope_type": "llama3", "factor": 8, "low_freq_factor": 1, "high_freq_factor": 4, "original_max_position_embeddings": true})") ==
        "config_field_has_type");
}

TEST_CASE("rope: a dictionary by layer type is accepted when all its values are equal") {
    CHECK(
        read(
            R"("rope_parameters": {"full_attention": {"rope_theta": 5, "rope_type": "default"}, "sliding_attention": {"rope_type": "default", "rope_theta": 5.0}})")
            .rope.theta == 5);
    CHECK(refused(R"("rope_parameters": {"full_attention": {"rope_theta": 5}, "sliding_attention": {"rope_theta": 6}})") ==
          "config_value_is_supported: config.json: rope_parameters.sliding_attention differs from full_attention; the same values for "
          "every layer type would do");
    CHECK(law(R"("rope_parameters": {"full_attention": {"rope_theta": 5}, "rope_theta": 5})") == "config_value_is_supported");
}

TEST_CASE("a partial rotation is refused, wherever it stands") {
    CHECK(read(R"("partial_rotary_factor": 1.0)") == read());
    CHECK(refused(R"("partial_rotary_factor": 0.5)") ==
          "config_value_is_supported: config.json: partial_rotary_factor = 0.5; 1, which rotates the whole head, would do");
    CHECK(contains(refused(R"("rope_parameters": {"partial_rotary_factor": 0.25})"),
                   "config_value_is_supported: config.json: rope_parameters.partial_rotary_factor = 0.25"));
}

TEST_CASE("a value that is not implemented is refused by name") {
    for (char const* const act : {"gelu", "relu", "SiLU", "gelu_pytorch_tanh"})
        CHECK(refused("\"hidden_act\": \"" + std::string(act) + "\"") ==
              "config_value_is_supported: config.json: hidden_act = \"" + std::string(act) + "\"; \"silu\" or \"swish\" would do");
    CHECK(law(R"("hidden_act": true)") == "config_field_has_type");
    for (char const* const member :
         {R"("sliding_window": 4096)", R"("sliding_window": 4096, "use_sliding_window": false)", R"("use_sliding_window": true)",
          R"("num_experts": 8)", R"("num_local_experts": 8)", R"("kv_lora_rank": 512)", R"("final_logit_softcapping": 30.0)",
          R"("use_qk_norm": true)", R"("qkv_bias": true)", R"("layer_types": ["full_attention", "sliding_attention"])",
          R"("no_rope_layers": [1])"})
        CHECK_MESSAGE(law(member) == "config_value_is_supported", member);
    for (char const* const method : {"fp8", "gptq", "awq", "compressed-tensors", "bitsandbytes", "mxfp4"})
        CHECK(contains(
            refused("\"quantization_config\": {\"quant_method\": \"" + std::string(method) + "\"}"),
            "config_value_is_supported: config.json: quantization_config = an object with quant_method \"" + std::string(method) + "\";"));
    CHECK(law(R"("quantization_config": {})") == "config_value_is_supported");
    for (char const* const value : {"0", "-1e-5"}) CHECK(law("\"rms_norm_eps\": " + std::string(value)) == "config_value_is_supported");
    CHECK(read(R"("rms_norm_eps": 1e-05)").rms_epsilon == 1e-5);
}

TEST_CASE("text_config holds the model, and only the tie may stand outside") {
    auto const nested = [](std::string_view outside, std::string_view changes = {}) {
        return "{" + std::string(outside) + (outside.empty() ? "" : ", ") + "\"text_config\": " + config(changes) + "}";
    };
    CHECK(read_config(nested("")) == read());
    CHECK(read_config(nested(R"("model_type": "llama")")) == read());
    CHECK(read_config(nested(R"("model_type": "llama")", R"("model_type": "llama_text")")) == read());
    CHECK(read_config(nested(R"("tie_word_embeddings": true)")).tied);
    CHECK(read_config(nested("", R"("tie_word_embeddings": true)")).tied);
    CHECK(read_config(nested(R"("hidden_size": 32)")) == read());
    CHECK(law_of([&] { read_config(nested(R"("tie_word_embeddings": true)", R"("tie_word_embeddings": false)")); }) == "config_keys_agree");
    CHECK(law_of([&] { read_config(nested(R"("model_type": "llama")", R"("model_type": "mistral")")); }) == "config_keys_agree");
    CHECK(law_of([&] { read_config(nested(R"("model_type": "llava")")); }) == "architecture_is_known");
    CHECK(law_of([&] { read_config(nested(R"("quantization_config": {"quant_method": "awq"})")); }) == "config_value_is_supported");
    CHECK(contains(refusal_of([&] { read_config(nested("", R"("hidden_act": "gelu")")); }),
                   "config.json: text_config.hidden_act = \"gelu\""));
    CHECK(law_of([] { read_config(R"({"model_type":"llama","text_config":[]})"); }) == "config_field_has_type");
}
