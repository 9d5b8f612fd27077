// tenon-config: prints a config.json as a model type, and a plan as the graph type that splits it. With that header
// static_run.cpp is a runner of that checkpoint alone.
// SPDX-License-Identifier: Apache-2.0
#include "tool_main.hpp"

#include <tenon/checkpoint/config_json.hpp>
#include <tenon/checkpoint/mapped_file.hpp>
#include <tenon/graph/plan_value.hpp>
#include <tenon/model/llama.hpp>

#include <algorithm>
#include <array>
#include <charconv>
#include <iostream>
#include <span>
#include <string>
#include <string_view>

namespace {

/// Keywords of C++20, names that headers take at file scope, and macros that compilers and <tenon/tenon.hpp> bring.
constexpr std::string_view taken[]{
    "alignas", "alignof", "and", "and_eq", "asm", "auto", "bitand", "bitor", "bool", "break", "case", "catch", "char", "char8_t", "char16_t", "char32_t",
    "class", "compl", "concept", "const", "consteval", "constexpr", "constinit", "const_cast", "continue", "co_await", "co_return", "co_yield", "decltype",
    "default", "delete", "do", "double", "dynamic_cast", "else", "enum", "explicit", "export", "extern", "false", "float", "for", "friend", "goto", "if",
    "inline", "int", "long", "mutable", "namespace", "new", "noexcept", "not", "not_eq", "nullptr", "operator", "or", "or_eq", "private", "protected",
    "public", "register", "reinterpret_cast", "requires", "return", "short", "signed", "sizeof", "static", "static_assert", "static_cast", "struct",
    "switch", "template", "this", "thread_local", "throw", "true", "try", "typedef", "typeid", "typename", "union", "unsigned", "using", "virtual", "void",
    "volatile", "wchar_t", "while", "xor", "xor_eq", "main", "std", "tenon", "tools", "linux", "unix", "errno", "assert", "NULL", "EOF", "TENON_GRAPH"};

void require_identifier(std::string const& name) {
    auto const fails = [&name](std::string const& why) { tools::refuse("name_is_an_identifier", "--name " + tenon::checkpoint::json::quoted(name) + " " + why + "; a name such as my_model would do"); };
    auto const letter = [](char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); };
    auto const digit = [](char c) { return c >= '0' && c <= '9'; };
    if (name.empty() || !letter(name[0])) fails("does not begin with a letter");
    if (!std::all_of(name.begin(), name.end(), [&](char c) { return letter(c) || digit(c) || c == '_'; })) fails("has more than letters, digits and _");
    if (name.find("__") != std::string::npos || name.back() == '_') fails("would make two underscores in a row, which the language keeps for itself");
    if (std::find(std::begin(taken), std::end(taken), name) != std::end(taken)) fails("is taken");
}

/// The shortest digits that read back as this double, as a C++ literal of that type.
std::string literal(double x) {
    std::array<char, 64> digits{};
    bool const plain = x >= 1e-3 && x < 1e15;
    auto const end = plain ? std::to_chars(digits.data(), digits.data() + digits.size(), x, std::chars_format::fixed)
                           : std::to_chars(digits.data(), digits.data() + digits.size(), x);
    std::string text(digits.data(), end.ptr);
    return text.find_first_of(".e") == std::string::npos ? text + ".0" : text;
}

/// The shape of a config, checked to give it back.
tenon::model::llama_shape shape_of(tenon::model_config const& c) {
    tenon::block_kind const& k = c.kinds[0];
    tenon::model::llama_shape const s{.layers = c.layers, .hidden = c.hidden, .heads = k.attention.heads, .kv_heads = k.attention.kv_heads, .head_dim = k.attention.head_dim,
        .ffn = k.ffn.width, .vocab = c.vocab, .max_positions = c.max_positions, .rope_theta = c.rope.theta, .rms_epsilon = c.rms_epsilon, .tied = c.tied,
        .attention_bias = k.attention.qkv_bias, .mlp_bias = k.ffn.bias, .scaling = c.rope.scaling, .factor = c.rope.factor,
        .low_freq_factor = c.rope.low_freq_factor, .high_freq_factor = c.rope.high_freq_factor, .original_positions = c.rope.original_positions};
    if (tenon::model::llama(s) != c) tools::refuse("config_is_one_shape", "the config says more than a llama_shape holds");
    return s;
}

/// `.layers = 4, ...`: the fields that are not what they are anyway.
std::string fields_of(tenon::model::llama_shape const& s) {
    tenon::model::llama_shape const plain{};
    std::string text;
    auto const put = [&text](std::string_view name, std::string const& value) { ((text += text.empty() ? "" : ",\n        ") += "." + std::string(name)) += " = " + value; };
    auto const whole = [&](std::string_view name, int value, int otherwise) {
        if (value != otherwise) put(name, std::to_string(value));
    };
    auto const real = [&](std::string_view name, double value, double otherwise) {
        if (value != otherwise) put(name, literal(value));
    };
    auto const truth = [&](std::string_view name, bool value) {
        if (value) put(name, "true");
    };
    whole("layers", s.layers, plain.layers);
    whole("hidden", s.hidden, plain.hidden);
    whole("heads", s.heads, plain.heads);
    whole("kv_heads", s.kv_heads, s.heads);
    whole("head_dim", s.head_dim, s.hidden / s.heads);
    whole("ffn", s.ffn, plain.ffn);
    whole("vocab", s.vocab, plain.vocab);
    whole("max_positions", s.max_positions, plain.max_positions);
    real("rope_theta", s.rope_theta, plain.rope_theta);
    real("rms_epsilon", s.rms_epsilon, plain.rms_epsilon);
    truth("tied", s.tied);
    truth("attention_bias", s.attention_bias);
    truth("mlp_bias", s.mlp_bias);
    if (s.scaling != plain.scaling) put("scaling", s.scaling == tenon::rope_scaling::linear ? "tenon::rope_scaling::linear" : "tenon::rope_scaling::llama3");
    real("factor", s.factor, plain.factor);
    real("low_freq_factor", s.low_freq_factor, plain.low_freq_factor);
    real("high_freq_factor", s.high_freq_factor, plain.high_freq_factor);
    whole("original_positions", s.original_positions, plain.original_positions);
    return text;
}

std::string type_of(tenon::stage_traits const& s) {
    std::string text = "tenon::stage<tenon::layers<" + std::to_string(s.first_layer) + ", " + std::to_string(s.last_layer) + ">, tenon::device::" +
                       std::string(tenon::name_of(s.devices[0].kind)) + "<";
    for (std::size_t i = 0; i < s.devices.size(); ++i) text += (i == 0 ? "" : ", ") + std::to_string(s.devices[i].index);
    text += ">";
    // A stage that names no rule needs none here; of a dense Llama only `tensor` cuts anything, and validate() has refused the rest.
    if (!s.cuts.by_default && s.cuts.tensor)
        text += s.cuts.tensor_join == tenon::join_kind::reduce ? ", tenon::shard::tensor<tenon::join::reduce>" : ", tenon::shard::tensor<>";
    return text + ">";
}

}  // namespace

int main(int argc, char** argv) {
    return tools::exit_status("Prints a config.json as a model type, and a plan as the graph type that splits it.", "tenon-config", [&](CLI::App& app) {
        std::string path, name = "checkpoint_model", plan = "all@0";
        app.add_option("config", path, "a config.json")->required()->type_name("config.json");
        app.add_option("--name", name, "of the model type; NAME_graph is the graph's")->capture_default_str();
        app.add_option("--plan", plan, "how the layers are split")->capture_default_str();
        app.parse(argc, argv);

        require_identifier(name);
        tenon::plan::value const parts = tenon::plan::parse(plan);
        tenon::checkpoint::mapped_file const file(path);
        tenon::model_config const config = tenon::checkpoint::read_config(file.text(), path);
        tenon::dynamic_graph const graph(config, parts);
        std::string stages;
        for (tenon::stage_traits const& s : graph.view().stages) stages += ",\n    " + type_of(s);
        std::cout << "// Made by tenon-config. Plan: " << graph.plan() << "\n#pragma once\n#include <tenon/tenon.hpp>\n\nstruct " << name
                  << " {\n    static constexpr auto config = tenon::model::llama({\n        " << fields_of(shape_of(config)) << "});\n};\n\nstruct " << name
                  << "_graph : tenon::graph<" << name << stages << "> {};\n";
    });
}
