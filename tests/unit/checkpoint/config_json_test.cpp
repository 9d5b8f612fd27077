// Published configs, and every field that has a trap.
// SPDX-License-Identifier: Apache-2.0
#include "support.hpp"

#include <tenon/checkpoint/config_json.hpp>
#include <tenon/checkpoint/mapped_file.hpp>

#include <doctest/doctest.h>
#include <cstdint>
#include <vector>

using namespace checkpoint_test;
using tenon::adapter_id;
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

constexpr std::string_view families[]{"llama", "mistral", "qwen2", "qwen3", "phi3", "mixtral", "qwen3_moe"};
bool routes(std::string_view family) { return family == "mixtral" || family == "qwen3_moe"; }

// Eight experts of which a token chooses two, where a family routes.
constexpr std::string_view routed_members[]{R"("num_experts_per_tok": 2)", R"("num_local_experts": 8)", R"("moe_intermediate_size": 32)"};

// The base config as that family's, with what every one of them may ask for, and the changes.
std::string as(std::string_view family, std::string_view changes = {}) {
    std::string text = "\"model_type\": \"" + std::string(family) + "\", \"num_key_value_heads\": 8";
    if (changes.find("\"num_attention_heads\"") != std::string_view::npos) text.back() = '2';
    for (std::string_view const member : routed_members) {
        bool const has = routes(family) && (family == "qwen3_moe" || member.find("moe") == std::string_view::npos);
        if (has && changes.find(member.substr(0, member.find(':'))) == std::string_view::npos) text.append(", ").append(member);
    }
    return changes.empty() ? text : text + ", " + std::string(changes);
}

// The one kind of a qwen3_moe without experts.
tenon::block_kind block_of_dense_qwen3_moe() { return {{8, 8, 8, false, false, true, 0}, {96, false}, {}}; }

std::string member(std::string_view key, std::string_view value) { return std::string("\"").append(key).append("\": ").append(value); }

struct expected {
    std::string_view file;
    adapter_id family;
    int layers, hidden, heads, kv_heads, head_dim, ffn, vocab, max_positions;
    double theta, epsilon;
    bool tied = false;
    double factor = 1;  // 1: no scaling
    int window = 0;
    int experts = 0, chosen = 0, expert_width = 0;
};

// Every field of the config that the numbers of a row mean.
model_config config_of(expected const& e) {
    model_config want;
    want.adapter = e.family;
    want.layers = e.layers;
    want.hidden = e.hidden;
    want.vocab = e.vocab;
    want.max_positions = e.max_positions;
    want.rms_epsilon = e.epsilon;
    want.rope.theta = e.theta;
    if (e.factor != 1) want.rope = {e.theta, rope_scaling::llama3, e.factor, 1, 4, 8192};
    want.tied = e.tied;
    bool const norms = e.family == adapter_id::qwen3 || e.family == adapter_id::qwen3_moe;
    want.kinds[0] = {{e.heads, e.kv_heads, e.head_dim, e.family == adapter_id::qwen2, false, norms, e.window}, {e.ffn, false}};
    if (e.experts != 0)
        want.kinds[0].experts = {.count = e.experts, .chosen = e.chosen, .width = e.expert_width, .normalised = true};
    return want;
}

}  // namespace

TEST_CASE("the published configs of the certified families read to exactly their geometry") {
    constexpr adapter_id llama = adapter_id::llama, mistral = adapter_id::mistral, phi3 = adapter_id::phi3, qwen2 = adapter_id::qwen2,
                         qwen3 = adapter_id::qwen3, mixtral = adapter_id::mixtral, qwen3_moe = adapter_id::qwen3_moe;
    constexpr expected table[]{{"Llama-2-7B", llama, 32, 4096, 32, 32, 128, 11008, 32000, 4096, 10000, 1e-5},
                               {"TinyLlama-1.1B", llama, 22, 2048, 32, 4, 64, 5632, 32000, 2048, 10000, 1e-5},
                               {"Llama-3-8B", llama, 32, 4096, 32, 8, 128, 14336, 128256, 8192, 500000, 1e-5},
                               {"Llama-3.1-8B", llama, 32, 4096, 32, 8, 128, 14336, 128256, 131072, 500000, 1e-5, false, 8},
                               {"Llama-3.1-405B", llama, 126, 16384, 128, 8, 128, 53248, 128256, 131072, 500000, 1e-5, false, 8},
                               {"Llama-3.2-1B", llama, 16, 2048, 32, 8, 64, 8192, 128256, 131072, 500000, 1e-5, true, 32},
                               {"SmolLM-135M", llama, 30, 576, 9, 3, 64, 1536, 49152, 2048, 10000, 1e-5, true},
                               {"Yi-6B", llama, 32, 4096, 32, 4, 128, 11008, 64000, 4096, 5000000, 1e-5},
                               {"CodeLlama-34B", llama, 48, 8192, 64, 8, 128, 22016, 32000, 16384, 1000000, 1e-5},
                               {"Mistral-7B-v0.1", mistral, 32, 4096, 32, 8, 128, 14336, 32000, 32768, 10000, 1e-5, false, 1, 4096},
                               {"Mistral-Nemo-12B", mistral, 40, 5120, 32, 8, 128, 14336, 131072, 131072, 1000000, 1e-5},
                               {"Phi-3-mini", phi3, 32, 3072, 32, 32, 96, 8192, 32064, 4096, 10000, 1e-5, false, 1, 2047},
                               {"Qwen2.5-0.5B", qwen2, 24, 896, 14, 2, 64, 4864, 151936, 32768, 1000000, 1e-6, true},
                               {"Qwen2.5-3B", qwen2, 36, 2048, 16, 2, 128, 11008, 151936, 32768, 1000000, 1e-6, true},
                               {"Qwen2.5-7B", qwen2, 28, 3584, 28, 4, 128, 18944, 152064, 131072, 1000000, 1e-6},
                               {"Qwen3-0.6B", qwen3, 28, 1024, 16, 8, 128, 3072, 151936, 40960, 1000000, 1e-6, true},
                               {"Qwen3-4B", qwen3, 36, 2560, 32, 8, 128, 9728, 151936, 40960, 1000000, 1e-6, true},
                               {"Qwen3-8B", qwen3, 36, 4096, 32, 8, 128, 12288, 151936, 40960, 1000000, 1e-6},
                               {"Qwen3-14B", qwen3, 40, 5120, 40, 8, 128, 17408, 151936, 40960, 1000000, 1e-6},
                               {"Mixtral-8x7B", mixtral, 32, 4096, 32, 8, 128, 0, 32000, 32768, 1000000, 1e-5, false, 1, 0, 8, 2, 14336},
                               {"Qwen3-30B-A3B", qwen3_moe, 48, 2048, 32, 4, 128, 0, 151936, 40960, 1000000, 1e-6, false, 1, 0, 128, 8, 768}};
    for (expected const& e : table) {
        CAPTURE(e.file);
        CHECK(read_file(data + "/configs/" + std::string(e.file) + ".json") == config_of(e));
    }
}

TEST_CASE("the published configs of other families are refused as known, not certified, by their model_type and with the reason") {
    struct other {
        std::string_view file, type, reason;
    };
    constexpr other table[]{{"Qwen3.5-27B", "qwen3_5", "linear attention with a recurrent state"},
                            {"DeepSeek-V2-Lite", "deepseek_v2", "latent attention and routed experts"},
                            {"DeepSeek-V3", "deepseek_v3", "latent attention and routed experts"},
                            {"DeepSeek-V4-Flash", "deepseek_v4", "compressed attention, hyper-connections and routed experts"},
                            {"Kimi-K2", "kimi_k2", "latent attention and routed experts"},
                            {"Kimi-Linear-48B-A3B", "kimi_linear", "linear attention with a recurrent state and routed experts"},
                            {"GLM-4.5", "glm4_moe", "routed experts and a partial rotation"},
                            {"gpt-oss-20b", "gpt_oss", "routed experts and attention sinks"},
                            {"Gemma-2-2b", "gemma2", "soft-capped scores, alternating local and global layers, gelu"},
                            {"Gemma-3-1B", "gemma3_text", "alternating local and global layers with two rotations, gelu"},
                            {"StableLM-3B", "stablelm", "layer norms with a mean and a partial rotation"}};
    for (other const& o : table) {
        CAPTURE(o.file);
        CHECK(refusal_of([&] { read_file(data + "/configs/" + std::string(o.file) + ".json"); }) ==
              "architecture_is_certified: " + std::string(o.type) + " is known, not certified (" + std::string(o.reason) +
                  "); certified: llama, mistral, qwen2, qwen3, phi3, mixtral, qwen3_moe");
    }
}

TEST_CASE("every config of the folder is in one of the two tables above") {
    int count = 0;
    ::DIR* const folder = ::opendir((data + "/configs").c_str());
    REQUIRE(folder != nullptr);
    while (::dirent const* const entry = ::readdir(folder)) count += contains(entry->d_name, ".json") ? 1 : 0;
    ::closedir(folder);
    CHECK(count == 21 + 11);
}

TEST_CASE("the golden configs read to exactly their geometry") {
    model_config gqa = config_of({"", adapter_id::llama, 4, 64, 8, 2, 8, 96, 128, 512, 500000, 1e-5});
    gqa.rope = {500000, rope_scaling::llama3, 8, 1, 4, 256};
    CHECK(read_file(data + "/golden/llama_gqa_bf16_sharded/config.json") == gqa);
    constexpr expected table[]{{"llama_mha_f32", adapter_id::llama, 4, 64, 8, 8, 8, 64, 128, 512, 10000, 1e-5},
                               {"mistral_swa_bf16", adapter_id::mistral, 4, 64, 8, 2, 8, 96, 128, 512, 10000, 1e-5, false, 1, 8},
                               {"mistral_nemo_f16", adapter_id::mistral, 4, 80, 4, 2, 16, 96, 130, 512, 1000000, 1e-5},
                               {"qwen2_f32", adapter_id::qwen2, 3, 64, 4, 4, 16, 40, 128, 512, 1000000, 1e-6},
                               {"qwen2_tied_bf16", adapter_id::qwen2, 4, 96, 6, 2, 16, 56, 128, 512, 1000000, 1e-6, true},
                               {"qwen3_bf16", adapter_id::qwen3, 4, 64, 4, 2, 32, 96, 128, 512, 1000000, 1e-6, true},
                               {"qwen3_fp8", adapter_id::qwen3, 4, 96, 4, 2, 32, 160, 128, 512, 1000000, 1e-6},
                               {"mixtral_bf16_sharded", adapter_id::mixtral, 4, 64, 8, 2, 8, 0, 128, 512, 1000000, 1e-5, false, 1, 0, 8, 2, 16},
                               {"qwen3_moe_f32", adapter_id::qwen3_moe, 4, 64, 8, 4, 8, 0, 128, 512, 1000000, 1e-6, false, 1, 0, 8, 2, 8}};
    for (expected const& e : table) {
        CAPTURE(e.file);
        CHECK(read_file(data + "/golden/" + std::string(e.file) + "/config.json") == config_of(e));
    }
    model_config const mixed = read_file(data + "/golden/qwen3_moe_bf16_sharded/config.json");
    CHECK(mixed.layers == 6);
    for (int l = 0; l < 6; ++l) {
        CAPTURE(l);
        bool const sparse = l == 1 || l == 5;  // every second, but not layer 3
        CHECK(mixed.layer(l).experts.count == (sparse ? 16 : 0));
        CHECK(mixed.layer(l).ffn.width == (sparse ? 0 : 96));
    }
}

TEST_CASE("experts: which layers route, how many experts there are, and what an absent field means") {
    auto const experts_of = [](std::string_view family, std::string_view changes) { return read(as(family, changes)).kinds[0].experts; };
    tenon::routed_experts const two_of_eight{.count = 8, .chosen = 2, .width = 96, .normalised = true};
    CHECK(experts_of("mixtral", "") == two_of_eight);
    CHECK(experts_of("mixtral", R"("router_jitter_noise": 0.1, "output_router_logits": true, "router_aux_loss_coef": 0.5)") == two_of_eight);
    tenon::routed_experts narrow{.count = 8, .chosen = 2, .width = 32};
    CHECK(experts_of("qwen3_moe", "") == narrow);  // norm_topk_prob is false where it is absent
    CHECK(experts_of("qwen3_moe", R"("norm_topk_prob": null, "decoder_sparse_step": 1.0, "mlp_only_layers": [])") == narrow);
    narrow.normalised = true;
    CHECK(experts_of("qwen3_moe", R"("norm_topk_prob": true)") == narrow);
    CHECK(experts_of("qwen3_moe", R"("num_experts": 8, "norm_topk_prob": true)") == narrow);
    CHECK(refused(as("qwen3_moe", R"("num_experts": 16)")) ==
          "config_keys_agree: config.json: num_local_experts = 8; num_experts is 16, one of the keys, or the same value in both, would do");
    CHECK(read(as("qwen3_moe", R"("num_local_experts": 0)")).kinds[0] == block_of_dense_qwen3_moe());

    auto const sparse = [](std::string_view changes) {
        model_config const c = read(as("qwen3_moe", changes));
        std::string layers;
        for (int l = 0; l < c.layers; ++l) layers += c.layer(l).experts ? 'x' : '-';
        return layers;
    };
    CHECK(sparse("") == "xxxx");
    CHECK(sparse(R"("decoder_sparse_step": 2)") == "-x-x");
    CHECK(sparse(R"("decoder_sparse_step": 3)") == "--x-");
    CHECK(sparse(R"("decoder_sparse_step": 5)") == "----");
    CHECK(sparse(R"("mlp_only_layers": [3, 0, 3])") == "-xx-");
    CHECK(sparse(R"("mlp_only_layers": [1.0], "decoder_sparse_step": 2)") == "---x");
}

TEST_CASE("experts: what is wrong is refused by its field and value") {
    struct bad {
        std::string_view family, members, says;
    };
    constexpr bad table[]{
        {"mixtral", R"("num_local_experts": null)", "config_field_is_present: config.json: num_local_experts is missing"},
        {"mixtral", R"("num_experts_per_tok": null)", "config_field_is_present: config.json: num_experts_per_tok is missing"},
        {"mixtral", R"("num_local_experts": 0)", "config_value_is_supported: config.json: num_local_experts = 0"},
        {"mixtral", R"("num_local_experts": 1025)", "shape_fits"},
        {"mixtral", R"("num_experts_per_tok": 9)", "chosen_experts_exist"},
        {"mixtral", R"("num_experts": 8)", "config_value_is_supported: config.json: num_experts = 8; mixtral has none; null would do"},
        {"mixtral", R"("moe_intermediate_size": 8)", "config_value_is_supported: config.json: moe_intermediate_size = 8"},
        {"mixtral", R"("attention_bias": true)", "config_value_is_supported: config.json: attention_bias = true"},
        {"qwen3_moe", R"("num_local_experts": null)", "config_field_is_present: config.json: num_experts is missing"},
        {"qwen3_moe", R"("moe_intermediate_size": null)", "config_field_is_present: config.json: moe_intermediate_size is missing"},
        {"qwen3_moe", R"("num_local_experts": "8")", "config_field_has_type: config.json: num_local_experts = \"8\""},
        {"qwen3_moe", R"("num_local_experts": -8)", "config_value_is_supported: config.json: num_local_experts = -8"},
        {"qwen3_moe", R"("num_experts_per_tok": 0)", "config_value_is_supported: config.json: num_experts_per_tok = 0"},
        {"qwen3_moe", R"("num_experts_per_tok": 9)", "chosen_experts_exist"},
        {"qwen3_moe", R"("moe_intermediate_size": 1.5)", "config_field_has_type: config.json: moe_intermediate_size = 1.5"},
        {"qwen3_moe", R"("norm_topk_prob": 1)", "config_field_has_type: config.json: norm_topk_prob = 1; true or false would do"},
        {"qwen3_moe", R"("decoder_sparse_step": 0)", "config_value_is_supported: config.json: decoder_sparse_step = 0"},
        {"qwen3_moe", R"("mlp_only_layers": 3)", "config_field_has_type: config.json: mlp_only_layers = 3; an array of whole numbers would do"},
        {"qwen3_moe", R"("mlp_only_layers": [0, "1"])", "config_field_has_type: config.json: mlp_only_layers[1] = \"1\""},
        {"qwen3_moe", R"("mlp_only_layers": [4])", "config_value_is_supported: config.json: mlp_only_layers[0] = 4; a layer from 0 to 3 would do"},
        {"qwen3_moe", R"("mlp_only_layers": [-1])", "config_value_is_supported: config.json: mlp_only_layers[0] = -1"},
        {"qwen3_moe", R"("shared_expert_intermediate_size": 64)", "config_value_is_supported: config.json: shared_expert_intermediate_size = 64"},
        {"qwen3_moe", R"("n_group": 4)", "config_value_is_supported: config.json: n_group = 4; qwen3_moe has none; null would do"},
        {"qwen3_moe", R"("scoring_func": "sigmoid")", "config_value_is_supported: config.json: scoring_func = \"sigmoid\""},
        {"qwen3_moe", R"("use_qk_norm": false)", "config_value_is_supported: config.json: use_qk_norm = false"}};
    for (bad const& b : table) CHECK_MESSAGE(contains(refused(as(b.family, b.members)), b.says), b.members << ": " << refused(as(b.family, b.members)));
}

TEST_CASE("experts: a mixtral's window is sliding_window, that of a qwen3_moe is switched and in every layer") {
    CHECK(read(as("mixtral", "")).layer(0).attention.window == 0);  // absent means none, unlike in a mistral
    CHECK(read(as("mixtral", R"("sliding_window": 7)")).layer(3).attention.window == 7);
    CHECK(read(as("mixtral", "")).rope.theta == 1e6);
    CHECK(read(as("mixtral", "")).rms_epsilon == 1e-5);
    CHECK(read(as("qwen3_moe", R"("use_sliding_window": false, "sliding_window": 9, "max_window_layers": 2)")).layer(3).attention.window == 0);
    model_config const windowed = read(as("qwen3_moe", R"("use_sliding_window": true, "sliding_window": 9, "max_window_layers": 2)"));
    for (int l = 0; l < 4; ++l) CHECK(windowed.layer(l).attention.window == 9);
    CHECK(law(as("qwen3_moe", R"("use_sliding_window": true)")) == "config_field_is_present");
    CHECK(law(as("qwen3_moe", R"("use_sliding_window": true, "sliding_window": 9, "layer_types": ["full_attention", "sliding_attention",
                                  "sliding_attention", "sliding_attention"])")) == "config_value_is_supported");
}

TEST_CASE("absent and null fields mean what they mean for llama") {
    model_config want;
    want.layers = 4;
    want.hidden = 64;
    want.vocab = 128;
    want.max_positions = 2048;
    want.rms_epsilon = 1e-6;
    want.kinds[0] = {{8, 8, 8, false, false}, {96, false}, {}};
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
            R"("rope_scaling": {}, "rope_parameters": {}, "hidden_act": "swish", "use_sliding_window": false, "layer_types": ["full_attention", "full_attention", "full_attention", "full_attention"])") ==
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
    for (char const* const value : {"0", "-1", "1e999", "1e-9", "5e-324"})
        CHECK(law("\"rope_theta\": " + std::string(value)) == "config_value_is_supported");
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
          R"("use_qk_norm": true)", R"("qkv_bias": true)", R"("layer_types": ["full_attention", "sliding_attention", "full_attention", "full_attention"])",
          R"("no_rope_layers": [1])"})
        CHECK_MESSAGE(law(member) == "config_value_is_supported", member);
    CHECK(refused(R"("layer_types": ["full_attention"])") ==
          "config_keys_agree: config.json: layer_types has 1 entries; 4, as num_hidden_layers says, would do");
    for (char const* const value : {"0", "-1e-5"}) CHECK(law("\"rms_norm_eps\": " + std::string(value)) == "config_value_is_supported");
    CHECK(read(R"("rms_norm_eps": 1e-05)").rms_epsilon == 1e-5);
}

TEST_CASE("8-bit codes with a scale a block are read, and any other way to store weights is refused by name") {
    using tenon::checkpoint::block_scaling;
    using tenon::checkpoint::read_block_scaling;
    auto const scaling = [](std::string_view changes) { return read_block_scaling(config(changes)); };
    constexpr std::string_view blocks = R"("quantization_config": {"quant_method": "fp8", "weight_block_size": [128, 64.0]})";
    CHECK(!scaling(""));
    CHECK(!scaling(R"("quantization_config": null)"));
    CHECK(scaling(blocks) == block_scaling{128, 64});
    CHECK(
        scaling(R"("quantization_config": {"quant_method": "fp8", "fmt": "e4m3", "activation_scheme": "static", "weight_block_size": [1, 2],
                                             "modules_to_not_convert": ["lm_head"]})") == block_scaling{1, 2});
    CHECK(read_block_scaling(mapped_file(data + "/golden/qwen3_fp8/config.json").text()) == block_scaling{128, 128});
    CHECK(!read_block_scaling(mapped_file(data + "/golden/qwen3_bf16/config.json").text()));
    for (std::string_view const family : families) CHECK(read(as(family, blocks)) == read(as(family)));

    std::string const inside = "{\"text_config\": " + config(blocks) + "}", plain = ", \"text_config\": " + config() + "}";
    CHECK(read_block_scaling(inside) == block_scaling{128, 64});
    CHECK(read_block_scaling("{" + std::string(blocks) + plain) == block_scaling{128, 64});
    CHECK(read_config("{" + std::string(blocks) + plain) == read());
    std::string const twice = R"({"quantization_config": {"quant_method": "fp8", "weight_block_size": [64, 64]}, )" + inside.substr(1);
    CHECK(law_of([&] { read_config(twice); }) == "config_keys_agree");

    struct bad {
        std::string_view value, says;
    };
    constexpr bad table[]{
        {R"({})", "config_value_is_supported: config.json: quantization_config = an object with quant_method absent;"},
        {R"({"quant_method": null})", "config_value_is_supported: config.json: quantization_config = an object with quant_method absent;"},
        {R"({"quant_method": "FP8", "weight_block_size": [1, 1]})", "with quant_method \"FP8\""},
        {R"({"quant_method": 8})", "config_field_has_type: config.json: quantization_config.quant_method = 8; a string would do"},
        {R"({"quant_method": "fp8"})",
         "config_field_is_present: config.json: quantization_config.weight_block_size is missing; [rows, columns] of the block that shares "
         "a scale would do"},
        {R"({"quant_method": "fp8", "weight_block_size": null})", "config_field_is_present"},
        {R"({"quant_method": "fp8", "fmt": "e5m2", "weight_block_size": [1, 1]})",
         "config_value_is_supported: config.json: quantization_config.fmt = \"e5m2\"; \"e4m3\" would do"},
        {R"({"quant_method": "fp8", "weight_block_size": 128})",
         "config_field_has_type: config.json: quantization_config.weight_block_size = 128"},
        {R"({"quant_method": "fp8", "weight_block_size": [128]})", "config_field_has_type"},
        {R"({"quant_method": "fp8", "weight_block_size": [128, 128, 1]})", "config_field_has_type"},
        {R"({"quant_method": "fp8", "weight_block_size": [128, true]})", "weight_block_size[1] = true; a whole number would do"},
        {R"({"quant_method": "fp8", "weight_block_size": [1.5, 128]})", "config_field_has_type"},
        {R"({"quant_method": "fp8", "weight_block_size": [0, 128]})",
         "config_value_is_supported: config.json: quantization_config.weight_block_size[0] = 0; a whole number from 1 to 2147483647 would "
         "do"},
        {R"({"quant_method": "fp8", "weight_block_size": [128, -1]})", "config_value_is_supported"},
        {"[]", "config_field_has_type: config.json: quantization_config = an array"},
        {"true", "config_field_has_type"}};
    auto const refused_everywhere = [](std::string const& member, std::string_view says) {
        CAPTURE(member);
        CHECK_MESSAGE(contains(refused(member), says), refused(member));
        CHECK(refusal_of([&] { read_block_scaling(config(member)); }) == refused(member));
        for (std::string_view const family : families) CHECK(refused(as(family, member)) == refused(member));
        CHECK(law_of([&] { read_config("{" + member + ", \"text_config\": " + config() + "}"); }) == law(member));
    };
    for (bad const& b : table) refused_everywhere(member("quantization_config", b.value), b.says);
    for (std::string_view const method : {"gptq", "awq", "compressed-tensors", "bitsandbytes", "mxfp4", "fbgemm_fp8"}) {
        std::string const quoted = "\"" + std::string(method) + "\"";
        refused_everywhere(member("quantization_config", "{\"quant_method\": " + quoted + ", \"weight_block_size\": [128, 128]}"),
                           "config_value_is_supported: config.json: quantization_config = an object with quant_method " + quoted + ";");
    }
    refused_everywhere(R"("compression_config": {"format": "int-quantized"})",
                       "config_value_is_supported: config.json: compression_config");
}

TEST_CASE("in every family a number is a number, a switch a switch, and the laws of heads hold") {
    for (std::string_view const family : families) {
        CAPTURE(family);
        bool const qwen = family == "qwen2" || family == "qwen3";  // whose upper layers alone may be windowed
        for (char const* const key : {"hidden_size", "num_hidden_layers", "num_attention_heads", "vocab_size", "intermediate_size",
                                      "head_dim", "max_position_embeddings"}) {
            CAPTURE(key);
            for (char const* const value : {"true", "\"64\"", "64.5", "[64]", "{}"})
                CHECK(law(as(family, member(key, value))) == "config_field_has_type");
            for (char const* const value : {"0", "-1", "2147483648", "1e999"})
                CHECK(law(as(family, member(key, value))) == "config_value_is_supported");
        }
        for (char const* const key : {"tie_word_embeddings", "use_sliding_window", "use_mrope", "mlp_bias", "attention_bias"})
            for (char const* const value : {"0", "1", "\"true\"", "[]"})
                if (family != "qwen2" || std::string_view(key) != "attention_bias")
                    CHECK(law(as(family, member(key, value))) == "config_field_has_type");
        for (char const* const value : {"true", "\"4\"", "1.5"}) {
            if (family != "llama") CHECK(law(as(family, member("sliding_window", value))) == "config_field_has_type");
            if (qwen) CHECK(law(as(family, member("max_window_layers", value))) == "config_field_has_type");
        }
        CHECK(law(as(family, R"("num_attention_heads": 9)")) == (family == "qwen3" ? "heads_share_kv_heads" : "heads_make_the_width"));
        CHECK(law(as(family, R"("num_attention_heads": 9, "head_dim": 8)")) == "heads_share_kv_heads");
        CHECK(law(as(family, R"("head_dim": 7)")) == "head_dim_is_even");
        CHECK(law(as(family, R"("num_hidden_layers": 257)")) == "shape_fits");
        for (char const* const key : {"rms_norm_eps", "rope_theta"})
            CHECK(law(as(family, member(key, "0"))) == "config_value_is_supported");
    }
}

TEST_CASE("in every family an explicit head_dim wins, null and absent are the width of a head, and that of qwen3 is 128") {
    for (std::string_view const family : families) {
        CAPTURE(family);
        auto const width = [family](std::string_view changes) { return read(as(family, changes)).kinds[0].attention.head_dim; };
        int const absent = family == "qwen3" ? 128 : 8;
        CHECK(width("") == absent);
        CHECK(width(R"("head_dim": null)") == absent);
        CHECK(width(R"("hidden_size": 2560, "num_attention_heads": 32, "head_dim": 128)") == 128);
        CHECK(width(R"("hidden_size": 6144, "num_attention_heads": 64, "head_dim": 128)") == 128);
        CHECK(width(R"("hidden_size": 1792, "num_attention_heads": 24, "head_dim": 64)") == 64);
        std::string const none = as(family, R"("hidden_size": 1792, "num_attention_heads": 24)");
        CHECK(law(none) == (family == "qwen3" ? "nothing is refused" : "heads_make_the_width"));
    }
}

TEST_CASE("in every family rope fields have both spellings, and what is not supported is refused by name") {
    struct good {
        std::string_view members;
        tenon::rope means;
    };
    tenon::rope const linear{10000, rope_scaling::linear, 2, 1, 4, 0}, llama3{10000, rope_scaling::llama3, 8, 1, 4, 256};
    good const table[]{
        {R"("rope_scaling": {"type": "linear", "factor": 2})", linear},
        {R"("rope_scaling": {"rope_type": "linear", "factor": 2.0})", linear},
        {R"("rope_scaling": {"rope_type": "linear", "type": "linear", "factor": 2})", linear},
        {R"("rope_parameters": {"rope_type": "linear", "factor": 2, "rope_theta": 10000})", linear},
        {R"("rope_scaling": {"rope_type": "llama3", "factor": 8, "low_freq_factor": 1, "high_freq_factor": 4, "original_max_position_embeddings": 256, "extra": 1})",
         llama3},
        {R"("rope_scaling": {}, "rope_theta": 10000)", {}},
        {R"("rope_scaling": {"rope_type": "default"})", {}}};
    for (good const& g : table)
        for (std::string_view const family : families) {
            CAPTURE(g.members);
            CAPTURE(family);
            std::string const theta = g.members.find("rope_theta") == std::string_view::npos ? ", \"rope_theta\": 10000" : "";
            if (family != "phi3")
                CHECK(read(as(family, std::string(g.members) + theta)).rope == g.means);
            else
                CHECK(law(as(family, g.members)) == "config_value_is_supported");
        }
    for (std::string_view const family : families) {
        CAPTURE(family);
        tenon::rope plain;
        if (family == "mixtral") plain.theta = 1e6;
        CHECK(read(as(family, R"("rope_scaling": null)")).rope == plain);
        CHECK(read(as(family, R"("rope_theta": 1e6)")).rope.theta == 1e6);
        CHECK(read(as(family, R"("rope_parameters": {"rope_type": "default", "rope_theta": 1000000.0})")).rope.theta == 1e6);
        for (std::string_view const value : {"2", "true", "\"linear\"", "[]"})
            CHECK(law(as(family, member("rope_scaling", value))) == "config_field_has_type");
        for (std::string_view const type : {"yarn", "longrope", "su", "mrope"})
            for (std::string_view const key : {"type", "rope_type"}) {
                std::string const spelled = std::string(key) + " = \"" + std::string(type) + "\"";
                CHECK(contains(refused(as(family, member("rope_scaling", "{" + member(key, "\"" + std::string(type) + "\"") + "}"))),
                               "config_value_is_supported: config.json: rope_scaling." + spelled));
            }
        CHECK(law(as(family, R"("rope_parameters": {"type": "linear", "rope_type": "default"})")) == "config_keys_agree");
        for (std::string_view const place : {R"("partial_rotary_factor": 0.5)", R"("rope_parameters": {"partial_rotary_factor": 0.5})"})
            CHECK(contains(refused(as(family, place)), "partial_rotary_factor = 0.5; 1, which rotates the whole head, would do"));
        CHECK(read(as(family, R"("partial_rotary_factor": 1.0)")) == read(as(family)));
    }
}

TEST_CASE("in every family what another family computes is refused by its field and value") {
    for (std::string_view const family : families) {
        CAPTURE(family);
        for (std::string_view const name :
             {"num_experts", "num_local_experts", "n_routed_experts", "n_shared_experts", "num_experts_per_tok", "moe_intermediate_size",
              "kv_lora_rank", "q_lora_rank", "attention_chunk_size"}) {
            bool const own = name == "num_local_experts" || name == "num_experts_per_tok" ||
                             (family == "qwen3_moe" && (name == "num_experts" || name == "moe_intermediate_size"));
            if (routes(family) && own) continue;
            CHECK(refused(as(family, member(name, "8"))) == "config_value_is_supported: config.json: " + std::string(name) + " = 8; " +
                                                                std::string(family) + " has none; null would do");
            CHECK(read(as(family, member(name, "null"))) == read(as(family)));
        }
        for (std::string_view const name : {"n_shared_experts", "num_shared_experts", "shared_expert_intermediate_size"}) {
            CHECK(read(as(family, member(name, "0"))) == read(as(family)));  // as the files of Qwen3-Coder say
            CHECK(law(as(family, member(name, "1"))) == "config_value_is_supported");
            CHECK(law(as(family, member(name, "-1"))) == "config_value_is_supported");
            CHECK(law(as(family, member(name, "false"))) == "config_field_has_type");
        }
        for (std::string_view const member :
             {R"("final_logit_softcapping": 30.0)", R"("attn_logit_softcapping": 50)", R"("query_pre_attn_scalar": 256)",
              R"("clip_qkv": 8)", R"("linear_attn_config": {})", R"("no_rope_layers": [1])", R"("block_configs": [])",
              R"("use_mrope": true)", R"("attn_output_gate": true)", R"("alibi": true)", R"("qk_layernorm": true)"})
            CHECK_MESSAGE(law(as(family, member)) == "config_value_is_supported", member);
        for (std::string_view const act : {"gelu", "relu", "gelu_pytorch_tanh"})
            for (std::string_view const key : {"hidden_act", "hidden_activation"})
                CHECK(refused(as(family, member(key, "\"" + std::string(act) + "\""))) ==
                      "config_value_is_supported: config.json: " + std::string(key) + " = \"" + std::string(act) +
                          "\"; \"silu\" or \"swish\" would do");
        CHECK(read(as(family, R"("hidden_act": "silu", "attention_dropout": 0.1, "torch_dtype": "float16", "architectures": ["X"])")) ==
              read(as(family)));
    }
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
