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
#include <tenon/runtime/fault.hpp>
#include <tenon/runtime/rank_weights.hpp>
#include <tenon/runtime/sequence_cache.hpp>

#include <cstddef>
#include <cstdint>
#include <cstring>
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
    basic_rank_program(graph_view graph, int stage, int member, int rank, device::backend const& ops, testing::fault fault)
        : config_(graph.config),
          stage_(graph.stages[static_cast<std::size_t>(stage)]),
          ops_(&ops),
          fault_(fault),
          member_(member),
          rank_(rank),
          ranks_(stage_.ranks()),
          is_cut_(ranks_ > 1),
          join_(effective(stage_.cuts, ranks_).tensor_join),
          shifted_(stage > 0 && fault == testing::fault::shifted_seam) {}

    void load(graph_view graph, int stage, checkpoint::tensor_source const& source, weights format, load_observer* observer) {
        weights_.load(graph, stage, member_, source, *ops_, format, observer, fault_);
    }
    void meet(std::span<basic_rank_program* const> group) { group_ = group; }  ///< peers in rank order, itself included

    bool is_head() const { return stage_.first_layer == 0; }
    bool is_tail() const { return stage_.last_layer + 1 == config_->layers; }
    rank_weights const& weights() const { return weights_; }
    rank_census const& counts() const { return census_; }
    float const* residual() const { return residual_.data(); }
    float const* logits() const { return logits_.data(); }
    int member() const { return member_; }
    int rank() const { return rank_; }
    share vocabulary() const { return is_cut_ ? share_of(config_->vocab, member_, ranks_) : share{0, config_->vocab}; }

    device::backend const& ops() const { return *ops_; }

    sequence_cache new_cache() const {
        std::vector<cache_shape> layers;
        for (int l = 0; l < stage_.layer_count(); ++l) layers.push_back({kv_heads_of(kind(l).attention), kind(l).attention.head_dim});
        return sequence_cache(std::move(layers));
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
            if (is_cut_) list.push_back({step_kind::attention_join, l});
            list.push_back({step_kind::feed, l});
            if (is_cut_) list.push_back({step_kind::feed_join, l});
        }
        if (is_cut_) list.push_back({step_kind::finish});
        if (is_tail()) list.push_back({step_kind::head});
        return list;
    }

    /// Room for a batch; called by one thread before any rank runs, so that nothing in a step can fail.
    void reserve(batch const& b) {
        auto const T = static_cast<std::size_t>(b.rows()), H = static_cast<std::size_t>(config_->hidden);
        std::size_t wide = H, narrow = 0, ffn = 0, kv = 0, attention = 0;
        for (int k = 0; k < config_->kind_count; ++k) {
            block_kind const& kind = config_->kinds[static_cast<std::size_t>(k)];
            grouped_attention const& a = kind.attention;
            auto const all = static_cast<std::size_t>(a.heads * a.head_dim), width = static_cast<std::size_t>(kind.ffn.width);
            wide = largest(wide, largest(all, width));
            narrow = largest(narrow, all / static_cast<std::size_t>(ranks_));
            kv = largest(kv, static_cast<std::size_t>(kv_heads_of(a) * a.head_dim));
            attention = largest(attention, ops_->attention_scratch_floats(a.head_dim));
            ffn = largest(ffn, static_cast<std::size_t>(is_cut_ ? share_of(kind.ffn.width, member_, ranks_).size() : kind.ffn.width));
        }
        residual_.reserve(T * H);
        normed_.reserve(T * H);
        query_.reserve(T * narrow);
        key_.reserve(T * kv);
        value_.reserve(T * kv);
        attended_.reserve(T * narrow);
        gate_.reserve(T * ffn);
        up_.reserve(T * ffn);
        piece_.reserve(T * H);
        if (is_cut_) {
            whole_.reserve(T * wide);
            partial_.reserve(T * H);
        }
        if (is_tail()) logits_.reserve(b.wanted.size() * static_cast<std::size_t>(vocabulary().size()));
        scratch_.reserve(largest(ops_->multiply_scratch_floats(b.rows(), static_cast<int>(wide)), attention));
    }

    /// Takes the residual stream that the root of the stage before has left.
    void take_over(basic_rank_program const& root, batch const& b) {
        auto const bytes = static_cast<std::size_t>(b.rows()) * static_cast<std::size_t>(config_->hidden) * sizeof(float);
        std::memcpy(residual_.data(), root.residual(), bytes);
        ++census_.hand_overs;
        count_read(static_cast<std::int64_t>(bytes));
    }

    void run(step s, batch const& b) {
        switch (s.what) {
            case step_kind::look_up: return look_up(b);
            case step_kind::collect: return collect(b);
            case step_kind::attend: return attend(s.layer, b);
            case step_kind::attention_join: return join_product(role::o, role::o_bias, s.layer, attended_, query_width(s.layer), b);
            case step_kind::feed: return feed(s.layer, b);
            case step_kind::feed_join: return join_product(role::down, role::down_bias, s.layer, gate_, kind(s.layer).ffn.width, b);
            case step_kind::finish: return add_pieces(b);
            case step_kind::head: return head(b);
        }
    }

private:
    static constexpr std::size_t largest(std::size_t a, std::size_t b) { return a > b ? a : b; }
    block_kind const& kind(int layer) const { return config_->layer(stage_.first_layer + layer); }
    layer_weights const& layer_at(int layer) const { return weights_.layer(stage_.first_layer + layer); }
    int kv_heads_of(grouped_attention const& a) const { return is_cut_ ? kv_share_of(a.kv_heads, member_, ranks_).size() : a.kv_heads; }
    int query_width(int layer) const { return kind(layer).attention.heads * kind(layer).attention.head_dim; }
    bool idle() const { return fault_ == testing::fault::idle_rank && is_cut_ && member_ == ranks_ - 1; }
    bool dropped(int peer) const { return fault_ == testing::fault::dropped_peer && is_cut_ && peer == ranks_ - 1; }
    void count_read(std::int64_t bytes) {
        ++census_.messages;
        census_.bytes += bytes;
    }

    void multiply(float* y, std::ptrdiff_t y_stride, kernel::packed_matrix const& w, float const* bias, float const* x,
                  std::ptrdiff_t x_stride, int rows) {
        if (idle()) return;
        ops_->multiply(y, y_stride, w, x, x_stride, rows, scratch_.data());
        if (bias != nullptr) ops_->add_bias(y, y_stride, bias, w.rows, rows);
        ++census_.products;
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
        int const T = b.rows(), H = config_->hidden, D = a.head_dim, heads = a.heads / ranks_, kv_heads = kv_heads_of(a), Q = heads * D,
                  K = kv_heads * D;
        census_.rows += T;
        ops_->rms_norm(normed_.data(), H, residual_.data(), H, w.vector(role::input_norm), H, static_cast<float>(config_->rms_epsilon), T);
        multiply(query_.data(), Q, w.matrix(role::q), w.vector(role::q_bias), normed_.data(), H, T);
        multiply(key_.data(), K, w.matrix(role::k), w.vector(role::k_bias), normed_.data(), H, T);
        multiply(value_.data(), K, w.matrix(role::v), w.vector(role::v_bias), normed_.data(), H, T);
        auto const epsilon = static_cast<float>(config_->rms_epsilon);
        if (a.qk_norm) {  // head by head: rows of D
            ops_->rms_norm(query_.data(), D, query_.data(), D, w.vector(role::q_norm), D, epsilon, T * heads);
            ops_->rms_norm(key_.data(), D, key_.data(), D, w.vector(role::k_norm), D, epsilon, T * kv_heads);
        }
        rotation const& angles = b.rotations[rotation_of(*config_, config_->kind_of[static_cast<std::size_t>(stage_.first_layer + layer)])];
        ops_->rope(query_.data(), Q, T, heads, D, angles.cosines.data(), angles.sines.data());
        ops_->rope(key_.data(), K, T, kv_heads, D, angles.cosines.data(), angles.sines.data());
        double const root = __builtin_sqrt(static_cast<double>(D));
        for (batch_part const& p : b.parts) {
            sequence_cache& cache = p.caches[static_cast<std::size_t>(rank_)];
            std::ptrdiff_t const row = p.first_row;
            bool const stale = fault_ == testing::fault::stale_kv_row && p.first_position > 0 && p.rows == 1;
            if (!stale)
                kernel::store_kv(cache.keys(layer), cache.values(layer), cache.head_stride(layer), kv_heads, D, p.first_position, p.rows,
                                 key_.data() + row * K, value_.data() + row * K, K);
            ops_->attention({.q = query_.data() + row * Q,
                             .q_stride = Q,
                             .out = attended_.data() + row * Q,
                             .out_stride = Q,
                             .keys = cache.keys(layer),
                             .values = cache.values(layer),
                             .kv_head_stride = cache.head_stride(layer),
                             .rows = p.rows,
                             .heads = heads,
                             .kv_heads = kv_heads,
                             .head_dim = D,
                             .first_position = p.first_position,
                             .window = a.window,
                             .scale = static_cast<float>(1.0 / root),
                             .scratch = scratch_.data()});
        }
        product_back(role::o, role::o_bias, layer, attended_.data(), Q, T);
    }

    void feed(int layer, batch const& b) {
        if (is_cut_) add_pieces(b);
        layer_weights const& w = layer_at(layer);
        int const T = b.rows(), H = config_->hidden, F = w.matrix(role::gate).rows;
        ops_->rms_norm(normed_.data(), H, residual_.data(), H, w.vector(role::post_norm), H, static_cast<float>(config_->rms_epsilon), T);
        multiply(gate_.data(), F, w.matrix(role::gate), w.vector(role::gate_bias), normed_.data(), H, T);
        multiply(up_.data(), F, w.matrix(role::up), w.vector(role::up_bias), normed_.data(), H, T);
        ops_->swiglu(gate_.data(), gate_.data(), up_.data(), static_cast<std::size_t>(T) * static_cast<std::size_t>(F));
        product_back(role::down, role::down_bias, layer, gate_.data(), F, T);
    }

    /// A product back to the residual's width: whole on one rank, a partial sum under `reduce`, left to the join under `gather`.
    void product_back(role what, role bias, int layer, float const* x, int width, int rows) {
        layer_weights const& w = layer_at(layer);
        int const H = config_->hidden;
        if (!is_cut_) {
            multiply(piece_.data(), H, w.matrix(what), w.vector(bias), x, width, rows);
            ops_->add(residual_.data(), residual_.data(), piece_.data(), static_cast<std::size_t>(rows) * static_cast<std::size_t>(H));
        } else if (join_ == join_kind::reduce) {
            multiply(partial_.data(), H, w.matrix(what), nullptr, x, width, rows);
        }
    }

    /// Leaves this rank's columns of the whole product in `piece_`.
    void join_product(role what, role bias, int layer, float_scratch basic_rank_program::*input, int width, batch const& b) {
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
            multiply(piece_.data(), own.size(), w.matrix(what), w.vector(bias), whole_.data(), width, T);
            return;
        }
        for (std::ptrdiff_t t = 0; t < T; ++t) add_tree(piece_.data() + t * own.size(), t * config_->hidden + own.begin, own.size());
        for (int p = 0; p < ranks_; ++p)
            if (p != member_) count_read(std::int64_t{T} * own.size() * 4);
        if (w.vector(bias) != nullptr) ops_->add_bias(piece_.data(), own.size(), w.vector(bias), own.size(), T);
        ++census_.reductions;
    }
    void join_product(role what, role bias, int layer, float_scratch const& input, int width, batch const& b) {
        join_product(what, bias, layer, &input == &attended_ ? &basic_rank_program::attended_ : &basic_rank_program::gate_, width, b);
    }

    /// out = the canonical tree over every rank's partial sums: neighbours first.
    void add_tree(float* out, std::ptrdiff_t at, int count) {
        auto const n = static_cast<std::size_t>(count);
        auto const part = [this, at](int p) { return peer(p).partial_.data() + at; };
        if (fault_ == testing::fault::wrong_join_order || fault_ == testing::fault::dropped_peer) {
            std::memcpy(out, part(0), n * sizeof(float));
            for (int p = 1; p < ranks_; ++p)
                if (!dropped(p)) ops_->add(out, out, part(p), n);
            return;
        }
        // Pairs, then pairs of pairs: level k of the stack holds the sum of 2^k ranks. `whole_` is free under `reduce`.
        int depth = 0;
        for (int p = 0; p < ranks_; p += 2) {
            float* sum = whole_.data() + static_cast<std::ptrdiff_t>(depth) * count;
            ops_->add(sum, part(p), part(p + 1), n);
            for (int done = p / 2; (done & 1) != 0; done >>= 1) {
                --depth;
                float* const lower = whole_.data() + static_cast<std::ptrdiff_t>(depth) * count;
                ops_->add(lower, lower, sum, n);
                sum = lower;
            }
            ++depth;
        }
        std::memcpy(out, whole_.data(), n * sizeof(float));
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
                           weights_.ends().vector(role::final_norm), config_->hidden, static_cast<float>(config_->rms_epsilon), 1);
        multiply(logits_.data(), vocabulary().size(), weights_.ends().matrix(role::head), nullptr, normed_.data(), H, wanted);
    }

public:
    /// The whole rows of logits, gathered by the root.
    ///
    ///   out  (wanted rows, V)
    void collect_logits(float* out, batch const& b) {
        auto const wanted = static_cast<int>(b.wanted.size());
        if (wanted == 0) return;
        for (int p = 0; p < ranks_; ++p) {
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
    testing::fault fault_;
    int member_, rank_, ranks_;
    bool is_cut_;
    join_kind join_;
    bool shifted_;
    std::span<basic_rank_program* const> group_{};
    rank_weights weights_;
    rank_census census_{};
    float_scratch residual_, normed_, query_, key_, value_, attended_, gate_, up_, scratch_;
    float_scratch piece_, partial_, logits_;  ///< what peers read
    float_scratch whole_;
};

}  // namespace tenon::inline v0::detail
