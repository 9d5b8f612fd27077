// The numeric profile of a load: which one a name means, what a graph and its weights must be for it, and by which rule each matrix is
// multiplied. Knows no arithmetic: the kernels of a format do.
// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <tenon/core/error.hpp>
#include <tenon/core/profile.hpp>
#include <tenon/device/backend.hpp>
#include <tenon/graph/lower.hpp>
#include <tenon/graph/weight_format.hpp>
#include <tenon/kernel/fixed15.hpp>
#include <tenon/kernel/packed_matrix.hpp>

#include <cstddef>
#include <string>
#include <string_view>

namespace tenon::inline v0 {

namespace numeric {
/// "canonical_1, bf16_pair_1, fixed15_1 or fast".
inline std::string names() {
    std::string text;
    std::size_t left = all.size();
    for (numeric_profile const& p : all) text += std::string(p.name) + (--left == 0 ? "" : left == 1 ? " or " : ", ");
    return text;
}

/// The profile of a name. Refuses one that nobody has taken (`profile_is_known`).
inline numeric_profile const& named(std::string_view name) {
    for (numeric_profile const& p : all)
        if (p.name == name) return p;
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

/// Whether a backend has the profile's products.
inline bool computes(device::backend const& on, numeric_profile const& p) {
    if (p.products == product_rule::fixed_point) return on.exact() != nullptr;
    return p.products == product_rule::chains || on.holds(kernel::panel_format::bf16_pair);
}

/// The format in which matrices are held when a loader asks for `asked`: fixed15 and its profile imply each other. Refuses one without the
/// other (`profile_takes_format`).
inline weights format_under(numeric_profile const& p, weights asked) {
    bool const exact = p.products == product_rule::fixed_point;
    if (!exact && asked == weights::fixed15)
        refuse("profile_takes_format", std::string(p.name) + " does not multiply weights in fixed15; weights::stored would do, or fixed15_1");
    if (exact && asked != weights::stored && asked != weights::fixed15)
        refuse("profile_takes_format", std::string(p.name) + " holds weights in codes of its own, made of what is stored, and not in " +
                                           std::string(name_of(asked)) + "; weights::stored would do");
    return exact ? weights::fixed15 : asked;
}

/// Refuses, before a weight is read, a device that does not compute the profile (`device_computes_profile`), a weight that it does not
/// multiply in the format in which it would be held (`profile_takes_format`), and one with more inputs than it can add up exactly
/// (`product_is_exact`).
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
    bool const tied = graph.config->tied, exact = p.products == product_rule::fixed_point;
    for (tensor const& t : graph.ir.tensors) {
        if (!is_of_profile(t.what) || (only >= 0 && t.stage != only)) continue;
        if (exact && t.columns <= kernel::fixed15::most_columns) continue;
        each_layer_of(t, graph.stages[static_cast<std::size_t>(t.stage)], *graph.config, [&](int layer) {
            if (exact)
                refuse("product_is_exact", std::string(p.name) + " adds up the products of " + std::to_string(kernel::fixed15::most_columns) +
                                               " inputs exactly, and " + spelled(t, layer, 0) + " has " + std::to_string(t.columns) +
                                               "; canonical_1 would do");
            for (int e = 0; e < t.experts; ++e) {
                held_as const as = held_format(t, format, stored(t, layer, e), tied);
                if (as == held_as::bf16) continue;
                refuse("profile_takes_format",
                       std::string(p.name) + " multiplies weights in bf16, and " + spelled(t, layer, e) + " would be held in " +
                           std::string(name_of(as)) + "; " + (takes_weight_format(t.what, tied) ? "weights::bf16" : "a checkpoint in bf16") + " would do, or canonical_1");
            }
        });
    }
}

}  // namespace detail
}  // namespace tenon::inline v0
