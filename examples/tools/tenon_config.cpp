// tenon-config: prints a config.json as a model type, and a plan as the graph type that splits it. With that header
// static_run.cpp is a runner of that checkpoint alone.
// SPDX-License-Identifier: Apache-2.0
#include "devices.hpp"
#include "tool_main.hpp"

#include <tenon/checkpoint/config_json.hpp>
#include <tenon/checkpoint/mapped_file.hpp>
#include <tenon/graph/plan_value.hpp>
#include <tenon/model/llama.hpp>
#include <tenon/model/mistral.hpp>
#include <tenon/model/mixtral.hpp>
#include <tenon/model/phi3.hpp>
#include <tenon/model/qwen2.hpp>
#include <tenon/model/qwen3.hpp>
#include <tenon/model/qwen3_moe.hpp>

#include <algorithm>
#include <array>
#include <charconv>
#include <iostream>
#include <string>
#include <string_view>

namespace {

/// The keywords of C++20, and what headers take at file scope that has no mark of its own: namespaces, types and macros of the C library
/// and POSIX that are neither in capitals nor end in _t. A test holds this against what the compiler finds.
constexpr std::string_view taken[]{
    "alignas", "alignof", "and", "and_eq", "asm", "auto", "bitand", "bitor", "bool", "break", "case", "catch", "char", "char8_t", "char16_t", "char32_t",
    "class", "compl", "concept", "const", "consteval", "constexpr", "constinit", "const_cast", "continue", "co_await", "co_return", "co_yield", "decltype",
    "default", "delete", "do", "double", "dynamic_cast", "else", "enum", "explicit", "export", "extern", "false", "float", "for", "friend", "goto", "if",
    "inline", "int", "long", "mutable", "namespace", "new", "noexcept", "not", "not_eq", "nullptr", "operator", "or", "or_eq", "private", "protected",
    "public", "register", "reinterpret_cast", "requires", "return", "short", "signed", "sizeof", "static", "static_assert", "static_cast", "struct",
    "switch", "template", "this", "thread_local", "throw", "true", "try", "typedef", "typeid", "typename", "union", "unsigned", "using", "virtual", "void",
    "volatile", "wchar_t", "while", "xor", "xor_eq",
    "main", "config", "std", "tenon", "tools", "Eigen", "xt", "xtl", "xt_simd", "xsimd", "mpark", "nlohmann", "doctest",
    "dirent", "dirent64", "drand48_data", "f_owner_ex", "fd_mask", "fd_set", "file_handle", "flock", "flock64", "iovec", "itimerspec", "itimerval", "lconv",
    "option", "passwd", "pollfd", "random_data", "rlimit", "rusage", "sched_param", "sigaction", "sigevent", "siginfo", "sigval", "sockaddr", "stat",
    "stat64", "statx", "statx_timestamp", "tcb", "timespec", "timeval", "timex", "timezone", "tm", "u_char", "u_int", "u_long", "u_short", "uint", "ulong",
    "ushort", "utsname", "va_list",
    "alloca", "assert", "assert_perror", "be16toh", "be32toh", "be64toh", "d_fileno", "errno", "fpclassify", "htobe16", "htobe32", "htobe64", "htole16",
    "htole32", "htole64", "isfinite", "isinf", "isnan", "isnormal", "issubnormal", "le16toh", "le32toh", "le64toh", "linux", "major", "makedev",
    "math_errhandling", "minor", "offsetof", "pthread_cleanup_pop", "pthread_cleanup_pop_restore_np", "pthread_cleanup_push",
    "pthread_cleanup_push_defer_np", "sched_priority", "setjmp", "signbit", "sigsetjmp", "st_atime", "st_ctime", "st_mtime", "stderr", "stdin",
    "stdout", "strdupa", "strndupa", "timeradd", "timerclear", "timercmp", "timerisset", "timersub", "unix", "va_arg", "va_copy", "va_end", "va_start"};

/// A name that no header takes, by the marks that names keep: macros are in capitals, at least to their first underscore, types of C and
/// POSIX end in _t, and two underscores in a row are the compiler's. Functions do not matter, as the printed header says `struct` before a use.
void require_identifier(std::string const& name) {
    auto const fails = [&name](std::string const& why) { tools::refuse("name_is_an_identifier", "--name " + tenon::checkpoint::json::quoted(name) + " " + why + "; a name such as my_model would do"); };
    auto const small = [](char c) { return c >= 'a' && c <= 'z'; };
    auto const letter = [small](char c) { return small(c) || (c >= 'A' && c <= 'Z'); };
    auto const digit = [](char c) { return c >= '0' && c <= '9'; };
    std::string const word = name.substr(0, name.find('_'));
    if (name.empty() || !letter(name[0])) fails("does not begin with a letter");
    if (!std::all_of(name.begin(), name.end(), [&](char c) { return letter(c) || digit(c) || c == '_'; })) fails("has more than letters, digits and _");
    if (name.find("__") != std::string::npos || name.back() == '_') fails("would make two underscores in a row, which the language keeps for itself");
    if (std::none_of(word.begin(), word.end(), small)) fails("begins in capitals, as macros do");
    if (name.size() > 2 && name.substr(name.size() - 2) == "_t") fails("ends in _t, as the types of C and POSIX do");
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

template <class Shape>
constexpr auto make = nullptr;
template <> constexpr auto make<tenon::model::llama_shape> = tenon::model::llama;
template <> constexpr auto make<tenon::model::mistral_shape> = tenon::model::mistral;
template <> constexpr auto make<tenon::model::qwen2_shape> = tenon::model::qwen2;
template <> constexpr auto make<tenon::model::qwen3_shape> = tenon::model::qwen3;
template <> constexpr auto make<tenon::model::phi3_shape> = tenon::model::phi3;
template <> constexpr auto make<tenon::model::mixtral_shape> = tenon::model::mixtral;
template <> constexpr auto make<tenon::model::qwen3_moe_shape> = tenon::model::qwen3_moe;

/// The windowed layers, "0, 2"; the window and the first of them.
struct windows {
    std::string layers{};
    int window = 0, first = 0;

    explicit windows(tenon::model_config const& c) {
        for (int l = c.layers - 1; l >= 0; --l)
            if (int const w = c.layer(l).attention.window; w != 0) {
                layers = std::to_string(l) + (layers.empty() ? "" : ", ") + layers;
                window = w;
                first = l;
            }
    }
};

/// Some layer that routes experts, or that does not; an empty one where there is none.
tenon::block_kind some_layer(tenon::model_config const& c, bool routes) {
    for (int l = 0; l < c.layers; ++l)
        if (static_cast<bool>(c.layer(l).experts) == routes) return c.layer(l);
    return {};
}

/// The widest step on which every layer that routes lies, and the layers on it that do not route.
struct sparsity {
    int step = 1;
    tenon::model::layer_set dense{};

    explicit sparsity(tenon::model_config const& c) {
        auto const routes = [&c](int l) { return static_cast<bool>(c.layer(l).experts); };
        for (int wider = c.layers; wider > 1 && step == 1; --wider) {
            bool fits = routes(wider - 1);  // which is what a step of that width is for
            for (int l = 0; l < c.layers; ++l) fits = fits && (!routes(l) || (l + 1) % wider == 0);
            if (fits) step = wider;
        }
        for (int l = step - 1; l < c.layers; l += step)
            if (!routes(l)) dense.add(l);
    }
};

/// What a shape says of experts.
template <class Shape>
void add_experts(Shape& s, tenon::model_config const& c) {
    tenon::routed_experts const e = some_layer(c, true).experts;
    s.experts = e.count;
    s.experts_per_token = e.chosen;
    s.expert_width = e.width;
    if constexpr (requires { s.normalised; }) s.normalised = e.normalised;
    if constexpr (requires { s.dense_only; }) {
        sparsity const where(c);
        if (e) s.sparse_step = where.step, s.dense_only = where.dense;
    }
}

/// The shape of a config's first kind of layer, with the windows and the experts that a shape can say.
template <class Shape>
Shape shape_of(tenon::model_config const& c) {
    tenon::grouped_attention const& a = c.kinds[0].attention;
    windows const w(c);
    Shape s{.layers = c.layers, .hidden = c.hidden, .heads = a.heads, .kv_heads = a.kv_heads, .head_dim = a.head_dim, .vocab = c.vocab, .max_positions = c.max_positions,
            .rope_theta = c.rope.theta, .rms_epsilon = c.rms_epsilon, .tied = c.tied};
    if constexpr (requires { s.ffn; }) s.ffn = some_layer(c, false).ffn.width;
    if constexpr (requires { s.experts; }) add_experts(s, c);
    if constexpr (requires { s.attention_bias; }) s.attention_bias = a.output_bias;
    if constexpr (requires { s.mlp_bias; }) s.mlp_bias = c.kinds[0].ffn.bias;
    if constexpr (requires { s.window; }) s.window = w.window;
    if constexpr (requires { s.first_window_layer; }) s.first_window_layer = w.first;
    if constexpr (requires { s.scaling; }) {
        s.scaling = c.rope.scaling;
        s.factor = c.rope.factor;
        s.low_freq_factor = c.rope.low_freq_factor;
        s.high_freq_factor = c.rope.high_freq_factor;
        s.original_positions = c.rope.original_positions;
    }
    return s;
}

/// `.layers = 4, ...`: the fields that are not what they are anyway.
template <class Shape>
std::string fields_of(Shape const& s) {
    Shape const plain{};
    Shape without = s;
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
    without.head_dim = 0;
    whole("layers", s.layers, plain.layers);
    whole("hidden", s.hidden, plain.hidden);
    whole("heads", s.heads, plain.heads);
    whole("kv_heads", s.kv_heads, s.heads);
    whole("head_dim", s.head_dim, make<Shape>(without).kinds[0].attention.head_dim);
    if constexpr (requires { s.ffn; }) whole("ffn", s.ffn, plain.ffn);
    if constexpr (requires { s.experts; }) {
        whole("experts", s.experts, plain.experts);
        whole("experts_per_token", s.experts_per_token, plain.experts_per_token);
        whole("expert_width", s.expert_width, plain.expert_width);
    }
    if constexpr (requires { s.dense_only; }) {
        truth("normalised", s.normalised);
        whole("sparse_step", s.sparse_step, plain.sparse_step);
        std::string dense;
        for (int l = 0; l < s.layers; ++l)
            if (s.dense_only(l)) dense += (dense.empty() ? "" : ", ") + std::to_string(l);
        if (!dense.empty()) put("dense_only", "{" + dense + "}");
    }
    whole("vocab", s.vocab, plain.vocab);
    whole("max_positions", s.max_positions, plain.max_positions);
    real("rope_theta", s.rope_theta, plain.rope_theta);
    real("rms_epsilon", s.rms_epsilon, plain.rms_epsilon);
    truth("tied", s.tied);
    if constexpr (requires { s.attention_bias; }) truth("attention_bias", s.attention_bias);
    if constexpr (requires { s.mlp_bias; }) truth("mlp_bias", s.mlp_bias);
    if constexpr (requires { s.window; }) whole("window", s.window, plain.window);
    if constexpr (requires { s.first_window_layer; }) whole("first_window_layer", s.first_window_layer, plain.first_window_layer);
    if constexpr (requires { s.scaling; }) {
        if (s.scaling != plain.scaling) put("scaling", s.scaling == tenon::rope_scaling::linear ? "tenon::rope_scaling::linear" : "tenon::rope_scaling::llama3");
        real("factor", s.factor, plain.factor);
        real("low_freq_factor", s.low_freq_factor, plain.low_freq_factor);
        real("high_freq_factor", s.high_freq_factor, plain.high_freq_factor);
        whole("original_positions", s.original_positions, plain.original_positions);
    }
    return text;
}

/// The expression of a config, checked to give it back: a family's shape, or that with windows in a list of layers.
template <class Shape>
std::string expression_of(tenon::model_config const& c) {
    auto const family = [&c](Shape const& s) { return "tenon::model::" + std::string(tenon::model::name_of(c.adapter)) + "({\n        " + fields_of(s) + "})"; };
    Shape s = shape_of<Shape>(c);
    if (make<Shape>(s) == c) return family(s);
    if constexpr (requires { s.window; }) {
        windows const w(c);
        s.window = 0;
        if constexpr (requires { s.first_window_layer; }) s.first_window_layer = 0;
        if (tenon::model::with_window(make<Shape>(s), w.window, [&c](int l) { return c.layer(l).attention.window != 0; }) == c)
            return "tenon::model::with_window(" + family(s) + ",\n        " + std::to_string(w.window) + ", {" + w.layers + "})";
    }
    tools::refuse("config_is_one_shape", "the config says more than a shape holds");
}

std::string expression_of(tenon::model_config const& c) {
    switch (c.adapter) {
        case tenon::adapter_id::llama: return expression_of<tenon::model::llama_shape>(c);
        case tenon::adapter_id::mistral: return expression_of<tenon::model::mistral_shape>(c);
        case tenon::adapter_id::qwen2: return expression_of<tenon::model::qwen2_shape>(c);
        case tenon::adapter_id::qwen3: return expression_of<tenon::model::qwen3_shape>(c);
        case tenon::adapter_id::phi3: return expression_of<tenon::model::phi3_shape>(c);
        case tenon::adapter_id::mixtral: return expression_of<tenon::model::mixtral_shape>(c);
        case tenon::adapter_id::qwen3_moe: return expression_of<tenon::model::qwen3_moe_shape>(c);
    }
    tools::refuse("config_is_one_shape", "the config is of no family");
}

/// The rules of a stage as a policy; empty where the stage names none.
std::string sharding_of(tenon::rules const& cuts) {
    std::string policies;
    auto const add = [&policies](std::string_view name, std::string_view argument) {
        ((((policies += policies.empty() ? "" : ", ") += "tenon::shard::") += name) += "<") += std::string(argument) + ">";
    };
    auto const joined = [](tenon::join_kind join) { return join == tenon::join_kind::reduce ? "tenon::join::reduce" : ""; };
    if (cuts.tensor) add("tensor", joined(cuts.tensor_join));
    if (cuts.expert) add("expert", cuts.exact ? "tenon::placement::exact" : "");
    if (cuts.expert_width) add("expert_width", joined(cuts.width_join));
    bool const several = cuts.tensor && (cuts.expert || cuts.expert_width);
    return several ? "tenon::shard::both<" + policies + ">" : policies;
}

std::string type_of(tenon::stage_traits const& s) {
    std::string text = "tenon::stage<tenon::layers<" + std::to_string(s.first_layer) + ", " + std::to_string(s.last_layer) + ">, tenon::device::" +
                       std::string(tenon::name_of(s.devices[0].kind)) + "<";
    for (std::size_t i = 0; i < s.devices.size(); ++i) text += (i == 0 ? "" : ", ") + std::to_string(s.devices[i].index);
    text += ">";
    if (!s.cuts.by_default && s.cuts.any()) text += ", " + sharding_of(s.cuts);
    return text + ">";
}

}  // namespace

int main(int argc, char** argv) {
    return tools::exit_status("Prints a config.json as a model type, and a plan as the graph type that splits it.", "tenon-config", [&](CLI::App& app) {
        std::string path, name = "checkpoint_model", plan = "all@0", device = "cpu";
        app.add_option("config", path, "a config.json")->required()->type_name("config.json");
        app.add_option("--name", name, "of the model type; NAME_graph is the graph's")->capture_default_str();
        app.add_option("--plan", plan, "how the layers are split")->capture_default_str();
        tools::add_device(app, device);
        app.parse(argc, argv);

        require_identifier(name);
        tenon::plan::value const parts = tenon::plan::parse(plan);
        tenon::checkpoint::mapped_file const file(path);
        tenon::model_config const config = tenon::checkpoint::read_config(file.text(), path);
        tenon::dynamic_graph const graph(config, parts, tools::devices_from(device));
        std::string stages, includes = "#include <tenon/tenon.hpp>\n";
        for (tenon::stage_traits const& s : graph.view().stages) {
            stages += ",\n    " + type_of(s);
            std::string const header = "#include <tenon/device/" + std::string(tenon::name_of(s.devices[0].kind)) + ".hpp>\n";
            if (s.devices[0].kind != tenon::device_kind::cpu && includes.find(header) == std::string::npos) includes = header + includes;
        }
        std::cout << "// Made by tenon-config. Plan: " << graph.plan() << "\n#pragma once\n" << includes << "\nstruct " << name
                  << " {\n    static constexpr auto config = " << expression_of(config) << ";\n};\n\nstruct " << name
                  << "_graph : tenon::graph<struct " << name << stages << "> {};\n";
    });
}
