// The runner of one checkpoint and one split, both fixed when it was compiled: tenon-run's options but --plan. Build it with a
// header that tenon-config printed:
//
//   tenon-config DIR/config.json --name my_model --plan '0-10@0,1;11-21@2' > my_model.hpp
//   c++ -std=c++20 -O2 -Iinclude -I. -DTENON_GRAPH_HEADER='"my_model.hpp"' -DTENON_GRAPH=my_model_graph examples/tools/static_run.cpp -pthread
// SPDX-License-Identifier: Apache-2.0
#include "run_options.hpp"
#include "run_report.hpp"

#include TENON_GRAPH_HEADER

#include <tenon/tenon.hpp>

int main(int argc, char** argv) {
    return tools::exit_status("Continues prompts with the checkpoint and the split that this program was compiled for.", "static-run", [&](CLI::App& app) {
        tools::run_options asked(app);
        app.parse(argc, argv);
        asked.check();
        tools::run(asked, [&] {
            return asked.with_runtime([&](auto const& runtime) { return tenon::causal_lm<TENON_GRAPH>::load(asked.model(), runtime, asked.loading()); });
        });
    });
}
