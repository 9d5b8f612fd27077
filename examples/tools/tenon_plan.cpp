// tenon-plan: checks a plan against a model and prints who owns what and what it costs. Reads no weight: of a checkpoint, the headers.
// SPDX-License-Identifier: Apache-2.0
#include "devices.hpp"
#include "placement_option.hpp"
#include "tool_main.hpp"

#include <tenon/checkpoint/config_json.hpp>
#include <tenon/checkpoint/folder.hpp>
#include <tenon/graph/describe.hpp>
#include <tenon/graph/placed.hpp>
#include <tenon/graph/plan_value.hpp>
#include <tenon/runtime/profile.hpp>

#include <iostream>
#include <string>
#include <string_view>
#include <vector>

namespace {

/// What a checkpoint keeps its embedding in, and with it what is held as it is stored.
tenon::dtype stored_in(std::string const& folder) {
    tenon::checkpoint::folder const files(folder);
    tenon::checkpoint::tensor_view const* const table = files.find("model.embed_tokens.weight");
    if (table == nullptr) tools::refuse("checkpoint_tensors_are_present", folder + ": there is no tensor model.embed_tokens.weight");
    return table->type;
}

/// What a config says that its checkpoint is stored in: F32 where it says nothing that this library loads.
tenon::dtype stored_by(std::string_view text, std::string const& path) {
    namespace json = tenon::checkpoint::json;
    json::value const root = json::parse(text, path);
    json::value const* const nested = root.find("text_config");
    for (json::value const* const object : {nested, &root})
        for (std::string_view const key : {"dtype", "torch_dtype"})
            if (json::value const* const said = object == nullptr ? nullptr : object->find(key); said != nullptr && said->is(json::kind::string))
                return said->text == "bfloat16" ? tenon::dtype::bf16 : said->text == "float16" ? tenon::dtype::f16 : tenon::dtype::f32;
    return tenon::dtype::f32;
}

/// What a load refuses of a profile, as far as a plan tells: `cpu` alone of the tools' backends computes another than the default.
void require_computes(tenon::graph_view graph, tenon::numeric_profile const& profile, tenon::weights held, tenon::dtype stored) {
    tenon::detail::require_profile(
        graph, profile, held, [&](int stage) { return graph.stages[static_cast<std::size_t>(stage)].devices[0].kind == tenon::device_kind::cpu; },
        [&](tenon::tensor const&, int, int) { return stored; },
        [](tenon::tensor const& t, int layer, int) { return std::string(tenon::name_of(t.what)) + " of layer " + std::to_string(layer); });
}

/// What a load refuses of a format of keys and values.
void require_reads(tenon::graph_view graph, tenon::kv_format kept) {
    for (tenon::stage_traits const& s : graph.stages)
        if (tenon::device_kind const on = s.devices[0].kind; !tools::reads(on, kept))
            tools::refuse("device_reads_kv_format", std::string(tenon::name_of(on)) + " does not read keys and values in " + std::string(tenon::name_of(kept)) + "; f32 would do");
}

}  // namespace

int main(int argc, char** argv) {
    return tools::exit_status("Checks a plan against a model; prints ownership and cost. Reads no weight.", "tenon-plan", [&](CLI::App& app) {
        std::string model, config, plan, device = "cpu", weights = "stored", profile = std::string(tenon::numeric::canonical_1.name), kv = "f32", format = "text";
        auto* const source = app.add_option_group("source", "what is split");
        source->add_option("--model", model, "Hugging Face directory")->type_name("DIR");
        source->add_option("--config", config, "a config.json alone")->type_name("FILE");
        source->require_option(1);
        app.add_option("--plan", plan, "how the layers are split: 0-10@0,1;11-21@2")->required();
        tools::add_device(app, device);
        tools::placement_option placement(app);
        app.add_option("--weights", weights, "format in which the ranks hold their matrices")
            ->check(CLI::IsMember(std::vector<std::string>{"stored", "f32", "bf16", "q8"}))->capture_default_str();
        app.add_option("--profile", profile, "numeric profile: the arithmetic of the products")->type_name("NAME")->capture_default_str();
        app.add_option("--kv", kv, "format in which the ranks keep keys and values")
            ->check(CLI::IsMember(std::vector<std::string>{"f32", "bf16"}))->capture_default_str();
        app.add_option("--format", format, "of what is printed")->check(CLI::IsMember(std::vector<std::string>{"text", "json", "dot"}))->capture_default_str();
        app.parse(argc, argv);

        tenon::kv_format const kept = tools::kv_named(kv);
        tenon::numeric_profile const& arithmetic = tenon::numeric::named(profile);
        tenon::weights const held = tenon::detail::format_under(arithmetic, tools::weights_named(weights));
        tenon::plan::value const parts = tenon::plan::parse(plan);
        placement.read();
        std::string const path = source->count("--config") > 0 ? config : model + "/config.json";
        tenon::checkpoint::mapped_file const file(path);
        tenon::dynamic_graph const graph(tenon::checkpoint::read_config(file.text(), path), parts, tools::devices_from(device), held);
        require_reads(graph.view(), kept);
        tenon::require_format(graph.view(), held);
        tenon::dtype const stored = source->count("--config") > 0 ? stored_by(file.text(), path) : stored_in(model);
        tenon::placed_graph const placed = tenon::place_experts(graph.view(), placement.map());
        tenon::cost_view const cost(placed.view(), held, stored);
        require_computes(placed.view(), arithmetic, held, stored);
        if (format == "json") std::cout << to_json(placed.view(), cost, arithmetic, kept) << '\n';
        else std::cout << (format == "dot" ? to_dot(placed.view(), cost) : to_text(placed.view(), cost, arithmetic, kept));
    });
}
