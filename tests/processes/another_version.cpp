// A worker program of another version of the library: handshake_test starts it, and refuses it. Built with TENON_VERSION defined.
// SPDX-License-Identifier: Apache-2.0
#include <tenon/device/cpu.hpp>
#include <tenon/runtime/processes.hpp>

int main() { return tenon::detail::worker_hook<tenon::device::backends<tenon::device::cpu>>::taken ? 1 : 2; }
