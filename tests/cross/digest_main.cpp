// Prints one digest of all logits for each of several plans over a checkpoint folder: every compiler, flag, architecture and
// instruction set must print the same. Arguments: FOLDER ISA.
// SPDX-License-Identifier: Apache-2.0
#include <tenon/dynamic_causal_lm.hpp>

#include <cstdint>
#include <cstdio>
#include <cstring>
#include <string>
#include <vector>

namespace {
using namespace tenon;

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

digest run(std::string const& folder, std::string const& plan, runtime_kind runtime, load_options const& how) {
    auto m = dynamic_causal_lm<>::load(folder, plan::parse(plan), runtime, how);
    std::vector<token_id> tokens;
    for (int i = 0; i < 70; ++i) tokens.push_back((i * 37 + 11) % m.config().vocab);
    digest d;
    state s = m.make_state(), t = m.make_state();
    std::span<token_id const> const all(tokens);
    feed const first[]{{&s, all.first(61)}, {&t, all.subspan(61, 5)}};
    d.add(m.forward(first, rows_wanted::all));
    for (std::size_t i = 61; i < 67; ++i) d.add(m.step(s, tokens[i]));
    return d;
}
}  // namespace

int main(int argc, char** argv) {
    if (argc != 3) {
        std::fprintf(stderr, "digest FOLDER ISA\n");
        return 1;
    }
    try {
        load_options how;
        how.isa = argv[2];
        for (weights const w : {weights::stored, weights::bf16})
            for (char const* const plan : {"all@0", "0@0;1-3@1", "all@0,1:tensor.gather", "0-1@0,1:tensor.gather;2-3@2,3,0,1:tensor.gather",
                                           "all@0,1:tensor.reduce", "all@0,1,2,3:tensor.reduce"})
                try {
                    how.weights = w;
                    runtime_kind const kind = std::strlen(plan) < 10 ? runtime_kind::threads : runtime_kind::sequential;
                    std::printf("%-7s %-49s %016llx\n", name_of(w).data(), plan, run(argv[1], plan, kind, how).value());
                } catch (graph_error const&) {
                    // `reduce` is not legal for every checkpoint.
                }
    } catch (refusal const& r) {
        std::fprintf(stderr, "refused: %s\n", r.what());
        return r.law_name() == "isa_is_supported" ? 77 : 2;
    }
    return 0;
}
