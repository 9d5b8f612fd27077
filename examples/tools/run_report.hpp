// What a run gave: its rows of logits, the file and the digest of them, and the answer on standard output.
// SPDX-License-Identifier: Apache-2.0
#pragma once
#include "byte_text.hpp"
#include "output_file.hpp"
#include "run_options.hpp"
#include "sha256.hpp"
#include "trace_file.hpp"

#include <tenon/runtime/language_model.hpp>

#include <nlohmann/json.hpp>

#include <sys/resource.h>

#include <bit>
#include <cstdint>
#include <iostream>
#include <ostream>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace tools {

/// Keeps every row of logits of a generation, one list a sequence: a batch gives them interleaved, and the answer has them in order.
/// A NaN is kept as 0x7fc00000, so that the digest does not depend on where it came from.
class logits_rows final : public tenon::logits_observer {
public:
    logits_rows(tenon::language_model const& model, tenon::generation_options const& options, std::span<std::vector<tenon::token_id> const> prompts)
        : sequences_(prompts.size()) {
        for (std::size_t i = 0; i < prompts.size(); ++i) {
            std::int64_t const fed = static_cast<std::int64_t>(prompts[i].size()) + std::max(options.max_new_tokens - 1, 0);
            if (fed <= model.config().max_positions) sequences_[i].reserve(static_cast<std::size_t>(fed) * static_cast<std::size_t>(model.config().vocab));
        }
    }

    void row(std::size_t sequence, std::int64_t, std::span<float const> logits) override {
        std::vector<float>& kept = sequences_[sequence];
        for (float const x : logits) kept.push_back(x == x ? x : std::bit_cast<float>(0x7fc00000U));
    }

    std::size_t sequences() const { return sequences_.size(); }
    std::vector<float> const& rows_of(std::size_t sequence) const { return sequences_[sequence]; }
    std::string digest() const {
        sha256 s;
        for (std::vector<float> const& rows : sequences_) s.add(std::as_bytes(std::span(rows)));
        return s.hex();
    }

private:
    std::vector<std::vector<float>> sequences_;
};

/// A .npy file of rows, version 1.0.
/// Source: NumPy Enhancement Proposal 1.
class npy_file {
public:
    explicit npy_file(std::string path) : file_("--logits-out", std::move(path)) {}

    void write(logits_rows const& logits, std::size_t columns) {
        static_assert(std::endian::native == std::endian::little, "the file says <f4");
        std::size_t floats = 0;
        for (std::size_t s = 0; s < logits.sequences(); ++s) floats += logits.rows_of(s).size();
        std::string header = "{'descr': '<f4', 'fortran_order': False, 'shape': (" + std::to_string(floats / columns) + ", " + std::to_string(columns) + "), }";
        header.append(63 - (10 + header.size()) % 64, ' ');
        header += '\n';
        std::string const prefix{'\x93', 'N', 'U', 'M', 'P', 'Y', '\1', '\0', static_cast<char>(header.size() % 256), static_cast<char>(header.size() / 256)};
        std::ostream& out = file_.begin();
        out << prefix << header;
        for (std::size_t s = 0; s < logits.sequences(); ++s) {
            std::span const bytes = std::as_bytes(std::span(logits.rows_of(s)));
            out.write(reinterpret_cast<char const*>(bytes.data()), static_cast<std::streamsize>(bytes.size()));
        }
        file_.end();
    }

private:
    output_file file_;
};

inline std::int64_t peak_rss_bytes() {
    struct ::rusage used {};
    ::getrusage(RUSAGE_SELF, &used);
#ifdef __APPLE__
    return static_cast<std::int64_t>(used.ru_maxrss);
#else
    return std::int64_t{1024} * used.ru_maxrss;
#endif
}

inline double per_second(std::int64_t tokens, double seconds) { return tokens > 0 && seconds > 0.0 ? static_cast<double>(tokens) / seconds : 0.0; }

/// What every layer's experts were given, a number for each rank; a rank of another stage has 0.
inline nlohmann::ordered_json experts_of(tenon::census const& counts) {
    auto layers = nlohmann::ordered_json::array();
    for (tenon::expert_census const& sum : counts.total.experts) {
        nlohmann::ordered_json layer{{"layer", sum.layer}};
        for (tenon::rank_census const& rank : counts.ranks) {
            tenon::expert_census own{};
            for (tenon::expert_census const& e : rank.experts)
                if (e.layer == sum.layer) own = e;
            layer["dispatched_rows"].push_back(own.dispatched_rows);
            layer["returned_rows"].push_back(own.returned_rows);
            layer["bytes"].push_back(own.bytes);
            layer["experts"].push_back(own.experts);
        }
        layers.push_back(layer);
    }
    return layers;
}

/// The ranks that have experts of which none was asked.
inline std::vector<std::size_t> idle_ranks(tenon::census const& counts) {
    std::vector<std::size_t> idle;
    for (std::size_t r = 0; r < counts.ranks.size(); ++r)
        if (counts.ranks[r].served_no_row()) idle.push_back(r);
    return idle;
}

/// The answer as an object. The census is the sum over the ranks: each counts the collectives that it took part in.
inline nlohmann::ordered_json json_of(tenon::language_model const& model, tenon::generation const& made, logits_rows const& logits, run_options const& asked,
                                      bool bytes) {
    nlohmann::ordered_json out;
    out["ids"] = made.ids;
    std::vector<std::size_t> offsets{0};
    for (std::size_t s = 0; s < logits.sequences(); ++s)
        offsets.push_back(offsets.back() + logits.rows_of(s).size() / static_cast<std::size_t>(model.config().vocab));
    out["row_offsets"] = offsets;
    if (bytes)
        for (auto const& ids : made.ids) out["text"].push_back(text_of(ids, false));
    out["logits_sha256"] = logits.digest();
    out["prefill_tokens_per_s"] = per_second(made.prefill_tokens, made.prefill_seconds);
    out["decode_tokens_per_s"] = per_second(made.decode_tokens, made.decode_seconds);
    out["peak_rss_bytes"] = peak_rss_bytes();
    tenon::census const counts = model.counts();
    out["census"] = {{"messages", counts.total.messages},
                     {"bytes", counts.total.bytes},
                     {"collectives", {{"gather", counts.total.gathers}, {"reduce", counts.total.reductions}, {"hand_over", counts.total.hand_overs}}}};
    if (!counts.total.experts.empty()) {
        out["census"]["experts"] = experts_of(counts);
        out["census"]["idle_ranks"] = idle_ranks(counts);
    }
    if (tenon::placement_map const* const map = asked.loading().placement) out["placement"] = receipt_of(*map, asked.placement());
    if (asked.loading().profile != tenon::numeric::canonical_1) out["profile"] = asked.loading().profile.name;
    return out;
}

inline void print(tenon::language_model const& model, tenon::generation const& made, run_options const& asked, bool bytes) {
    for (std::size_t s = 0; s < made.ids.size(); ++s) {
        if (made.ids.size() > 1) std::cout << "sequence " << s << ": ";
        if (bytes) std::cout << text_of(made.ids[s], true);
        else
            for (std::size_t i = 0; i < made.ids[s].size(); ++i) std::cout << (i == 0 ? "" : ",") << made.ids[s][i];
        std::cout << '\n';
    }
    tenon::rank_census const total = model.counts().total;
    std::cout << "\nprefill  " << made.prefill_tokens << " tokens, " << per_second(made.prefill_tokens, made.prefill_seconds) << " a second\n"
              << "decode   " << made.decode_tokens << " tokens, " << per_second(made.decode_tokens, made.decode_seconds) << " a second\n"
              << "ranks    " << model.ranks() << " on " << model.isa() << ", " << total.messages << " messages, " << total.bytes << " bytes moved\n"
              << "memory   " << peak_rss_bytes() << " bytes at the peak\n";
    if (asked.loading().profile != tenon::numeric::canonical_1) std::cout << "profile  " << asked.loading().profile.name << '\n';
    if (tenon::placement_map const* const map = asked.loading().placement)
        std::cout << "placed   " << map->layers.size() << " layers of " << map->experts << " experts on " << map->ranks << " ranks, entry rank " << map->entry_rank
                  << ", sha256 " << map->sha256 << ", " << one_line(asked.placement()) << '\n';
}

/// A whole run: `load()` gives the model. Whatever can be refused before the weights are read is refused before.
template <class Load>
void run_together(run_options& asked, Load load) {
    std::string why_not = why_not_bytes(asked.model());
    if (asked.prompt_is_text() && !why_not.empty())
        refuse("vocabulary_is_bytes", why_not + "; --prompt needs tokenizer_config.json to declare tokenizer_class \"ByteLevelVocabulary\" and "
                                                "tenon_vocabulary \"bytes\"; --ids would do");
    std::optional<npy_file> file;
    if (asked.logits_out()) file.emplace(*asked.logits_out());
    std::optional<trace_file> trace;
    if (asked.trace()) trace.emplace(*asked.trace());
    struct ignoring final : tenon::routing_observer {
        void routed(int, std::int64_t, std::int64_t, std::span<std::int32_t const>) override {}
    } somebody_else_writes;
    asked.tell_routing(trace ? static_cast<tenon::routing_observer*>(&*trace) : asked.wants_trace() ? &somebody_else_writes : nullptr);

    auto model = load();
    if (asked.wants_trace()) {
        tenon::routing_shape const shape = traced_shape(model.config());
        if (trace) trace->begin(shape);
    }
    int const vocab = model.config().vocab;
    if (why_not.empty() && vocab != 256) why_not = asked.model() + ": the vocabulary has " + std::to_string(vocab) + " ids, and there are 256 bytes";
    if (asked.prompt_is_text() && !why_not.empty()) refuse("vocabulary_is_bytes", why_not + "; --ids would do");
    tenon::generation_options options = asked.generation();
    for (tenon::token_id const id : options.stop_ids)
        if (id < 0 || id >= vocab) refuse("token_is_in_vocabulary", "stop id " + std::to_string(id) + "; 0 to " + std::to_string(vocab - 1) + " would do");
    logits_rows logits(model, options, asked.prompts());
    if (asked.wants_logits()) options.observer = &logits;  // otherwise only the rows that choose a token are computed

    tenon::generation const made = model.generate_batch(asked.prompts(), options);
    if (file) file->write(logits, static_cast<std::size_t>(vocab));
    if (trace) trace->end();
    if (asked.json()) std::cout << json_of(model, made, logits, asked, why_not.empty()).dump() << '\n';
    else print(model, made, asked, why_not.empty());
    for (std::size_t const r : idle_ranks(model.counts()))
        if (speaks()) std::cerr << "warning: rank " << r << " has experts, and no token was routed to them\n";
}

/// The same. What only the process that writes can meet, a full disk, ends those that wait for it.
template <class Load>
void run(run_options& asked, Load load) {
    try {
        run_together(asked, load);
    } catch (tenon::refusal const& refused) {
        if (refused.law_name() == "file_is_written") asked.stop_others(refused.what());
        throw;
    } catch (std::exception const& failed) {
        asked.stop_others(failed.what());
        throw;
    }
}

}  // namespace tools
