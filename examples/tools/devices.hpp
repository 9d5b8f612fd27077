// The backends that a plan may name in every tool, as constants: a tool that runs nothing includes none of their libraries.
// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <tenon/core/dtype.hpp>
#include <tenon/device/concept.hpp>

#include <CLI/CLI.hpp>

#include <array>
#include <string>
#include <utility>
#include <vector>

namespace tools {

/// tenon_run.cpp checks that the backends say the same of themselves.
inline constexpr std::array<tenon::device::traits, 3> every_device{{{tenon::device_kind::cpu, tenon::most_ranks_of_a_stage, true},
                                                                    {tenon::device_kind::xtensor, tenon::most_ranks_of_a_stage, true},
                                                                    {tenon::device_kind::eigen, tenon::most_ranks_of_a_stage, false}}};

/// Whether a backend of these attends to keys and values in a format.
inline bool reads(tenon::device_kind kind, tenon::kv_format format) { return format == tenon::kv_format::f32 || kind != tenon::device_kind::eigen; }

/// Adds --device: the backend of every device that a plan leaves bare. The others may be named in it.
inline void add_device(CLI::App& app, std::string& device) {
    app.add_option("--device", device, "backend of every device that the plan leaves bare")
        ->check(CLI::IsMember(std::vector<std::string>{"cpu", "xtensor", "eigen"}))->capture_default_str();
}

/// All of them, the chosen one first.
inline std::array<tenon::device::traits, 3> devices_from(std::string const& device) {
    std::array<tenon::device::traits, 3> list = every_device;
    for (tenon::device::traits& t : list)
        if (name_of(t.kind) == device) std::swap(list[0], t);
    return list;
}

}  // namespace tools
