// How a product is cut into tiles: panels of weights under row tiles of activations, one block of inputs after the other. Knows what a tile of
// a format reads and where it leaves its sums, not how an instruction set computes it.
// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <tenon/kernel/packed_matrix.hpp>

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>

namespace tenon::inline v0::kernel::detail {

inline constexpr int matmul_panel_group = 4;   // panels that pass under a block of activations
inline constexpr int matmul_most_rows = 14;    // of a tile
inline constexpr int matmul_tile_sums = 448;   // rows x outputs of a tile at most: 14 x 32, 4 x 64 or 1 x 128
inline constexpr int matmul_slots = 5;         // of a tile: waiting sub-trees of levels 0 to 3, then chains that stopped
inline constexpr int matmul_chains = 4;        // the slot of those

/// What one tile computes: chains over inputs [k_begin, k_end), from the sums at `from` to those at `to`.
struct matmul_step {
    std::byte const* weights;    // first of the panels side by side
    std::size_t panel_bytes;     // from one panel to the next
    float const* x;              // activations [k - k_begin][Rows]
    std::byte const* next;       // weights to fetch into the second cache meanwhile: a row tile's part of the next block,
    std::ptrdiff_t next_step;    //   so many bytes of it each time the chain goes on by an input of f32, a pair of bf16, a block of q8
    int k_begin, k_end;
    float const* from;           // [Rows][Panels * 32]
    float const* waiting;        // [adds][Rows][Panels * 32]: sub-trees to be added to the chain's end, neighbours first
    int adds;
    float* to;                   // [Rows][Panels * 32], rows `to_stride` apart
    std::ptrdiff_t to_stride;
};
using matmul_tile_function = void (*)(matmul_step const&);

/// Where chains start.
alignas(64) inline constexpr float matmul_nothing[matmul_tile_sums]{};

/// The tiles of one height: as many panels side by side as the registers like, and one panel.
struct matmul_tile_pair {
    int panels = 0;
    matmul_tile_function side_by_side = nullptr, alone = nullptr;
};

/// What there is to know of one format's products, with one instruction set.
struct matmul_format {
    panel_format format = panel_format::f32;
    int k_block = 256;               // inputs of one block where there are several row tiles
    int inputs = 1, step_bytes = 0;  // so many inputs of a panel are one step, of so many bytes
    int x_inputs = 1, x_words = 1;   // so many inputs of a prepared row are so many words
    int tile_rows = 0;               // of a tile at most
    void (*run)(matmul_tile_function, matmul_step const&) = nullptr;  // in a mode of floats that the tree's additions are not made in
    void (*add)(float* out, float const* low, float const* high, std::size_t n) = nullptr;
    matmul_tile_pair tiles[matmul_most_rows]{};  // by rows - 1
};

/// Rows of a block in tiles as equal as can be: the first `tall` have one row more than the others.
struct matmul_tiles {
    int count, tall, low;
    constexpr matmul_tiles(int rows, int most) : count((rows + most - 1) / most), tall(rows % count), low(rows / count) {}
    constexpr int height(int t) const { return low + (t < tall ? 1 : 0); }
    constexpr int first_row(int t) const { return t * low + (t < tall ? t : tall); }
};

/// What a tile left undone with the ends of its chains: additions up the tree, and the way out where the matrix ends inside a panel.
inline void settle_apart(matmul_format const& f, float* slots, int rows, int wide, int adds, float* y, std::ptrdiff_t y_stride, int outputs) {
    auto const size = static_cast<std::size_t>(rows) * static_cast<std::size_t>(wide);
    float* const chains = slots + matmul_chains * size;
    for (int i = 0; i < adds; ++i, slots += size)
        f.add(y == nullptr && i + 1 == adds ? slots + size : chains, slots, chains, size);
    if (y == nullptr) return;
    auto const bytes = sizeof(float) * static_cast<std::size_t>(outputs < wide ? outputs : wide);
    for (std::ptrdiff_t m = 0; m < rows; ++m) std::memcpy(y + m * y_stride, chains + m * wide, bytes);
}

/// Panel groups, then blocks of k, then the group's panels, then row tiles: a block of one panel passes under all row tiles while it is in the
/// first cache, and a block of activations under all panels of the group while it is in the second.
inline void multiply_tiles(matmul_format const& f, float* y, std::ptrdiff_t y_stride, packed_matrix const& w, void const* prepared, int rows,
                           int first_panel, int panel_count, float* stack) {
    int const length = w.columns / w.segments, end_panel = first_panel + panel_count;
    matmul_tiles const tiles(rows, f.tile_rows);
    bool const one_tile = tiles.count == 1;
    int const k_block = one_tile ? w.columns : f.k_block;
    int const side_by_side = one_tile ? f.tiles[tiles.low - 1].panels : 1, at_once = one_tile ? side_by_side : matmul_panel_group;
    std::ptrdiff_t const row_words = std::ptrdiff_t{(w.columns + f.x_inputs - 1) / f.x_inputs} * f.x_words;
    matmul_step s{};
    s.panel_bytes = panel_bytes(f.format, w.columns);
    s.next_step = one_tile ? 0 : (f.step_bytes + tiles.count - 1) / tiles.count;
    for (int panel = first_panel; panel < end_panel;) {
        int const left = end_panel - panel;
        int const group = left >= at_once ? at_once : one_tile ? 1 : left;
        int const steps = one_tile ? 1 : group;  // panels one after the other
        bool const alone = !one_tile || group < side_by_side;
        int const wide = (alone ? 1 : group) * panel_rows;
        auto const* const first = static_cast<std::byte const*>(w.data) + static_cast<std::size_t>(panel) * s.panel_bytes;
        for (int segment = 0; segment < w.segments; ++segment) {
            int const begin = segment * length;
            for (int k = begin; k < begin + length; k += k_block) {
                s.k_begin = k;
                s.k_end = begin + length - k < k_block ? begin + length : k + k_block;
                bool const ends = s.k_end == begin + length, leaves = ends && segment + 1 == w.segments;
                int const adds = ends ? std::countr_one(static_cast<unsigned>(segment)) : 0;
                int const slot = ends ? adds : matmul_chains;  // where the sums wait, unless they leave
                std::ptrdiff_t const at = std::ptrdiff_t{k / f.inputs} * f.step_bytes;
                std::ptrdiff_t const after = std::ptrdiff_t{s.k_end / f.inputs} * f.step_bytes;
                std::ptrdiff_t const part = (after - at) / tiles.count, x_at = std::ptrdiff_t{k / f.x_inputs} * f.x_words;
                for (int p = 0; p < steps; ++p) {
                    s.weights = first + static_cast<std::size_t>(p) * s.panel_bytes;
                    s.next = s.weights + at;  // the block after this one; nothing where that is not known
                    if (p + 1 < steps)
                        s.next += s.panel_bytes;
                    else if (s.k_end < w.columns)
                        s.next = first + after;
                    else if (left > group)
                        s.next = s.weights + s.panel_bytes;
                    int const outputs = w.rows - (panel + p) * panel_rows;
                    bool const apart = (leaves && outputs < wide) || (f.run != nullptr && adds > 0);
                    s.adds = apart ? 0 : adds;
                    s.to_stride = leaves && !apart ? y_stride : wide;
                    auto const* x = static_cast<float const*>(prepared);
                    float* slots = stack + std::ptrdiff_t{p} * rows * (matmul_slots * panel_rows);
                    float* out = y + std::ptrdiff_t{panel + p} * panel_rows;
                    for (int t = 0; t < tiles.count; ++t) {
                        int const height = tiles.height(t), size = height * wide;
                        s.x = x + x_at * height;
                        s.from = k == begin ? matmul_nothing : slots + matmul_chains * size;
                        s.waiting = slots;
                        s.to = apart ? slots + matmul_chains * size : leaves ? out : slots + slot * size;
                        matmul_tile_pair const& tile = f.tiles[height - 1];
                        matmul_tile_function const chains = alone ? tile.alone : tile.side_by_side;
                        f.run != nullptr ? f.run(chains, s) : chains(s);
                        if (apart) settle_apart(f, slots, height, wide, adds, leaves ? out : nullptr, y_stride, outputs);
                        s.next += part;
                        x += row_words * height;
                        slots += matmul_slots * size;
                        out += y_stride * height;
                    }
                }
            }
        }
        panel += group;
    }
}

}  // namespace tenon::inline v0::kernel::detail
