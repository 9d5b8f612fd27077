// Which names are certified, which are known, and what the others are told.
// SPDX-License-Identifier: Apache-2.0
#include "support.hpp"

#include <tenon/model/registry.hpp>

#include <dirent.h>
#include <doctest/doctest.h>

using namespace checkpoint_test;
using tenon::adapter_id;
namespace model = tenon::model;

static_assert(noexcept(model::is_certified("llama")) && noexcept(model::classify("llama")));
static_assert(model::name_of(adapter_id::llama) == "llama" && model::name_of(adapter_id::mistral) == "mistral");
static_assert(model::name_of(adapter_id::qwen2) == "qwen2" && model::name_of(adapter_id::qwen3) == "qwen3");
static_assert(model::name_of(adapter_id::phi3) == "phi3" && model::name_of(static_cast<adapter_id>(200)).empty());
static_assert(!model::is_certified("llama dense-llama") && !model::is_certified("") && !model::is_certified(" "));

TEST_CASE("every alias, in any case and with spaces around it, is its adapter") {
    struct alias {
        char const* name;
        adapter_id id;
    };
    constexpr alias table[]{{"llama", adapter_id::llama},
                            {"LLaMA", adapter_id::llama},
                            {" llama ", adapter_id::llama},
                            {"\tLlama\n", adapter_id::llama},
                            {"dense-llama", adapter_id::llama},
                            {"Dense_Llama", adapter_id::llama},
                            {"LlamaForCausalLM", adapter_id::llama},
                            {"LLAMAFORCAUSALLM", adapter_id::llama},
                            {"LlamaModel", adapter_id::llama},
                            {"SmolLM", adapter_id::llama},
                            {"mistral", adapter_id::mistral},
                            {"MistralForCausalLM", adapter_id::mistral},
                            {"MistralModel", adapter_id::mistral},
                            {"qwen2", adapter_id::qwen2},
                            {"Qwen2ForCausalLM", adapter_id::qwen2},
                            {"Qwen2Model", adapter_id::qwen2},
                            {" QWEN3 ", adapter_id::qwen3},
                            {"Qwen3ForCausalLM", adapter_id::qwen3},
                            {"Qwen3Model", adapter_id::qwen3},
                            {"phi3", adapter_id::phi3},
                            {"Phi3ForCausalLM", adapter_id::phi3},
                            {"Phi3Model", adapter_id::phi3},
                            {"mixtral", adapter_id::mixtral},
                            {" MIXTRAL ", adapter_id::mixtral},
                            {"MixtralForCausalLM", adapter_id::mixtral},
                            {"qwen3_moe", adapter_id::qwen3_moe},
                            {"Qwen3-MoE", adapter_id::qwen3_moe},
                            {"Qwen3MoeForCausalLM", adapter_id::qwen3_moe}};
    for (alias const& a : table) {
        CAPTURE(a.name);
        CHECK(model::is_certified(a.name));
        CHECK(model::classify(a.name) == model::certification::certified);
        CHECK(model::adapter_of(a.name).id == a.id);
        CHECK(model::adapter_of(a.name).name == model::name_of(a.id));
        CHECK(model::find_adapter(a.name) == &model::adapter_of(a.name));
    }
    CHECK(model::find_adapter("gpt2") == nullptr);
}

TEST_CASE("every adapter has a name of its own and is certified by goldens that are here, or by the test that it names") {
    for (model::adapter const& a : model::adapters) {
        CAPTURE(a.name);
        CHECK(model::adapter_of(a.name).id == a.id);
        CHECK(!a.certified_by[0].empty());
        for (std::string_view const name : a.certified_by) {
            if (name.empty() || name == "phi3_oracle") continue;
            ::DIR* const folder = ::opendir((std::string(TENON_TEST_DATA) + "/golden/" + std::string(name)).c_str());
            CHECK(folder != nullptr);
            if (folder != nullptr) ::closedir(folder);
            CHECK(name.substr(0, a.name.size()) == a.name);
        }
    }
    CHECK(model::certified_names() == "llama, mistral, qwen2, qwen3, phi3, mixtral, qwen3_moe");
}

TEST_CASE("a known name is refused as known, not certified, with the reason") {
    for (char const* const name : {"qwen2_moe",
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
                                   "DeepseekV3ForCausalLM",
                                   "KimiLinearForCausalLM",
                                   "Glm4MoeForCausalLM",
                                   "GptOssForCausalLM",
                                   "Gemma3ForCausalLM",
                                   "StableLmForCausalLM",
                                   "Qwen3_5ForConditionalGeneration"}) {
        CAPTURE(name);
        CHECK(model::classify(name) == model::certification::known);
        CHECK(!model::is_certified(name));
        CHECK(law_of([&] { model::adapter_of(name); }) == "architecture_is_certified");
    }
    CHECK(refusal_of([] { model::adapter_of(" Gemma2 "); }) ==
          "architecture_is_certified: Gemma2 is known, not certified (soft-capped scores, alternating local and global layers, gelu); "
          "certified: llama, mistral, qwen2, qwen3, phi3, mixtral, qwen3_moe");
    CHECK(contains(refusal_of([] { model::adapter_of("mamba"); }), "(a recurrent state instead of attention)"));
}

TEST_CASE("any other name is unknown") {
    for (char const* const name : {"", " ", "llama2", "ll ama", "llamaforcausallm2", "gpt2", "qwen", "phi", "mistral3",
                                   "LlamaForSequenceClassification", "llama smollm"}) {
        CAPTURE(name);
        CHECK(model::classify(name) == model::certification::unknown);
        CHECK(law_of([&] { model::adapter_of(name); }) == "architecture_is_known");
    }
    CHECK(refusal_of([] { model::adapter_of("gpt2"); }) ==
          "architecture_is_known: gpt2 is unknown; certified: llama, mistral, qwen2, qwen3, phi3, mixtral, qwen3_moe");
}

TEST_CASE("no name stands in both tables, and every known one has its reason") {
    for (model::uncertified const& u : model::known_names) {
        CAPTURE(u.name);
        CHECK(!model::is_certified(u.name));
        CHECK(!model::is_certified(u.class_name));
        CHECK(!u.reason.empty());
    }
}
