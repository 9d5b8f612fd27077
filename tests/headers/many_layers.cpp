// A graph of 256 stages as types, and its plan as text: clang stops a fold at 256.
// SPDX-License-Identifier: Apache-2.0
#include <tenon/tenon.hpp>

namespace {
using namespace tenon;

constexpr int count = 256;  // the most layers of a model

struct deep {
    static constexpr auto config = model::llama({.layers = count, .hidden = 64, .heads = 4, .kv_heads = 2, .ffn = 128, .vocab = 256});
};

/// One stage a layer, on devices 0 and 1 in turn.
template <class>
struct one_each;
template <int... Layer>
struct one_each<std::integer_sequence<int, Layer...>> : graph<deep, stage<layers<Layer, Layer>, device::cpu<Layer % 2>>...> {};

struct by_types : one_each<std::make_integer_sequence<int, count>> {};
static_assert(by_types::view().stages.size() == count);
static_assert(by_types::cost(weights::f32).ranks() == count);
}  // namespace

int main(int, char** argv) {
    auto by_text = dynamic_causal_lm<>::load(argv[1], plan::parse(by_types::plan()), runtime::sequential{});
    auto typed = causal_lm<by_types>::load(argv[1], runtime::sequential{});
    return by_text.config() == typed.config() ? 0 : 1;
}
