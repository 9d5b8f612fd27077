// Which layers are windowed, and that equal models compare equal however they were described.
// SPDX-License-Identifier: Apache-2.0
#include "support.hpp"

#include <tenon/model/dense.hpp>
#include <tenon/model/llama.hpp>
#include <tenon/model/mistral.hpp>
#include <tenon/model/phi3.hpp>
#include <tenon/model/qwen2.hpp>
#include <tenon/model/qwen3.hpp>

using namespace model_test;

namespace {

constexpr model_config plain = model::mistral({.layers = 4, .hidden = 64, .heads = 8, .kv_heads = 2, .ffn = 96, .vocab = 128});
constexpr model_config local = model::mistral({.layers = 4, .hidden = 64, .heads = 8, .kv_heads = 2, .ffn = 96, .vocab = 128, .window = 8});
constexpr auto every = [](int) { return true; };
constexpr auto none = [](int) { return false; };
constexpr auto odd = [](int layer) { return layer % 2 == 1; };

// One kind when all layers agree, two when they do not, in the order of their first layers.
static_assert(has_windows(plain, {0, 0, 0, 0}) && plain.kind_count == 1);
static_assert(has_windows(local, {8, 8, 8, 8}) && local.kind_count == 1);
static_assert(has_windows(model::with_window(plain, 8, odd), {0, 8, 0, 8}) && model::with_window(plain, 8, odd).kind_count == 2);
static_assert(model::with_window(plain, 8, [](int layer) { return layer == 0; }).kinds[0].attention.window == 8);
static_assert(model::with_window(plain, 8, every) == local && model::with_window(plain, 8, none) == plain);
static_assert(model::with_window(plain, 0, odd) == plain && model::with_window(plain, 0, every) == plain);

// However a model was windowed before, it is windowed anew.
static_assert(model::with_window(local, 0, every) == plain && model::with_window(local, 8, none) == plain);
static_assert(model::with_window(model::with_window(plain, 8, odd), 8, every) == local);
static_assert(model::with_window(model::with_window(plain, 8, odd), 8, none) == plain);

// A list says the same as a predicate, in any order.
static_assert(model::with_window(plain, 8, {1, 3}) == model::with_window(plain, 8, odd));
static_assert(model::with_window(plain, 8, {3, 1, 1}) == model::with_window(plain, 8, odd));
static_assert(model::with_window(plain, 8, {0, 1, 2, 3}) == local && model::with_window(plain, 8, {}) == plain);

// What a shape cannot be is left for validate, which says so.
static_assert(model::with_window({.layers = 1000}, 8, every).kinds[0].attention.window == 8);
static_assert(model::with_window({.layers = -1}, 8, every).kind_count == 1);

// A family is its adapter, its biases and its norms; the rest of a small shape is the same in all.
template <class Shape>
constexpr Shape shape{.layers = 4,
                      .hidden = 64,
                      .heads = 8,
                      .kv_heads = 2,
                      .head_dim = 16,
                      .ffn = 96,
                      .vocab = 128,
                      .max_positions = 512,
                      .rope_theta = 1e6,
                      .rms_epsilon = 1e-5,
                      .tied = true};

constexpr model_config expected(adapter_id family, bool qkv_bias, bool qk_norm) {
    model_config c;
    c.adapter = family;
    c.layers = 4;
    c.hidden = 64;
    c.vocab = 128;
    c.max_positions = 512;
    c.rms_epsilon = 1e-5;
    c.rope.theta = 1e6;
    c.tied = true;
    c.kinds[0] = {{8, 2, 16, qkv_bias, false, qk_norm, 0}, {96, false}};
    return c;
}
static_assert(model::llama(shape<model::llama_shape>) == expected(adapter_id::llama, false, false));
static_assert(model::mistral(shape<model::mistral_shape>) == expected(adapter_id::mistral, false, false));
static_assert(model::qwen2(shape<model::qwen2_shape>) == expected(adapter_id::qwen2, true, false));
static_assert(model::qwen3(shape<model::qwen3_shape>) == expected(adapter_id::qwen3, false, true));
static_assert(model::phi3(shape<model::phi3_shape>) == expected(adapter_id::phi3, false, false));

}  // namespace

TEST_CASE("a windowed layer that the model does not have is refused") {
    for (int const layer : {-1, 4, 256}) {
        CAPTURE(layer);
        try {
            model::with_window(plain, 8, {0, layer});
            FAIL("nothing is refused");
        } catch (tenon::refusal const& r) { CHECK(r.law_name() == "layers_within_model"); }
    }
}
