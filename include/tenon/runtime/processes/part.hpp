// What a worker is told to build: the whole graph by value, and which worker it is. The graph is lowered again from it, so that both sides
// read one description.
// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <tenon/checkpoint/block_scaling.hpp>
#include <tenon/checkpoint/folder.hpp>
#include <tenon/checkpoint/sha256.hpp>
#include <tenon/core/config.hpp>
#include <tenon/detail/deferred.hpp>
#include <tenon/graph/lower.hpp>
#include <tenon/graph/validate.hpp>
#include <tenon/model/registry.hpp>
#include <tenon/runtime/fault.hpp>
#include <tenon/runtime/options.hpp>
#include <tenon/runtime/processes/message.hpp>

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

namespace tenon::inline v0::detail {

/// A stage by value: what `stage_traits` refers to is beside it.
struct stage_part {
    stage_traits traits{};
    std::vector<device_id> devices{};
    std::vector<int> owners{};
};

struct worker_part {
    int worker = 0;  ///< its number
    model_config config{};
    std::vector<stage_part> stages{};
    std::string directory{};
    std::string digest{};  ///< of the headers of the checkpoint
    checkpoint::block_scaling scaling{};
    tenon::v0::weights weights = tenon::v0::weights::stored;
    std::string profile{numeric::canonical_1.name};
    std::string isa{};
    kv_format kv = kv_format::f32;
    int threads = 1;
    bool pin_threads = true;
    bool traces = false, reports = false;  ///< what routers choose; every slice loaded
    testing::fault fault = testing::fault::none;
    testing::worker_fault worker_fault{};
};

/// Names, shapes, types and places of a folder's tensors: what both sides must see before a weight is read.
template <class = void>
std::string digest_of(checkpoint::folder const& files) {
    checkpoint::sha256 digest;
    for (checkpoint::tensor_view const* const t : files.tensors()) {
        digest.add(t->name).add(std::string_view(" ")).add(name_of(t->type)).add(checkpoint::show(t->shape));
        std::span<std::byte const> const head = t->data.first(t->data.size() < 64 ? t->data.size() : 64);
        digest.add(head);
        files.forget(head);  // 64 KiB are mapped for each: of 36,000 experts' tensors more than 2 GB
    }
    return digest.hex();
}

/// The last enumerator of an enumeration: a larger number is none.
template <class E>
inline constexpr E last_of{};
template <>
inline constexpr adapter_id last_of<adapter_id> = model::adapters.back().id;
template <>
inline constexpr rope_scaling last_of<rope_scaling> = rope_scaling::llama3;
template <>
inline constexpr expert_scoring last_of<expert_scoring> = expert_scoring::sigmoid;
template <>
inline constexpr group_worth last_of<group_worth> = group_worth::two_best;
template <>
inline constexpr join_kind last_of<join_kind> = join_kind::reduce;
template <>
inline constexpr device_kind last_of<device_kind> = device_kind::user;
template <>
inline constexpr dtype last_of<dtype> = dtype::f64;
template <>
inline constexpr held_as last_of<held_as> = held_as::fixed15;
template <>
inline constexpr placing last_of<placing> = placing::awaited;
template <>
inline constexpr kv_format last_of<kv_format> = kv_format::bf16;
template <>
inline constexpr tenon::v0::weights last_of<tenon::v0::weights> = tenon::v0::weights::fixed15;
template <>
inline constexpr testing::fault last_of<testing::fault> = testing::fault::own_magnitudes;
template <>
inline constexpr testing::worker_fault_kind last_of<testing::worker_fault_kind> = testing::worker_fault_kind::slow;

/// The fields of values, one after the other and without the padding between them. What is no value of its type is refused when it is read.
class field_writer {
public:
    explicit field_writer(byte_writer& out) : out_(out) {}
    template <class... T>
    void operator()(T const&... x) const {
        (one(x), ...);
    }

private:
    template <class T>
    void one(T const& x) const {
        if constexpr (std::is_same_v<T, std::string>)
            out_.text(x);
        else
            out_.put(x);
    }
    byte_writer& out_;
};
class field_reader {
public:
    explicit field_reader(byte_reader& in) : in_(in) {}
    template <class... T>
    void operator()(T&... x) const {
        (one(x), ...);
    }

private:
    template <class T>
    void one(T& x) const {
        if constexpr (std::is_same_v<T, std::string>)
            x = in_.text();
        else if constexpr (std::is_same_v<T, bool>)
            x = in_.flag();
        else if constexpr (std::is_enum_v<T>)
            x = in_.one_of(last_of<T>);
        else
            x = in_.take<T>();
    }
    byte_reader& in_;
};

// One list of fields for both ways. Bound, not named: a member more does not compile until it has its place here.
template <class Each, class Config>
void each_field_of_config(Each each, Config& config) {
    auto& [adapter, layers, hidden, vocab, max_positions, rms_epsilon, rotation, tied, kind_count, kinds, kind_of] = config;
    auto& [theta, scaling, factor, low, high, original] = rotation;
    each(adapter, layers, hidden, vocab, max_positions, rms_epsilon, theta, scaling, factor, low, high, original, tied, kind_count);
    for (auto& kind : kinds) {
        auto& [attention, ffn, routed] = kind;
        auto& [heads, kv_heads, head_dim, qkv_bias, output_bias, qk_norm, window] = attention;
        auto& [width, bias] = ffn;
        auto& [count, chosen, expert_width, shared, scoring, correction, groups, chosen_groups, worth, normalised, epsilon, scale] = routed;
        each(heads, kv_heads, head_dim, qkv_bias, output_bias, qk_norm, window, width, bias);
        each(count, chosen, expert_width, shared, scoring, correction, groups, chosen_groups, worth, normalised, epsilon, scale);
    }
    for (auto& k : kind_of) each(k);
}
template <class Each, class Traits>
void each_field_of_stage(Each each, Traits& traits) {
    auto& [first_layer, last_layer, devices, cuts, crossing, most_ranks, canonical, owners, placement] = traits;
    auto& [by_default, tensor, expert, expert_width, exact, tensor_join, width_join] = cuts;
    auto& [schema, element] = crossing;
    static_cast<void>(devices), static_cast<void>(owners);  // beside it
    each(first_layer, last_layer, by_default, tensor, expert, expert_width, exact, tensor_join, width_join, schema, element, most_ranks,
         canonical, placement);
}
template <class Each, class Part>
void each_field_of_part(Each each, Part& p) {
    auto& [worker, config, stages, directory, digest, scaling, weights, profile, isa, kv, threads, pin_threads, traces, reports, fault, worker_fault] = p;
    static_cast<void>(stages);  // after it
    each(worker, directory, digest, scaling.rows, scaling.columns, weights, profile, isa, kv, threads, pin_threads, traces, reports, fault);
    each(worker_fault.kind, worker_fault.worker, worker_fault.steps);
    each_field_of_config(each, config);
}

inline void write(byte_writer& out, worker_part const& p) {
    field_writer const put(out);
    each_field_of_part(put, p);
    out.put(static_cast<std::uint64_t>(p.stages.size()));
    for (stage_part const& s : p.stages) {
        each_field_of_stage(put, s.traits);
        out.put(static_cast<std::uint64_t>(s.devices.size()));
        for (device_id const& d : s.devices) put(d.kind, d.index);
        out.list(std::span<int const>(s.owners));
    }
}

/// Refuses what is no part: the words of message.hpp, and a count that cannot be.
template <class = void>
worker_part read_part(byte_reader& in) {
    auto const counted = [&in](std::string_view what, int most) {
        auto const count = in.take<std::uint64_t>();
        if (count < 1 || count > static_cast<std::uint64_t>(most))
            refuse("worker_part_is_whole",
                   std::to_string(count) + " " + std::string(what) + "; 1 to " + std::to_string(most) + " would do");
        return static_cast<int>(count);
    };
    field_reader const take(in);
    worker_part p;
    each_field_of_part(take, p);
    for (int left = counted("stages", most_layers); left > 0; --left) {
        stage_part& s = p.stages.emplace_back();
        each_field_of_stage(take, s.traits);
        if (s.traits.most_ranks < 0 || s.traits.most_ranks > most_ranks_of_a_stage)
            refuse("worker_part_is_whole", "a backend of " + std::to_string(s.traits.most_ranks) + " ranks; 0 to " +
                                               std::to_string(most_ranks_of_a_stage) + " would do");
        for (int devices = counted("devices", most_ranks_of_a_stage); devices > 0; --devices) {
            device_id& d = s.devices.emplace_back();
            take(d.kind, d.index);
        }
        s.owners = in.list<int>();
    }
    in.end();
    return p;
}

template <class = void>
class basic_rebuilt_graph;
using rebuilt_graph = basic_rebuilt_graph<>;  // lazy: instantiated by who uses it

/// A graph from its stages. Checked as any other; refers to the part.
template <class Lazy>
class basic_rebuilt_graph {
public:
    explicit basic_rebuilt_graph(worker_part const& part) : config_(&part.config) {
        for (stage_part const& s : part.stages) {
            stages_.push_back(s.traits);
            stages_.back().devices = s.devices;
            stages_.back().owners = s.owners;
        }
        require(validate(*config_, stages_));  // no count is used before
        lower(*config_, stages_, *this);
    }
    basic_rebuilt_graph(basic_rebuilt_graph const&) = delete;
    basic_rebuilt_graph& operator=(basic_rebuilt_graph const&) = delete;

    graph_view view() const { return {config_, stages_, {nodes_, tensors_, edges_}}; }

    int add(tensor const& x) {
        tensors_.push_back(x);
        return static_cast<int>(tensors_.size()) - 1;
    }
    int add(node const& x) {
        nodes_.push_back(x);
        return static_cast<int>(nodes_.size()) - 1;
    }
    void add(edge const& x) { edges_.push_back(x); }

private:
    model_config const* config_;
    deferred<Lazy, std::vector<stage_traits>> stages_;
    deferred<Lazy, std::vector<node>> nodes_;
    deferred<Lazy, std::vector<tensor>> tensors_;
    deferred<Lazy, std::vector<edge>> edges_;
};

}  // namespace tenon::inline v0::detail
