// What tells two models apart: digests of a description and of the weights that it uses. Independent of the plan, of the kinds' numbers,
// of shards and of the order in a header.
// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <tenon/checkpoint/block_scaling.hpp>
#include <tenon/checkpoint/folder.hpp>
#include <tenon/checkpoint/inventory.hpp>
#include <tenon/checkpoint/sha256.hpp>
#include <tenon/core/config.hpp>
#include <tenon/detail/deferred.hpp>
#include <tenon/model/registry.hpp>

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <system_error>
#include <thread>
#include <type_traits>
#include <vector>

namespace tenon::inline v0::checkpoint {

namespace detail {
/// Lines of a name and numbers, hashed; a double by its bits.
class fact_digest {
public:
    template <class... Numbers>
    fact_digest& line(std::string_view name, Numbers... numbers) {
        text_ += name;
        (put(numbers), ...);
        text_ += '\n';
        return *this;
    }
    std::string hex() const { return sha256_of(text_); }

private:
    template <class Number>
    void put(Number n) {
        text_ += ' ';
        if constexpr (std::is_same_v<Number, double>)
            text_ += std::to_string(std::bit_cast<std::uint64_t>(n));
        else
            text_ += std::to_string(static_cast<std::int64_t>(n));
    }
    std::string text_;
};
}  // namespace detail

/// The digest of a description, layer by layer: 64 lower-case digits.
template <class = void>
std::string config_digest(model_config const& config) {
    // Bound, not named: a member more does not compile until it has its place here.
    auto const& [adapter, layers, hidden, vocab, max_positions, rms_epsilon, rotation, tied, kind_count, kinds, kind_of] = config;
    auto const& [theta, scaling, factor, low, high, original] = rotation;
    detail::fact_digest facts;
    facts.line("tenon-config 1").line(model::name_of(adapter)).line("layers", layers).line("hidden", hidden).line("vocab", vocab);
    facts.line("max_positions", max_positions).line("rms_epsilon", rms_epsilon).line("tied", tied);
    facts.line("rope", theta, scaling, factor, low, high, original);
    for (int l = 0; l < layers; ++l) {
        auto const& [attention, ffn, routed] = config.layer(l);
        auto const& [heads, kv_heads, head_dim, qkv_bias, output_bias, qk_norm, window] = attention;
        auto const& [width, bias] = ffn;
        auto const& [count, chosen, expert_width, shared, scoring, correction, groups, chosen_groups, worth, normalised, epsilon, scale] =
            routed;
        facts.line("attention", heads, kv_heads, head_dim, qkv_bias, output_bias, qk_norm, window).line("ffn", width, bias);
        facts.line("experts", count, chosen, expert_width, shared, scoring, correction, groups, chosen_groups, worth, normalised, epsilon,
                   scale);
    }
    return facts.hex();
}

inline constexpr std::size_t digest_chunk = std::size_t{1} << 20;  ///< bytes

/// The digest of every tensor that a model uses, scales of codes included: 64 lower-case digits, the same whatever `threads` helps.
///
/// SHA-256 of the text that has, for each tensor in the order of the inventory, a line of its name, type and shape, and for each MiB of its
/// bytes the SHA-256 on a line: a tree of one level, since one thread hashes some 250 MB/s and a checkpoint has many GB.
template <class Lazy = void>
std::string weights_digest(folder const& files, model_config const& config, block_scaling scaling, unsigned threads) {
    using tenon::v0::detail::deferred;
    struct chunk {
        std::span<std::byte const> bytes{};
        std::array<char, 64> digest{};
    };
    deferred<Lazy, std::vector<tensor_view const*>> tensors;
    deferred<Lazy, std::vector<chunk>> chunks;
    auto const add = [&](tensor_view const* t) {
        tensors.push_back(t);
        for (std::size_t at = 0; at < t->data.size(); at += digest_chunk)
            chunks.push_back({t->data.subspan(at, (std::min)(digest_chunk, t->data.size() - at)), {}});
    };
    for (wanted_tensor const& w : inventory_of(config, expert_layout_of(files))) {
        add(files.find(w.name));
        if (tensors.back()->type == dtype::f8_e4m3) add(files.find(w.name + std::string(detail::scale_suffix)));
    }

    std::atomic<std::size_t> next{0};
    auto const work = [&chunks, &next] {
        for (std::size_t i = next++; i < chunks.size(); i = next++) chunks[i].digest = sha256().add(chunks[i].bytes).digits();
    };
    std::size_t const helpers = (std::min)(std::size_t{threads}, chunks.size());
    deferred<Lazy, std::vector<std::thread>> others;
    others.reserve(helpers);
    try {
        while (others.size() + 1 < helpers) others.emplace_back(work);
    } catch (std::system_error const&) {}  // no thread to be had: fewer do it
    work();
    for (std::thread& t : others) t.join();

    sha256 all;
    all.add(std::string_view("tenon-weights 1\nblocks " + std::to_string(scaling.rows) + " " + std::to_string(scaling.columns) + "\n"));
    std::size_t at = 0;
    for (tensor_view const* const t : tensors) {
        all.add(std::string_view(t->name + " " + std::string(name_of(t->type)) + " " + show(t->shape) + "\n"));
        for (std::size_t bytes = 0; bytes < t->data.size(); bytes += digest_chunk, ++at)
            all.add(std::string_view(chunks[at].digest.data(), chunks[at].digest.size())).add(std::string_view("\n"));
    }
    return all.hex();
}

}  // namespace tenon::inline v0::checkpoint
