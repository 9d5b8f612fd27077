// The objects of a config.json with typed fields, and its RoPE fields as a rope. Knows no family; what it does not understand is
// refused by name.
// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <tenon/checkpoint/json.hpp>
#include <tenon/core/config.hpp>
#include <tenon/core/error.hpp>

#include <cstddef>
#include <initializer_list>
#include <limits>
#include <string>
#include <string_view>
#include <utility>

namespace tenon::inline v0::checkpoint::detail {

template <class = void>
class basic_fields;
using fields = basic_fields<>;  // lazy: instantiated by who uses it

/// One object of a config, with typed fields. Null and absent mean the same, but to `absent`.
template <class>
class basic_fields {
public:
    /// `where` begins what messages say of the fields: "config.json: rope_scaling."
    basic_fields(json::value const* object, std::string where) : object_(object), where_(std::move(where)) {}

    json::value const* find(std::string_view name) const noexcept {
        json::value const* const found = object_ == nullptr ? nullptr : object_->find(name);
        return found == nullptr || found->is(json::kind::null) ? nullptr : found;
    }
    bool has(std::string_view name) const noexcept { return find(name) != nullptr; }
    bool absent(std::string_view name) const noexcept { return object_ == nullptr || object_->find(name) == nullptr; }
    std::string const& where() const noexcept { return where_; }

    /// "config.json: rope_scaling.factor = 0"
    std::string show(std::string_view name, json::value const& v) const { return where_ + std::string(name) + " = " + json::show(v); }

    [[noreturn]] void refuse(std::string_view law, std::string_view name, json::value const& v, std::string_view remedy) const {
        tenon::v0::detail::refuse(law, show(name, v) + "; " + std::string(remedy) + " would do");
    }

    [[noreturn]] void require(std::string_view list, std::string_view name) const {
        tenon::v0::detail::refuse("config_field_is_present",
                                  where_ + std::string(list) + " is missing; " + std::string(name) + " would do");
    }

    bool boolean(std::string_view name, bool otherwise) const {
        json::value const* const v = find(name);
        if (v == nullptr) return otherwise;
        if (!v->is(json::kind::boolean)) refuse("config_field_has_type", name, *v, "true or false");
        return v->truth;
    }

    /// Refuses a switch that is set to what is not done.
    void expect(std::string_view name, bool done) const {
        if (boolean(name, done) != done) refuse("config_value_is_supported", name, *find(name), done ? "true" : "false");
    }

    double positive(std::string_view name, double otherwise) const {
        json::value const* const v = find(name);
        if (v == nullptr) return otherwise;
        if (!v->is(json::kind::number)) refuse("config_field_has_type", name, *v, "a number");
        auto const number = v->as_double();
        if (!number || !(*number > 0)) refuse("config_value_is_supported", name, *v, "a number above 0, inside the range of double,");
        return *number;
    }

    /// A whole number from `least`, spelled as an integer or not: 4096, 4096.0, 4.096e3.
    int count(std::string_view name, int otherwise, int least = 1) const {
        json::value const* const v = find(name);
        return v == nullptr ? otherwise : count_of(name, *v, least);
    }
    int count_of(std::string_view name, json::value const& v, int least = 1) const {
        constexpr int most = (std::numeric_limits<int>::max)();
        auto const number = v.as_double();
        bool const inside = number && *number >= least && *number <= most;
        bool const whole = inside && *number == static_cast<double>(static_cast<int>(*number));
        if (!v.is(json::kind::number) || (inside && !whole)) refuse("config_field_has_type", name, v, "a whole number");
        if (!inside)
            refuse("config_value_is_supported", name, v, "a whole number from " + std::to_string(least) + " to " + std::to_string(most));
        return static_cast<int>(*number);
    }

    std::string_view string(std::string_view name, std::string_view otherwise) const {
        json::value const* const v = find(name);
        if (v == nullptr) return otherwise;
        if (!v->is(json::kind::string)) refuse("config_field_has_type", name, *v, "a string");
        return v->text;
    }

private:
    json::value const* object_;
    std::string where_;
};

/// The names in `wanted` that the object lacks, "a, b"; empty when it has them all.
template <class = void>
std::string missing(fields const& top, std::initializer_list<std::string_view> wanted) {
    std::string text;
    for (std::string_view const name : wanted)
        if (!top.has(name)) text += (text.empty() ? "" : ", ") + std::string(name);
    return text;
}

template <class = void>
struct basic_document;
using document = basic_document<>;  // lazy, as above

/// A parsed config.json: the whole, and the object that describes the model, which is `text_config` when there is one.
template <class>
struct basic_document {
    basic_document(std::string_view text, std::string_view what)
        : root(json::parse(text, what)), outer(&root, std::string(what) + ": "), top(model_of(outer, root)) {}
    basic_document(basic_document const&) = delete;
    basic_document& operator=(basic_document const&) = delete;

    json::value root;
    fields outer, top;

private:
    static fields model_of(fields const& outer, json::value const& root) {
        if (!root.is(json::kind::object))
            tenon::v0::detail::refuse("config_field_has_type", outer.where() + "the text is " + json::show(root) + "; an object would do");
        json::value const* const nested = outer.find("text_config");
        if (nested == nullptr) return outer;
        if (!nested->is(json::kind::object)) outer.refuse("config_field_has_type", "text_config", *nested, "an object");
        return {nested, outer.where() + "text_config."};
    }
};

/// The dictionary of RoPE fields: `rope_scaling` unless it is empty, else `rope_parameters`. One that is keyed by layer type
/// stands for its values when they are all equal.
template <class = void>
fields rope_fields(fields const& top) {
    for (std::string_view const name : {"rope_scaling", "rope_parameters"}) {
        json::value const* const v = top.find(name);
        if (v == nullptr) continue;
        if (!v->is(json::kind::object)) top.refuse("config_field_has_type", name, *v, "an object or null");
        if (v->children.empty()) continue;
        std::string const inside = top.where() + std::string(name) + ".";
        std::size_t objects = 0;
        for (json::value const& child : v->children) objects += child.is(json::kind::object) ? 1U : 0U;
        if (objects == 0) return {v, inside};
        json::value const& first = v->children.front();
        for (json::value const& child : v->children)
            if (!json::same(first, child))
                tenon::v0::detail::refuse("config_value_is_supported", inside + child.key + " differs from " + first.key +
                                                                           "; the same values for every layer type would do");
        return {&first, inside + first.key + "."};
    }
    return {nullptr, top.where()};
}

template <class = void>
std::string_view rope_type(fields const& dictionary) {
    std::string_view const type = dictionary.string("type", ""), rope_type = dictionary.string("rope_type", type);
    if (dictionary.has("type") && type != rope_type)
        dictionary.refuse("config_keys_agree", "type", *dictionary.find("type"),
                          "rope_type is " + json::quoted(rope_type) + ", one of the keys, or the same value in both,");
    if (dictionary.has("rope_type") || dictionary.has("type")) return rope_type;
    if (json::value const* const factor = dictionary.find("factor"))
        dictionary.refuse("config_field_is_present", "factor", *factor,
                          "the kind of scaling is not given: rope_type \"linear\" or \"llama3\" beside it");
    return "default";
}

/// The rotation, with `theta` where none is said. Without `stretches` positions keep their places: every kind of scaling is refused.
template <class = void>
rope read_rope(fields const& top, int max_positions, double theta, bool stretches) {
    fields const dictionary = rope_fields(top);
    rope result;
    result.theta = dictionary.positive("rope_theta", top.positive("rope_theta", theta));
    // The tables are exact for angles below 2^31: with a theta or a factor below 1 a pair turns by more than the position.
    constexpr double largest_angle = 2147483648.0;
    double const widest = static_cast<double>(max_positions) / (result.theta < 1.0 ? result.theta : 1.0);
    if (!(widest < largest_angle)) {
        fields const& place = dictionary.has("rope_theta") ? dictionary : top;
        place.refuse("config_value_is_supported", "rope_theta", *place.find("rope_theta"), "1 or more");
    }
    for (fields const* const place : {&dictionary, &top})
        if (place->positive("partial_rotary_factor", 1.0) != 1.0)
            place->refuse("config_value_is_supported", "partial_rotary_factor", *place->find("partial_rotary_factor"),
                          "1, which rotates the whole head,");
    if (json::value const* const sections = dictionary.find("mrope_section"))
        dictionary.refuse("config_value_is_supported", "mrope_section", *sections, "mrope is not supported; none");
    std::string_view const type = rope_type(dictionary);
    // `dynamic` changes nothing up to max_position_embeddings, and the config allows no longer runs.
    if (type == "default" || (stretches && type == "dynamic")) return result;
    if (!stretches || (type != "linear" && type != "llama3"))
        dictionary.refuse("config_value_is_supported", dictionary.has("rope_type") ? "rope_type" : "type",
                          *dictionary.find(dictionary.has("rope_type") ? "rope_type" : "type"),
                          stretches ? "\"default\", \"linear\", \"dynamic\" or \"llama3\"" : "\"default\"");
    if (!dictionary.has("factor")) dictionary.require("factor", "the factor by which positions are stretched");
    result.scaling = type == "linear" ? rope_scaling::linear : rope_scaling::llama3;
    result.factor = dictionary.positive("factor", 1.0);
    if (!(widest / result.factor < largest_angle))
        dictionary.refuse("config_value_is_supported", "factor", *dictionary.find("factor"), "1 or more");
    if (result.scaling == rope_scaling::linear) return result;
    for (std::string_view const name : {"low_freq_factor", "high_freq_factor"})
        if (!dictionary.has(name)) dictionary.require(name, "a number, as llama3 scaling needs one,");
    result.low_freq_factor = dictionary.positive("low_freq_factor", 1.0);
    result.high_freq_factor = dictionary.positive("high_freq_factor", 4.0);
    if (!(result.high_freq_factor > result.low_freq_factor))
        dictionary.refuse("config_value_is_supported", "high_freq_factor", *dictionary.find("high_freq_factor"),
                          "more than low_freq_factor, " + json::show(*dictionary.find("low_freq_factor")) + ",");
    result.original_positions = dictionary.count("original_max_position_embeddings", max_positions);
    return result;
}

}  // namespace tenon::inline v0::checkpoint::detail
