// What the tests of this folder share: a bundle that keeps its contract, and the rule that a call breaks.
// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <tenon/boundary/contract.hpp>
#include <tenon/core/error.hpp>

#include <string>
#include <vector>

namespace boundary_test {

/// "law: sentence" of the refusal, "nothing is refused" without one.
template <class Call>
std::string refusal_of(Call&& call) {
    try {
        call();
    } catch (tenon::refusal const& r) { return r.what(); }
    return "nothing is refused";
}

template <class Call>
std::string law_of(Call&& call) {
    std::string const text = refusal_of(call);
    return text.substr(0, text.find(':'));
}

inline constexpr tenon::boundary::contract stage{.first_layer = 2, .hidden = 4, .max_positions = 64};

/// Three sequences of 1, 3 and 2 rows.
inline tenon::boundary::bundle ragged() {
    tenon::boundary::bundle b{.adapter = "llama", .next_layer = 2, .shape = {2, {6, 4, 0, 0}}};
    b.row_offsets = {0, 1, 4, 6};
    b.positions = {7, 0, 1, 2, 62, 63};
    for (int i = 0; i < 24; ++i) b.residual.push_back(static_cast<float>(i) - 11.5f);
    return b;
}

}  // namespace boundary_test
