// One call's rows, and the steps in which a stage computes them. Values alone.
// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <tenon/core/config.hpp>
#include <tenon/runtime/sequence_cache.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace tenon::inline v0::detail {

/// New tokens of one sequence inside a batch.
struct batch_part {
    std::span<sequence_cache> caches{};  ///< of the sequence, one a rank of the graph
    std::int64_t number = 0;             ///< of the sequence, among those that its model has made
    int first_row = 0, rows = 0;
    std::int64_t first_position = 0;
};

/// The angles of a batch's rows for heads of one width.
struct rotation {
    std::vector<float> cosines, sines;  ///< (T, D / 2)
};

/// One call: the rows of all its sequences, one after the other. Read-only while ranks run.
struct batch {
    std::vector<batch_part> parts;
    std::vector<token_id> tokens;                  ///< (T)
    std::array<rotation, most_kinds> rotations{};  ///< by kind of layer; kinds of one head width share the first one's
    std::vector<int> wanted;                       ///< rows whose logits are asked for, ascending
    std::byte const* handed = nullptr;             ///< (T, H) float32, to the first stage of a machine where that is not the model's
    int rows() const { return static_cast<int>(tokens.size()); }
};

/// Which entry of `rotations` a kind of layer uses: that of the first kind with its head width.
constexpr std::size_t rotation_of(model_config const& c, std::size_t kind) {
    std::size_t first = 0;
    while (c.kinds[first].attention.head_dim != c.kinds[kind].attention.head_dim) ++first;
    return first;
}

enum class step_kind : std::uint8_t {
    look_up,
    collect,
    attend,
    attention_sums,
    attention_join,
    feed,
    feed_sums,
    feed_join,
    route,
    serve,
    join_widths,
    combine,
    finish,
    head
};

/// What a rank leaves for its peers to read after a step: rows of elements. Every peer reads all of it, or its share of the columns, or the
/// root alone reads.
struct publication {
    void* data = nullptr;
    std::int64_t rows = 0, columns = 0;
    bool by_columns = false, for_the_root = false;
    int words = 1;  ///< of four bytes, of an element
};

/// A step of a stage's program; `layer` counts from the stage's first.
struct step {
    step_kind what = step_kind::attend;
    int layer = 0;
};

}  // namespace tenon::inline v0::detail
