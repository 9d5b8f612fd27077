// The backends that a plan can name. What each can do is device/concept.hpp's.
// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace tenon::inline v0 {

/// `bare` is a device without a kind: the loader's. `user` is a backend that a program brings itself.
enum class device_kind : std::uint8_t { bare, cpu, xtensor, eigen, cuda, user, count_ };

inline constexpr std::array<std::string_view, static_cast<std::size_t>(device_kind::count_)> device_names{"",      "cpu",  "xtensor",
                                                                                                          "eigen", "cuda", "user"};
constexpr std::string_view name_of(device_kind k) { return device_names[static_cast<std::size_t>(k)]; }

}  // namespace tenon::inline v0
