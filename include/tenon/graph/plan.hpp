// The plan grammar: a graph as a line of text, read at compile time and at run time by the same function.
//
//   PLAN = "all" SPEC | RANGE SPEC { ";" RANGE SPEC }      RANGE = layer [ "-" layer ]   (inclusive, in any order)
//   SPEC = "@" DEVICE { "," DEVICE } [ ":" rule { "+" rule } ]      DEVICE = [ kind "." ] index
//   rule = none | tensor[.gather|.reduce] | expert[.exact] | expert_width[.gather|.reduce]
//
// Knows nothing of models; what a plan means for one is graph/resolve.hpp's.
// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <array>
#include <cstddef>
#include <span>
#include <string_view>
#include <tenon/core/law.hpp>
#include <tenon/device/concept.hpp>
#include <tenon/shard/shard.hpp>

namespace tenon::inline v0::plan {

inline constexpr int every_layer = -1;  ///< the last layer of a part that says `all`

/// One part of a plan.
struct part {
    int first_layer = 0, last_layer = 0;     ///< inclusive; `all` is 0..every_layer
    int first_device = 0, device_count = 0;  ///< a run in the plan's list of devices
    rules cuts{.by_default = true};
    bool operator==(part const&) const = default;
};

/// A plan that lives elsewhere.
struct view {
    std::span<part const> parts{};
    std::span<device_id const> devices{};
    int owners = 0;  ///< of a plan made from an owner list, its length; every layer of the model must be in it
    constexpr std::span<device_id const> devices_of(part const& p) const {
        return devices.subspan(static_cast<std::size_t>(p.first_device), static_cast<std::size_t>(p.device_count));
    }
};

constexpr bool same(view a, view b) {
    if (a.parts.size() != b.parts.size() || a.devices.size() != b.devices.size()) return false;
    for (std::size_t i = 0; i < a.parts.size(); ++i)
        if (a.parts[i] != b.parts[i]) return false;
    for (std::size_t i = 0; i < a.devices.size(); ++i)
        if (a.devices[i] != b.devices[i]) return false;
    return true;
}

/// Room that `read` needs for a text.
struct extent {
    std::size_t parts = 1, devices = 1;
};
constexpr extent measure(std::string_view text) {
    extent e{};
    for (char const c : text) {
        e.parts += c == ';';
        e.devices += c == ';' || c == ',';
    }
    return e;
}

namespace detail {
struct cursor {
    std::string_view text;
    std::size_t at = 0;

    constexpr bool done() const { return at == text.size(); }
    constexpr char peek() const { return done() ? '\0' : text[at]; }
    constexpr bool take(char c) {
        bool const yes = !done() && text[at] == c;
        at += yes;
        return yes;
    }
    constexpr bool take(std::string_view word) {
        bool const yes = text.substr(at, word.size()) == word;
        if (yes) at += word.size();
        return yes;
    }
    constexpr std::string_view until(std::string_view stops) {
        std::size_t const begin = at;
        while (!done() && stops.find(text[at]) == std::string_view::npos) ++at;
        return text.substr(begin, at - begin);
    }
    constexpr violation refuse(law which, int part) const { return {which, part, {quantity::character, static_cast<int>(at)}, {}, {}}; }

    /// Reads digits into `value`; `missing` is the law when there is none.
    constexpr violation number(int& value, law missing, int part) {
        char const c = peek();
        if (c == '-' || c == '+') return refuse(law::plan_number_is_plain, part);
        if (c < '0' || c > '9') return refuse(missing, part);
        std::size_t const begin = at;
        value = 0;
        for (; !done() && text[at] >= '0' && text[at] <= '9'; ++at) {
            int const digit = text[at] - '0';
            if (value > (2147483647 - digit) / 10) return refuse(law::plan_number_fits, part);
            value = value * 10 + digit;
        }
        return at - begin > 1 && text[begin] == '0'
                   ? violation{law::plan_number_is_plain, part, {quantity::character, static_cast<int>(begin)}, {}, {}}
                   : violation{};
    }
};

constexpr violation read_range(cursor& c, part& p, int n) {
    if (n == 0 && c.take("all")) {
        p.last_layer = every_layer;
        return {};
    }
    if (violation const v = c.number(p.first_layer, law::plan_names_layers, n)) return v;
    p.last_layer = p.first_layer;
    if (c.take('-')) {
        if (violation const v = c.number(p.last_layer, law::plan_names_layers, n)) return v;
    }
    if (p.last_layer < p.first_layer)
        return {law::layers_run_forward, n, {quantity::first_layer, p.first_layer}, {quantity::last_layer, p.last_layer}, {}};
    return {};
}

constexpr violation read_device(cursor& c, device_id& d, int n) {
    if (c.peek() >= 'a' && c.peek() <= 'z') {
        cursor const start = c;
        std::string_view const word = c.until(".,;:");
        for (std::size_t k = 1; k < device_names.size(); ++k)
            if (device_names[k] == word) d.kind = static_cast<device_kind>(k);
        if (d.kind == device_kind::bare || !c.take('.')) return start.refuse(law::plan_kind_is_known, n);
    }
    return c.number(d.index, law::plan_names_devices, n);
}

constexpr violation read_rules(cursor& c, rules& out, int n) {
    out = {};
    bool none = false;
    do {
        cursor const start = c;
        std::string_view const word = c.until(".+;");
        bool const takes_join = word == "tensor" || word == "expert_width";
        bool const again = (word == "none" && none) || (word == "tensor" && out.tensor) || (word == "expert" && out.expert) ||
                           (word == "expert_width" && out.expert_width);
        if (again) return start.refuse(law::plan_rule_is_new, n);
        join_kind join = join_kind::gather;
        bool exact = false;
        if (!takes_join && word != "none" && word != "expert") return start.refuse(law::plan_rule_is_known, n);
        if (c.take('.')) {
            cursor const dot = c;
            std::string_view const name = c.until("+;");
            exact = word == "expert" && name == "exact";
            if (!exact && (!takes_join || (name != "gather" && name != "reduce"))) return dot.refuse(law::plan_join_is_known, n);
            if (name == "reduce") join = join_kind::reduce;
        }
        if (word == "none") none = true;
        if (word == "tensor") {
            out.tensor = true;
            out.tensor_join = join;
        }
        if (word == "expert") {
            out.expert = true;
            out.exact = exact;
        }
        if (word == "expert_width") {
            out.expert_width = true;
            out.width_join = join;
        }
        if ((none && out.any()) || (out.expert && out.expert_width)) return start.refuse(law::plan_rules_agree, n);
    } while (c.take('+'));
    return {};
}
}  // namespace detail

/// Reads a plan into storage of the size that `measure` gives. Returns the first broken law, with the character where it broke.
constexpr violation read(std::string_view text, std::span<part> parts, std::span<device_id> devices) {
    detail::cursor c{text};
    int used = 0;
    if (text.empty()) return c.refuse(law::plan_is_not_empty, 0);
    for (int n = 0;; ++n) {
        part& p = parts[static_cast<std::size_t>(n)];
        p = {};
        if (c.done() || c.peek() == ';') return c.refuse(law::plan_part_is_not_empty, n);
        if (violation const v = detail::read_range(c, p, n)) return v;
        p.first_device = used;
        if (!c.take('@')) return c.refuse(law::plan_names_devices, n);
        do {
            device_id d{};
            if (violation const v = detail::read_device(c, d, n)) return v;
            for (int i = p.first_device; i < used; ++i)
                if (devices[static_cast<std::size_t>(i)].index == d.index)
                    return {law::devices_are_distinct, n, {quantity::devices, used - p.first_device + 1}, {quantity::device, d.index}, {}};
            devices[static_cast<std::size_t>(used++)] = d;
        } while (c.take(','));
        p.device_count = used - p.first_device;
        if (c.take(':')) {
            if (violation const v = detail::read_rules(c, p.cuts, n)) return v;
        }
        if (c.done()) return {};
        if (parts[0].last_layer == every_layer || !c.take(';')) return c.refuse(law::plan_part_ends, n);
    }
}

/// A plan of a known size: what `literal` and the compile-time builders give.
template <std::size_t Parts, std::size_t Devices>
struct fixed {
    std::array<part, Parts> parts{};
    std::array<device_id, Devices> devices{};
    violation broken{};
    int owners = 0;  ///< as in `view`
    constexpr operator view() const { return {parts, devices, owners}; }
};

/// Text as a template argument.
template <std::size_t N>
struct spelled {
    char text[N]{};
    constexpr spelled(char const (&s)[N]) {
        for (std::size_t i = 0; i < N; ++i) text[i] = s[i];
    }
    constexpr std::string_view view() const { return {text, N - 1}; }
};

}  // namespace tenon::inline v0::plan
