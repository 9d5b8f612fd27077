// What graphs cost, by hand.
// SPDX-License-Identifier: Apache-2.0
#include <doctest/doctest.h>
#include <tenon/graph/graph.hpp>
#include <tenon/graph/plan_value.hpp>
#include <tenon/model/llama.hpp>

using namespace tenon;

namespace {
// H 64, D 16, Q 4 heads = 64, K 2 heads = 32, F 96, V 101, L 4.
struct small {
    static constexpr auto config = model::llama({.layers = 4, .hidden = 64, .heads = 4, .kv_heads = 2, .ffn = 96, .vocab = 101});
};
constexpr std::int64_t attention = 64 * 64 + 2 * 32 * 64 + 64 * 64, ffn = 3 * 96 * 64, norms = 2 * 64, table = 101 * 64;

struct plain : graph<small, stage<layers<0, 3>>> {};
constexpr auto plain_f32 = plain::cost(weights::f32);
static_assert(plain_f32.ranks() == 1 && plain_f32.device_of(rank_index{0}) == device_id{device_kind::cpu, 0});
static_assert(plain_f32.weight_bytes(rank_index{0}) == 4 * (4 * (attention + ffn + norms) + 2 * table + 64));
static_assert(plain_f32.kv_bytes_per_position(rank_index{0}) == 4 * 2 * 32 * 4);
static_assert(plain_f32.kv_bytes(rank_index{0}, 1) == 64 * 1024 && plain_f32.kv_bytes(rank_index{0}, 64) == 64 * 1024 && plain_f32.kv_bytes(rank_index{0}, 65) == 128 * 1024);
static_assert(plain_f32.flops_per_token(rank_index{0}) == 2 * (4 * (attention + ffn) + table) + 4 * 4 * 64);
static_assert(plain_f32.flops_per_token(rank_index{0}, 10) == 2 * (4 * (attention + ffn) + table) + 4 * 4 * 64 * 10);
static_assert(plain_f32.join_bytes_per_token(0) == 0 && plain_f32.joins(0) == 0 && plain_f32.join_messages_per_token(0) == 0);

// The named format reaches matrices; a table that is looked up and vectors stay as the checkpoint has them, vectors float32.
static_assert(plain::cost(weights::bf16).weight_bytes(rank_index{0}) == 2 * (4 * (attention + ffn) + table) + 4 * (4 * norms + 64 + table));
static_assert(plain::cost(weights::stored, dtype::bf16).weight_bytes(rank_index{0}) == 2 * (4 * (attention + ffn) + 2 * table) + 4 * (4 * norms + 64));
static_assert(plain::cost(weights::f32, dtype::bf16).weight_bytes(rank_index{0}) == 4 * (4 * (attention + ffn) + table) + 2 * table + 4 * (4 * norms + 64));
static_assert(plain::cost(weights::stored, dtype::f16).weight_bytes(rank_index{0}) == plain_f32.weight_bytes(rank_index{0}));

// Two ranks: halves of heads and widths; 51 and 50 rows of the vocabulary; norms on both.
struct halves : graph<small, stage<layers<0, 3>, device::cpu<0, 1>, shard::tensor<>>> {};
constexpr auto halves_f32 = halves::cost(weights::f32);
static_assert(halves_f32.weight_bytes(rank_index{0}) == 4 * (4 * ((attention + ffn) / 2 + norms) + 2 * 51 * 64 + 64));
static_assert(halves_f32.weight_bytes(rank_index{1}) == 4 * (4 * ((attention + ffn) / 2 + norms) + 2 * 50 * 64 + 64));
static_assert(halves_f32.kv_bytes_per_position(rank_index{1}) == 4 * 2 * 16 * 4);
static_assert(halves_f32.flops_per_token(rank_index{1}) == 2 * (4 * (attention + ffn) / 2 + 50 * 64) + 4 * 4 * 32);
// A layer gathers the attention's output, o's, the FFN's and down's; the stage gathers once each for embedding and head (the root's 50 peers' logits).
static_assert(halves_f32.joins(0) == 4 * 4 + 2);
static_assert(halves_f32.join_messages_per_token(0) == 4 * 4 * 2 + 2);
static_assert(halves_f32.join_bytes_per_token(0) == 4 * (4 * (64 + 64 + 96 + 64) + 64 + 50));

// Four ranks over two KV heads: each head on two ranks, and the cost shows it.
struct repeated : graph<small, stage<layers<0, 3>, device::cpu<0, 1, 2, 3>>> {};
constexpr auto repeated_f32 = repeated::cost(weights::f32);
static_assert(repeated_f32.kv_bytes_per_position(rank_index{3}) == 4 * 2 * 16 * 4);
static_assert(4 * repeated_f32.kv_bytes_per_position(rank_index{0}) == 2 * plain_f32.kv_bytes_per_position(rank_index{0}));
static_assert(repeated_f32.weight_bytes(rank_index{0}) == 4 * (4 * (16 * 64 + 2 * 16 * 64 + 16 * 64 + ffn / 4 + norms) + 2 * 26 * 64 + 64));
static_assert(repeated_f32.weight_bytes(rank_index{2}) == 4 * (4 * (16 * 64 + 2 * 16 * 64 + 16 * 64 + ffn / 4 + norms) + 2 * 25 * 64 + 64));

// Row-parallel o and down hold columns instead of rows: the same bytes, half the joins, two sums over all ranks a layer.
struct wider {
    static constexpr auto config = model::llama({.layers = 4, .hidden = 64, .heads = 4, .kv_heads = 2, .ffn = 256, .vocab = 101});
};
struct gathered : graph<wider, stage<layers<0, 3>, device::cpu<0, 1, 2, 3>, shard::tensor<join::gather>>> {};
struct reduced : graph<wider, stage<layers<0, 3>, device::cpu<0, 1, 2, 3>, shard::tensor<join::reduce>>> {};
static_assert(reduced::cost(weights::f32).weight_bytes(rank_index{1}) == gathered::cost(weights::f32).weight_bytes(rank_index{1}));
static_assert(reduced::cost(weights::f32).flops_per_token(rank_index{1}) == gathered::cost(weights::f32).flops_per_token(rank_index{1}));
static_assert(reduced::cost(weights::f32).joins(0) == 4 * 2 + 2 && gathered::cost(weights::f32).joins(0) == 4 * 4 + 2);
static_assert(reduced::cost(weights::f32).join_messages_per_token(0) == 4 * 2 * (2 * 4 * 3) + 2 * 3);
static_assert(reduced::cost(weights::f32).join_bytes_per_token(0) == 4 * (4 * 2 * (2 * 3 * 64) + 3 * 64 + 75));

// Tied: one table on a stage that is head and tail; two when another stage has the head. It stays as it is stored.
struct tied {
    static constexpr auto config = model::llama({.layers = 4, .hidden = 64, .heads = 4, .kv_heads = 2, .ffn = 96, .vocab = 101, .tied = true});
};
struct tied_whole : graph<tied, stage<layers<0, 3>>> {};
struct tied_apart : graph<tied, stage<layers<0, 1>>, stage<layers<2, 3>, device::cpu<1>>> {};
static_assert(plain_f32.weight_bytes(rank_index{0}) - tied_whole::cost(weights::f32).weight_bytes(rank_index{0}) == 4 * table);
static_assert(tied_apart::cost(weights::f32).weight_bytes(rank_index{1}) == 4 * (2 * (attention + ffn + norms) + table + 64));
static_assert(tied_apart::cost(weights::bf16).weight_bytes(rank_index{1}) == 2 * 2 * (attention + ffn) + 4 * (2 * norms + table + 64));
static_assert(tied_whole::cost(weights::f32).flops_per_token(rank_index{0}) == plain_f32.flops_per_token(rank_index{0}));

// A device that serves two stages bears both, and a seam moves one residual to every rank of the next stage.
struct twice : planned<small, "0@0;1-2@1,0:tensor;3@0"> {};
constexpr auto twice_f32 = twice::cost(weights::f32);
static_assert(twice_f32.ranks() == 4 && twice_f32.device_of(rank_index{1}).index == 1);
static_assert(twice_f32.weight_bytes(device_index{0}) == twice_f32.weight_bytes(rank_index{0}) + twice_f32.weight_bytes(rank_index{2}) + twice_f32.weight_bytes(rank_index{3}));
static_assert(twice_f32.kv_bytes(device_index{0}, 100) == 128 * (2 * 4 * 2 * 32 + 2 * 4 * 2 * 16));
static_assert(twice_f32.weight_bytes(device_index{7}) == 0);
static_assert(twice_f32.seam_messages_per_token(0) == 2 && twice_f32.seam_bytes_per_token(0) == 2 * 4 * 64 && twice_f32.seam_bytes_per_token(1) == 4 * 64);

// Biases count where they are cut, in float32 whatever the format.
struct biased {
    static constexpr auto config =
        model::llama({.layers = 4, .hidden = 64, .heads = 4, .kv_heads = 2, .ffn = 96, .vocab = 101, .attention_bias = true, .mlp_bias = true});
};
struct biased_halves : graph<biased, stage<layers<0, 3>, device::cpu<0, 1>>> {};
static_assert(biased_halves::cost(weights::bf16).weight_bytes(rank_index{1}) - halves::cost(weights::bf16).weight_bytes(rank_index{1}) ==
              4 * 4 * (32 + 16 + 16 + 32 + 48 + 48 + 32));

// The widest activations: residual and normed, then q, attention, k, v, gate and up, or the logits.
static_assert(plain_f32.activation_bytes_per_token(rank_index{0}) == 4 * (2 * 64 + 2 * 64 + 2 * 32 + 2 * 96));

// The largest extents that the law allows stay inside 64 bits.
struct enormous {
    static constexpr auto config = model::llama({.layers = 256, .hidden = largest_extent, .heads = largest_extent / 64, .head_dim = 64, .ffn = largest_extent,
                                                 .vocab = largest_extent, .max_positions = largest_extent});
};
struct enormous_whole : graph<enormous, stage<layers<0, 255>>> {};
static_assert(enormous_whole::cost(weights::f32).weight_bytes(device_index{0}) > 4LL * 256 * 7 * largest_extent * largest_extent);
static_assert(enormous_whole::cost(weights::f32).flops_per_token(device_index{0}, largest_extent) > 0);
static_assert(enormous_whole::cost(weights::f32).kv_bytes(device_index{0}, largest_extent) == 256LL * 2 * 4 * largest_extent * largest_extent);
}  // namespace

TEST_CASE("a graph made at run time costs what the type costs") {
    dynamic_graph const g(small::config, plan::parse("0@0;1-2@1,0;3@0"));
    cost_view const cost = g.cost(weights::f32);
    REQUIRE(cost.ranks() == 4);
    for (int r = 0; r < 4; ++r) {
        CHECK(cost.weight_bytes(rank_index{r}) == twice_f32.weight_bytes(rank_index{r}));
        CHECK(cost.flops_per_token(rank_index{r}, 9) == twice_f32.flops_per_token(rank_index{r}, 9));
        CHECK(cost.kv_bytes(rank_index{r}, 9) == twice_f32.kv_bytes(rank_index{r}, 9));
    }
    for (int s = 0; s < 3; ++s) CHECK(cost.join_bytes_per_token(s) == twice_f32.join_bytes_per_token(s));
}

TEST_CASE("ranks of a stage hold every matrix exactly once between them, whatever the count") {
    for (int ranks : {1, 2, 4}) {
        for (char const* join : {"gather", "reduce"}) {
            std::string text = "0-3@0";
            for (int r = 1; r < ranks; ++r) text += "," + std::to_string(r);
            dynamic_graph const g(wider::config, plan::parse(text + ":tensor." + join));
            for (tensor const& t : g.ir().tensors) {
                if (!t.is_matrix() || t.what == role::k || t.what == role::v) continue;
                std::int64_t sum = 0;
                for (int r = 0; r < ranks; ++r) sum += std::int64_t{t.rows_of(r).size()} * t.columns_of(r).size();
                CHECK(sum == std::int64_t{t.rows} * t.columns);
            }
        }
    }
}
