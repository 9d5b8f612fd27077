// The forward pass of every family in binary64, dense or routed, written from its equations and from nothing of the library: plain loops over the values of
// a checkpoint, one token at a time.
// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <functional>
#include <numbers>
#include <string>
#include <utility>
#include <vector>

namespace oracle {

using row = std::vector<double>;

enum class stretch { none, linear, llama3 };

/// A routed FFN: how scores are made and experts chosen, and where its tensors lie in a layer.
struct experts {
    int count = 0, chosen = 0;
    bool sigmoid = false, correction = false, shared = false;
    int groups = 1, chosen_groups = 1;
    bool two_best = true;  ///< what a group is worth: its two best experts, or the best
    bool normalised = false;
    double epsilon = 0.0, scale = 1.0;
    std::string folder = "mlp.";
    std::string gate = "gate_proj", up = "up_proj", down = "down_proj";
};

/// What the equations need; filled by the test.
struct shape {
    int layers = 0, hidden = 0, heads = 0, kv_heads = 0, head_dim = 0, ffn = 0, vocab = 0;
    double epsilon = 1e-5, theta = 10000.0;
    stretch rope = stretch::none;
    double factor = 1.0, low = 1.0, high = 4.0, original = 0.0;
    bool tied = false, qkv_bias = false, output_bias = false, mlp_bias = false;
    bool head_norms = false;     ///< q and k are normed head by head before they are rotated
    bool fused = false;          ///< q, k, v in one tensor, gate and up in one
    std::vector<int> windows{};  ///< by layer, the most keys that a query sees; 0 or absent: all
    experts routed{};
    std::vector<bool> routes{};  ///< by layer; absent: dense
};

class model {
public:
    /// `values` gives a tensor by its checkpoint name, row after row.
    model(shape s, std::function<row(std::string const&)> values) : s_(s), values_(std::move(values)) {
        embed_ = values_("model.embed_tokens.weight");
        norm_ = values_("model.norm.weight");
        head_ = s.tied ? embed_ : values_("lm_head.weight");
        for (int l = 0; l < s.layers; ++l) layers_.push_back(read(l));
        for (int j = 0; j < s.head_dim / 2; ++j) frequencies_.push_back(frequency(j));
    }

    /// The smallest distance, in all that was fed, from the last expert or group that was chosen to the first that was not.
    double routing_margin() const { return margin_; }

    /// One sequence; `feed` appends a token and returns its logits.
    class sequence {
    public:
        explicit sequence(model const& m) : m_(m), keys_(m.layers_.size()), values_(m.layers_.size()) {}
        row feed(int token) {
            shape const& s = m_.s_;
            row h(static_cast<std::size_t>(s.hidden));
            for (std::size_t i = 0; i < h.size(); ++i) h[i] = m_.embed_[static_cast<std::size_t>(token) * h.size() + i];
            for (std::size_t l = 0; l < m_.layers_.size(); ++l) {
                add(h, attend(l, m_.normed(h, m_.layers_[l].input_norm)));
                add(h, m_.fed(m_.layers_[l], m_.normed(h, m_.layers_[l].post_norm)));
            }
            ++length_;
            return product(m_.head_, {}, m_.normed(h, m_.norm_));
        }

    private:
        row attend(std::size_t l, row const& x) {
            layer const& w = m_.layers_[l];
            auto const D = static_cast<std::size_t>(m_.s_.head_dim), heads = static_cast<std::size_t>(m_.s_.heads),
                       shared = heads / static_cast<std::size_t>(m_.s_.kv_heads);
            row q = product(w.q, w.q_bias, x), k = product(w.k, w.k_bias, x);
            if (m_.s_.head_norms) {
                m_.norm_heads(q, w.q_norm);
                m_.norm_heads(k, w.k_norm);
            }
            m_.rotate(q, length_);
            m_.rotate(k, length_);
            keys_[l].push_back(k);
            values_[l].push_back(product(w.v, w.v_bias, x));
            int const window = l < m_.s_.windows.size() ? m_.s_.windows[l] : 0;
            auto const first = static_cast<std::size_t>(window > 0 && length_ >= window ? length_ - window + 1 : 0);
            row out(heads * D, 0.0);
            for (std::size_t n = 0; n < heads; ++n) {
                std::size_t const g = n / shared;
                row p;
                double most = -INFINITY, sum = 0.0;
                for (std::size_t t = first; t < keys_[l].size(); ++t) {
                    double score = 0.0;
                    for (std::size_t d = 0; d < D; ++d) score += q[n * D + d] * keys_[l][t][g * D + d];
                    p.push_back(score / std::sqrt(static_cast<double>(D)));
                    most = std::fmax(most, p.back());
                }
                for (double& e : p) sum += e = std::exp(e - most);
                for (std::size_t t = 0; t < p.size(); ++t)
                    for (std::size_t d = 0; d < D; ++d) out[n * D + d] += p[t] / sum * values_[l][first + t][g * D + d];
            }
            return product(w.o, w.o_bias, out);
        }

        model const& m_;
        int length_ = 0;
        std::vector<std::vector<row>> keys_, values_;
    };

private:
    struct layer {
        row input_norm{}, q{}, q_bias{}, k{}, k_bias{}, v{}, v_bias{}, o{}, o_bias{}, q_norm{}, k_norm{};
        row post_norm{}, gate{}, gate_bias{}, up{}, up_bias{}, down{}, down_bias{};
        row router{}, correction{};
        std::vector<layer> experts{};  ///< gate, up and down of each; the shared one last
    };
    layer read(int index) const {
        std::string const at = "model.layers." + std::to_string(index) + ".";
        bool const routes = static_cast<std::size_t>(index) < s_.routes.size() && s_.routes[static_cast<std::size_t>(index)];
        auto const bias = [this, &at](bool there, std::string const& name) { return there ? values_(at + name + ".bias") : row{}; };
        layer w;
        w.input_norm = values_(at + "input_layernorm.weight");
        std::size_t const H = static_cast<std::size_t>(s_.hidden), D = static_cast<std::size_t>(s_.head_dim),
                          Q = static_cast<std::size_t>(s_.heads) * D, K = static_cast<std::size_t>(s_.kv_heads) * D,
                          F = static_cast<std::size_t>(s_.ffn);
        if (s_.fused) {
            row const qkv = values_(at + "self_attn.qkv_proj.weight"), both = values_(at + "mlp.gate_up_proj.weight");
            w.q = rows(qkv, 0, Q, H);
            w.k = rows(qkv, Q, K, H);
            w.v = rows(qkv, Q + K, K, H);
            w.gate = rows(both, 0, F, H);
            w.up = rows(both, F, F, H);
        } else {
            w.q = values_(at + "self_attn.q_proj.weight");
            w.k = values_(at + "self_attn.k_proj.weight");
            w.v = values_(at + "self_attn.v_proj.weight");
        }
        if (!s_.fused && !routes) {
            w.gate = values_(at + "mlp.gate_proj.weight");
            w.up = values_(at + "mlp.up_proj.weight");
        }
        if (s_.head_norms) {
            w.q_norm = values_(at + "self_attn.q_norm.weight");
            w.k_norm = values_(at + "self_attn.k_norm.weight");
        }
        w.o = values_(at + "self_attn.o_proj.weight");
        w.q_bias = bias(s_.qkv_bias, "self_attn.q_proj");
        w.k_bias = bias(s_.qkv_bias, "self_attn.k_proj");
        w.v_bias = bias(s_.qkv_bias, "self_attn.v_proj");
        w.o_bias = bias(s_.output_bias, "self_attn.o_proj");
        w.post_norm = values_(at + "post_attention_layernorm.weight");
        if (routes) {
            read_experts(w, at + s_.routed.folder);
            return w;
        }
        w.down = values_(at + "mlp.down_proj.weight");
        w.gate_bias = bias(s_.mlp_bias, "mlp.gate_proj");
        w.up_bias = bias(s_.mlp_bias, "mlp.up_proj");
        w.down_bias = bias(s_.mlp_bias, "mlp.down_proj");
        return w;
    }

    void read_experts(layer& w, std::string const& at) const {
        experts const& e = s_.routed;
        auto const read_one = [&](std::string const& name, std::string const& gate, std::string const& up, std::string const& down) {
            layer one;
            one.gate = values_(at + name + gate + ".weight");
            one.up = values_(at + name + up + ".weight");
            one.down = values_(at + name + down + ".weight");
            w.experts.push_back(one);
        };
        w.router = values_(at + "gate.weight");
        if (e.correction) w.correction = values_(at + "gate.e_score_correction_bias");
        for (int i = 0; i < e.count; ++i) read_one("experts." + std::to_string(i) + ".", e.gate, e.up, e.down);
        if (e.shared) read_one("shared_experts.", "gate_proj", "up_proj", "down_proj");
    }

    row fed(layer const& w, row const& x) const { return w.experts.empty() ? gated(w, x) : routed(w, x); }

    row routed(layer const& w, row const& x) const {
        experts const& e = s_.routed;
        row score = product(w.router, {}, x);
        if (e.sigmoid) {
            for (double& v : score) v = 1.0 / (1.0 + std::exp(-v));
        } else {
            double most = -INFINITY, sum = 0.0;
            for (double const v : score) most = std::fmax(most, v);
            for (double& v : score) sum += v = std::exp(v - most);
            for (double& v : score) v /= sum;
        }
        row worth = score;
        for (std::size_t i = 0; i < worth.size() && e.correction; ++i) worth[i] += w.correction[i];
        leave_out_groups(worth);
        std::vector<std::size_t> const chosen = best_of(worth, e.chosen);
        double sum = e.epsilon;
        for (std::size_t const i : chosen) sum += score[i];
        row y(x.size(), 0.0);
        for (std::size_t const i : chosen) {
            row const part = gated(w.experts[i], x);
            double const gate = score[i] / (e.normalised ? sum : 1.0) * e.scale;
            for (std::size_t n = 0; n < y.size(); ++n) y[n] += gate * part[n];
        }
        if (e.shared) add(y, gated(w.experts.back(), x));
        return y;
    }
    /// The indices of the largest, the lower index first among equals.
    std::vector<std::size_t> best_of(row const& values, int count) const {
        std::vector<std::size_t> order(values.size());
        for (std::size_t i = 0; i < order.size(); ++i) order[i] = i;
        std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) { return values[a] > values[b]; });
        auto const n = static_cast<std::size_t>(count);
        if (n < order.size() && values[order[n]] > -INFINITY) margin_ = std::fmin(margin_, values[order[n - 1]] - values[order[n]]);
        order.resize(n);
        return order;
    }
    void leave_out_groups(row& worth) const {
        experts const& e = s_.routed;
        auto const size = worth.size() / static_cast<std::size_t>(e.groups);
        row groups;
        for (std::size_t at = 0; at < worth.size(); at += size) {
            row group(worth.begin() + static_cast<std::ptrdiff_t>(at), worth.begin() + static_cast<std::ptrdiff_t>(at + size));
            std::sort(group.begin(), group.end(), std::greater<>());
            groups.push_back(group[0] + (e.two_best && size > 1 ? group[1] : 0.0));
        }
        std::vector<std::size_t> const kept = best_of(groups, e.chosen_groups);
        for (std::size_t i = 0; i < worth.size(); ++i)
            if (std::find(kept.begin(), kept.end(), i / size) == kept.end()) worth[i] = -INFINITY;
    }

    static row rows(row const& w, std::size_t first, std::size_t count, std::size_t columns) {
        auto const begin = w.begin() + static_cast<std::ptrdiff_t>(first * columns);
        return {begin, begin + static_cast<std::ptrdiff_t>(count * columns)};
    }
    void norm_heads(row& x, row const& gain) const {
        for (std::size_t at = 0; at < x.size(); at += gain.size()) {
            auto const begin = x.begin() + static_cast<std::ptrdiff_t>(at);
            row const head = normed(row(begin, begin + static_cast<std::ptrdiff_t>(gain.size())), gain);
            for (std::size_t d = 0; d < gain.size(); ++d) x[at + d] = head[d];
        }
    }
    static void add(row& to, row const& x) {
        for (std::size_t i = 0; i < to.size(); ++i) to[i] += x[i];
    }
    static row product(row const& w, row const& bias, row const& x) {
        row y(w.size() / x.size());
        for (std::size_t n = 0; n < y.size(); ++n) {
            for (std::size_t k = 0; k < x.size(); ++k) y[n] += x[k] * w[n * x.size() + k];
            if (!bias.empty()) y[n] += bias[n];
        }
        return y;
    }
    row normed(row const& x, row const& gain) const {
        double squares = 0.0;
        for (double const v : x) squares += v * v;
        double const root = std::sqrt(squares / static_cast<double>(x.size()) + s_.epsilon);
        row y(x.size());
        for (std::size_t i = 0; i < x.size(); ++i) y[i] = x[i] / root * gain[i];
        return y;
    }
    static row gated(layer const& w, row const& x) {
        row g = product(w.gate, w.gate_bias, x);
        row const u = product(w.up, w.up_bias, x);
        for (std::size_t i = 0; i < g.size(); ++i) g[i] = g[i] / (1.0 + std::exp(-g[i])) * u[i];
        return product(w.down, w.down_bias, g);
    }
    double frequency(int j) const {
        double const inv = std::pow(s_.theta, -2.0 * j / s_.head_dim);
        if (s_.rope == stretch::none) return inv;
        if (s_.rope == stretch::linear) return inv / s_.factor;
        double const wave = 2.0 * std::numbers::pi / inv;
        if (wave < s_.original / s_.high) return inv;
        if (wave > s_.original / s_.low) return inv / s_.factor;
        double const t = (s_.original / wave - s_.low) / (s_.high - s_.low);
        return (1.0 - t) * inv / s_.factor + t * inv;
    }
    void rotate(row& x, int position) const {
        auto const D = static_cast<std::size_t>(s_.head_dim), half = D / 2;
        for (std::size_t head = 0; head < x.size(); head += D)
            for (std::size_t j = 0; j < half; ++j) {
                double const c = std::cos(position * frequencies_[j]), s = std::sin(position * frequencies_[j]);
                double const a = x[head + j], b = x[head + j + half];
                x[head + j] = a * c - b * s;
                x[head + j + half] = b * c + a * s;
            }
    }

    shape s_;
    std::function<row(std::string const&)> values_;
    row embed_, norm_, head_;
    std::vector<layer> layers_;
    mutable double margin_ = INFINITY;
    std::vector<double> frequencies_;
};

}  // namespace oracle
