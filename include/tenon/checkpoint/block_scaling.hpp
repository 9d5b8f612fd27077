// How a config.json says that matrices are stored as 8-bit codes with one scale a block. Knows the declaration, no tensors.
// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <tenon/checkpoint/config_fields.hpp>

#include <string>
#include <string_view>

namespace tenon::inline v0::checkpoint {

/// Rows and columns that share one scale. 0, 0 where nothing is scaled.
struct block_scaling {
    int rows = 0, columns = 0;
    bool operator==(block_scaling const&) const = default;
    constexpr explicit operator bool() const { return rows > 0; }
};

namespace detail {

template <class = void>
block_scaling read_scaling(fields const& at) {
    if (json::value const* const v = at.find("compression_config"))
        at.refuse("config_value_is_supported", "compression_config", *v, "null");
    json::value const* const q = at.find("quantization_config");
    if (q == nullptr) return {};
    if (!q->is(json::kind::object)) at.refuse("config_field_has_type", "quantization_config", *q, "an object or null");
    fields const inside(q, at.where() + "quantization_config.");
    if (inside.string("quant_method", "") != "fp8")
        tenon::v0::detail::refuse("config_value_is_supported",
                                  at.show("quantization_config", *q) + " with quant_method " +
                                      (inside.has("quant_method") ? json::show(*inside.find("quant_method")) : "absent") +
                                      "; \"fp8\", or weights stored as F32, BF16 or F16 without this field, would do");
    if (inside.string("fmt", "e4m3") != "e4m3") inside.refuse("config_value_is_supported", "fmt", *inside.find("fmt"), "\"e4m3\"");
    json::value const* const size = inside.find("weight_block_size");
    if (size == nullptr) inside.require("weight_block_size", "[rows, columns] of the block that shares a scale");
    if (!size->is(json::kind::array) || size->children.size() != 2)
        inside.refuse("config_field_has_type", "weight_block_size", *size, "an array of two whole numbers");
    return {inside.count_of("weight_block_size[0]", size->children[0]), inside.count_of("weight_block_size[1]", size->children[1])};
}

template <class = void>
block_scaling read_scaling(document const& config) {
    block_scaling const outside = read_scaling(config.outer), within = read_scaling(config.top);
    if (outside && within && outside != within)
        config.top.refuse("config_keys_agree", "quantization_config", *config.top.find("quantization_config"),
                          "the blocks that stand outside text_config");
    return outside ? outside : within;
}

}  // namespace detail

/// Reads from the text of a config.json how its matrices are scaled: `quantization_config` with quant_method "fp8", fmt "e4m3" and a
/// weight_block_size, inside or beside the `text_config`. Refuses any other method and format by name, with the laws of read_config.
/// Source: DeepSeek-AI 2024, "DeepSeek-V3 Technical Report", section 3.3.2.
template <class = void>
block_scaling read_block_scaling(std::string_view text, std::string_view what = "config.json") {
    return detail::read_scaling(detail::document(text, what));
}

}  // namespace tenon::inline v0::checkpoint
