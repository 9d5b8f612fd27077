// Who runs the ranks of a graph, as a policy. The bits are the same under each.
// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <concepts>
#include <cstdint>
#include <string_view>

namespace tenon::inline v0 {

enum class runtime_kind : std::uint8_t { sequential, threads, processes, mpi };

namespace runtime {
template <class R> concept policy = requires {
    { R::kind } -> std::convertible_to<runtime_kind>;
    { R::name } -> std::convertible_to<std::string_view>;
};

/// Every rank in the caller's thread, step by step: the debugger's friend.
struct sequential {
    static constexpr runtime_kind kind = runtime_kind::sequential;
    static constexpr std::string_view name = "sequential";
};

/// One worker for every distinct device of the graph: the caller's thread for the first, a persistent one for each other.
struct threads {
    static constexpr runtime_kind kind = runtime_kind::threads;
    static constexpr std::string_view name = "threads";
};

/// A policy whose ranks are not in this process, with what starts them.
template <class R, class Devices> concept elsewhere = requires(R const& r) { typename R::template starter<Devices>; };

static_assert(policy<sequential> && policy<threads>);
}  // namespace runtime

}  // namespace tenon::inline v0
