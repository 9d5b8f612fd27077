// A model that is loaded by its description instead of a config.json: of pieces that no certified architecture has together.
// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <tenon/device/cpu.hpp>
#include <tenon/graph/plan_value.hpp>
#include <tenon/runtime/language_model.hpp>

#include <memory>
#include <string>
#include <utility>

namespace support {

class described_model : public tenon::language_model {
public:
    using runtime_kind = tenon::runtime_kind;

    static described_model load(tenon::model_config const& config, std::string const& directory, std::string const& plan, runtime_kind runtime = runtime_kind::threads,
                                tenon::load_options const& options = {}) {
        auto graph = std::make_unique<tenon::dynamic_graph>(config, tenon::plan::parse(plan), devices::available, options.weights);
        tenon::checkpoint::folder files(directory);
        auto engine = std::make_unique<tenon::detail::engine>(graph->view(), std::move(files), tenon::checkpoint::block_scaling{}, &devices::open, options, runtime);
        return {std::move(graph), std::move(engine)};
    }

private:
    using devices = tenon::device::backends<tenon::device::cpu>;

    described_model(std::unique_ptr<tenon::dynamic_graph> g, std::unique_ptr<tenon::detail::engine> e)
        : tenon::language_model(std::move(e)), graph_(std::move(g)) {}

    std::unique_ptr<tenon::dynamic_graph> graph_;
};

}  // namespace support
