// Which rank of a stage owns which expert, as values and as types. A placement that arrives in a file is graph/placed.hpp's.
// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <array>
#include <concepts>
#include <cstddef>
#include <span>

namespace tenon::inline v0::placement {

/// What a placement says. By default expert e of E is on rank floor(e R / E): contiguous, counts that differ by at most one.
struct traits {
    bool exact = false;             ///< refused unless every rank gets as many
    bool awaited = false;           ///< a placement map says it, when the model is loaded
    std::span<int const> owners{};  ///< of every expert, where a table says it
};

/// Where whole experts go, as constants.
template <class P> concept policy = requires {
    { P::places } -> std::convertible_to<traits>;
};

/// Expert e of E on rank floor(e R / E).
struct even {
    static constexpr traits places{};
};

/// The same where the ranks divide the experts, and refused elsewhere.
struct exact {
    static constexpr traits places{.exact = true};
};

/// The owner of every expert, in order: the same for every layer of the stage, or of each of its layers in turn.
template <int... Owners>
struct table {
    static constexpr std::array<int, sizeof...(Owners)> owners{Owners...};
    static constexpr traits places{.owners = owners};
};

/// By a placement map that `load_options` brings. Until then a cost counts the most experts that a map can give a rank: all but one for
/// every other rank.
struct at_load {
    static constexpr traits places{.awaited = true};
};

static_assert(policy<even> && policy<exact> && policy<table<0, 1>> && policy<at_load>);

}  // namespace tenon::inline v0::placement
