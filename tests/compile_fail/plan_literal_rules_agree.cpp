// Two rules for the same experts, in a literal.
// SPDX-License-Identifier: Apache-2.0
// expect: broken_law<tenon::(v0::)?law::plan_rules_agree, tenon::(v0::)?at_stage<0>, tenon::(v0::)?has<tenon::(v0::)?quantity::character, 15>, tenon::(v0::)?has<tenon::(v0::)?quantity::nothing, 0>, tenon::(v0::)?would_do<> ?>
#include <tenon/graph/graph.hpp>
#include <tenon/model/llama.hpp>

using namespace tenon;

#ifdef REPAIRED
auto const& split = plan::literal<"0-3@0,1:expert">;
#else
auto const& split = plan::literal<"0-3@0,1:expert+expert_width.reduce">;
#endif
