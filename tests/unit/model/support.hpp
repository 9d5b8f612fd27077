// What the tests of the families share: a small config.json of each, and tables of what one may say. Knows no family's rules.
// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <tenon/checkpoint/config_json.hpp>

#include <doctest/doctest.h>
#include <span>
#include <string>
#include <string_view>

namespace model_test {

using tenon::adapter_id;
using tenon::model_config;
using tenon::rope_scaling;
namespace model = tenon::model;

/// A config.json of four layers, with members added or replaced by key ("hidden_size": 60) and, without a colon, taken out.
inline std::string config_text(std::string_view family, std::string_view changes) {
    constexpr std::string_view base[]{R"("hidden_size": 64)",        R"("num_hidden_layers": 4)", R"("num_attention_heads": 8)",
                                      R"("num_key_value_heads": 2)", R"("vocab_size": 128)",      R"("intermediate_size": 96)"};
    std::string text = R"({"model_type": ")" + std::string(family) + "\"";
    for (std::string_view const member : base)
        if (changes.find(member.substr(0, member.find('"', 1) + 1)) == std::string_view::npos) text += ", " + std::string(member);
    if (changes.find(':') != std::string_view::npos) text += ", " + std::string(changes);
    return text + "}";
}

struct good {
    std::string_view members;
    model_config means;
};

struct bad {
    std::string_view members, says;
};

inline void read_as_meant(std::string_view family, std::span<good const> table) {
    for (good const& g : table) {
        CAPTURE(g.members);
        CHECK(tenon::checkpoint::read_config(config_text(family, g.members)) == g.means);
    }
}

inline void refused_as_said(std::string_view family, std::span<bad const> table) {
    for (bad const& b : table) {
        CAPTURE(b.members);
        std::string text = "nothing is refused";
        try {
            tenon::checkpoint::read_config(config_text(family, b.members));
        } catch (tenon::refusal const& r) { text = r.what(); }
        CHECK(text == b.says);
    }
}

/// Whether these are the windows of the layers, in order.
constexpr bool has_windows(model_config const& c, std::initializer_list<int> windows) {
    int layer = 0;
    for (int const w : windows)
        if (layer >= c.layers || c.layer(layer++).attention.window != w) return false;
    return layer == c.layers;
}

}  // namespace model_test
