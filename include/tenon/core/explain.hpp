// A violation as a sentence, and as the exception that carries it at run time.
// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <string>
#include <tenon/core/device_kind.hpp>
#include <tenon/core/error.hpp>
#include <tenon/core/law.hpp>

namespace tenon::inline v0 {

namespace detail {
inline std::string sentence_of(violation const& v) {
    auto const value = [](operand o) {
        bool const named = o.what == quantity::kind && o.value >= 0 && o.value < static_cast<int>(device_names.size());
        return named ? std::string(device_names[static_cast<std::size_t>(o.value)]) : std::to_string(o.value);
    };
    auto const show = [value](operand o) { return std::string(name_of(o.what)) + " = " + value(o); };
    std::string text(law_table[static_cast<std::size_t>(v.which)].sentence);
    if (!v) return text;
    text += (v.which >= law::plan_is_not_empty ? "; part " : "; stage ") + std::to_string(v.stage);
    if (v.left.what != quantity::nothing) text += ": " + show(v.left);
    if (v.right.what != quantity::nothing) text += ", " + show(v.right);
    for (int i = 0; i < v.instead.count; ++i) {
        text += i == 0 ? "; " + std::string(name_of(v.right.what)) + " = " : i + 1 == v.instead.count ? " or " : ", ";
        text += value({v.right.what, v.instead.value[static_cast<std::size_t>(i)]});
    }
    if (v.instead.count > 0) text += " would do";
    if (v.gather_would_do) text += "; join::gather would do on " + value(v.right) + " ranks";
    if (v.kv_heads > 0) {
        int const most = v.instead.value[static_cast<std::size_t>(v.instead.count - 1)], copies = most / v.kv_heads;
        text += "; on " + std::to_string(most) + " ranks each of the " + std::to_string(v.kv_heads) + " KV heads is held " +
                std::to_string(copies) + " times, and so are its bytes in every state";
    }
    return text;
}
}  // namespace detail

/// "heads_divide_over_ranks: heads divide evenly over a stage's ranks; stage 1: heads = 30, ranks = 4; ranks = 1, 2 or 3 would do"
inline std::string explain(violation const& v) { return std::string(name_of(v.which)) + ": " + detail::sentence_of(v); }

/// A graph or plan that breaks a law, at run time. `why()` is the value that the compiler would have printed.
class graph_error : public refusal {
public:
    explicit graph_error(violation const& v) : refusal(name_of(v.which), detail::sentence_of(v)), violation_(v) {}
    /// Of something of the graph that the numbers do not name.
    graph_error(violation const& v, std::string const& of) : refusal(name_of(v.which), of + ": " + detail::sentence_of(v)), violation_(v) {}
    violation const& why() const noexcept { return violation_; }

private:
    violation violation_;
};

namespace detail {
inline void require(violation const& v) {
    if (v) raise(graph_error(v));
}
inline void require(violation const& v, std::string const& of) {
    if (v) raise(graph_error(v, of));
}
}  // namespace detail

}  // namespace tenon::inline v0
