// A target that reads nothing: whether a compiler has libFuzzer.
// SPDX-License-Identifier: Apache-2.0
#include <cstddef>
#include <cstdint>

extern "C" int LLVMFuzzerTestOneInput(std::uint8_t const*, std::size_t) { return 0; }
