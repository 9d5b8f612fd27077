// Two backends of a user's own in one graph: a plan could not tell them apart.
// SPDX-License-Identifier: Apache-2.0
// expect: two device policies of one kind; a program has one backend of each kind
#include <tenon/graph/graph.hpp>
#include <tenon/model/llama.hpp>

#include <array>
#include <cstddef>

struct small {
    static constexpr auto config = tenon::model::llama({.layers = 2, .hidden = 64, .heads = 4, .ffn = 128, .vocab = 100});
};
template <int... Index>
struct one {
    static constexpr tenon::device_kind kind = tenon::device_kind::user;
    static constexpr int most_ranks = 4;
    static constexpr bool canonical = true;
    static constexpr std::array<tenon::device_id, sizeof...(Index)> devices{tenon::device_id{tenon::device_kind::user, Index}...};
};
template <int... Index>
struct another : one<Index...> {};

using tenon::layers, tenon::stage;
#ifdef REPAIRED
struct split : tenon::graph<small, stage<layers<0, 0>, one<0>>, stage<layers<1, 1>, one<1>>> {};
#else
struct split : tenon::graph<small, stage<layers<0, 0>, one<0>>, stage<layers<1, 1>, another<1>>> {};
#endif
split::devices const opened{};  // as a loader opens them
