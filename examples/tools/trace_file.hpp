// The routing trace that --trace-routing asks for: every choice of a run, as it is made.
// SPDX-License-Identifier: Apache-2.0
#pragma once
#include "output_file.hpp"
#include "tool_main.hpp"

#include <tenon/checkpoint/routing_trace.hpp>
#include <tenon/core/config.hpp>
#include <tenon/runtime/options.hpp>

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <utility>

namespace tools {

/// How the layers of a model route. Refuses one that routes nothing with `model_routes_experts`, and one whose layers route in different ways
/// with `routing_trace_has_one_shape`.
inline tenon::routing_shape traced_shape(tenon::model_config const& config) {
    std::optional<tenon::routing_shape> shape;
    for (int l = 0; l < config.layers; ++l) {
        tenon::routed_experts const& e = config.layer(l).experts;
        if (!e) continue;
        tenon::routing_shape const own{e.count, e.chosen};
        if (shape && *shape != own)
            refuse("routing_trace_has_one_shape", "layer " + std::to_string(l) + " chooses " + std::to_string(own.chosen) + " of " + std::to_string(own.experts) +
                                                      " experts, the layers before it " + std::to_string(shape->chosen) + " of " + std::to_string(shape->experts) +
                                                      "; no --trace-routing would do");
        shape = own;
    }
    if (!shape) refuse("model_routes_experts", "--trace-routing: no layer of this model routes experts; a mixture of experts, or no --trace-routing, would do");
    return *shape;
}

class trace_file final : public tenon::routing_observer {
public:
    explicit trace_file(std::string path) : file_("--trace-routing", std::move(path)) {}

    /// Writes the first line.
    void begin(tenon::routing_shape shape) { writer_.emplace(file_.begin(), shape); }

    void routed(int layer, std::int64_t sequence, std::int64_t position, std::span<std::int32_t const> experts) override {
        writer_->write({layer, sequence, position, experts});
    }

    void end() {
        writer_->finish();
        file_.end();
    }

private:
    output_file file_;
    std::optional<tenon::routing_trace_writer> writer_{};
};

}  // namespace tools
