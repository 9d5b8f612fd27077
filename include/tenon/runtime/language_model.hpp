// What both ways in offer: states, prefill, steps, ragged batches, generation, parameters, counters.
// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <tenon/runtime/engine.hpp>
#include <tenon/runtime/sampling.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <ctime>
#include <initializer_list>
#include <memory>
#include <span>
#include <utility>
#include <vector>

namespace tenon::inline v0 {

/// Told of every row of logits during a generation: those of the prompt and those of the generated tokens that are fed again.
struct logits_observer {
    /// `logits` (V) follow the token at `position` of sequence `sequence`; valid during the call.
    /// The model serves this generation: a call of it from here is refused (`model_serves_one_call`), and `close()` takes effect after it.
    virtual void row(std::size_t sequence, std::int64_t position, std::span<float const> logits) = 0;

protected:
    ~logits_observer() = default;
};

/// How a prompt is continued.
struct generation_options {
    int max_new_tokens = 16;
    sampling sample{};
    std::vector<token_id> stop_ids{};  ///< a generated one of these ends its sequence, and is kept
    int chunk = 512;                   ///< most prompt tokens of one sequence in one call; 0: all
    logits_observer* observer = nullptr;
};

/// What a generation gave, and how long it took.
struct generation {
    std::vector<std::vector<token_id>> ids;  ///< prompt and continuation, one list a sequence
    std::int64_t prefill_tokens = 0, decode_tokens = 0;
    double prefill_seconds = 0.0, decode_seconds = 0.0;
};

template <class = void>
class basic_language_model;
using language_model = basic_language_model<>;  // a template for the same reason as the engine

/// A loaded causal language model. Movable; closed by its destructor, which never throws.
///
/// One call at a time: a second one from another thread is refused by name (`model_serves_one_call`).
template <class Lazy>
class basic_language_model {
public:
    /// An empty sequence with room for `positions`. Where it needs more it grows, up to the model's positions, or refuses, as `room` says.
    state make_state(std::int64_t positions = 0, growth room = growth::grows) { return live().make_state(positions, room); }

    /// A sequence as bytes, which any model of the same description, weights, weight format and arithmetic restores: under any plan and
    /// runtime, in this process or another. The first snapshot or restore of a model reads its whole checkpoint once more, to hash it.
    ///
    /// Throws `state_is_alive`, `state_belongs_to_the_model`, `checkpoint_stays_as_it_was`, `model_is_open`, `model_serves_one_call`.
    std::vector<std::byte> snapshot(state const& s) { return live().snapshot(s); }

    /// The sequence of a snapshot, with room for `positions` or for those that it holds. What is fed to it next gives the bits of never
    /// having stopped. All or nothing.
    ///
    /// Throws what is no whole snapshot (`snapshot_begins_as_one`, `snapshot_schema_is_known`, `snapshot_is_whole`,
    /// `snapshot_checksum_matches`, `snapshot_has_every_layer`, `snapshot_layer_has_shape`), what is another
    /// model's (`snapshot_config_is_the_models`, `snapshot_weights_are_the_models`, `snapshot_weight_format_is_the_models`, `snapshot_kv_format_is_the_models`,
    /// `snapshot_arithmetic_is_the_models`, `snapshot_profile_is_this_one`), and `positions_fit_the_model`, `state_has_room`,
    /// `checkpoint_stays_as_it_was`, `memory_suffices`, `model_is_open`, `model_serves_one_call`.
    state restore(std::span<std::byte const> bytes, std::int64_t positions = 0, growth room = growth::grows) {
        return live().restore(bytes, positions, room);
    }

    /// Keeps the first `positions` that a state holds. What is fed to it next gives the bits of never having been fed the rest.
    ///
    /// Throws `state_holds_positions` where it holds fewer, `state_is_alive`, `state_belongs_to_the_model`, `model_is_open`,
    /// `model_serves_one_call`.
    void truncate(state& s, std::int64_t positions) { live().truncate(s, positions); }

    /// Feeds any set of states any number of new tokens each. Every row has the bits that it would have alone.
    ///
    ///   returns  (rows, V)  the last row of every state, or all of them; valid until the next call
    ///
    /// Throws before anything runs: `state_is_alive`, `state_belongs_to_the_model`, `batch_names_a_state_once`, `feed_has_tokens`,
    /// `token_is_in_vocabulary`, `positions_fit_the_model`, `state_has_room`, `model_is_open`, `model_serves_one_call`.
    std::span<float const> forward(std::span<feed const> feeds, rows_wanted which = rows_wanted::last) {
        return live().forward(feeds, which);
    }

    /// Feeds a prompt, `chunk` tokens a call (0: all), and returns the logits (V) of its last token.
    std::span<float const> prefill(state& s, std::span<token_id const> tokens, int chunk = 0) {
        if (chunk < 0) detail::refuse("chunk_is_counted", "chunk is " + std::to_string(chunk) + "; 0 (all) or more would do");
        detail::engine::lease const held(live());
        feed const whole{&s, tokens};
        live().check(held, {&whole, 1});  // all of it first: a refused prompt leaves its state as it was
        std::size_t const most = chunk > 0 ? static_cast<std::size_t>(chunk) : tokens.size();
        std::span<float const> logits;
        for (std::size_t at = 0; at < tokens.size(); at += most) {
            feed const one{&s, tokens.subspan(at, (std::min)(most, tokens.size() - at))};
            logits = live().forward(held, {&one, 1}, rows_wanted::last);
        }
        return logits;
    }
    /// Feeds one token and returns its logits (V).
    std::span<float const> step(state& s, token_id token) {
        feed const one{&s, {&token, 1}};
        return forward({&one, 1});
    }

    /// Continues a prompt; returns prompt and continuation.
    std::vector<token_id> generate(std::span<token_id const> prompt, generation_options const& options = {}) {
        std::vector<token_id> const copy(prompt.begin(), prompt.end());
        return generate_batch({&copy, 1}, options).ids[0];
    }
    std::vector<token_id> generate(std::initializer_list<token_id> prompt, generation_options const& options = {}) {
        return generate(std::span<token_id const>(prompt.begin(), prompt.size()), options);
    }
    /// Continues several prompts in one ragged batch; sequence i samples with sequence number i.
    generation generate_batch(std::span<std::vector<token_id> const> prompts, generation_options const& options = {});

    /// Every tensor under its checkpoint name, gathered from its owners: bit-equal to the file, or as held where it was converted.
    std::vector<parameter> parameters() const { return live().parameters(); }
    census counts() const { return live().take_census(); }
    graph_view graph() const { return live().graph(); }
    model_config const& config() const { return live().config(); }
    std::string_view isa() const { return live().ops().isa(); }
    int ranks() const { return live().ranks(); }
    /// Bytes of weights that a rank holds, without padding.
    std::int64_t weight_bytes(rank_index r) const { return live().weight_bytes(r.value); }
    /// Tensors of the checkpoint that the model does not use.
    checkpoint::inventory_report const& inventory() const { return live().report(); }

    /// Ends the threads and frees the weights. Calling it twice is fine; any later call is refused by name.
    void close() noexcept {
        if (engine_) engine_->close();
    }

protected:
    explicit basic_language_model(std::unique_ptr<detail::engine> e) : engine_(std::move(e)) {}

private:
    detail::engine& live() const {
        if (!engine_) detail::refuse("model_is_open", "the model has been moved away");
        return *engine_;
    }

    detail::deferred<Lazy, std::unique_ptr<detail::engine>> engine_;
};

namespace detail {
inline double seconds_now() {
    std::timespec t{};
    std::timespec_get(&t, TIME_UTC);
    return static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_nsec) * 1e-9;
}

/// The sequences of one generation: prompts are fed in chunks, then every live sequence gets one token a call.
template <class Lazy = void>
class generating {
public:
    generating(engine& e, std::span<std::vector<token_id> const> prompts, generation_options const& options)
        : engine_(e), held_(e), options_(options) {
        engine_.check(held_, {});
        check(options.sample);
        if (options.max_new_tokens < 0)
            refuse("new_tokens_are_counted", "max_new_tokens is " + std::to_string(options.max_new_tokens) + "; 0 or more would do");
        if (options.chunk < 0) refuse("chunk_is_counted", "chunk is " + std::to_string(options.chunk) + "; 0 (all) or more would do");
        for (std::size_t i = 0; i < prompts.size(); ++i) {
            std::size_t const length = prompts[i].size();
            if (length == 0) refuse("prompt_has_tokens", "prompt " + std::to_string(i) + " is empty; 1 token or more would do");
            std::int64_t const fed = static_cast<std::int64_t>(length) + (std::max)(options.max_new_tokens - 1, 0);
            if (fed > engine_.config().max_positions)
                refuse("positions_fit_the_model", "prompt " + std::to_string(i) + " and its continuation take " + std::to_string(fed) +
                                                      " positions; the model has " + std::to_string(engine_.config().max_positions));
            for (token_id const id : prompts[i])
                if (id < 0 || id >= engine_.config().vocab)
                    refuse("token_is_in_vocabulary",
                           "token id " + std::to_string(id) + "; 0 to " + std::to_string(engine_.config().vocab - 1) + " would do");
        }
        result_.ids.assign(prompts.begin(), prompts.end());
        for (auto& ids : result_.ids) ids.reserve(ids.size() + static_cast<std::size_t>(options.max_new_tokens));  // they fit the model
        if (options.max_new_tokens == 0 && options.observer == nullptr) return;
        for (auto const& ids : result_.ids)
            lines_.push_back({engine_.make_state(held_, static_cast<std::int64_t>(ids.size()) + (std::max)(options.max_new_tokens - 1, 0),
                                                 growth::grows),
                              ids.size(), 0, false});
    }

    generation run() {
        double const begin = seconds_now();
        while (call(true)) {}
        double const prefilled = seconds_now();
        while (call(false)) {}
        result_.prefill_seconds = prefilled - begin;
        result_.decode_seconds = seconds_now() - prefilled;
        return std::move(result_);
    }

private:
    struct line {
        state sequence;
        std::size_t prompt = 0, fed = 0;
        bool done = false;
    };

    /// One forward call; false when there was nothing to feed.
    bool call(bool prompts) {
        feeds_.clear();
        who_.clear();
        for (std::size_t i = 0; i < lines_.size(); ++i) {
            line& l = lines_[i];
            std::vector<token_id> const& ids = result_.ids[i];
            if (prompts ? l.fed == l.prompt : l.done || l.fed == ids.size()) continue;
            std::size_t const most = options_.chunk > 0 ? static_cast<std::size_t>(options_.chunk) : l.prompt;
            std::size_t const n = prompts ? (std::min)(most, l.prompt - l.fed) : 1;
            feeds_.push_back({&l.sequence, {ids.data() + l.fed, n}});
            who_.push_back(i);
        }
        if (feeds_.empty()) return false;
        bool const all = options_.observer != nullptr;
        std::span<float const> const logits = engine_.forward(held_, feeds_, all ? rows_wanted::all : rows_wanted::last);
        auto const V = static_cast<std::size_t>(engine_.config().vocab);
        std::size_t row = 0;
        for (std::size_t f = 0; f < feeds_.size(); ++f) {
            line& l = lines_[who_[f]];
            std::size_t const n = feeds_[f].tokens.size();
            for (std::size_t t = 0; all && t < n; ++t)
                options_.observer->row(who_[f], static_cast<std::int64_t>(l.fed + t), logits.subspan((row + t) * V, V));
            row += all ? n : 1;
            l.fed += n;
            (prompts ? result_.prefill_tokens : result_.decode_tokens) += static_cast<std::int64_t>(n);
            if (l.fed >= l.prompt) choose(who_[f], logits.subspan((row - 1) * V, V));
        }
        return true;
    }

    void choose(std::size_t i, std::span<float const> logits) {
        std::vector<token_id>& ids = result_.ids[i];
        line& l = lines_[i];
        if (ids.size() - l.prompt == static_cast<std::size_t>(options_.max_new_tokens)) {
            l.done = true;
            return;
        }
        token_id const next = next_token(logits, options_.sample, ids.size(), i, engine_.ops());
        ids.push_back(next);
        bool const stops = std::find(options_.stop_ids.begin(), options_.stop_ids.end(), next) != options_.stop_ids.end();
        l.done = stops || ids.size() - l.prompt == static_cast<std::size_t>(options_.max_new_tokens);
    }

    engine& engine_;
    engine::lease held_;  // to the end: the logits that are read are this generation's
    generation_options const& options_;
    deferred<Lazy, generation> result_;
    std::vector<line> lines_;
    deferred<Lazy, std::vector<feed>> feeds_;
    deferred<Lazy, std::vector<std::size_t>> who_;
};
}  // namespace detail

template <class Lazy>
generation basic_language_model<Lazy>::generate_batch(std::span<std::vector<token_id> const> prompts, generation_options const& options) {
    return detail::generating<>(live(), prompts, options).run();
}

}  // namespace tenon::inline v0
