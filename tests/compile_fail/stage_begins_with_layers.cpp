// A stage whose layers are missing.
// SPDX-License-Identifier: Apache-2.0
// expect: a stage begins with its layers: stage<layers<First, Last>, \.\.\.>
#include <tenon/graph/graph.hpp>
#include <tenon/model/llama.hpp>

using namespace tenon;

#ifdef REPAIRED
using whole = stage<layers<0, 3>, device::cpu<0>>;
#else
using whole = stage<device::cpu<0>>;
#endif
static_assert(sizeof(whole) == 1);
