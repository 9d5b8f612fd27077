// A worker program of another version of the library, or of another compiler: handshake_test starts it, and refuses it. For the one
// it is built with TENON_VERSION defined, for the other by a compiler that the tests are not.
// SPDX-License-Identifier: Apache-2.0
#include <tenon/device/cpu.hpp>
#include <tenon/runtime/processes.hpp>

int main() { return tenon::detail::worker_hook<tenon::device::backends<tenon::device::cpu>>::taken ? 1 : 2; }
