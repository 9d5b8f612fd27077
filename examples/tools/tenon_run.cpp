// tenon-run: continues prompts with a checkpoint, under a plan. Its options and its answer are a contract that scripts use.
// SPDX-License-Identifier: Apache-2.0
#include "devices.hpp"
#include "run_options.hpp"
#include "run_report.hpp"

#include <tenon/device/eigen.hpp>
#include <tenon/device/xtensor.hpp>
#include <tenon/tenon.hpp>

#include <string>

namespace {

static_assert(tenon::device::backends<tenon::device::cpu, tenon::device::xtensor, tenon::device::eigen>::available == tools::every_device);

/// Calls `use` with the backends that a plan may name, the chosen one first.
template <class Use>
void with_devices(std::string const& device, Use use) {
    using namespace tenon::device;
    if (device == "xtensor") return use.template operator()<xtensor, cpu, eigen>();
    if (device == "eigen") return use.template operator()<eigen, cpu, xtensor>();
    use.template operator()<cpu, xtensor, eigen>();
}

}  // namespace

int main(int argc, char** argv) {
    return tools::exit_status("Continues prompts with a Hugging Face checkpoint, split over devices as a plan says.", "tenon-run", [&](CLI::App& app) {
        tools::run_options asked(app);
        std::string plan = "all@0", device = "cpu";
        app.add_option("--plan", plan, "how the layers are split: 0-10@0,1;11-21@2")->capture_default_str();
        tools::add_device(app, device);
        app.parse(argc, argv);
        asked.check();
        tenon::plan::value const parts = tenon::plan::parse(plan);
        with_devices(device, [&]<template <int...> class... Device>() {
            tools::run(asked, [&] {
                return asked.with_runtime([&](auto const& runtime) { return tenon::dynamic_causal_lm<Device...>::load(asked.model(), parts, runtime, asked.loading()); });
            });
        });
    });
}
