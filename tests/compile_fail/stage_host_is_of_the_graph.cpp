// A host for a stage that the graph does not have.
// SPDX-License-Identifier: Apache-2.0
// expect: stage_host<Graph, I>: the graph's stages are numbered from 0
#include <tenon/model/llama.hpp>
#include <tenon/stage_host.hpp>

using namespace tenon;

struct tiny { static constexpr auto config = model::llama({.layers = 4, .hidden = 64, .heads = 4, .kv_heads = 2, .ffn = 96, .vocab = 101}); };
struct split : graph<tiny, stage<layers<0, 1>>, stage<layers<2, 3>, device::cpu<1>>> {};

#ifdef REPAIRED
using tail = stage_host<split, 1>;
#else
using tail = stage_host<split, 2>;
#endif
constexpr auto size = sizeof(tail);
