// The names of architectures: which are certified, which are known and not certified. Knows names alone, no shapes and no files.
// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <tenon/core/error.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace tenon::inline v0::model {

/// What runs an architecture.
enum class adapter_id : std::uint8_t { llama };

/// A certified architecture. An adapter enters this table when the named parity tests pass, and not before.
struct adapter {
    adapter_id id = adapter_id::llama;
    std::string_view name{};                         ///< canonical, as in config.json and in a bundle
    std::array<std::string_view, 5> aliases{};       ///< lower case; other spellings of the name
    std::array<std::string_view, 2> certified_by{};  ///< the golden checkpoints whose parity tests certify it
};

inline constexpr std::array<adapter, 1> adapters{{
    {adapter_id::llama,
     "llama",
     {"llama", "dense-llama", "dense_llama", "llamaforcausallm", "llamamodel"},
     {"llama_mha_f32", "llama_gqa_bf16_sharded"}},
}};

/// An architecture that is known by name and that no test certifies.
struct uncertified {
    std::string_view name{};        ///< as `model_type` spells it
    std::string_view class_name{};  ///< lower case; as `architectures` spells it
};

inline constexpr std::array<uncertified, 29> known_names{{
    {"mistral", "mistralforcausallm"},
    {"mixtral", "mixtralforcausallm"},
    {"phi3", "phi3forcausallm"},
    {"qwen2", "qwen2forcausallm"},
    {"qwen2_moe", "qwen2moeforcausallm"},
    {"qwen3", "qwen3forcausallm"},
    {"qwen3_moe", "qwen3moeforcausallm"},
    {"qwen3_5", "qwen3_5forconditionalgeneration"},
    {"qwen3_5_text", "qwen3_5forcausallm"},
    {"deepseek_v2", "deepseekv2forcausallm"},
    {"deepseek_v3", "deepseekv3forcausallm"},
    {"deepseek_v32", "deepseekv32forcausallm"},
    {"deepseek_v4", "deepseekv4forcausallm"},
    {"kimi_k2", "kimik2forcausallm"},
    {"kimi_linear", "kimilinearforcausallm"},
    {"glm4_moe", "glm4moeforcausallm"},
    {"glm5_next", "glm5nextforcausallm"},
    {"glm5_next_text", "glm5nexttextforcausallm"},
    {"glm_moe_dsa", "glmmoedsaforcausallm"},
    {"gpt_oss", "gptossforcausallm"},
    {"gemma", "gemmaforcausallm"},
    {"gemma2", "gemma2forcausallm"},
    {"gemma3", "gemma3forconditionalgeneration"},
    {"gemma3_text", "gemma3forcausallm"},
    {"mamba", "mambaforcausallm"},
    {"mamba2", "mamba2forcausallm"},
    {"stablelm", "stablelmforcausallm"},
    {"granite", "graniteforcausallm"},
    {"llama4", "llama4forconditionalgeneration"},
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

// A position and not a pointer: with -fsanitize=undefined, g++ 12 takes no address for a constant when it compares it with nullptr.
constexpr std::size_t position_of(std::string_view name) noexcept {
    for (std::size_t i = 0; i < adapters.size(); ++i)
        for (std::string_view const alias : adapters[i].aliases)
            if (!alias.empty() && same_name(trimmed(name), alias)) return i;
    return adapters.size();
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
    for (uncertified const& u : known_names)
        if (detail::same_name(detail::trimmed(name), u.name) || detail::same_name(detail::trimmed(name), u.class_name))
            return certification::known;
    return certification::unknown;
}

/// "llama"
template <class = void>
std::string certified_names() {
    std::string text;
    for (adapter const& a : adapters) text += (text.empty() ? "" : ", ") + std::string(a.name);
    return text;
}

/// The adapter of a name. Refuses with `architecture_is_certified` what is known and not certified, and with
/// `architecture_is_known` everything else.
template <class = void>
adapter const& adapter_of(std::string_view name) {
    if (adapter const* const found = find_adapter(name)) return *found;
    std::string const text = std::string(detail::trimmed(name).substr(0, 80));
    if (classify(name) == certification::known)
        tenon::v0::detail::refuse("architecture_is_certified", text + " is known, not certified; certified: " + certified_names());
    tenon::v0::detail::refuse("architecture_is_known",
                              (text.empty() ? "an empty name" : text) + " is unknown; certified: " + certified_names());
}

static_assert(is_certified(" LlamaForCausalLM\n") && is_certified("Dense-Llama") && !is_certified("llama2"));
static_assert(classify("Qwen3MoeForCausalLM") == certification::known && classify("qwen4") == certification::unknown);

}  // namespace tenon::inline v0::model
