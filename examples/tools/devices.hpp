// The backends that the tools have, and the loader of each.
// SPDX-License-Identifier: Apache-2.0
#pragma once
#include "tool_main.hpp"

#include <tenon/device/cpu.hpp>
#include <tenon/device/eigen.hpp>
#include <tenon/device/xtensor.hpp>

#include <CLI/CLI.hpp>

#include <string>
#include <vector>

namespace tools {

/// Adds --device: the backend of every device that a plan leaves bare. The others may be named in it.
inline void add_device(CLI::App& app, std::string& device) {
    app.add_option("--device", device, "backend of every device that the plan leaves bare")
        ->check(CLI::IsMember(std::vector<std::string>{"cpu", "xtensor", "eigen"}))->capture_default_str();
}

/// Calls `use` with the backends that a plan may name, the chosen one first.
template <class Use>
void with_devices(std::string const& device, Use use) {
    using namespace tenon::device;
    if (device == "xtensor") return use.template operator()<xtensor, cpu, eigen>();
    if (device == "eigen") return use.template operator()<eigen, cpu, xtensor>();
    use.template operator()<cpu, xtensor, eigen>();
}

}  // namespace tools
