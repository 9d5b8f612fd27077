// The names of architectures: which are certified, which are known and not certified. Knows names alone, no shapes and no files.
// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <tenon/core/config.hpp>
#include <tenon/core/error.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace tenon::inline v0::model {

/// A certified architecture. An adapter enters this table when the named parity tests pass, and not before.
struct adapter {
    adapter_id id = adapter_id::llama;
    std::string_view name{};                         ///< canonical, as in config.json and in a bundle
    std::string_view aliases{};                      ///< lower case, a space between two; every spelling of the name
    std::array<std::string_view, 2> certified_by{};  ///< the golden checkpoints or parity tests that certify it
};

inline constexpr std::array<adapter, 7> adapters{{
    {adapter_id::llama,
     "llama",
     "llama dense-llama dense_llama llamaforcausallm llamamodel smollm",
     {"llama_mha_f32", "llama_gqa_bf16_sharded"}},
    {adapter_id::mistral, "mistral", "mistral mistralforcausallm mistralmodel", {"mistral_swa_bf16", "mistral_nemo_f16"}},
    {adapter_id::qwen2, "qwen2", "qwen2 qwen2forcausallm qwen2model", {"qwen2_f32", "qwen2_tied_bf16"}},
    {adapter_id::qwen3, "qwen3", "qwen3 qwen3forcausallm qwen3model", {"qwen3_bf16", "qwen3_fp8"}},
    {adapter_id::phi3, "phi3", "phi3 phi3forcausallm phi3model", {"phi3_oracle", ""}},
    {adapter_id::mixtral, "mixtral", "mixtral mixtralforcausallm mixtralmodel", {"mixtral_bf16_sharded", ""}},
    {adapter_id::qwen3_moe,
     "qwen3_moe",
     "qwen3_moe qwen3-moe qwen3moeforcausallm qwen3moemodel",
     {"qwen3_moe_f32", "qwen3_moe_bf16_sharded"}},
}};

/// The canonical name of an architecture.
constexpr std::string_view name_of(adapter_id id) {
    for (adapter const& a : adapters)
        if (a.id == id) return a.name;
    return {};
}

/// An architecture that is known by name and that no test certifies.
struct uncertified {
    std::string_view name{};        ///< as `model_type` spells it
    std::string_view class_name{};  ///< lower case; as `architectures` spells it
    std::string_view reason{};      ///< something that it computes and this library does not
};

inline constexpr std::array<uncertified, 23> known_names{{
    {"qwen2_moe", "qwen2moeforcausallm", "routed experts and a gated shared expert"},
    {"qwen3_5", "qwen3_5forconditionalgeneration", "linear attention with a recurrent state"},
    {"qwen3_5_text", "qwen3_5forcausallm", "linear attention with a recurrent state"},
    {"deepseek_v2", "deepseekv2forcausallm", "latent attention and routed experts"},
    {"deepseek_v3", "deepseekv3forcausallm", "latent attention and routed experts"},
    {"deepseek_v32", "deepseekv32forcausallm", "latent attention over indexed keys and routed experts"},
    {"deepseek_v4", "deepseekv4forcausallm", "compressed attention, hyper-connections and routed experts"},
    {"kimi_k2", "kimik2forcausallm", "latent attention and routed experts"},
    {"kimi_linear", "kimilinearforcausallm", "linear attention with a recurrent state and routed experts"},
    {"glm4_moe", "glm4moeforcausallm", "routed experts and a partial rotation"},
    {"glm5_next", "glm5nextforcausallm", "linear attention, hyper-connections and routed experts"},
    {"glm5_next_text", "glm5nexttextforcausallm", "linear attention, hyper-connections and routed experts"},
    {"glm_moe_dsa", "glmmoedsaforcausallm", "latent attention over indexed keys and routed experts"},
    {"gpt_oss", "gptossforcausallm", "routed experts and attention sinks"},
    {"gemma", "gemmaforcausallm", "gelu and scaled embeddings"},
    {"gemma2", "gemma2forcausallm", "soft-capped scores, alternating local and global layers, gelu"},
    {"gemma3", "gemma3forconditionalgeneration", "alternating local and global layers with two rotations, gelu"},
    {"gemma3_text", "gemma3forcausallm", "alternating local and global layers with two rotations, gelu"},
    {"mamba", "mambaforcausallm", "a recurrent state instead of attention"},
    {"mamba2", "mamba2forcausallm", "a recurrent state instead of attention"},
    {"stablelm", "stablelmforcausallm", "layer norms with a mean and a partial rotation"},
    {"granite", "graniteforcausallm", "multipliers on embeddings, scores, residuals and logits"},
    {"llama4", "llama4forconditionalgeneration", "routed experts and layers without rotation"},
}};

enum class certification : std::uint8_t { unknown, known, certified };

namespace detail {

constexpr std::string_view trimmed(std::string_view name) noexcept {
    constexpr std::string_view space = " \t\r\n\f\v";
    while (!name.empty() && space.find(name.front()) != std::string_view::npos) name.remove_prefix(1);
    while (!name.empty() && space.find(name.back()) != std::string_view::npos) name.remove_suffix(1);
    return name;
}

// ASCII alone: the answer must not depend on a locale.
constexpr bool same_name(std::string_view name, std::string_view lower) noexcept {
    if (name.size() != lower.size()) return false;
    for (std::size_t i = 0; i < name.size(); ++i)
        if ((name[i] >= 'A' && name[i] <= 'Z' ? static_cast<char>(name[i] + ('a' - 'A')) : name[i]) != lower[i]) return false;
    return true;
}

constexpr bool is_one_of(std::string_view name, std::string_view words) noexcept {
    while (!words.empty()) {
        std::string_view const word = words.substr(0, words.find(' '));
        if (same_name(name, word)) return true;
        words.remove_prefix(word.size() < words.size() ? word.size() + 1 : word.size());
    }
    return false;
}

// A position and not a pointer: with -fsanitize=undefined, g++ 12 takes no address for a constant when it compares it with nullptr.
constexpr std::size_t position_of(std::string_view name) noexcept {
    std::size_t i = 0;
    while (i < adapters.size() && !is_one_of(trimmed(name), adapters[i].aliases)) ++i;
    return i;
}

constexpr std::size_t known_position_of(std::string_view name) noexcept {
    std::size_t i = 0;
    while (i < known_names.size() && !same_name(trimmed(name), known_names[i].name) && !same_name(trimmed(name), known_names[i].class_name))
        ++i;
    return i;
}

}  // namespace detail

/// Spaces around the name and the case of its letters do not matter, here and below.
constexpr bool is_certified(std::string_view name) noexcept { return detail::position_of(name) < adapters.size(); }

/// The adapter of a certified name or alias, or nullptr.
constexpr adapter const* find_adapter(std::string_view name) noexcept {
    std::size_t const position = detail::position_of(name);
    return position < adapters.size() ? &adapters[position] : nullptr;
}

constexpr certification classify(std::string_view name) noexcept {
    if (is_certified(name)) return certification::certified;
    return detail::known_position_of(name) < known_names.size() ? certification::known : certification::unknown;
}

/// "llama, mistral, qwen2, qwen3, phi3, mixtral, qwen3_moe"
template <class = void>
std::string certified_names() {
    std::string text;
    for (adapter const& a : adapters) text += (text.empty() ? "" : ", ") + std::string(a.name);
    return text;
}

/// The adapter of a name. Refuses with `architecture_is_certified` and the reason what is known and not certified, and with
/// `architecture_is_known` everything else.
template <class = void>
adapter const& adapter_of(std::string_view name) {
    if (adapter const* const found = find_adapter(name)) return *found;
    std::string const text = std::string(detail::trimmed(name).substr(0, 80));
    if (std::size_t const known = detail::known_position_of(name); known < known_names.size())
        tenon::v0::detail::refuse(
            "architecture_is_certified",
            text + " is known, not certified (" + std::string(known_names[known].reason) + "); certified: " + certified_names());
    tenon::v0::detail::refuse("architecture_is_known",
                              (text.empty() ? "an empty name" : text) + " is unknown; certified: " + certified_names());
}

static_assert(is_certified(" LlamaForCausalLM\n") && is_certified("Dense-Llama") && !is_certified("llama2"));
static_assert(classify("DeepseekV3ForCausalLM") == certification::known && classify("qwen4") == certification::unknown);

}  // namespace tenon::inline v0::model
