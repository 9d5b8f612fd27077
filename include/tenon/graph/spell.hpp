// A list of stages as the plan that means it: `plan::read` of the text gives the same stages.
// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <array>
#include <cstddef>
#include <span>
#include <string_view>
#include <tenon/graph/stage.hpp>

namespace tenon::inline v0::detail {

/// Counts letters, so that `letters` has the exact size.
struct letter_count {
    std::size_t used = 0;
    constexpr void put(char) { ++used; }
};

template <std::size_t N>
struct letters {
    std::array<char, N> text{};
    std::size_t used = 0;
    constexpr void put(char c) { text[used++] = c; }
    constexpr std::string_view view() const { return {text.data(), used}; }
};

template <class Out>
constexpr void put_text(Out& out, std::string_view s) {
    for (char const c : s) out.put(c);
}
template <class Out>
constexpr void put_number(Out& out, int value) {
    int power = 1;
    while (value / power > 9) power *= 10;
    for (; power > 0; power /= 10) out.put(static_cast<char>('0' + value / power % 10));
}

/// Writes the plan of these stages. A device of kind `loader` is written bare.
template <class Out>
constexpr void spell_plan(std::span<stage_traits const> stages, device_kind loader, Out& out) {
    bool later = false;
    for (stage_traits const& s : stages) {
        if (later) out.put(';');
        later = true;
        put_number(out, s.first_layer);
        if (s.last_layer != s.first_layer) {
            out.put('-');
            put_number(out, s.last_layer);
        }
        char before = '@';
        for (device_id const& d : s.devices) {
            out.put(before);
            before = ',';
            if (d.kind != loader) {
                put_text(out, name_of(d.kind));
                out.put('.');
            }
            put_number(out, d.index);
        }
        before = ':';
        auto const rule = [&](bool on, std::string_view word, bool qualified, std::string_view qualifier = ".reduce") {
            if (!on) return;
            out.put(before);
            before = '+';
            put_text(out, word);
            if (qualified) put_text(out, qualifier);
        };
        rule(s.cuts.tensor, "tensor", s.cuts.tensor_join == join_kind::reduce);
        rule(s.cuts.expert, "expert", s.cuts.exact, ".exact");
        rule(s.cuts.expert_width, "expert_width", s.cuts.width_join == join_kind::reduce);
    }
}

}  // namespace tenon::inline v0::detail
