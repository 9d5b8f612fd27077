// What graphs cost, by hand.
// SPDX-License-Identifier: Apache-2.0
#include <doctest/doctest.h>
#include <tenon/graph/graph.hpp>
#include <tenon/graph/placed.hpp>
#include <tenon/graph/plan_value.hpp>
#include <tenon/model/kinds.hpp>
#include <tenon/model/llama.hpp>
#include <tenon/model/mixtral.hpp>
#include <algorithm>
#include <array>
#include <string>
#include <string_view>
#include <vector>

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

// They are those of one layer: the wide FFN of one kind and the wide attention of another never meet.
struct two_kinds {
    static constexpr auto config = model::with_kinds(small::config, [](block_kind const&, int layer) {
        return layer < 3 ? block_kind{.attention = {.heads = 4, .kv_heads = 2, .head_dim = 16}, .ffn = {.width = 300}}
                         : block_kind{.attention = {.heads = 16, .kv_heads = 16, .head_dim = 16}, .ffn = {.width = 16}};
    });
};
struct two_kinds_whole : graph<two_kinds, stage<layers<0, 3>>> {};
static_assert(two_kinds_whole::cost(weights::f32).activation_bytes_per_token(rank_index{0}) == 4 * (2 * 64 + 2 * 256 + 2 * 256 + 2 * 16));

// The largest extents that the law allows stay inside 64 bits.
struct enormous {
    static constexpr auto config = model::llama({.layers = 256, .hidden = largest_extent, .heads = largest_extent / 64, .head_dim = 64, .ffn = largest_extent,
                                                 .vocab = largest_extent, .max_positions = largest_extent});
};
struct enormous_whole : graph<enormous, stage<layers<0, 255>>> {};
static_assert(enormous_whole::cost(weights::f32).weight_bytes(device_index{0}) > 4LL * 256 * 7 * largest_extent * largest_extent);
static_assert(enormous_whole::cost(weights::f32).flops_per_token(device_index{0}, largest_extent) > 0);
static_assert(enormous_whole::cost(weights::f32).kv_bytes(device_index{0}, largest_extent) == 256LL * 2 * 4 * largest_extent * largest_extent);

// All the experts of a layer count as one extent: neither their bytes nor what a token does in them leaves 64 bits.
struct enormous_experts {
    static constexpr auto config = model::with_experts(
        enormous::config, {.count = most_experts, .chosen = most_experts, .width = largest_extent / most_experts, .shared_width = largest_extent}, [](int) { return true; });
};
struct enormous_experts_whole : graph<enormous_experts, stage<layers<0, 255>>> {};
static_assert(enormous_experts_whole::cost(weights::f32).weight_bytes(device_index{0}) > 4LL * 256 * 10 * largest_extent * largest_extent);
static_assert(enormous_experts_whole::cost(weights::f32).flops_per_token(device_index{0}) > 2LL * 256 * 10 * largest_extent * largest_extent);

// Experts: E 8 of which k 2 are chosen, J 128, and a shared one of width 64, in all four layers. The router is a matrix of (E, H).
struct routed {
    static constexpr auto config = model::with_experts(small::config, {.count = 8, .chosen = 2, .width = 128, .shared_width = 64}, {0, 1, 2, 3});
};
constexpr std::int64_t expert = 3 * 128 * 64, shared = 3 * 64 * 64, router = 8 * 64;
/// A token is in two experts of eight, so a rank that holds n of them does n / 4 of an expert's work for it.
constexpr std::int64_t chosen_part(std::int64_t experts) { return 2 * experts * expert * 2 / 8; }

template <class Shard, int... Device>
struct routed_over : graph<routed, stage<layers<0, 3>, device::cpu<Device...>, Shard>> {};
template <class Shard, int... Device>
constexpr auto routed_cost = routed_over<Shard, Device...>::cost(weights::f32);

constexpr auto on_one = routed_cost<shard::none, 0>;
static_assert(on_one.weight_bytes(rank_index{0}) == 4 * (4 * (attention + router + shared + 8 * expert + norms) + 2 * table + 64));
static_assert(on_one.flops_per_token(rank_index{0}) == 2 * (4 * (attention + router + shared) + table) + 4 * chosen_part(8) + 4 * 4 * 64);
static_assert(on_one.activation_bytes_per_token(rank_index{0}) == 4 * (2 * 64 + 2 * 64 + 2 * 32 + 2 * 128) && on_one.joins(0) == 0);
// Experts take the format that is asked for. The router is widened with them, and never narrowed.
static_assert(routed_over<shard::none, 0>::cost(weights::bf16).weight_bytes(rank_index{0}) == 2 * (4 * (attention + shared + 8 * expert) + table) + 4 * (4 * (norms + router) + 64 + table));
static_assert(routed_over<shard::none, 0>::cost(weights::f32, dtype::bf16).weight_bytes(rank_index{0}) ==
              4 * (4 * (attention + router + shared + 8 * expert) + table) + 2 * table + 4 * (4 * norms + 64));
static_assert(routed_over<shard::none, 0>::cost(weights::stored, dtype::bf16).weight_bytes(rank_index{0}) ==
              2 * (4 * (attention + router + shared + 8 * expert) + 2 * table) + 4 * (4 * norms + 64));

// Whole experts on three ranks: 3, 3 and 2 of them; all else on the root, which sends two rows out and takes two back.
constexpr auto by_expert = routed_cost<shard::expert<>, 0, 1, 2>;
static_assert(by_expert.weight_bytes(rank_index{0}) == 4 * (4 * (attention + router + shared + 3 * expert + norms) + 2 * table + 64));
static_assert(by_expert.weight_bytes(rank_index{1}) == 4 * 4 * 3 * expert && by_expert.weight_bytes(rank_index{2}) == 4 * 4 * 2 * expert);
static_assert(by_expert.flops_per_token(rank_index{2}) == 4 * chosen_part(2) && by_expert.kv_bytes_per_position(rank_index{1}) == 0);
static_assert(by_expert.kv_bytes_per_position(rank_index{0}) == plain_f32.kv_bytes_per_position(rank_index{0}));
static_assert(by_expert.activation_bytes_per_token(rank_index{1}) == 4 * (2 * 64 + 2 * 128));
static_assert(by_expert.joins(0) == 4 * 2 && by_expert.join_messages_per_token(0) == 4 * (2 + 2) && by_expert.join_bytes_per_token(0) == 4 * 4 * (2 * 64 + 2 * 64));
static_assert(routed_cost<shard::expert<>, 0, 1>.join_messages_per_token(0) == 4 * (1 + 2));  // one peer gets both rows in one message
static_assert(routed_cost<shard::expert<placement::exact>, 0, 1, 2, 3>.weight_bytes(rank_index{3}) == 4 * 4 * 2 * expert);

// As a table says: 5, 2 and 1. As a map will say: at most all but one for each peer.
constexpr auto by_table = routed_cost<shard::expert<placement::table<0, 1, 0, 0, 1, 0, 2, 0>>, 0, 1, 2>;
static_assert(by_table.weight_bytes(rank_index{0}) == 4 * (4 * (attention + router + shared + 5 * expert + norms) + 2 * table + 64));
static_assert(by_table.weight_bytes(rank_index{1}) == 4 * 4 * 2 * expert && by_table.weight_bytes(rank_index{2}) == 4 * 4 * expert);
static_assert(by_table.flops_per_token(rank_index{2}) == 4 * chosen_part(1) && by_table.join_bytes_per_token(0) == by_expert.join_bytes_per_token(0));
constexpr auto by_map = routed_cost<shard::expert<placement::at_load>, 0, 1, 2>;
static_assert(by_map.weight_bytes(rank_index{0}) == 4 * (4 * (attention + router + shared + 6 * expert + norms) + 2 * table + 64));
static_assert(by_map.weight_bytes(rank_index{1}) == 4 * 4 * 6 * expert && by_map.weight_bytes(rank_index{2}) == 4 * 4 * 6 * expert);
static_assert(by_map.flops_per_token(rank_index{1}) == 4 * chosen_part(6) && by_map.join_bytes_per_token(0) == by_expert.join_bytes_per_token(0));

// Every expert's width on three ranks: 43, 43 and 42 rows of gate and up, then 22, 21 and 21 of down, of which the root has its own.
constexpr auto by_width = routed_cost<shard::expert_width<>, 0, 1, 2>;
static_assert(by_width.weight_bytes(rank_index{0}) == 4 * (4 * (attention + router + shared + 8 * (2 * 43 * 64 + 22 * 128) + norms) + 2 * table + 64));
static_assert(by_width.weight_bytes(rank_index{2}) == 4 * 4 * 8 * (2 * 42 * 64 + 21 * 128));
static_assert(by_width.flops_per_token(rank_index{2}) == 4 * 2 * 2 * (2 * 42 * 64 + 21 * 128));
static_assert(by_width.joins(0) == 4 * 3 && by_width.join_messages_per_token(0) == 4 * (2 + 6 + 2));
static_assert(by_width.join_bytes_per_token(0) == 4 * 4 * (2 * 64 + 2 * 2 * 128 + 2 * (64 - 22)));
// By partial sums: columns of down, and both chosen experts' sums to the root.
constexpr auto by_sums = routed_cost<shard::expert_width<join::reduce>, 0, 1>;
static_assert(by_sums.weight_bytes(rank_index{1}) == 4 * 4 * 8 * expert / 2);
static_assert(by_sums.joins(0) == 4 * 2 && by_sums.join_messages_per_token(0) == 4 * (1 + 1) && by_sums.join_bytes_per_token(0) == 4 * 4 * (64 + 2 * 64));

// With `tensor` the router and norms are on both ranks, the shared expert is halved, and no rows are handed out.
constexpr std::int64_t in_both = 4 * (4 * ((attention + shared) / 2 + router + norms) + 2 * 50 * 64 + 64);  // of rank 1
constexpr auto by_both = routed_cost<shard::both<shard::tensor<>, shard::expert<>>, 0, 1>;
static_assert(by_both.weight_bytes(rank_index{1}) == in_both + 4 * 4 * 4 * expert);
static_assert(by_both.flops_per_token(rank_index{1}) == 2 * (4 * ((attention + shared) / 2 + router) + 50 * 64) + 4 * chosen_part(4) + 4 * 4 * 32);
static_assert(by_both.joins(0) == 4 * 5 + 2 && by_both.join_messages_per_token(0) == 4 * 5 * 2 + 2);
static_assert(by_both.join_bytes_per_token(0) == 4 * (4 * (64 + 64 + 2 * 32 + 64 + 64) + 64 + 50));
static_assert(routed_cost<shard::by_default, 0, 1>.join_bytes_per_token(0) == by_both.join_bytes_per_token(0));
static_assert(routed_cost<shard::by_default, 0, 1>.weight_bytes(rank_index{1}) == by_both.weight_bytes(rank_index{1}));
// `tensor` alone leaves the experts on the root.
constexpr auto by_heads = routed_cost<shard::tensor<>, 0, 1>;
static_assert(by_heads.weight_bytes(rank_index{1}) == in_both && by_heads.weight_bytes(rank_index{0}) == in_both + 4 * (4 * 8 * expert + 2 * 64));
// One column of 65 is the root's alone: it stays where the experts are, and what an owner that a router decides keeps is not counted on.
struct uneven { static constexpr auto config = model::mixtral({.layers = 1, .hidden = 65, .heads = 4, .kv_heads = 2, .head_dim = 16, .experts = 8, .experts_per_token = 2, .expert_width = 128, .vocab = 100}); };
struct uneven_heads : graph<uneven, stage<layers<0, 0>, device::cpu<0, 1>, shard::tensor<>>> {};
struct uneven_both : graph<uneven, stage<layers<0, 0>, device::cpu<0, 1>>> {};
constexpr std::int64_t around_experts = 65 + (64 + 65) + 65 + 50;  // look-up, attention output, the pieces of the FFN, logits
static_assert(uneven_heads::cost(weights::f32).join_bytes_per_token(0) == 4 * (around_experts + 2 * 32));
static_assert(uneven_both::cost(weights::f32).join_bytes_per_token(0) == 4 * (around_experts + 2 * 33));
// With both widths: the FFN's join is one more gather, or one sum to both ranks.
constexpr auto both_widths = routed_cost<shard::both<shard::tensor<>, shard::expert_width<>>, 0, 1>;
static_assert(both_widths.weight_bytes(rank_index{1}) == in_both + 4 * 4 * 8 * expert / 2);
static_assert(both_widths.join_bytes_per_token(0) == 4 * (4 * (64 + 64 + 2 * 128 + 64 + 64) + 64 + 50));
static_assert(routed_cost<shard::both<shard::tensor<>, shard::expert_width<join::reduce>>, 0, 1>.join_bytes_per_token(0) == 4 * (4 * (64 + 64 + 2 * 64 + 64 + 64) + 64 + 50));

// Only the root of a stage without `tensor` reads what crosses the seam before it.
struct after_a_seam : graph<routed, stage<layers<0, 1>>, stage<layers<2, 3>, device::cpu<0, 1, 2>, shard::expert<>>> {};
static_assert(after_a_seam::cost(weights::f32).seam_messages_per_token(0) == 1 && after_a_seam::cost(weights::f32).seam_bytes_per_token(0) == 4 * 64);
struct before_tensor : planned<routed, "0-1@0;2-3@0,1"> {};
static_assert(before_tensor::cost(weights::f32).seam_messages_per_token(0) == 2);
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

namespace {
/// Bytes and operations of a rank, one held tensor of one layer and one expert at a time.
struct counted {
    std::int64_t bytes = 0, flops = 0;
};
counted count(graph_view g, int stage, int member, weights format) {
    counted sum;
    for (tensor const& t : g.ir.tensors) {
        if (t.stage != stage) continue;
        std::int64_t const elements = std::int64_t{t.rows_of(member).size()} * t.columns_of(member).size();
        std::int64_t held = 0;
        each_held(t, g.stages[static_cast<std::size_t>(stage)], *g.config, member, [&held](int, int) { ++held; });
        sum.bytes += held * bytes_of(held_format(t, format, dtype::bf16, false), elements);
        routed_experts const& e = g.config->kinds[static_cast<std::size_t>(t.kind)].experts;
        if (t.is_of_expert()) sum.flops += 2 * held * elements * e.chosen / e.count;
        if (t.is_matrix() && !t.is_of_expert() && t.what != role::embed) sum.flops += 2 * held * elements;
        if (t.what == role::q) sum.flops += 4 * held * t.rows_of(member).size();
    }
    return sum;
}

void costs_as_counted(graph_view g) {
    int rank = 0;
    for (int stage = 0; stage < static_cast<int>(g.stages.size()); ++stage)
        for (int member = 0; member < g.stages[static_cast<std::size_t>(stage)].ranks(); ++member, ++rank)
            for (weights const format : {weights::stored, weights::bf16, weights::f32, weights::q8}) {
                CAPTURE(rank);
                counted const sum = count(g, stage, member, format);
                cost_view const cost(g, format, dtype::bf16);
                CHECK(cost.weight_bytes(rank_index{rank}) == sum.bytes);
                CHECK(cost.flops_per_token(rank_index{rank}) == sum.flops);
            }
}

/// Seven experts in the second and fourth layer; none in the others.
constexpr model_config seven = model::with_experts(small::config, {.count = 7, .chosen = 3, .width = 128, .shared_width = 96, .correction = true}, {1, 3});
}  // namespace

TEST_CASE("a rank costs what a count of each of its tensors, layers and experts says") {
    for (std::string_view const plan : {"all@0", "all@0,1", "all@0,1:tensor", "all@0,1,2:expert", "all@0,1,2,3,4,5,6:expert", "0@0;1-3@0,1,2:expert_width",
                                        "all@0,1:expert_width.reduce", "all@0,1:tensor+expert_width", "0-1@0,1:expert;2-3@2,3,4,5:tensor+expert", "all@0,1,2,3:tensor+expert_width.reduce"}) {
        CAPTURE(plan);
        dynamic_graph const g(seven, plan::parse(plan));
        costs_as_counted(g.view());
    }
    costs_as_counted(routed_over<shard::expert<placement::table<0, 1, 0, 0, 1, 0, 2, 0>>, 0, 1, 2>::view());
    costs_as_counted(routed_over<shard::both<shard::tensor<>, shard::expert<placement::table<1, 1, 1, 1, 1, 1, 1, 0>>>, 0, 1>::view());
}

TEST_CASE("q8 takes 34 bytes for 32 weights of a projection, and what is looked up or routes stays as it is stored") {
    struct whole : graph<small, stage<layers<0, 3>>> {};
    constexpr auto cost = whole::cost<weights::q8>(dtype::bf16), narrow = whole::cost<weights::bf16>(dtype::bf16);
    static_assert(cost.format() == weights::q8 && cost.weight_bytes(rank_index{0}) == whole::cost(weights::q8, dtype::bf16).weight_bytes(rank_index{0}));
    std::int64_t saved = 0;
    for (tensor const& t : whole::ir().tensors)
        if (takes_weight_format(t.what, false)) saved += (2 * 32 - 34) * (std::int64_t{t.rows} * t.columns / 32) * t.layers;
    CHECK(narrow.weight_bytes(rank_index{0}) - cost.weight_bytes(rank_index{0}) == saved);
    CHECK(held_format({.what = role::router}, weights::q8, dtype::bf16, false) == held_as::bf16);
    CHECK(held_format({.what = role::embed}, weights::q8, dtype::f32, false) == held_as::f32);
    CHECK(held_format({.what = role::head}, weights::q8, dtype::f32, true) == held_as::f32);
    CHECK(held_format({.what = role::head}, weights::q8, dtype::f32, false) == held_as::q8);
}

TEST_CASE("segments of a product in q8 are whole blocks") {
    auto const of = [](int columns, int granule, weights format) { return segments_as_held({.what = role::o, .columns = columns, .granule = granule}, format, false); };
    CHECK(of(8 * 16, 16, weights::bf16) == 8);
    CHECK(of(8 * 16, 16, weights::q8) == 4);
    CHECK(of(8 * 24, 24, weights::q8) == 2);
    CHECK(of(4 * 80, 80, weights::q8) == 2);
    CHECK(of(32 * 128, 128, weights::q8) == of(32 * 128, 128, weights::f32));
    CHECK(of(14 * 64, 64, weights::q8) == 2);
    CHECK(of(96, 32, weights::q8) == 1);
}

TEST_CASE("a placed graph costs what its map says, and never more than the stage that awaits it") {
    struct awaiting : graph<routed, stage<layers<0, 3>, device::cpu<0, 1, 2>, shard::expert<placement::at_load>>> {};
    static constexpr std::array layers{0, 1, 2, 3};
    cost_view const most = awaiting::cost(weights::f32);
    std::array<std::int64_t, 3> seen{};
    for (int favoured = 0; favoured < 3; ++favoured)
        for (int spread = 0; spread < 6; ++spread) {  // from all that can be on one rank to few
            std::vector<int> owners;
            for (int layer = 0; layer < 4; ++layer)
                for (int e = 0; e < 8; ++e) owners.push_back(e < 3 ? e : e < 8 - spread ? favoured : (e + layer) % 3);
            placed_graph const placed(awaiting::view(), {3, 0, 8, layers, owners});
            costs_as_counted(placed.view());
            cost_view const cost(placed.view(), weights::f32, dtype::f32);
            for (int r = 0; r < 3; ++r) {
                std::int64_t const bytes = cost.weight_bytes(rank_index{r});
                CHECK(bytes <= most.weight_bytes(rank_index{r}));
                CHECK(cost.flops_per_token(rank_index{r}) <= most.flops_per_token(rank_index{r}));
                seen[static_cast<std::size_t>(r)] = std::max(seen[static_cast<std::size_t>(r)], bytes);
            }
        }
    for (int r = 0; r < 3; ++r) CHECK(seen[static_cast<std::size_t>(r)] == most.weight_bytes(rank_index{r}));
}

TEST_CASE("the ranks of a stage hold every matrix of every expert exactly once between them") {
    for (std::string_view const plan : {"all@0,1,2:expert", "all@0,1:tensor", "all@0,1:tensor+expert", "all@0,1,2,3,4:expert_width", "all@0,1,2,3:expert_width.reduce"}) {
        CAPTURE(plan);
        dynamic_graph const g(seven, plan::parse(plan));
        for (tensor const& t : g.ir().tensors) {
            if (!t.is_of_expert()) continue;
            std::int64_t sum = 0;
            for (int r = 0; r < t.ranks; ++r)
                each_held(t, g.view().stages[0], seven, r, [&](int, int) { sum += std::int64_t{t.rows_of(r).size()} * t.columns_of(r).size(); });
            CHECK(sum == std::int64_t{t.rows} * t.columns * 7 * 2);
        }
    }
}
