// Which names are certified, which are known, and what the others are told.
// SPDX-License-Identifier: Apache-2.0
#include "support.hpp"

#include <tenon/model/registry.hpp>

#include <doctest/doctest.h>

using namespace checkpoint_test;
namespace model = tenon::model;

static_assert(noexcept(model::is_certified("llama")) && noexcept(model::classify("llama")));

TEST_CASE("every alias of llama, in any case and with spaces around it, is the llama adapter") {
    for (char const* const name :
         {"llama", "LLaMA", " llama ", "\tLlama\n", "dense-llama", "Dense_Llama", "LlamaForCausalLM", "LLAMAFORCAUSALLM", "LlamaModel"}) {
        CAPTURE(name);
        CHECK(model::is_certified(name));
        CHECK(model::classify(name) == model::certification::certified);
        CHECK(model::adapter_of(name).id == model::adapter_id::llama);
        CHECK(model::adapter_of(name).name == "llama");
    }
    CHECK(model::adapter_of("llama").certified_by[0] == "llama_mha_f32");
    CHECK(model::adapter_of("llama").certified_by[1] == "llama_gqa_bf16_sharded");
}

TEST_CASE("a known name is refused as known, not certified") {
    for (char const* const name : {"mistral",
                                   "mixtral",
                                   "phi3",
                                   "qwen2",
                                   "qwen3",
                                   "qwen3_moe",
                                   "deepseek_v2",
                                   "deepseek_v3",
                                   "deepseek_v32",
                                   "kimi_k2",
                                   "kimi_linear",
                                   "glm5_next",
                                   "glm4_moe",
                                   "gpt_oss",
                                   "gemma",
                                   "gemma2",
                                   "gemma3_text",
                                   "mamba",
                                   "mamba2",
                                   "stablelm",
                                   "qwen3_5",
                                   "deepseek_v4",
                                   "MistralForCausalLM",
                                   "MixtralForCausalLM",
                                   "Phi3ForCausalLM",
                                   "Qwen2ForCausalLM",
                                   "Qwen3ForCausalLM",
                                   "Qwen3MoeForCausalLM",
                                   "DeepseekV3ForCausalLM",
                                   "KimiLinearForCausalLM",
                                   "Glm4MoeForCausalLM",
                                   "GptOssForCausalLM",
                                   "Gemma3ForCausalLM",
                                   "StableLmForCausalLM",
                                   "Qwen3_5ForConditionalGeneration",
                                   " QWEN3 "}) {
        CAPTURE(name);
        CHECK(model::classify(name) == model::certification::known);
        CHECK(!model::is_certified(name));
        CHECK(law_of([&] { model::adapter_of(name); }) == "architecture_is_certified");
    }
    CHECK(refusal_of([] { model::adapter_of(" qwen3 "); }) == "architecture_is_certified: qwen3 is known, not certified; certified: llama");
}

TEST_CASE("any other name is unknown") {
    for (char const* const name : {"", " ", "llama2", "ll ama", "llamaforcausallm2", "gpt2", "qwen", "LlamaForSequenceClassification"}) {
        CAPTURE(name);
        CHECK(model::classify(name) == model::certification::unknown);
        CHECK(law_of([&] { model::adapter_of(name); }) == "architecture_is_known");
    }
    CHECK(refusal_of([] { model::adapter_of("gpt2"); }) == "architecture_is_known: gpt2 is unknown; certified: llama");
}

TEST_CASE("no name stands in both tables") {
    for (model::uncertified const& u : model::known_names) {
        CHECK(!model::is_certified(u.name));
        CHECK(!model::is_certified(u.class_name));
    }
}
