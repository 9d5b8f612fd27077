// One stage of a graph alone in a process: token ids or a bundle in, a bundle or the tail's output out. Whoever calls brings the
// transport, and owns the states. Knows no graph type and no wire.
// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <tenon/boundary/bundle.hpp>
#include <tenon/boundary/contract.hpp>
#include <tenon/boundary/tail_output.hpp>
#include <tenon/core/sampling.hpp>
#include <tenon/runtime/engine.hpp>
#include <tenon/runtime/sampling.hpp>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace tenon::inline v0 {

/// What a stage is handed: new tokens by a caller, if it is the head; if not, a bundle by the stage before it.
struct stage_input {
    std::optional<std::span<feed const>> tokens{};
    boundary::bundle_view const* bundle = nullptr;
    std::span<state* const> states{};  ///< (B), of the bundle's sequences, in its order
};

/// What is asked of a stage. All but `values` is the tail's.
struct stage_call {
    rows_wanted rows = rows_wanted::last;  ///< a stage that is not the tail gives every row
    std::optional<sampling> sample{};      ///< by which the token after every row of the output is chosen
    /// (B), by which `sample` draws: what `generate_batch` calls i. Empty: the sequence's place in the batch.
    std::span<std::uint64_t const> sequences{};
    boundary::finiteness values = boundary::finiteness::strict;  ///< whether an infinity or a NaN in a bundle is refused
};

template <class = void>
struct basic_stage_output;
using stage_output = basic_stage_output<>;  // lazy: instantiated by who uses it

/// What a stage gives, one or the other.
template <class Lazy>
struct basic_stage_output {
    bool is_tail = false;
    detail::deferred<Lazy, boundary::bundle> bundle{};     ///< of a stage that is not the tail
    detail::deferred<Lazy, boundary::tail_output> tail{};  ///< of the tail
};

namespace detail {

/// Where a stage stands.
struct stage_place {
    int index = 0, of = 1;  ///< among the graph's stages
    constexpr bool is_head() const { return index == 0; }
    constexpr bool is_tail() const { return index + 1 == of; }
    constexpr std::string_view role() const { return is_head() ? (is_tail() ? "whole model" : "head") : is_tail() ? "tail" : "middle"; }
};

/// Refuses a stage that a graph does not have.
template <class = void>
int require_stage(graph_view graph, int stage) {
    auto const stages = static_cast<int>(graph.stages.size());
    if (stage < 0 || stage >= stages)
        refuse("stage_exists",
               "stage " + std::to_string(stage) + " of " + std::to_string(stages) + "; 0 to " + std::to_string(stages - 1) + " would do");
    return stage;
}

template <class = void>
class basic_stage_engine;
using stage_engine = basic_stage_engine<>;  // lazy, as the engine

/// An engine whose ranks are those of one stage.
template <class Lazy>
class basic_stage_engine : public basic_engine<Lazy> {
    using base = basic_engine<Lazy>;

public:
    basic_stage_engine(graph_view graph, int stage, checkpoint::folder files, checkpoint::block_scaling scaling, typename base::opener open,
                       load_options const& options, runtime_kind kind)
        : base(graph, std::move(files), scaling, open, options, kind, nullptr, stage),
          place_{stage, static_cast<int>(graph.stages.size())} {
        stage_traits const& s = this->here_[0];
        if (!place_.is_head()) takes_ = contract_before(s.first_layer);
        if (!place_.is_tail()) gives_ = contract_before(s.last_layer + 1);
    }

    stage_place place() const { return place_; }
    stage_traits const& traits() const { return this->here_[0]; }
    /// What the stage takes; none of a head.
    boundary::contract const* takes() const { return place_.is_head() ? nullptr : &takes_; }
    /// What the stage after it takes; none of a tail.
    boundary::contract const* gives() const { return place_.is_tail() ? nullptr : &gives_; }

    basic_stage_output<> forward_stage(stage_input const& in, stage_call const& how) {
        typename base::lease const held(*this);
        this->require_open();
        require_role(in);
        require_meaning(how, place_.is_head() ? in.tokens->size() : in.states.size());
        members_.clear();
        if (place_.is_head())
            take_tokens(held, *in.tokens, how);
        else
            take_bundle(*in.bundle, in.states, how);
        if (!place_.is_tail()) this->batch_.wanted.clear();
        this->executor_->forward(this->batch_);
        this->require_scores();
        basic_stage_output<> out;
        out.is_tail = place_.is_tail();
        if (out.is_tail)
            give_rows(out.tail, how);
        else
            give_bundle(out.bundle);
        if (this->routing_ != nullptr) this->tell_routing();
        for (std::size_t i = 0; i < members_.size(); ++i) members_[i]->length += this->batch_.parts[i].rows;
        return out;
    }

private:
    /// The profile of the load; a backend with arithmetic of its own is a profile of its own, under its name.
    boundary::contract contract_before(int layer) const {
        boundary::contract c = boundary::contract_of(this->config(), layer, traits().crossing);
        c.profile = traits().canonical ? this->profile_.name : name_of(traits().devices[0].kind);
        return c;
    }

    /// Only a head takes token ids, and it takes nothing else.
    void require_role(stage_input const& in) const {
        auto const refuse_input = [this](std::string_view law, std::string_view what, std::string_view instead) {
            refuse(law, "stage " + std::to_string(place_.index) + " of " + std::to_string(place_.of) + " is the " +
                            std::string(place_.role()) + " and was handed " + std::string(what) + "; " + std::string(instead) +
                            " would do");
        };
        if (place_.is_head()) {
            if (in.bundle != nullptr || !in.states.empty())
                refuse_input("head_takes_tokens", in.tokens ? "tokens and a bundle" : "a bundle", "tokens alone");
            if (!in.tokens) refuse_input("head_takes_tokens", "nothing", "tokens");
            return;
        }
        if (in.tokens) refuse_input("stage_takes_a_bundle", in.bundle != nullptr ? "tokens and a bundle" : "tokens", "a bundle alone");
        if (in.bundle == nullptr) refuse_input("stage_takes_a_bundle", "nothing", "a bundle");
    }

    void require_meaning(stage_call const& how, std::size_t sequences) const {
        if (!how.sample) return;
        if (!place_.is_tail())
            refuse("tail_alone_samples", "stage " + std::to_string(place_.index) + " of " + std::to_string(place_.of) + " is the " +
                                             std::string(place_.role()) + "; no sampling contract would do");
        check(*how.sample);
        if (!how.sequences.empty() && how.sequences.size() != sequences)
            refuse("sampling_names_every_sequence", std::to_string(how.sequences.size()) + " numbers for " + std::to_string(sequences) +
                                                        " sequences; none or one for each would do");
    }

    void take_tokens(typename base::lease const& held, std::span<feed const> feeds, stage_call const& how) {
        this->check(held, feeds);
        this->gather(feeds, how.rows);
        for (std::size_t i = 0; i < feeds.size(); ++i) members_.push_back(&this->own(feeds[i].sequence, i));
    }

    void take_bundle(boundary::bundle_view const& b, std::span<state* const> states, stage_call const& how) {
        held_.clear();
        for (std::size_t i = 0; i < states.size(); ++i) {
            members_.push_back(&this->own(states[i], i));
            for (std::size_t j = 0; j < i; ++j)
                if (states[j] == states[i]) this->refuse_twice(j, i);
            held_.push_back(members_[i]->length);
        }
        boundary::contract takes = takes_;
        takes.values = how.values;
        boundary::check(b, takes, held_);
        for (std::size_t i = 0; i < members_.size(); ++i)
            this->require_room(*members_[i], i, held_[i] + b.row_offsets[i + 1] - b.row_offsets[i]);

        this->clear_batch();
        for (std::size_t i = 0; i < members_.size(); ++i) {
            this->add_part(*members_[i], static_cast<int>(b.row_offsets[i + 1] - b.row_offsets[i]), how.rows);
            this->batch_.tokens.resize(static_cast<std::size_t>(b.row_offsets[i + 1]));  // nobody looks them up
        }
        this->batch_.handed = b.residual.data();
        if (b.order == boundary::native_order) return;
        turned_.assign(b.residual.begin(), b.residual.end());
        for (std::size_t at = 0; at + 4 <= turned_.size(); at += 4) {
            std::swap(turned_[at], turned_[at + 3]);
            std::swap(turned_[at + 1], turned_[at + 2]);
        }
        this->batch_.handed = turned_.data();
    }

    void give_bundle(boundary::bundle& b) const {
        batch const& rows = this->batch_;
        boundary::bundle_view const kept = boundary::bundle_for(gives_, {}, {}, {});  // its names
        b.adapter = kept.adapter;
        b.schema = kept.schema;
        b.tensor = kept.tensor;
        b.next_layer = kept.next_layer;
        b.profile = kept.profile;
        b.shape = boundary::shape_of(rows.rows(), gives_.streams, gives_.hidden);
        b.streams = kept.streams;
        b.row_offsets.push_back(0);
        for (batch_part const& p : rows.parts) {
            for (int t = 0; t < p.rows; ++t) b.positions.push_back(p.first_position + t);
            b.row_offsets.push_back(p.first_row + p.rows);
        }
        if (rows.rows() == 0) return;
        float const* const left = local().residual();
        b.residual.assign(left, left + std::ptrdiff_t{rows.rows()} * this->config().hidden);
    }

    void give_rows(boundary::tail_output& out, stage_call const& how) const {
        batch const& rows = this->batch_;
        out.vocab = this->config().vocab;
        float const* const logits = this->executor_->logits();
        if (!rows.wanted.empty()) out.logits.assign(logits, logits + static_cast<std::ptrdiff_t>(rows.wanted.size()) * out.vocab);
        std::size_t part = 0;
        for (int const row : rows.wanted) {
            while (row >= rows.parts[part].first_row + rows.parts[part].rows) ++part;
            out.sequences.push_back(static_cast<std::int64_t>(part));
            out.positions.push_back(rows.parts[part].first_position + row - rows.parts[part].first_row);
        }
        out.contract = how.sample;
        if (!how.sample) return;
        for (std::size_t i = 0; i < out.rows(); ++i) {
            auto const at = static_cast<std::size_t>(out.sequences[i]);
            out.chosen.push_back(next_token(out.row(i), *how.sample, static_cast<std::uint64_t>(out.positions[i]) + 1,
                                            how.sequences.empty() ? at : how.sequences[at], this->executor_->tail_ops()));
        }
    }

    basic_local_executor<Lazy> const& local() const { return static_cast<basic_local_executor<Lazy> const&>(*this->executor_); }

    stage_place place_;
    boundary::contract takes_{}, gives_{};
    deferred<Lazy, std::vector<sequence*>> members_;  ///< of the batch
    deferred<Lazy, std::vector<std::int64_t>> held_;  ///< positions, by member
    deferred<Lazy, std::vector<std::byte>> turned_;   ///< a bundle's numbers in this machine's byte order
};

}  // namespace detail

template <class = void>
class basic_hosted_stage;
using hosted_stage = basic_hosted_stage<>;  // a template for the same reason as the engine

/// A loaded stage. Movable; closed by its destructor, which never throws. Ranks, and what they hold, are counted from 0 in the stage.
///
/// One call at a time: a second one from another thread is refused by name (`model_serves_one_call`).
template <class Lazy>
class basic_hosted_stage {
public:
    bool is_head() const { return live().place().is_head(); }  ///< takes token ids
    bool is_tail() const { return live().place().is_tail(); }  ///< gives logits, and tokens
    /// "head", "middle", "tail", or "whole model" of a stage that is both.
    std::string_view role() const { return live().place().role(); }
    /// Which stage of the graph, and what it is: layers, devices, rules.
    int stage() const { return live().place().index; }
    stage_traits const& traits() const { return live().traits(); }
    /// What it holds a bundle to; nullptr for a head.
    boundary::contract const* takes() const { return live().takes(); }
    /// What its own bundles keep; nullptr for a tail.
    boundary::contract const* gives() const { return live().gives(); }

    /// One sequence's part in this stage: the keys and values of its layers. Belongs to this host. Room as of a language_model's.
    state make_state(std::int64_t positions = 0, growth room = growth::grows) { return live().make_state(positions, room); }
    /// Keeps the first `positions` that a state holds: the way back where a stage after this one has refused.
    void truncate(state& s, std::int64_t positions) { live().truncate(s, positions); }

    /// Runs the stage over a batch. A call that throws leaves its states as they were.
    ///
    /// Throws before anything runs: `head_takes_tokens`, `stage_takes_a_bundle`, `tail_alone_samples`, `sampling_names_every_sequence`
    /// and what a sampling contract breaks; what feeds and states break, as of a language_model; the first rule of `takes()` that the
    /// bundle breaks, its positions being those that follow on the states'. After: `router_scores_are_numbers`, `logits_are_numbers`.
    stage_output forward(stage_input const& in, stage_call const& how = {}) { return live().forward_stage(in, how); }
    /// Of a head: new tokens for any set of states.
    stage_output forward(std::span<feed const> feeds, stage_call const& how = {}) { return forward(stage_input{.tokens = feeds}, how); }
    /// Of any other stage: a bundle, and the states (B) of its sequences.
    stage_output forward(boundary::bundle_view const& bundle, std::span<state* const> states, stage_call const& how = {}) {
        return forward(stage_input{.bundle = &bundle, .states = states}, how);
    }

    model_config const& config() const { return live().config(); }
    int ranks() const { return live().ranks(); }
    /// Bytes of weights that a rank holds, without padding.
    std::int64_t weight_bytes(rank_index r) const { return live().weight_bytes(r.value); }
    census counts() const { return live().take_census(); }
    std::string_view isa() const { return live().ops().isa(); }
    /// Tensors of the checkpoint that no stage uses.
    checkpoint::inventory_report const& inventory() const { return live().report(); }

    /// Ends the threads and frees the weights. Calling it twice is fine; any later call is refused by name.
    void close() noexcept {
        if (engine_) engine_->close();
    }

protected:
    explicit basic_hosted_stage(std::unique_ptr<detail::stage_engine> e) : engine_(std::move(e)) {}

private:
    detail::stage_engine& live() const {
        if (!engine_) detail::refuse("model_is_open", "the stage has been moved away");
        return *engine_;
    }

    detail::deferred<Lazy, std::unique_ptr<detail::stage_engine>> engine_;
};

}  // namespace tenon::inline v0
