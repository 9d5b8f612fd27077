// What ranks in different MPI processes read of each other, as messages: after each step everyone sends what it has published to those who
// read it. Bytes alone are moved: sums are the ranks' own, in the canonical order, and never the message layer's.
// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <tenon/core/share.hpp>
#include <tenon/runtime/batch.hpp>
#include <tenon/runtime/machine.hpp>

#ifndef OMPI_SKIP_MPICXX
#define OMPI_SKIP_MPICXX 1  // the C interface alone
#endif
#ifndef MPICH_SKIP_MPICXX
#define MPICH_SKIP_MPICXX 1
#endif
#include <mpi.h>
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <deque>
#include <exception>
#include <string>
#include <vector>

namespace tenon::inline v0::detail {

/// Calls `part(first, count)` for messages that together are `count` elements, at least one: MPI counts with an int.
template <class Part>
void each_message(std::int64_t count, Part part) {
    constexpr std::int64_t most = std::int64_t{1} << 30;
    std::int64_t first = 0;
    do part(first, static_cast<int>((std::min)(count - first, most)));
    while ((first += most) < count);
}
/// Elements of 4 bytes to or from another process.
inline void start_send(void const* data, std::int64_t count, int to, MPI_Comm group, std::vector<MPI_Request>& open) {
    each_message(count, [&](std::int64_t first, int elements) {
        open.emplace_back();
        MPI_Isend(static_cast<std::uint32_t const*>(data) + first, elements, MPI_UINT32_T, to, 0, group, &open.back());
    });
}
inline void start_receive(void* data, std::int64_t count, int from, MPI_Comm group, std::vector<MPI_Request>& open) {
    each_message(count, [&](std::int64_t first, int elements) {
        open.emplace_back();
        MPI_Irecv(static_cast<std::uint32_t*>(data) + first, elements, MPI_UINT32_T, from, 0, group, &open.back());
    });
}
inline void finish_all(std::vector<MPI_Request>& open) {
    MPI_Waitall(static_cast<int>(open.size()), open.data(), MPI_STATUSES_IGNORE);
    open.clear();
}

/// What the messages of a call are made of, kept from call to call: a step asks nobody for memory.
struct message_room {
    /// A peer's columns of a publication, side by side for the way.
    struct packed {
        publication what{};
        share columns{};
        std::vector<std::uint32_t> room{};

        void pack() {
            each_row([](std::uint32_t* packed_row, std::uint32_t* row, std::size_t bytes) { std::memcpy(packed_row, row, bytes); });
        }
        void put_back() {
            each_row([](std::uint32_t* packed_row, std::uint32_t* row, std::size_t bytes) { std::memcpy(row, packed_row, bytes); });
        }

    private:
        template <class Copy>
        void each_row(Copy copy) {
            auto* const whole = static_cast<std::uint32_t*>(what.data);
            std::int64_t const words = std::int64_t{columns.size()} * what.words;
            for (std::int64_t t = 0; t < what.rows; ++t)
                copy(room.data() + t * words, whole + (t * what.columns + columns.begin) * what.words, static_cast<std::size_t>(words) * 4);
        }
    };

    std::vector<MPI_Request> open;       ///< of a meeting
    std::vector<MPI_Request> handed_on;  ///< residual streams on their way; what they read lasts until the next call
    std::deque<packed> packings;         ///< stay where they are while messages read and write them
    std::size_t used = 0;
    std::vector<packed*> received;
};

/// Where one process meets the others in a call; process p is worker p. A step that throws ends every process with its reason: the others
/// are on their way to a message that would never come.
template <class Lazy>
class basic_message_place {
    using rank_program = basic_rank_program<Lazy>;

public:
    basic_message_place(basic_machine<Lazy>& ranks, batch const& b, int process, MPI_Comm group, message_room& room)
        : machine_(&ranks), batch_(&b), process_(process), group_(group), room_(&room) {}
    basic_message_place(basic_message_place const&) = delete;
    basic_message_place& operator=(basic_message_place const&) = delete;
    ~basic_message_place() { finish_all(room_->handed_on); }

    bool failed() const { return false; }
    void step() const {}
    void fail() const {
        std::string why = "unknown";
        try {
            throw;
        } catch (std::exception const& e) { why = e.what(); } catch (...) {
        }
        std::fprintf(stderr, "process %d of the model: %s; all processes are ended\n", process_, why.c_str());
        MPI_Abort(group_, 1);
    }

    /// Takes the residual stream from the process of the stage before.
    void await(std::size_t stage, std::size_t member) {
        rank_program& root = machine_->root_of(stage);
        int const from = machine_->workers_of(stage)[0];
        if (from == process_ || !machine_->members(stage + 1)[member]->takes_over()) return;
        start_receive(root.residual_place(), residual_count(), from, group_, room_->open);
        finish_all(room_->open);
    }
    /// Hands the residual stream on to every process of the next stage that takes it.
    void finish(std::size_t stage) {
        if (stage + 1 == machine_->graph().stages.size()) return;
        auto const next = machine_->members(stage + 1);
        auto const workers = machine_->workers_of(stage + 1);
        for (std::size_t m = 0; m < next.size(); ++m)
            if (workers[m] != process_ && next[m]->takes_over())
                start_send(machine_->root_of(stage).residual_place(), residual_count(), workers[m], group_, room_->handed_on);
    }

    /// Sends what a member has published in a step, and receives what its peers have.
    void meet(std::size_t stage, std::size_t member, detail::step const& done) {
        auto const peers = machine_->members(stage);
        auto const workers = machine_->workers_of(stage);
        auto const ranks = static_cast<int>(peers.size());
        std::vector<MPI_Request>& open = room_->open;
        room_->used = 0;
        room_->received.clear();
        peers[member]->publications(done, *batch_, *peers[member], [&](publication const& p) {
            for (int to = 0; to < ranks; ++to)
                if (to != static_cast<int>(member) && (!p.for_the_root || to == 0))
                    send(p, to, ranks, workers[static_cast<std::size_t>(to)], open);
        });
        for (std::size_t from = 0; from < peers.size(); ++from) {
            if (from == member) continue;
            peers[from]->publications(done, *batch_, *peers[member], [&](publication const& p) {
                if (!p.for_the_root || member == 0) receive(p, static_cast<int>(member), ranks, workers[from], open);
            });
        }
        finish_all(open);
        for (packed* const p : room_->received) p->put_back();
    }

private:
    using packed = message_room::packed;

    packed& packed_for(publication const& p, int reader, int ranks) {
        if (room_->used == room_->packings.size()) room_->packings.emplace_back();
        packed& one = room_->packings[room_->used++];
        one.what = p;
        one.columns = share_of(static_cast<int>(p.columns), reader, ranks);
        one.room.resize(static_cast<std::size_t>(p.rows * one.columns.size() * p.words));
        return one;
    }
    /// Of a decoded token they lie side by side as they are.
    static std::uint32_t* columns_of(publication const& p, int reader, int ranks) {
        return static_cast<std::uint32_t*>(p.data) + std::ptrdiff_t{share_of(static_cast<int>(p.columns), reader, ranks).begin} * p.words;
    }
    static std::int64_t words_of(publication const& p, int reader, int ranks) {
        return std::int64_t{share_of(static_cast<int>(p.columns), reader, ranks).size()} * p.words;
    }
    void send(publication const& p, int reader, int ranks, int process, std::vector<MPI_Request>& open) {
        if (!p.by_columns) return start_send(p.data, p.rows * p.columns * p.words, process, group_, open);
        if (p.rows == 1)
            return start_send(columns_of(p, reader, ranks), words_of(p, reader, ranks), process, group_, open);
        packed& one = packed_for(p, reader, ranks);
        one.pack();
        start_send(one.room.data(), static_cast<std::int64_t>(one.room.size()), process, group_, open);
    }
    void receive(publication const& p, int reader, int ranks, int process, std::vector<MPI_Request>& open) {
        if (!p.by_columns) return start_receive(p.data, p.rows * p.columns * p.words, process, group_, open);
        if (p.rows == 1)
            return start_receive(columns_of(p, reader, ranks), words_of(p, reader, ranks), process, group_, open);
        packed& one = packed_for(p, reader, ranks);
        start_receive(one.room.data(), static_cast<std::int64_t>(one.room.size()), process, group_, open);
        room_->received.push_back(&one);
    }
    std::int64_t residual_count() const { return std::int64_t{batch_->rows()} * machine_->graph().config->hidden; }

    basic_machine<Lazy>* machine_;
    batch const* batch_;
    int process_;
    MPI_Comm group_;
    message_room* room_;
};

}  // namespace tenon::inline v0::detail
