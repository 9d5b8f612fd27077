// The version of these headers.
// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <string_view>

#ifndef TENON_VERSION
#define TENON_VERSION "0.1.0"
#endif

namespace tenon::inline v0 {

inline constexpr std::string_view version = TENON_VERSION;

}  // namespace tenon::inline v0
