// Which layers route experts, which are windowed, and that equal models compare equal however they were described.
// SPDX-License-Identifier: Apache-2.0
#include "support.hpp"

#include <tenon/model/kinds.hpp>
#include <tenon/model/llama.hpp>
#include <tenon/model/mixtral.hpp>

using namespace model_test;
using tenon::block_kind;
using tenon::routed_experts;

namespace {

constexpr model_config plain = model::llama({.layers = 6, .hidden = 64, .heads = 8, .kv_heads = 2, .ffn = 96, .vocab = 128});
constexpr routed_experts eight{.count = 8, .chosen = 2, .width = 32}, four{.count = 4, .chosen = 1, .width = 48, .shared_width = 96};
constexpr auto every = [](int) { return true; };
constexpr auto none = [](int) { return false; };

/// Whether the layers have so many experts, in order; a layer without any has its FFN.
constexpr bool has_experts(model_config const& c, std::initializer_list<int> counts) {
    int layer = 0;
    for (int const count : counts) {
        block_kind const& b = c.layer(layer++);
        if (b.experts.count != count || b.ffn.width != (count == 0 ? 96 : 0)) return false;
    }
    return layer == c.layers;
}

// A set is a value: order and repetition mean nothing, and nothing outlives its list.
constexpr model::layer_set odd{5, 1, 3, 1};
static_assert(odd(1) && odd(3) && odd(5) && !odd(0) && !odd(2) && !odd(6) && !odd(-1) && !odd(1000));
static_assert(!model::layer_set{}(0) && model::layer_set{255}(255) && odd.within(6)(5));

// Layers are counted from 1 where they are counted in steps, from 0 where they are listed.
static_assert(model::every_nth{}(0) && model::every_nth{2}(1) && !model::every_nth{2}(0) && model::every_nth{3}(5));
static_assert(!model::every_nth{2, {1}}(1) && model::every_nth{2, {1}}(3));

// Experts take the place of the FFN; the attention stays.
static_assert(has_experts(model::with_experts(plain, eight, every), {8, 8, 8, 8, 8, 8}));
static_assert(has_experts(model::with_experts(plain, eight, odd), {0, 8, 0, 8, 0, 8}));
static_assert(has_experts(model::with_experts(plain, eight, {0, 2}), {8, 0, 8, 0, 0, 0}));
static_assert(has_experts(model::with_experts(plain, eight, model::every_nth{2, {3}}), {0, 8, 0, 0, 0, 8}));
static_assert(model::with_experts(plain, eight, odd).layer(1).experts == eight &&
              model::with_experts(plain, eight, odd).layer(1).attention == plain.kinds[0].attention);
static_assert(model::with_experts(plain, eight, none) == plain);

// Twice is the later, where they meet, and both where they do not.
static_assert(has_experts(model::with_experts(model::with_experts(plain, eight, odd), four, {0, 1}), {4, 4, 0, 8, 0, 8}));
static_assert(model::with_experts(model::with_experts(plain, eight, odd), eight, odd) == model::with_experts(plain, eight, odd));

// Experts and windows compose, in any order, into as many kinds as there are differences.
constexpr model_config windowed_first = model::with_experts(model::with_window(plain, 8, {0, 1, 2}), eight, odd);
static_assert(windowed_first == model::with_window(model::with_experts(plain, eight, odd), 8, {0, 1, 2}));
static_assert(windowed_first.kind_count == 4 && has_experts(windowed_first, {0, 8, 0, 8, 0, 8}) &&
              has_windows(windowed_first, {8, 8, 8, 0, 0, 0}));

// Kinds are numbered as the layers come to them, so equal models are equal.
static_assert(model::with_experts(plain, eight, {0}).kinds[0].experts == eight &&
              model::with_experts(plain, eight, {1}).kinds[1].experts == eight);
static_assert(model::with_experts(plain, eight, {1, 3, 5}) == model::with_experts(model::with_experts(plain, eight, {1}), eight, {3, 5}));
constexpr model_config anew = model::with_kinds(plain, [](block_kind kind, int layer) {
    if (layer % 2 == 1) kind = {.attention = kind.attention, .ffn = {}, .experts = eight};
    return kind;
});
static_assert(anew == model::with_experts(plain, eight, odd));

// A mixtral is a model of experts in every layer, whatever is called so.
static_assert(
    model::with_experts(
        model::mixtral(
            {.layers = 6, .hidden = 64, .heads = 8, .kv_heads = 2, .experts = 4, .experts_per_token = 1, .expert_width = 8, .vocab = 128}),
        eight, every)
        .kind_count == 1);

// What a shape cannot be is left for validate, which says so.
static_assert(model::with_experts({.layers = 1000}, eight, every).kinds[0].experts == eight);
static_assert(model::with_experts({.layers = -1}, eight, every).kind_count == 1);

template <class Act>
std::string law_of(Act act) {
    try {
        act();
    } catch (tenon::refusal const& r) { return std::string(r.law_name()); }
    return "none";
}

}  // namespace

TEST_CASE("a layer that the model does not have is refused, in every way of listing it") {
    CHECK(law_of([] { model::layer_set const s{-1}; }) == "layers_within_model");
    CHECK(law_of([] { model::layer_set const s{0, 256}; }) == "layers_within_model");
    CHECK(law_of([] { odd.within(5); }) == "layers_within_model");
    CHECK(law_of([] { odd.within(6); }) == "none");
    CHECK(law_of([] { model::with_experts(plain, eight, {0, 6}); }) == "layers_within_model");
    CHECK(law_of([] { model::with_window(plain, 8, {6}); }) == "layers_within_model");
}

TEST_CASE("a fifth kind of layer is refused") {
    model_config const four_kinds = model::with_window(model::with_experts(plain, eight, odd), 8, {0, 1});
    CHECK(four_kinds.kind_count == 4);
    CHECK(law_of([&] { model::with_experts(four_kinds, four, {5}); }) == "shape_fits");
    CHECK(law_of([&] { model::with_experts(four_kinds, four, {1}); }) == "none");  // the only layer of its kind
}
