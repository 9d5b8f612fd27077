// The numeric profile of a load: which one a name means, what a graph and its weights must be for it, and by which rule each matrix is
// multiplied. Knows no arithmetic: the kernels of a format do.
// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <tenon/core/error.hpp>
#include <tenon/core/profile.hpp>
#include <tenon/graph/weight_format.hpp>
#include <tenon/graph/lower.hpp>
#include <tenon/kernel/packed_matrix.hpp>

#include <cstddef>
#include <string>
#include <string_view>

namespace tenon::inline v0 {

namespace numeric {
/// "canonical_1, bf16_pair_1 or fast": those that this version computes.
inline std::string names() {
    std::string text;
    std::size_t left = 0;
    for (numeric_profile const& p : all) left += p.is_here ? 1 : 0;
    for (numeric_profile const& p : all)
        if (p.is_here) text += std::string(p.name) + (--left == 0 ? "" : left == 1 ? " or " : ", ");
    return text;
}

/// The profile of a name. Refuses one that nobody has taken (`profile_is_known`), and one that this version does not compute
/// (`profile_is_available`).
inline numeric_profile const& named(std::string_view name) {
    for (numeric_profile const& p : all) {
        if (p.name != name) continue;
        if (!p.is_here)
            tenon::v0::detail::refuse("profile_is_available",
                                      "numeric profile " + std::string(name) + " is not in this version; " + names() + " would do");
        return p;
    }
    tenon::v0::detail::refuse("profile_is_known",
                              "numeric profile \"" + std::string(name.substr(0, 80)) + "\" is unknown; " + names() + " would do");
}

/// The same of a value, whose constants must be those that its name stands for (`profile_is_known`).
inline numeric_profile const& known(numeric_profile const& given) {
    numeric_profile const& p = named(given.name);
    if (!(p == given))
        tenon::v0::detail::refuse("profile_is_known", "numeric profile " + std::string(given.name) +
                                                          " is given with constants that are not its own; " + names() + " would do");
    return p;
}
}  // namespace numeric

namespace detail {

/// Whether a profile's own rule is that of the products with a tensor: of projections, experts and the head, whatever holds its weights. A
/// router's product is canonical under every profile.
constexpr bool is_of_profile(role what) { return takes_weight_format(what, false); }

/// As what a matrix is multiplied that is held in a format.
constexpr kernel::panel_format multiplied_as(numeric_profile const& p, role what, kernel::panel_format held) {
    bool const pairs = p.products == product_rule::bf16_pairs && is_of_profile(what) && held == kernel::panel_format::bf16;
    return pairs ? kernel::panel_format::bf16_pair : held;
}

/// Refuses, before a weight is read, a device that does not compute the profile (`device_computes_profile`) and a weight that it does not
/// multiply in the format in which it would be held (`profile_takes_format`).
///
///   computes(stage)              whether the backend of a stage has the profile's products
///   stored(tensor, layer, e)     what the checkpoint holds
///   spelled(tensor, layer, e)    its name there
///
/// With `only`, of that stage.
template <class Computes, class Stored, class Spelled>
void require_profile(graph_view graph, numeric_profile const& p, weights format, Computes computes, Stored stored, Spelled spelled,
                     int only = -1) {
    if (p.products == product_rule::chains) return;
    int const stages = static_cast<int>(graph.stages.size());
    for (int s = 0; s < stages; ++s)
        if ((only < 0 || s == only) && !computes(s))
            refuse("device_computes_profile", std::string(name_of(graph.stages[static_cast<std::size_t>(s)].devices[0].kind)) +
                                                  ", the backend of stage " + std::to_string(s) + ", does not compute numeric profile " +
                                                  std::string(p.name) + "; canonical_1 would do, or cpu");
    if (!p.is_law) return;  // it takes what is there
    bool const tied = graph.config->tied;
    for (tensor const& t : graph.ir.tensors) {
        if (!is_of_profile(t.what) || (only >= 0 && t.stage != only)) continue;
        each_layer_of(t, graph.stages[static_cast<std::size_t>(t.stage)], *graph.config, [&](int layer) {
            for (int e = 0; e < t.experts; ++e) {
                held_as const as = held_format(t, format, stored(t, layer, e), tied);
                if (as == held_as::bf16) continue;
                refuse("profile_takes_format",
                       std::string(p.name) + " multiplies weights in bf16, and " + spelled(t, layer, e) + " would be held in " + std::string(name_of(as)) + "; " +
                           (takes_weight_format(t.what, tied) ? "weights::bf16" : "a checkpoint in bf16") + " would do, or canonical_1");
            }
        });
    }
}

}  // namespace detail
}  // namespace tenon::inline v0
