// Deliberate faults, one for every piece of sharding: the red arms. A parity test that none of them can fail proves nothing.
// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <cstdint>

namespace tenon::inline v0::testing {

/// What a model does wrong on purpose. For tests only; the default does nothing wrong.
enum class fault : std::uint8_t {
    none,
    swapped_output_slices,  ///< neighbours' output slices change places in every join
    wrong_join_order,       ///< partial sums are added from left to right, not by the tree
    dropped_peer,           ///< the last rank's contribution to every join is left out
    shifted_seam,           ///< every stage but the first begins one layer late
    shifted_kv_heads,       ///< a rank holds its neighbour's key/value heads
    stale_kv_row,           ///< a decode step does not store its key and value
    swapped_ranges,         ///< two neighbouring stages of as many layers hold each other's weights
    idle_rank,              ///< the last rank of every group multiplies nothing
    swapped_gate_up,        ///< the last rank of every group has the gate and up matrices of its experts exchanged
    dropped_rows,           ///< what the last rank of every group computes for its experts is left out
    reversed_experts,       ///< the first rank of every group has its experts in reverse
    shifted_owner,          ///< every rank holds the experts that come one after its own
    swapped_widths,         ///< a rank cuts a shared expert where a routed one is cut, and the other way round
    own_magnitudes,         ///< the last rank of every group codes its inputs by what it has of a row, not by the whole row
};

/// What a worker process does wrong on purpose, and when. For tests only.
enum class worker_fault_kind : std::uint8_t {
    none,
    throws,   ///< an exception in a layer
    exits,    ///< the process exits with status 3
    killed,   ///< SIGKILL
    stops,    ///< SIGSTOP: it is there and does nothing
    garbage,  ///< it answers what no worker answers
    slow,     ///< it sleeps 20 ms at every step from then on
};
struct worker_fault {
    worker_fault_kind kind = worker_fault_kind::none;
    int worker = -1;         ///< which; -1: none
    std::int64_t steps = 0;  ///< after so many slices loaded and steps taken; 0: before it has built anything
};

}  // namespace tenon::inline v0::testing
