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
#include <tenon/runtime/fault.hpp>
#include <tenon/runtime/options.hpp>
#include <tenon/runtime/processes/message.hpp>

#include <cstddef>
#include <cstdint>
#include <string>
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
    std::string isa{};
    bool traces = false, reports = false;  ///< what routers choose; every slice loaded
    testing::fault fault = testing::fault::none;
    testing::worker_fault worker_fault{};
    std::uint64_t arena_bytes = 0;
};

/// Names, shapes, types and places of a folder's tensors: what both sides must see before a weight is read.
template <class = void>
std::string digest_of(checkpoint::folder const& files) {
    checkpoint::sha256 digest;
    for (checkpoint::tensor_view const* const t : files.tensors()) {
        digest.add(t->name).add(std::string_view(" ")).add(name_of(t->type)).add(checkpoint::show(t->shape));
        digest.add(std::as_bytes(t->data.first(t->data.size() < 64 ? t->data.size() : 64)));
    }
    return digest.hex();
}

inline void write(byte_writer& out, worker_part const& p) {
    out.put(p.worker).put(p.config).text(p.directory).text(p.digest).put(p.scaling).put(p.weights).text(p.isa).put(p.traces).put(p.reports);
    out.put(p.fault).put(p.worker_fault).put(p.arena_bytes).put(static_cast<std::uint64_t>(p.stages.size()));
    for (stage_part const& s : p.stages) {
        out.put(s.traits.first_layer).put(s.traits.last_layer).put(s.traits.cuts).put(s.traits.canonical).put(s.traits.most_ranks);
        out.list(std::span<device_id const>(s.devices)).list(std::span<int const>(s.owners));
    }
}

/// Refuses what is no part: the words of message.hpp, and a worker or a count that cannot be.
template <class = void>
worker_part read_part(byte_reader& in) {
    worker_part p;
    p.worker = in.take<int>();
    p.config = in.take<model_config>();
    p.directory = in.text();
    p.digest = in.text();
    p.scaling = in.take<checkpoint::block_scaling>();
    p.weights = in.take<tenon::v0::weights>();
    p.isa = in.text();
    p.traces = in.take<std::uint8_t>() != 0;
    p.reports = in.take<std::uint8_t>() != 0;
    p.fault = in.take<testing::fault>();
    p.worker_fault = in.take<testing::worker_fault>();
    p.arena_bytes = in.take<std::uint64_t>();
    auto const stages = in.take<std::uint64_t>();
    if (stages < 1 || stages > static_cast<std::uint64_t>(most_layers))
        refuse("worker_part_is_whole", std::to_string(stages) + " stages; 1 to " + std::to_string(most_layers) + " would do");
    for (std::uint64_t i = 0; i < stages; ++i) {
        stage_part& s = p.stages.emplace_back();
        s.traits.first_layer = in.take<int>();
        s.traits.last_layer = in.take<int>();
        s.traits.cuts = in.take<rules>();
        s.traits.canonical = in.take<std::uint8_t>() != 0;
        s.traits.most_ranks = in.take<int>();
        s.devices = in.list<device_id>();
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
        if (part.config.kind_count < 1 || part.config.kind_count > most_kinds || part.config.layers > most_layers)
            refuse("worker_part_is_whole", "a config of " + std::to_string(part.config.layers) + " layers and " + std::to_string(part.config.kind_count) + " kinds");
        for (stage_part const& s : part.stages) {
            stages_.push_back(s.traits);
            stages_.back().devices = s.devices;
            stages_.back().owners = s.owners;
        }
        require(validate(*config_, stages_));
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
