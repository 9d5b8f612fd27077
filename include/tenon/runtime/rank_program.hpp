// What one rank computes, cut at the points where ranks of a group meet: a list of steps, each free of communication but
// for reading what its peers published in an earlier one. The runtimes differ only in who runs the steps and how they wait.
// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <tenon/core/config.hpp>
#include <tenon/device/backend.hpp>
#include <tenon/graph/lower.hpp>
#include <tenon/runtime/batch.hpp>
#include <tenon/runtime/buffer.hpp>
#include <tenon/runtime/census.hpp>
#include <tenon/runtime/exact_join.hpp>
#include <tenon/runtime/expert_program.hpp>
#include <tenon/runtime/fault.hpp>
#include <tenon/runtime/join_tree.hpp>
#include <tenon/runtime/rank_weights.hpp>
#include <tenon/runtime/sequence_cache.hpp>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <initializer_list>
#include <span>
#include <vector>

namespace tenon::inline v0::detail {

// A template with nothing to choose: a program that includes this without loading a model does not pay for instantiating it.
template <class = void>
class basic_rank_program;
using rank_program = basic_rank_program<>;

template <class Lazy>
class basic_rank_program {
    using rank_weights = basic_rank_weights<Lazy>;

public:
    basic_rank_program(graph_view graph, int stage, int member, int rank, device::backend const& ops, numeric_profile const& profile,
                       testing::fault fault)
        : config_(graph.config),
          stage_(graph.stages[static_cast<std::size_t>(stage)]),
          ops_(&ops),
          fault_(fault),
          member_(member),
          rank_(rank),
          ranks_(stage_.ranks()),
          cuts_(effective(*config_, stage_, ranks_)),
          is_cut_(cuts_.tensor && ranks_ > 1),
          join_(cuts_.tensor_join),
          shifted_(stage > 0 && fault == testing::fault::shifted_seam),
          exact_(ops, profile),
          experts_(*config_, stage_, member, ops, profile, fault, census_) {
        experts_.employ(alone_);
    }
    basic_rank_program(basic_rank_program const&) = delete;
    basic_rank_program& operator=(basic_rank_program const&) = delete;

    void load(graph_view graph, int stage, load_context const& how) { weights_.load(graph, stage, member_, *ops_, how, *crew_); }
    /// In what format caches made from now on keep keys and values.
    void keep_kv_in(kv_format f) { kv_format_ = f; }
    /// The threads that work for this rank from now on; they outlive it.
    void employ(device::crew& threads) {
        crew_ = &threads;
        experts_.employ(threads);
    }
    /// Peers in rank order, itself included.
    void meet(std::span<basic_rank_program* const> group) {
        group_ = group;
        for (basic_rank_program* const p : group) expert_group_.push_back(&p->experts_);
        experts_.meet(expert_group_);
    }

    bool is_head() const { return stage_.first_layer == 0; }
    bool is_tail() const { return stage_.last_layer + 1 == config_->layers; }
    rank_weights const& weights() const { return weights_; }
    rank_census const& counts() const { return census_; }
    float const* residual() const { return residual_.data(); }
    float const* logits() const { return logits_.data(); }
    int member() const { return member_; }
    int rank() const { return rank_; }
    share vocabulary() const {
        if (is_follower()) return {};
        return is_cut_ ? share_of(config_->vocab, member_, ranks_) : share{0, config_->vocab};
    }
    /// The KV heads that it holds of a layer of its stage.
    share kv_heads(int layer) const { return kv_share(kind(layer).attention); }
    basic_expert_program<Lazy>& experts() { return experts_; }

    device::backend const& ops() const { return *ops_; }

    /// Without memory where it is `elsewhere`.
    sequence_cache new_cache(bool elsewhere = false) const {
        std::vector<cache_shape> layers;
        for (int l = 0; l < stage_.layer_count(); ++l) layers.push_back({kv_heads_of(kind(l).attention), kind(l).attention.head_dim});
        return sequence_cache(std::move(layers), kv_format_, elsewhere);
    }

    /// The steps of this rank's stage, the same for every member.
    std::vector<step> steps() const {
        std::vector<step> list;
        if (is_head()) {
            list.push_back({step_kind::look_up});
            if (is_cut_) list.push_back({step_kind::collect});
        }
        for (int l = shifted_ ? 1 : 0; l < stage_.layer_count(); ++l) {
            list.push_back({step_kind::attend, l});
            if (reduces_exactly()) list.push_back({step_kind::attention_sums, l});
            if (is_cut_) list.push_back({step_kind::attention_join, l});
            if (kind(l).experts) {
                list.push_back({step_kind::route, l});
                list.push_back({step_kind::serve, l});
                if (experts_.joins_widths()) list.push_back({step_kind::join_widths, l});
                list.push_back({step_kind::combine, l});
                continue;
            }
            list.push_back({step_kind::feed, l});
            if (reduces_exactly()) list.push_back({step_kind::feed_sums, l});
            if (is_cut_) list.push_back({step_kind::feed_join, l});
        }
        if (is_cut_) list.push_back({step_kind::finish});
        if (is_tail()) list.push_back({step_kind::head});
        return list;
    }

    /// Room for what peers read of a batch: in `shared` where they are in other processes, and then for every rank of the graph, in order.
    void publish(batch const& b, arena* shared) {
        experts_.publish(b.rows(), shared);
        if (is_follower()) return;
        auto const T = static_cast<std::size_t>(b.rows()), H = static_cast<std::size_t>(config_->hidden);
        std::size_t narrow = 0, ffn = 0;
        for (int k = 0; k < config_->kind_count; ++k) {
            block_kind const& kind = config_->kinds[static_cast<std::size_t>(k)];
            narrow = largest(narrow, static_cast<std::size_t>(heads_of(kind.attention) * kind.attention.head_dim));
            ffn = largest(ffn, static_cast<std::size_t>(own_width(width_of(kind))));
        }
        residual_.reserve(T * H, shared);
        normed_.reserve(T * H, shared);
        attended_.reserve(T * narrow, shared);
        gate_.reserve(T * ffn, shared);
        piece_.reserve(T * H, shared);
        if (reduces_exactly())
            exact_.publish(T, H, shared);
        else if (is_cut_)
            partial_.reserve(T * H, shared);
        if (is_tail()) logits_.reserve(b.wanted.size() * static_cast<std::size_t>(vocabulary().size()), shared);
    }

    /// Room for the rest; called by one thread before any rank runs, so that nothing in a step can fail.
    void reserve(batch const& b) {
        experts_.reserve(b.rows());
        if (is_follower()) return;
        auto const T = static_cast<std::size_t>(b.rows()), H = static_cast<std::size_t>(config_->hidden);
        std::size_t wide = H, narrow = 0, ffn = 0, kv = 0, attention = 0;
        calls_.reserve(b.parts.size());
        for (int k = 0; k < config_->kind_count; ++k) {
            block_kind const& kind = config_->kinds[static_cast<std::size_t>(k)];
            grouped_attention const& a = kind.attention;
            auto const all = static_cast<std::size_t>(a.heads * a.head_dim);
            wide = largest(wide, largest(all, static_cast<std::size_t>(width_of(kind))));
            narrow = largest(narrow, static_cast<std::size_t>(heads_of(a) * a.head_dim));
            kv = largest(kv, static_cast<std::size_t>(kv_heads_of(a) * a.head_dim));
            calls_.clear();
            for (batch_part const& p : b.parts)  // as far on as the cache goes, so that scratch grows when it does
                calls_.push_back({.rows = p.rows,
                                  .heads = heads_of(a),
                                  .kv_heads = kv_heads_of(a),
                                  .head_dim = a.head_dim,
                                  .first_position = p.caches[static_cast<std::size_t>(rank_)].capacity() - p.rows,
                                  .window = a.window});
            attention = largest(attention, ops_->attend_all_scratch_floats(calls_, crew_->size()));
            ffn = largest(ffn, static_cast<std::size_t>(own_width(width_of(kind))));
        }
        query_.reserve(T * narrow);
        key_.reserve(T * kv);
        value_.reserve(T * kv);
        up_.reserve(T * ffn);
        if (has_shared_expert()) shared_.reserve(T * H);
        if (is_cut_) {
            whole_.reserve(T * wide);
            stack_.reserve(static_cast<std::size_t>(tree_depth(ranks_)) * H);
        }
        if (reduces_exactly()) exact_.reserve(T, H);
        scratch_.reserve(largest(ops_->multiply_all_scratch_floats(b.rows(), static_cast<int>(wide), crew_->size()), attention));
    }

    /// Takes the residual stream that the root of the stage before has left.
    void take_over(basic_rank_program const& root, batch const& b) { take_over(root.residual(), b); }
    /// The same, from wherever it lies.
    void take_over(void const* residual, batch const& b) {
        if (is_follower()) return;
        auto const bytes = static_cast<std::size_t>(b.rows()) * static_cast<std::size_t>(config_->hidden) * sizeof(float);
        std::memcpy(residual_.data(), residual, bytes);
        ++census_.hand_overs;
        count_read(static_cast<std::int64_t>(bytes));
    }

    void run(step s, batch const& b) {
        if (s.what == step_kind::serve) {
            experts_.serve(s.layer, layer_at(s.layer), (is_follower() ? peer(0) : *this).normed_.data());
            if (reduces_exactly() && kind(s.layer).experts.shared_width > 0) add_up(role::shared_down, s.layer, gate_.data(), b.rows());
            return;
        }
        if (s.what == step_kind::join_widths) return experts_.join_widths(s.layer, layer_at(s.layer));
        if (is_follower()) return;
        switch (s.what) {
            case step_kind::look_up: return look_up(b);
            case step_kind::collect: return collect(b);
            case step_kind::attend: return attend(s.layer, b);
            case step_kind::attention_sums: return add_up(role::o, s.layer, attended_.data(), b.rows());
            case step_kind::attention_join:
                return join_product(piece_.data(), role::o, role::o_bias, s.layer, &basic_rank_program::attended_, query_width(s.layer), b);
            case step_kind::feed: return feed(s.layer, b);
            case step_kind::feed_sums: return add_up(role::down, s.layer, gate_.data(), b.rows());
            case step_kind::feed_join:
                return join_product(piece_.data(), role::down, role::down_bias, s.layer, &basic_rank_program::gate_,
                                    kind(s.layer).ffn.width, b);
            case step_kind::route: return route(s.layer, b);
            case step_kind::combine: return combine(s.layer, b);
            case step_kind::finish: return add_pieces(b);
            case step_kind::head: return head(b);
            default: return;
        }
    }

    /// Calls `visit` with what this rank has published in a step. Of a peer in another process, with where to put it: how much that is, the
    /// routing table of `here` knows, a rank of the group that is in this process.
    template <class Visit>
    void publications(step s, batch const& b, basic_rank_program const& here, Visit visit) {
        if (s.what == step_kind::serve || s.what == step_kind::join_widths) {
            experts_.publications(s, here.experts_, visit);
            if (s.what == step_kind::serve && reduces_exactly() && kind(s.layer).experts.shared_width > 0) visit(exact_.sums(b.rows(), true));
            return;
        }
        if (is_follower()) return;
        std::int64_t const T = b.rows(), H = config_->hidden, own = is_cut_ ? share_of(config_->hidden, member_, ranks_).size() : H;
        auto const product = [&](published<float>& input, std::int64_t width) {  // what a join of it reads
            if (join_ == join_kind::gather)
                visit(publication{input.data(), T, width});
            else if (exact_)
                visit(exact_.magnitudes(T));
            else
                visit(publication{partial_.data(), T, H, true});
        };
        block_kind const& k = kind(s.layer);
        switch (s.what) {
            case step_kind::look_up:
                if (is_cut_) visit(publication{piece_.data(), T, H});
                return;
            case step_kind::attend:
                if (is_cut_) product(attended_, heads_of(k.attention) * k.attention.head_dim);
                return;
            case step_kind::feed:
                if (is_cut_) product(gate_, own_width(k.ffn.width));
                return;
            case step_kind::route:
                if (!is_cut_) {
                    visit(publication{normed_.data(), T, H});
                    experts_.publish_tables(s.layer, visit);
                } else if (k.experts.shared_width > 0) {
                    product(gate_, own_width(k.experts.shared_width));
                }
                return;
            case step_kind::attention_sums:
            case step_kind::feed_sums: return visit(exact_.sums(T, true));
            case step_kind::attention_join:
            case step_kind::feed_join:
            case step_kind::combine:
                if (is_cut_) visit(publication{piece_.data(), T, own});
                return;
            case step_kind::head:
                if (is_cut_) visit(publication{logits_.data(), static_cast<std::int64_t>(b.wanted.size()), vocabulary().size(), false, true});
                return;
            default: return;
        }
    }
    /// Whether it takes the residual stream over from the stage before.
    bool takes_over() const { return !is_follower(); }
    float* residual_place() { return residual_.data(); }

private:
    static constexpr std::size_t largest(std::size_t a, std::size_t b) { return a > b ? a : b; }
    block_kind const& kind(int layer) const { return config_->layer(stage_.first_layer + layer); }
    layer_weights const& layer_at(int layer) const { return weights_.layer(stage_.first_layer + layer); }
    /// A rank without a part in anything but experts: not the root of a stage that `tensor` does not cut.
    bool is_follower() const { return !is_cut_ && member_ > 0; }
    bool has_shared_expert() const {
        for (int l = 0; l < stage_.layer_count(); ++l)
            if (kind(l).experts.shared_width > 0) return true;
        return false;
    }
    /// Of a dense FFN, or of the expert that every token goes through.
    static int width_of(block_kind const& kind) { return kind.experts ? kind.experts.shared_width : kind.ffn.width; }
    int own_width(int width) const { return is_cut_ ? share_of(width, member_, ranks_).size() : width; }
    int heads_of(grouped_attention const& a) const { return is_cut_ ? a.heads / ranks_ : a.heads; }
    share kv_share(grouped_attention const& a) const {
        if (is_follower()) return {};
        return is_cut_ ? kv_share_of(a.kv_heads, member_, ranks_) : share{0, a.kv_heads};
    }
    int kv_heads_of(grouped_attention const& a) const { return kv_share(a).size(); }
    float epsilon() const { return static_cast<float>(config_->rms_epsilon); }
    int query_width(int layer) const { return kind(layer).attention.heads * kind(layer).attention.head_dim; }
    /// Whether joins add integer sums, for which the ranks meet once more.
    bool reduces_exactly() const { return is_cut_ && join_ == join_kind::reduce && exact_; }
    bool idle() const { return fault_ == testing::fault::idle_rank && is_cut_ && member_ == ranks_ - 1; }
    bool dropped(int peer) const { return fault_ == testing::fault::dropped_peer && is_cut_ && peer == ranks_ - 1; }
    void count_read(std::int64_t bytes) {
        ++census_.messages;
        census_.bytes += bytes;
    }

    void multiply(std::initializer_list<device::product> products) {
        if (idle()) return;
        ops_->multiply_all({products.begin(), products.size()}, scratch_.data(), *crew_);
        census_.products += static_cast<std::int64_t>(products.size());
    }
    void multiply(float* y, std::ptrdiff_t y_stride, kernel::packed_matrix const& w, float const* bias, float const* x,
                  std::ptrdiff_t x_stride, int rows) {
        multiply({{y, y_stride, &w, x, x_stride, rows, bias}});
    }

    // Row by row, so that threads may share the rows. Below some thousand values one thread is done before another has begun.
    static constexpr std::ptrdiff_t values_worth_sharing = 1 << 14;
    template <class Range>
    void share_rows(std::ptrdiff_t rows, std::ptrdiff_t width, Range range) {
        crew_->share(rows, values_worth_sharing / width + 1, [&range](std::ptrdiff_t begin, std::ptrdiff_t end) {
            range(begin, static_cast<int>(end - begin));
        });
    }
    /// y = norm(x).  x, y (rows, n)
    void norm(float* y, float const* x, float const* gain, std::ptrdiff_t n, std::ptrdiff_t rows) {
        share_rows(rows, n, [&](std::ptrdiff_t first, int count) {
            ops_->rms_norm(y + first * n, n, x + first * n, n, gain, static_cast<int>(n), epsilon(), count);
        });
    }
    void rotate(float* x, int width, int heads, int head_dim, rotation const& angles, int rows) {
        share_rows(rows, width, [&](std::ptrdiff_t first, int count) {
            std::ptrdiff_t const angle = first * (head_dim / 2);
            ops_->rope(x + first * width, width, count, heads, head_dim, angles.cosines.data() + angle, angles.sines.data() + angle);
        });
    }
    /// out = low + high.  (rows, n)
    void add(float* out, float const* low, float const* high, std::ptrdiff_t n, std::ptrdiff_t rows) {
        share_rows(rows, n, [&](std::ptrdiff_t first, int count) {
            ops_->add(out + first * n, low + first * n, high + first * n, static_cast<std::size_t>(count * n));
        });
    }

    // Embedding: every rank publishes the rows of its own part of the vocabulary, then each takes every row from its owner.
    // Selected, not summed: -0 + +0 is +0.
    void look_up(batch const& b) {
        share const own = vocabulary();
        kernel::packed_matrix const& table = weights_.ends().matrix(role::embed);
        std::ptrdiff_t const H = config_->hidden;
        float* const out = is_cut_ ? piece_.data() : residual_.data();
        for (std::ptrdiff_t t = 0; t < b.rows(); ++t) {
            token_id const id = b.tokens[static_cast<std::size_t>(t)];
            if (id < own.begin || id >= own.end) continue;
            float* const row = out + t * H;
            if (table.format == kernel::panel_format::f32) {
                ops_->unpack(row, 0, table, id - own.begin, 1);
            } else {
                auto* const halves = reinterpret_cast<std::byte*>(row) + 2 * H;  // read into the row's upper half, widened from its start
                ops_->unpack(halves, 0, table, id - own.begin, 1);
                for (std::ptrdiff_t i = 0; i < H; ++i) {
                    std::uint16_t half = 0;
                    std::memcpy(&half, halves + 2 * i, 2);
                    row[i] = widen_bf16(half);
                }
            }
        }
    }
    void collect(batch const& b) {
        std::ptrdiff_t const H = config_->hidden;
        for (std::ptrdiff_t t = 0; t < b.rows(); ++t) {
            auto const owner = static_cast<int>(std::int64_t{b.tokens[static_cast<std::size_t>(t)]} * ranks_ / config_->vocab);
            std::memcpy(residual_.data() + t * H, peer(owner).piece_.data() + t * H, static_cast<std::size_t>(H) * sizeof(float));
            if (owner != member_) count_read(H * std::ptrdiff_t{sizeof(float)});
        }
        ++census_.gathers;
    }

    void attend(int layer, batch const& b) {
        if (is_cut_ && layer > (shifted_ ? 1 : 0)) add_pieces(b);
        layer_weights const& w = layer_at(layer);
        grouped_attention const& a = kind(layer).attention;
        int const T = b.rows(), H = config_->hidden, D = a.head_dim, heads = heads_of(a), kv_heads = kv_heads_of(a), Q = heads * D,
                  K = kv_heads * D;
        census_.rows += T;
        norm(normed_.data(), residual_.data(), w.vector(role::input_norm), H, T);
        multiply({{query_.data(), Q, &w.matrix(role::q), normed_.data(), H, T, w.vector(role::q_bias)},
                  {key_.data(), K, &w.matrix(role::k), normed_.data(), H, T, w.vector(role::k_bias)},
                  {value_.data(), K, &w.matrix(role::v), normed_.data(), H, T, w.vector(role::v_bias)}});
        if (a.qk_norm) {  // head by head: rows of D
            norm(query_.data(), query_.data(), w.vector(role::q_norm), D, std::ptrdiff_t{T} * heads);
            norm(key_.data(), key_.data(), w.vector(role::k_norm), D, std::ptrdiff_t{T} * kv_heads);
        }
        rotation const& angles = b.rotations[rotation_of(*config_, config_->kind_of[static_cast<std::size_t>(stage_.first_layer + layer)])];
        rotate(query_.data(), Q, heads, D, angles, T);
        rotate(key_.data(), K, kv_heads, D, angles, T);
        double const root = __builtin_sqrt(static_cast<double>(D));
        calls_.clear();
        for (batch_part const& p : b.parts) {
            sequence_cache& cache = p.caches[static_cast<std::size_t>(rank_)];
            std::ptrdiff_t const row = p.first_row;
            bool const stale = fault_ == testing::fault::stale_kv_row && p.first_position > 0 && p.rows == 1;
            kernel::kv_place const kv = cache.place(layer);
            if (!stale)
                crew_->share(kv_heads, p.rows > 16 ? 2 : kv_heads + 1, [&](std::ptrdiff_t first, std::ptrdiff_t end) {
                    kernel::store_kv(kv, static_cast<int>(first), static_cast<int>(end - first), D, p.first_position, p.rows,
                                     key_.data() + row * K, value_.data() + row * K, K);
                });
            calls_.push_back({.q = query_.data() + row * Q,
                              .q_stride = Q,
                              .out = attended_.data() + row * Q,
                              .out_stride = Q,
                              .rows = p.rows,
                              .heads = heads,
                              .kv_heads = kv_heads,
                              .head_dim = D,
                              .first_position = p.first_position,
                              .window = a.window,
                              .scale = static_cast<float>(1.0 / root),
                              .fixed15 = static_cast<bool>(exact_)});
            kernel::read_from(calls_.back(), kv);
        }
        ops_->attend_all(calls_, scratch_.data(), *crew_);
        product_back(role::o, role::o_bias, layer, attended_.data(), Q, T);
    }

    void feed(int layer, batch const& b) {
        norm_for_ffn(layer, b);
        gated(role::gate, role::gate_bias, layer, b);
        product_back(role::down, role::down_bias, layer, gate_.data(), layer_at(layer).matrix(role::gate).rows, b.rows());
    }
    void norm_for_ffn(int layer, batch const& b) {
        if (is_cut_) add_pieces(b);
        norm(normed_.data(), residual_.data(), layer_at(layer).vector(role::post_norm), config_->hidden, b.rows());
    }
    /// gate_ = silu(gate x) * up x, for this rank's part of a dense FFN or of a shared expert; `up` comes after `gate`.
    void gated(role gate, role gate_bias, int layer, batch const& b) {
        layer_weights const& w = layer_at(layer);
        auto const after = [](role r) { return r == role::none ? r : static_cast<role>(static_cast<int>(r) + 1); };
        int const T = b.rows(), H = config_->hidden, F = w.matrix(gate).rows;
        multiply({{gate_.data(), F, &w.matrix(gate), normed_.data(), H, T, w.vector(gate_bias)},
                  {up_.data(), F, &w.matrix(after(gate)), normed_.data(), H, T, w.vector(after(gate_bias))}});
        share_rows(T, F, [&](std::ptrdiff_t first, int count) {
            float* const part = gate_.data() + first * F;
            ops_->swiglu(part, part, up_.data() + first * F, static_cast<std::size_t>(count) * static_cast<std::size_t>(F));
        });
    }

    void route(int layer, batch const& b) {
        norm_for_ffn(layer, b);
        experts_.route(layer, layer_at(layer), normed_.data(), b.rows());
        if (kind(layer).experts.shared_width == 0) return;
        gated(role::shared_gate, role::none, layer, b);
        int const width = layer_at(layer).matrix(role::shared_gate).rows;
        if (is_cut_ && join_ == join_kind::reduce) begin_reduction(role::shared_down, layer, gate_.data(), width, b.rows());
    }
    /// What the experts give, the shared one's part added last: to the residual, or left to the join under `tensor`.
    void combine(int layer, batch const& b) {
        experts_.combine(layer, layer_at(layer), piece_.data());
        int const T = b.rows(), H = config_->hidden, width = kind(layer).experts.shared_width;
        int const columns = is_cut_ ? share_of(H, member_, ranks_).size() : H;
        if (width > 0) {
            if (is_cut_)
                join_product(shared_.data(), role::shared_down, role::none, layer, &basic_rank_program::gate_, width, b);
            else
                multiply(shared_.data(), H, layer_at(layer).matrix(role::shared_down), nullptr, gate_.data(), width, T);
            add(piece_.data(), piece_.data(), shared_.data(), columns, T);
        }
        if (!is_cut_) add(residual_.data(), residual_.data(), piece_.data(), columns, T);
    }

    /// A product back to the residual's width: whole on one rank, a partial sum under `reduce`, left to the join under `gather`.
    void product_back(role what, role bias, int layer, float const* x, int width, int rows) {
        layer_weights const& w = layer_at(layer);
        int const H = config_->hidden;
        if (!is_cut_) {
            multiply(piece_.data(), H, w.matrix(what), w.vector(bias), x, width, rows);
            add(residual_.data(), residual_.data(), piece_.data(), H, rows);
        } else if (join_ == join_kind::reduce) {
            begin_reduction(what, layer, x, width, rows);
        }
    }
    /// This rank's partial sums, or, of exact products, what its peers must know before it has any.
    void begin_reduction(role what, int layer, float const* x, int width, int rows) {
        if (exact_)
            share_rows(rows, width, [&](std::ptrdiff_t first, int count) { exact_.measure(x + first * width, width, first, count); });
        else
            multiply(partial_.data(), config_->hidden, layer_at(layer).matrix(what), nullptr, x, width, rows);
    }
    auto exact_peers() const {
        return [this](int p) { return dropped(p) ? nullptr : &peer(p).exact_; };
    }
    void add_up(role what, int layer, float const* x, int rows) {
        exact_.agree(rows, ranks_, fault_ == testing::fault::own_magnitudes && member_ == ranks_ - 1 ? member_ : -1, exact_peers());
        for (int p = 0; p < ranks_; ++p)
            if (p != member_) count_read(std::int64_t{rows} * 4);
        if (idle()) return;
        exact_.add_up(layer_at(layer).matrix(what), x, 0, rows, scratch_.data(), *crew_);
        ++census_.products;
    }

    /// Writes this rank's columns of the whole product.  out (T, columns)
    void join_product(float* out, role what, role bias, int layer, published<float> basic_rank_program::*input, int width, batch const& b) {
        layer_weights const& w = layer_at(layer);
        share const own = share_of(config_->hidden, member_, ranks_);
        int const T = b.rows();
        if (join_ == join_kind::gather) {
            for (int p = 0; p < ranks_; ++p) {
                share const columns = part_of(what, layer, width, p);
                copy_columns(whole_.data(), width, columns,
                             (peer(exchanged(p, columns.size(), part_of(what, layer, width, partner(p)).size())).*input).data(), T, p);
            }
            ++census_.gathers;
            multiply(out, own.size(), w.matrix(what), w.vector(bias), whole_.data(), width, T);
            return;
        }
        for (std::ptrdiff_t t = 0; t < T; ++t) {
            float* const row = out + t * own.size();
            if (exact_)
                exact_.finish(row, w.matrix(what), t, own, ranks_, exact_peers());
            else
                add_partials(row, t * config_->hidden + own.begin, own.size());
        }
        for (int p = 0; p < ranks_; ++p)
            if (p != member_) count_read(std::int64_t{T} * own.size() * (exact_ ? 8 : 4));
        if (w.vector(bias) != nullptr) ops_->add_bias(out, own.size(), w.vector(bias), own.size(), T);
        ++census_.reductions;
    }

    /// out = the canonical tree over every rank's partial sums.
    void add_partials(float* out, std::ptrdiff_t at, int count) {
        auto const n = static_cast<std::size_t>(count);
        auto const part = [this, at](int p) { return peer(p).partial_.data() + at; };
        if (fault_ != testing::fault::wrong_join_order && fault_ != testing::fault::dropped_peer)
            return add_tree(*ops_, out, stack_.data(), ranks_, n, part);
        std::memcpy(out, part(0), n * sizeof(float));
        for (int p = 1; p < ranks_; ++p)
            if (!dropped(p)) ops_->add(out, out, part(p), n);
    }

    /// residual += the pieces of all ranks.
    void add_pieces(batch const& b) {
        std::ptrdiff_t const H = config_->hidden, T = b.rows();
        for (int p = 0; p < ranks_; ++p) {
            share const columns = share_of(config_->hidden, p, ranks_);
            if (p != member_) count_read(T * columns.size() * 4);
            if (dropped(p)) continue;
            float const* const piece =
                peer(exchanged(p, columns.size(), share_of(config_->hidden, partner(p), ranks_).size())).piece_.data();
            for (std::ptrdiff_t t = 0; t < T; ++t) {
                float* const own = residual_.data() + t * H + columns.begin;
                ops_->add(own, own, piece + t * columns.size(), static_cast<std::size_t>(columns.size()));
            }
        }
        if (join_ == join_kind::gather) ++census_.gathers;
    }

    void head(batch const& b) {
        std::ptrdiff_t const H = config_->hidden;
        auto const wanted = static_cast<int>(b.wanted.size());
        if (wanted == 0) return;
        for (std::ptrdiff_t i = 0; i < wanted; ++i)
            ops_->rms_norm(normed_.data() + i * H, H, residual_.data() + b.wanted[static_cast<std::size_t>(i)] * H, H,
                           weights_.ends().vector(role::final_norm), config_->hidden, epsilon(), 1);
        multiply(logits_.data(), vocabulary().size(), weights_.ends().matrix(role::head), nullptr, normed_.data(), H, wanted);
    }

public:
    /// The whole rows of logits, gathered by the root.
    ///
    ///   out  (wanted rows, V)
    void collect_logits(float* out, batch const& b) {
        auto const wanted = static_cast<int>(b.wanted.size());
        if (wanted == 0) return;
        for (int p = 0; p < (is_cut_ ? ranks_ : 1); ++p) {
            share const columns = peer(p).vocabulary();
            copy_columns(out, config_->vocab, columns, peer(p).logits(), wanted, p);
        }
        if (is_cut_) ++census_.gathers;
    }

private:
    share part_of(role what, int layer, int width, int member) const {
        int const unit = what == role::o ? kind(layer).attention.head_dim : 1;
        share const s = share_of(width / unit, member, ranks_);
        return {s.begin * unit, s.end * unit};
    }
    int partner(int p) const { return p + 1 - 2 * (p % 2) < ranks_ ? p + 1 - 2 * (p % 2) : p; }
    int exchanged(int p, int own, int other) const {
        return fault_ == testing::fault::swapped_output_slices && own == other ? partner(p) : p;
    }
    basic_rank_program& peer(int p) const { return *group_[static_cast<std::size_t>(p)]; }

    void copy_columns(float* out, std::ptrdiff_t stride, share columns, float const* part, int rows, int from) {
        auto const bytes = static_cast<std::size_t>(columns.size()) * sizeof(float);
        for (std::ptrdiff_t t = 0; t < rows; ++t) {
            float* const to = out + t * stride + columns.begin;
            if (dropped(from))
                std::memset(to, 0, bytes);
            else
                std::memcpy(to, part + t * columns.size(), bytes);
        }
        if (from != member_) count_read(static_cast<std::int64_t>(bytes) * rows);
    }

    model_config const* config_;
    stage_traits stage_;
    device::backend const* ops_;
    device::crew* crew_ = &alone_;
    testing::fault fault_;
    int member_, rank_, ranks_;
    rules cuts_;
    bool is_cut_;  ///< by `tensor`: every rank has the residual stream, and a part of everything but experts
    join_kind join_;
    bool shifted_;
    kv_format kv_format_ = kv_format::f32;
    static inline device::no_crew alone_{};
    std::span<basic_rank_program* const> group_{};
    rank_weights weights_;
    rank_census census_{};
    basic_exact_join<Lazy> exact_;
    basic_expert_program<Lazy> experts_;
    deferred<Lazy, std::vector<basic_expert_program<Lazy>*>> expert_group_;
    deferred<Lazy, std::vector<kernel::attention_call>> calls_;
    float_scratch query_, key_, value_, up_, whole_, shared_, stack_, scratch_;
    published<float> residual_, normed_, attended_, gate_, piece_, partial_, logits_;
};

}  // namespace tenon::inline v0::detail
