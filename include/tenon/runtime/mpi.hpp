// runtime::mpi: every worker is a process of an MPI communicator. All of them run the same program and make the same calls; each holds its own
// part of the model, and all get the same answers. Open MPI and MPICH, C interface.
// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <tenon/checkpoint/folder.hpp>
#include <tenon/core/error.hpp>
#include <tenon/detail/deferred.hpp>
#include <tenon/graph/spell.hpp>
#include <tenon/runtime/engine.hpp>
#include <tenon/runtime/executor.hpp>
#include <tenon/runtime/machine.hpp>
#include <tenon/runtime/mpi/exchange.hpp>
#include <tenon/runtime/processes/identity.hpp>
#include <tenon/runtime/processes/message.hpp>
#include <tenon/runtime/processes/part.hpp>
#include <tenon/runtime/runtime.hpp>

#ifndef OMPI_SKIP_MPICXX
#define OMPI_SKIP_MPICXX 1  // the C interface alone
#endif
#ifndef MPICH_SKIP_MPICXX
#define MPICH_SKIP_MPICXX 1
#endif
#include <mpi.h>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace tenon::inline v0 {

namespace detail {

/// The processes of a model, on a communicator of its own.
class process_group {
public:
    explicit process_group(MPI_Comm of) {
        int initialised = 0;
        MPI_Initialized(&initialised);
        if (initialised == 0) refuse("mpi_is_initialised", "MPI_Init has not been called; a call of it before a load would do");
        MPI_Comm_dup(of, &comm_);
        MPI_Comm_rank(comm_, &own_);
        MPI_Comm_size(comm_, &size_);
    }
    process_group(process_group const&) = delete;
    process_group& operator=(process_group const&) = delete;
    ~process_group() {
        int finalised = 0;
        MPI_Finalized(&finalised);
        if (finalised == 0) MPI_Comm_free(&comm_);
    }

    /// Helpers of a rank call nothing of MPI, but it must know that there are others than its caller.
    void require_threads(int threads) const {
        int provided = MPI_THREAD_SINGLE;
        MPI_Query_thread(&provided);
        if (threads > 1 && provided < MPI_THREAD_FUNNELED)
            refuse("mpi_allows_threads", std::to_string(threads) + " threads are asked for, and MPI was initialised for one; MPI_Init_thread with "
                                         "MPI_THREAD_FUNNELED, or 1 thread, would do");
    }

    MPI_Comm comm() const { return comm_; }
    int own() const { return own_; }
    int size() const { return size_; }

    /// What process `from` has, on all of them.
    std::vector<std::byte> share_out(std::span<std::byte const> bytes, int from) const {
        auto count = static_cast<std::uint64_t>(bytes.size());
        MPI_Bcast(&count, 1, MPI_UINT64_T, from, comm_);
        std::vector<std::byte> all(static_cast<std::size_t>(count));
        if (own_ == from) all.assign(bytes.begin(), bytes.end());
        constexpr std::uint64_t most = std::uint64_t{1} << 30;
        for (std::uint64_t at = 0; at < count; at += most)
            MPI_Bcast(all.data() + at, static_cast<int>(count - at < most ? count - at : most), MPI_BYTE, from, comm_);
        return all;
    }

    /// All say whether they can go on, and what they see. Throws on all of them what the first one that cannot has said, or that two see
    /// different things.
    void agree(std::string_view law, std::string_view sentence, std::string_view seen) const {
        byte_writer out;
        out.text(law).text(sentence).text(seen);
        std::string first_seen;
        std::string refused_law, refused_sentence;
        for (int p = 0; p < size_; ++p) {
            std::vector<std::byte> const bytes = share_out(out.bytes(), p);
            byte_reader in(bytes);
            std::string const l = in.text(), s = in.text(), what = in.text();
            if (!l.empty() && refused_law.empty()) refused_law = l, refused_sentence = s;
            if (p == 0) first_seen = what;
            if (refused_law.empty() && l.empty() && what != first_seen) {
                refused_law = "mpi_processes_agree";
                refused_sentence = "process 0 sees " + first_seen + "; process " + std::to_string(p) + " sees " + what + "; the same on all would do";
            }
        }
        if (!refused_law.empty()) refuse(refused_law, refused_sentence);
    }

private:
    MPI_Comm comm_ = MPI_COMM_NULL;
    int own_ = 0, size_ = 1;
};

template <class Lazy>
class basic_message_executor final : public basic_executor<Lazy> {
public:
    basic_message_executor(graph_view graph, rank_starter::opener open, load_options const& options, std::shared_ptr<process_group const> group)
        : group_(std::move(group)),
          machine_(graph, open, options.isa, options.profile, options.fault, options.routing != nullptr),
          angles_(*graph.config),
          traces_(options.routing != nullptr) {
        machine_.keep_kv_in(options.kv);
        machine_.employ(options.threads, options.pin_threads, false, group_->own());
    }

    int workers() const { return machine_.workers(); }
    void load(checkpoint::tensor_source const& source, load_options const& options) {
        machine_.load(group_->own(), {source, options.weights, options.observer, options.fault, options.profile});
    }

    std::vector<sequence_cache> new_caches() const override {
        std::vector<sequence_cache> caches;
        for (int r = 0; r < machine_.ranks(); ++r) caches.push_back(machine_.rank(r).new_cache(machine_.worker_of_rank(r) != group_->own()));
        return caches;
    }
    void reserve(sequence& s, std::int64_t positions) override {
        for (sequence_cache& c : s.caches) c.reserve(positions);
    }
    void read_layer(sequence& s, int layer, float* keys, float* values) override {
        machine_.read_layer(s.caches, layer, s.length, keys, values, group_->own());
        grouped_attention const& a = machine_.graph().config->layer(layer).attention;
        std::size_t const D = static_cast<std::size_t>(a.head_dim), row = static_cast<std::size_t>(a.kv_heads) * D, T = static_cast<std::size_t>(s.length);
        std::vector<float> one(T * D);
        for (int w = 0; w < machine_.workers(); ++w)
            machine_.each_holder(layer, w, [&](auto const&, int, share heads, grouped_attention const&) {
                for (int h = heads.begin; h < heads.end; ++h)
                    for (float* const all : {keys, values}) {
                        float* const from = all + static_cast<std::size_t>(h) * D;
                        for (std::size_t t = 0; t < T; ++t) std::memcpy(one.data() + t * D, from + t * row, D * sizeof(float));
                        std::vector<std::byte> const bytes = group_->share_out(std::as_bytes(std::span(one)), w);
                        for (std::size_t t = 0; t < T; ++t) std::memcpy(from + t * row, bytes.data() + t * D * sizeof(float), D * sizeof(float));
                    }
            });
    }
    void write_layer(sequence& s, int layer, float const* keys, float const* values) override {
        machine_.write_layer(s.caches, layer, s.length, keys, values, group_->own());
    }

    void forward(batch& b) override {
        for (batch_part const& p : b.parts)
            for (sequence_cache& c : p.caches) c.grow(p.first_position + p.rows, machine_.graph().config->max_positions);
        angles_.fill(b);
        machine_.reserve(b, nullptr, group_->own());
        unroutable_ = {};
        if (b.rows() == 0) return;
        {
            kernel::flush_to_zero_guard const exact;
            basic_message_place<Lazy> place(machine_, b, group_->own(), group_->comm(), room_);
            machine_.serve(group_->own(), b, place);
        }
        std::size_t const last = machine_.graph().stages.size() - 1;
        std::size_t const count = b.wanted.size() * static_cast<std::size_t>(machine_.graph().config->vocab);
        share_rows(machine_.logits_place(), count, machine_.workers_of(last)[0]);
        agree_on_routes();
    }
    float const* logits() const override { return machine_.logits(); }
    unroutable_row take_unroutable() override { return std::exchange(unroutable_, {}); }
    std::span<std::int32_t const> traced(std::size_t stage) const override { return traced_[stage]; }

    std::vector<rank_census> counts() override {
        std::vector<rank_census> all;
        for (int r = 0; r < machine_.ranks(); ++r) {
            int const w = machine_.worker_of_rank(r);
            rank_census c = machine_.rank(r).counts();
            byte_writer out;
            for (std::int64_t const n : {c.messages, c.bytes, c.gathers, c.reductions, c.hand_overs, c.products, c.rows}) out.put(n);
            write(out, c.experts);
            std::vector<std::byte> const bytes = group_->share_out(out.bytes(), w);
            byte_reader in(bytes);
            for (std::int64_t* const n : {&c.messages, &c.bytes, &c.gathers, &c.reductions, &c.hand_overs, &c.products, &c.rows}) *n = in.take<std::int64_t>();
            c.experts = read_experts(in);
            all.push_back(std::move(c));
        }
        return all;
    }
    std::int64_t weight_bytes(int rank) override {
        std::int64_t bytes = machine_.rank(rank).weights().bytes();
        MPI_Bcast(&bytes, 1, MPI_INT64_T, machine_.worker_of_rank(rank), group_->comm());
        return bytes;
    }
    void visit_pieces(piece_visitor& visitor) override {
        for (int r = 0; r < machine_.ranks(); ++r) {
            int const w = machine_.worker_of_rank(r);
            struct sharing final : piece_visitor {
                process_group const* group = nullptr;
                int from = 0;
                void piece(held_piece const& p) override {
                    byte_writer out;
                    out.put(p.what).put(p.layer).put(p.expert).put(p.rows).put(p.columns).put(p.format).list(p.data);
                    group->share_out(out.bytes(), from);
                    last = p;
                    to->piece(p);
                }
                held_piece last{};
                piece_visitor* to = nullptr;
            } shared;
            shared.group = group_.get();
            shared.from = w;
            shared.to = &visitor;
            if (w == group_->own()) {
                std::vector<std::byte> room;
                detail::visit_pieces(machine_.rank(r), shared, room);
                group_->share_out({}, w);
                continue;
            }
            for (std::vector<std::byte> bytes = group_->share_out({}, w); !bytes.empty(); bytes = group_->share_out({}, w)) {
                byte_reader in(bytes);
                held_piece p;
                p.what = in.take<role>();
                p.layer = in.take<int>();
                p.expert = in.take<int>();
                p.rows = in.take<share>();
                p.columns = in.take<share>();
                p.format = in.take<held_as>();
                auto const size = in.take<std::uint64_t>();
                p.data = in.some(static_cast<std::size_t>(size));
                visitor.piece(p);
            }
        }
    }
    device::backend const& tail_ops() const override { return machine_.tail_ops(); }

private:
    void share_rows(float* data, std::size_t count, int from) const {
        constexpr std::size_t most = std::size_t{1} << 28;
        for (std::size_t at = 0; at < count; at += most)
            MPI_Bcast(data + at, static_cast<int>(count - at < most ? count - at : most), MPI_UINT32_T, from, group_->comm());
    }

    /// Every process hears of a row that a router of one of them could not route, and of what was chosen.
    void agree_on_routes() {
        bool routes = traces_;
        for (stage_traits const& s : machine_.graph().stages) routes = routes || routes_experts(*machine_.graph().config, s);
        if (!routes) return;
        traced_.assign(machine_.graph().stages.size(), {});
        for (std::size_t s = 0; s < machine_.graph().stages.size(); ++s) {
            auto& root = machine_.root_of(s).experts();
            auto const own = root.take_nan_row();
            byte_writer out;
            out.put(unroutable_row{own.layer, own.row}).list(traces_ ? root.traced() : std::span<std::int32_t const>{});
            std::vector<std::byte> const bytes = group_->share_out(out.bytes(), machine_.workers_of(s)[0]);
            byte_reader in(bytes);
            auto const found = in.take<unroutable_row>();
            if (found.row >= 0 && (unroutable_.row < 0 || found.layer < unroutable_.layer)) unroutable_ = found;
            traced_[s] = in.list<std::int32_t>();
            for (auto* const r : machine_.members(s)) r->experts().take_nan_row();  // the others' are the root's
        }
    }

    std::shared_ptr<process_group const> group_;
    basic_machine<Lazy> machine_;
    basic_angles<Lazy> angles_;
    bool traces_;
    message_room room_;
    unroutable_row unroutable_{};
    std::vector<std::vector<std::int32_t>> traced_;
};

}  // namespace detail

namespace runtime {

/// One process of a communicator for every distinct device of the graph: process p serves the device that is named p-th. Every process makes
/// the same calls in the same order, and gets the same logits, tokens and refusals; process 0 alone should print and write.
///
/// Before anything is exchanged all processes agree: what one of them refuses in a load, all refuse, and a build, a plan or a checkpoint that is
/// another one somewhere is refused by all (`mpi_processes_agree`), as is a number of processes that is not the devices'
/// (`mpi_processes_are_the_devices`), an MPI that is not initialised (`mpi_is_initialised`), and several threads a rank under one that was
/// initialised for one (`mpi_allows_threads`). A step that throws ends all processes with its
/// reason (MPI_Abort).
struct mpi {
    static constexpr runtime_kind kind = runtime_kind::mpi;
    static constexpr std::string_view name = "mpi";

    MPI_Comm communicator = MPI_COMM_WORLD;  ///< duplicated; collective over all of its processes

    template <class Devices>
    class starter final : public detail::rank_starter {
    public:
        explicit starter(mpi const& how) : group_(std::make_shared<detail::process_group>(how.communicator)) {}

        /// A load of which all processes hear how it ends.
        template <class Load>
        auto run(Load load) const {
            try {
                return load(this);
            } catch (refusal const& r) {
                if (!met_) group_->agree(r.law_name(), std::string_view(r.what()).substr(r.law_name().size() + 2), {});
                throw;
            } catch (std::exception const& e) {
                if (!met_) group_->agree("mpi_processes_load", e.what(), {});
                throw;
            }
        }

        std::unique_ptr<detail::executor> start(graph_view graph, checkpoint::folder const& files, checkpoint::block_scaling scaling, opener open,
                                                load_options const& options) const override {
            group_->require_threads(options.threads);
            auto ranks = std::make_unique<detail::basic_message_executor<void>>(graph, open, options, group_);
            if (ranks->workers() != group_->size())
                detail::refuse("mpi_processes_are_the_devices", std::to_string(group_->size()) + " processes for a graph of " + std::to_string(ranks->workers()) +
                                                                    " devices; " + std::to_string(ranks->workers()) + " would do");
            met_ = true;
            group_->agree({}, {}, seen(graph, files, options));
            std::string law, sentence;
            try {
                ranks->load(checkpoint::tensor_source(files, *graph.config, scaling), options);
            } catch (refusal const& r) {
                law = r.law_name();
                sentence = std::string_view(r.what()).substr(law.size() + 2);
            } catch (std::exception const& e) { law = "mpi_processes_load", sentence = e.what(); }
            group_->agree(law, sentence, {});
            return ranks;
        }

    private:
        /// What must be the same everywhere.
        static std::string seen(graph_view graph, checkpoint::folder const& files, load_options const& options) {
            struct sink {
                std::string text;
                void put(char c) { text += c; }
            } plan;
            detail::spell_plan(graph.stages, graph.stages[0].devices[0].kind, plan);
            for (stage_traits const& s : graph.stages)
                for (int const owner : s.owners) plan.text += " " + std::to_string(owner);
            return detail::build_identity{}.show() + ", config " + checkpoint::sha256_of(files.config_text()).substr(0, 16) + ", checkpoint " +
                   detail::digest_of(files).substr(0, 16) + ", weights " + std::string(name_of(options.weights)) + ", keys and values " +
                   std::string(name_of(options.kv)) + ", numeric profile " + std::string(options.profile.name) + ", plan " + plan.text;
        }

        std::shared_ptr<detail::process_group> group_;
        mutable bool met_ = false;  ///< all processes have come to the agreement that a load begins with
    };
};

static_assert(policy<mpi>);

}  // namespace runtime

}  // namespace tenon::inline v0
