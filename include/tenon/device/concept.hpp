// What a stage may ask of a device backend before anything runs: constants. What a backend computes is device/backend.hpp's.
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
class backend;

/// What a backend can do, as a value: of one policy, whichever devices it names.
struct traits {
    device_kind kind = device_kind::cpu;
    int most_ranks = most_ranks_of_a_stage;
    bool canonical = true;
    bool operator==(traits const&) const = default;
};

/// A device policy is a stateless type of constants: which backend, which devices, and what it can do. One that is to run has, besides,
/// `static backend const& instance(std::string_view isa)`: the backend, for the instruction set that the loader was asked for.
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
    static backend const& instance(std::string_view isa);  ///< device/cpu.hpp
};
static_assert(policy<cpu<0>>);

namespace detail {
template <class D>
struct without_devices {
    using type = D;
};
template <template <int...> class Device, int... Index>
struct without_devices<Device<Index...>> {
    using type = Device<>;
};
template <class>
inline constexpr char tag = 0;

/// Whether no two policies have one kind: a kind is all that a plan says of a backend.
template <class... Policies>
constexpr bool one_policy_a_kind() {
    constexpr std::size_t count = sizeof...(Policies);
    std::array<device_kind, count> const kinds{Policies::kind...};
    std::array<char const*, count> const policies{&tag<typename without_devices<Policies>::type>...};
    std::array<std::size_t, 256> first{};  // by kind: 1 + the position of its first policy
    for (std::size_t i = 0; i < count; ++i) {
        std::size_t& seen = first[static_cast<std::size_t>(kinds[i])];
        if (seen == 0) seen = i + 1;
        if (policies[seen - 1] != policies[i]) return false;
    }
    return true;
}
}  // namespace detail

/// Some policies, as the constants that a plan is checked against and the backends that run it.
template <policy... Policies>
struct policies {
    static_assert(detail::one_policy_a_kind<Policies...>(), "two device policies of one kind; a program has one backend of each kind");
    static constexpr std::array<traits, sizeof...(Policies)> available{
        traits{Policies::kind, Policies::most_ranks, Policies::canonical}...};

    /// The backend of that kind, or nullptr. No fold: clang stops one at 256 stages.
    static backend const* open(device_kind kind, std::string_view isa) {
        using opener = backend const& (*)(std::string_view);
        opener const each[]{&Policies::instance...};
        for (std::size_t i = 0; i < available.size(); ++i)
            if (available[i].kind == kind) return &each[i](isa);
        return nullptr;
    }
};

/// The backends that a plan can name, the first being the one of devices without a kind: `device::backends<device::cpu, device::eigen>`.
template <template <int...> class... Device>
using backends = policies<Device<>...>;
}  // namespace device

}  // namespace tenon::inline v0
