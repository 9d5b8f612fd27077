// The library's SHA-256 under the tools' name.
// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <tenon/checkpoint/sha256.hpp>

namespace tools {
using tenon::checkpoint::sha256;
}  // namespace tools
