// A space, in a literal.
// SPDX-License-Identifier: Apache-2.0
// expect: broken_law<tenon::(v0::)?law::plan_names_layers, tenon::(v0::)?at_stage<1>, tenon::(v0::)?has<tenon::(v0::)?quantity::character, 6>, tenon::(v0::)?has<tenon::(v0::)?quantity::nothing, 0>, tenon::(v0::)?would_do<> ?>
#include <tenon/graph/graph.hpp>
#include <tenon/model/llama.hpp>

using namespace tenon;

#ifdef REPAIRED
auto const& split = plan::literal<"0-1@0;2-3@1">;
#else
auto const& split = plan::literal<"0-1@0; 2-3@1">;
#endif
