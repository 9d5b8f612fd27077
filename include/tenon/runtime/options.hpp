// What a caller says when it loads or runs a model, and what it gets back. Values and names, no work.
// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <tenon/core/dtype.hpp>
#include <tenon/core/error.hpp>
#include <tenon/core/profile.hpp>
#include <tenon/runtime/fault.hpp>
#include <tenon/runtime/rank_weights.hpp>

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace tenon::inline v0 {

struct placement_map;

/// Told which experts every token chose, after each call, on the caller's thread: layer by layer, token by token.
struct routing_observer {
    /// `sequence` is the state's number, from 0 in the order in which the model made its states; a generation makes one for each prompt,
    /// in order. `experts` are the ids, ascending.
    virtual void routed(int layer, std::int64_t sequence, std::int64_t position, std::span<std::int32_t const> experts) = 0;

protected:
    ~routing_observer() = default;
};

/// How a checkpoint is loaded.
struct load_options {
    tenon::v0::weights weights = tenon::v0::weights::stored;  ///< format of projections and of an untied head
    kv_format kv = kv_format::f32;                ///< of keys and values
    numeric_profile profile = numeric::canonical_1;  ///< the arithmetic; another one changes bits, and is part of snapshots and bundles
    std::string_view isa = "auto";                ///< of device::cpu: auto | portable | avx2 | avx512 | neon; TENON_ISA where `auto`
    int threads = 1;                              ///< of each rank's worker, on device::cpu; they change no bit
    bool pin_threads = true;                      ///< each but a worker's first stays on a core, where there is one for every thread
    load_observer* observer = nullptr;            ///< told of every slice loaded
    placement_map const* placement = nullptr;     ///< which rank owns which expert; read while loading
    routing_observer* routing = nullptr;          ///< told which experts every token chose, as long as the model lives
    testing::fault fault = testing::fault::none;  ///< for tests alone
};

/// Which rows of a batch get logits.
enum class rows_wanted : std::uint8_t { last, all };

/// A tensor given back: as it is held, whole, under its checkpoint name. In q8 a row is blocks of 34 bytes, each of 32 inputs: the scale in
/// half precision, low byte first, and the signed codes.
struct parameter {
    std::string name;
    dtype type = dtype::f32;          ///< of the elements; u8 where there are blocks instead
    std::vector<std::int64_t> shape;  ///< in elements
    std::vector<std::byte> data;
    held_as format = held_as::f32;
};

}  // namespace tenon::inline v0
