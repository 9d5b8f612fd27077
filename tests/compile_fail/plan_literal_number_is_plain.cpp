// A sign, in a literal that belongs to no model.
// SPDX-License-Identifier: Apache-2.0
// expect: broken_law<tenon::(v0::)?law::plan_number_is_plain, tenon::(v0::)?at_stage<0>, tenon::(v0::)?has<tenon::(v0::)?quantity::character, 0>, tenon::(v0::)?has<tenon::(v0::)?quantity::nothing, 0>, tenon::(v0::)?would_do<> ?>
#include <tenon/graph/graph.hpp>
#include <tenon/model/llama.hpp>

using namespace tenon;

#ifdef REPAIRED
auto const& split = plan::literal<"1@0,1">;
#else
auto const& split = plan::literal<"-1@0,1">;
#endif
