// One digest of all logits of a run, and a table of them: one for each of several plans over a checkpoint folder.
// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <tenon/dynamic_causal_lm.hpp>

#include <cstdint>
#include <cstdio>
#include <cstring>
#include <span>
#include <string>
#include <vector>

namespace {

/// FNV-1a over 32-bit words, every NaN being 0x7fc00000.
class digest {
public:
    void add(std::span<float const> numbers) {
        for (float const x : numbers) {
            std::uint32_t word = 0;
            std::memcpy(&word, &x, sizeof word);
            if (x != x) word = 0x7fc00000U;
            value_ = (value_ ^ word) * 1099511628211U;
        }
    }
    unsigned long long value() const { return value_; }

private:
    std::uint64_t value_ = 1469598103934665603U;
};

/// Two sequences in one ragged batch, then one of them step by step.
template <template <int...> class Device>
unsigned long long digest_of(std::string const& folder, std::string const& plan, tenon::runtime_kind runtime, tenon::load_options const& how = {}) {
    auto m = tenon::dynamic_causal_lm<Device>::load(folder, tenon::plan::parse(plan), runtime, how);
    std::vector<tenon::token_id> tokens;
    for (int i = 0; i < 70; ++i) tokens.push_back((i * 37 + 11) % m.config().vocab);
    digest d;
    tenon::state s = m.make_state(), t = m.make_state();
    std::span<tenon::token_id const> const all(tokens);
    tenon::feed const first[]{{&s, all.first(61)}, {&t, all.subspan(61, 5)}};
    d.add(m.forward(first, tenon::rows_wanted::all));
    for (std::size_t i = 61; i < 67; ++i) d.add(m.step(s, tokens[i]));
    return d.value();
}

/// Prints `FORMAT PLAN DIGEST` for every plan that is legal for the checkpoint. Returns the program's exit status; 77 where this
/// machine lacks the instruction set.
template <template <int...> class Device>
int print_digests(std::string const& folder, std::string const& isa) {
    try {
        tenon::load_options how;
        how.isa = isa;
        for (tenon::weights const w : {tenon::weights::stored, tenon::weights::bf16})
            for (char const* const plan : {"all@0", "0@0;1-3@1", "all@0,1:tensor.gather", "0-1@0,1:tensor.gather;2-3@2,3,0,1:tensor.gather",
                                           "all@0,1:tensor.reduce", "all@0,1,2,3:tensor.reduce"})
                try {
                    how.weights = w;
                    auto const kind = std::strlen(plan) < 10 ? tenon::runtime_kind::threads : tenon::runtime_kind::sequential;
                    std::printf("%-7s %-49s %016llx\n", tenon::name_of(w).data(), plan, digest_of<Device>(folder, plan, kind, how));
                } catch (tenon::graph_error const&) {
                    // `reduce` is not legal for every checkpoint.
                }
    } catch (tenon::refusal const& r) {
        std::fprintf(stderr, "refused: %s\n", r.what());
        return r.law_name() == "isa_is_supported" ? 77 : 2;
    }
    return 0;
}

}  // namespace
