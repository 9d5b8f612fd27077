// What tenon-run and the static runner are asked: their options, which of them this library has, and the prompts that they spell.
// SPDX-License-Identifier: Apache-2.0
#pragma once
#include "mpi_session.hpp"
#include "placement_option.hpp"
#include "tool_main.hpp"

#include <tenon/runtime/language_model.hpp>
#include <tenon/runtime/processes.hpp>

#include <CLI/CLI.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdlib>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace tools {

/// The folder that a run without --model takes.
inline std::string default_model() {
    char const* const folder = std::getenv("TENON_EMBEDDED_MODEL");
    if (folder != nullptr && *folder != '\0') return folder;
#ifdef TENON_EMBEDDED_MODEL
    return TENON_EMBEDDED_MODEL;
#else
    return {};
#endif
}

/// The options that both runners share. Made before the command line is parsed, and read after.
class run_options {
public:
    explicit run_options(CLI::App& app) : placement_(app) {
        app.add_option("--model", model_, "Hugging Face directory (the embedded model when absent)")->type_name("DIR");
        app.add_option("--runtime", runtime_, "who runs the ranks")
            ->check(CLI::IsMember(std::vector<std::string>{"sequential", "threads", "processes", "mpi"}))->capture_default_str();
        app.add_option("--weights", weights_, "format in which the ranks hold their matrices")
            ->check(CLI::IsMember(std::vector<std::string>{"stored", "f32", "bf16", "q8"}))->capture_default_str();
        app.add_option("--profile", profile_, "numeric profile: the arithmetic of the products")->type_name("NAME")->capture_default_str();
        app.add_option("--isa", isa_, "instruction set of the kernels; each gives the same bits")
            ->check(CLI::IsMember(std::vector<std::string>{"auto", "portable", "avx2", "avx512", "neon"}))->capture_default_str();
        add_number(app, "--threads", loading_.threads, "threads that work for the ranks of one device (1 when absent); they change no bit");
        app.add_option("--kv", kv_, "format in which the ranks keep keys and values")
            ->check(CLI::IsMember(std::vector<std::string>{"f32", "bf16"}))->capture_default_str();
        add_number(app, "--chunk", generation_.chunk, "most prompt tokens of a sequence in one call; 0: all (512 when absent)");
        ids_option_ = add_lists(app, "--ids", ids_, "a prompt as ids, 1,2,3; again for each further sequence of the batch");
        prompt_option_ = app.add_option("--prompt", prompt_, "a prompt as text, for a folder that declares a byte vocabulary")->type_name("TEXT");
        add_number(app, "--max-new-tokens", generation_.max_new_tokens, "most tokens to add to each sequence (16 when absent)");
        add_lists(app, "--stop-ids", stop_ids_, "ids that end their sequence, 1,2");
        temperature_option_ = add_number(app, "--temperature", generation_.sample.temperature, "draw the tokens; 0 or absent: greedy");
        top_k_option_ = add_number(app, "--top-k", generation_.sample.top_k, "draw from the K likeliest; 0: all");
        top_p_option_ = add_number(app, "--top-p", generation_.sample.top_p, "draw from the likeliest that hold this share");
        seed_option_ = add_number(app, "--seed", generation_.sample.seed, "of the draws; must be given for them");
        logits_option_ = app.add_option("--logits-out", logits_out_, "write every row of logits, float32 (rows, vocabulary)")->type_name("F.npy");
        trace_option_ = app.add_option("--trace-routing", trace_, "write which experts every token chose, a line for each token and layer")->type_name("F");
        app.add_flag("--json", json_, "print one JSON object");
    }

    /// Refuses by name what is not built yet and what does not go together, and reads the ids. Before any file is touched.
    void check() {
        loading_.weights = weights_named(weights_);
        loading_.profile = tenon::numeric::named(profile_);
        loading_.isa = isa_;
        loading_.kv = kv_named(kv_);
        if (loading_.threads < 1) refuse("threads_are_counted", "--threads is " + std::to_string(loading_.threads) + "; 1 or more would do");
        bool const shaped = top_k_option_->count() + top_p_option_->count() > 0;
        if (shaped && temperature_option_->count() == 0)
            refuse("temperature_is_given", "--top-k and --top-p shape what --temperature draws from; --temperature T, 0 for greedy, would do");
        tenon::check(generation_.sample);
        if (generation_.sample.temperature > 0.0f && seed_option_->count() == 0)
            refuse("seed_is_given", "--temperature above 0 draws tokens, and without --seed no run could be repeated; --seed S would do");
        bool const ids = ids_option_->count() > 0, text = prompt_option_->count() > 0;
        if (ids && text) refuse("prompt_is_given_once", "both --ids and --prompt are given; one of them would do");
        if (!ids && !text) refuse("prompt_is_given", "there is nothing to continue; --ids 1,2,3 or --prompt TEXT would do");
        for (std::string const& list : ids_) prompts_.push_back(ids_of(list, "--ids"));
        if (text) {
            prompts_.emplace_back();
            for (char const c : prompt_) prompts_.back().push_back(static_cast<unsigned char>(c));
        }
        for (std::string const& list : stop_ids_)
            for (tenon::token_id const id : ids_of(list, "--stop-ids")) generation_.stop_ids.push_back(id);
        if (logits_option_->count() > 0 && logits_out_.empty()) throw CLI::ValidationError("--logits-out", "the path is empty");
        if (trace_option_->count() > 0 && trace_.empty()) throw CLI::ValidationError("--trace-routing", "the path is empty");
        placement_.read();
        loading_.placement = placement_.map();
        if (model_.empty()) model_ = default_model();
        if (model_.empty()) refuse("model_is_given", "this tool was built without the embedded model; --model DIR would do");
        if (runtime_ == "mpi") session_.emplace();  // last: what is refused before is refused by every process for itself
    }

    std::string const& model() const { return model_; }
    /// Calls `load` with the runtime that was asked for.
    template <class Load>
    auto with_runtime(Load load) const {
        if (runtime_ == "sequential") return load(tenon::runtime::sequential{});
        if (runtime_ == "processes") return load(tenon::runtime::processes{});
#if defined(TENON_TOOLS_MPI)
        if (runtime_ == "mpi") return load(tenon::runtime::mpi{});
#endif
        return load(tenon::runtime::threads{});
    }
    tenon::load_options const& loading() const { return loading_; }
    tenon::generation_options const& generation() const { return generation_; }
    std::vector<std::vector<tenon::token_id>> const& prompts() const { return prompts_; }
    bool prompt_is_text() const { return prompt_option_->count() > 0; }
    bool wants_logits() const { return json_ || logits_option_->count() > 0; }
    bool wants_trace() const { return trace_option_->count() > 0; }
    /// Of the process that writes.
    std::optional<std::string> logits_out() const { return speaks() && logits_option_->count() > 0 ? std::optional(logits_out_) : std::nullopt; }
    std::optional<std::string> trace() const { return speaks() && wants_trace() ? std::optional(trace_) : std::nullopt; }
    std::string const& placement() const { return placement_.path(); }
    bool json() const { return json_; }

    /// Ends the other processes of an MPI run, which are on their way to a meeting that would never come; and this one with them.
    void stop_others(char const* why) const {
        if (session_) session_->stop(why);
    }

    void tell_routing(tenon::routing_observer* observer) { loading_.routing = observer; }

private:
    /// An option that takes lists as they are, several after it or the option several times. A vector that takes "extra" arguments,
    /// CLI11's default, would read [1,2] as two of them.
    static CLI::Option* add_lists(CLI::App& app, std::string const& option, std::vector<std::string>& lists, std::string const& about) {
        constexpr int most = 1'000'000;
        return app.add_option(option, lists, about)->type_name("IDS")->expected(1, most)->allow_extra_args(false);
    }

    static std::vector<tenon::token_id> ids_of(std::string_view list, std::string const& option) {
        std::vector<tenon::token_id> ids;
        while (!list.empty()) {
            std::size_t const comma = std::min(list.find(','), list.size());
            ids.push_back(number_of<tenon::token_id>(list.substr(0, comma), option));
            if (comma + 1 == list.size()) throw CLI::ValidationError(option, "the list ends in a comma");
            list.remove_prefix(std::min(comma + 1, list.size()));
        }
        return ids;
    }

    std::optional<mpi_session> session_;
    placement_option placement_;
    std::string model_, runtime_ = "threads", weights_ = "stored", profile_ = std::string(tenon::numeric::canonical_1.name), kv_ = "f32", isa_ = "auto", prompt_, logits_out_, trace_;
    std::vector<std::string> ids_, stop_ids_;
    bool json_ = false;
    tenon::load_options loading_{};
    tenon::generation_options generation_{};
    std::vector<std::vector<tenon::token_id>> prompts_;
    CLI::Option *ids_option_ = nullptr, *prompt_option_ = nullptr, *temperature_option_ = nullptr, *top_k_option_ = nullptr,
                *top_p_option_ = nullptr, *seed_option_ = nullptr, *logits_option_ = nullptr, *trace_option_ = nullptr;
};

}  // namespace tools
