// What a stage may ask of a device backend before anything runs. Knows nothing of kernels; those are device/cpu.hpp's.
// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <array>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <tenon/core/device_kind.hpp>

namespace tenon::inline v0 {

/// One device of a plan or graph.
struct device_id {
    device_kind kind = device_kind::bare;
    int index = 0;
    bool operator==(device_id const&) const = default;
};

/// A device of a cost table, by its index.
struct device_index {
    int value = 0;
};

inline constexpr int most_ranks_of_a_stage = 64;

namespace device {
/// A device policy is a stateless type of constants: which backend, which devices, and what it can do.
template <class D> concept policy = requires {
    { D::kind } -> std::convertible_to<device_kind>;                    // the backend, as a plan names it
    { D::most_ranks } -> std::convertible_to<int>;                      // most devices in one group
    { D::canonical } -> std::convertible_to<bool>;                      // follows the canonical arithmetic to the bit
    { D::devices } -> std::convertible_to<std::span<device_id const>>;  // the group, root first
};

/// Own SIMD kernels on the host's cores. Canonical. An index names a worker, not a core.
template <int... Index>
struct cpu {
    static constexpr device_kind kind = device_kind::cpu;
    static constexpr int most_ranks = most_ranks_of_a_stage;
    static constexpr bool canonical = true;
    static constexpr std::array<device_id, sizeof...(Index)> devices{device_id{device_kind::cpu, Index}...};
};
static_assert(policy<cpu<0>>);
}  // namespace device

/// Most ranks of one stage on a backend; 0 where this library has no such backend.
constexpr int most_ranks_of(device_kind k) { return k == device_kind::cpu ? device::cpu<>::most_ranks : 0; }

}  // namespace tenon::inline v0
