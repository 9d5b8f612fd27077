// Any bytes as a snapshot: a sequence that holds what they say, or a refusal.
// SPDX-License-Identifier: Apache-2.0
#include "mutate.hpp"
#include "support/random_model.hpp"

#include <tenon/dynamic_causal_lm.hpp>

#include <vector>

using namespace tenon;

namespace {

language_model& lm() {
    static support::random_model const files({.name = "fuzz", .layers = 2, .hidden = 16, .heads = 4, .kv_heads = 2, .ffn = 32, .vocab = 17, .max_positions = 80}, 3);
    static auto loaded = dynamic_causal_lm<>::load(files.directory(), plan::parse("0@0;1@1,0"), runtime::sequential{});
    return loaded;
}

std::size_t payload_of(std::span<std::byte const> bytes) {  // where the number of positions stands: after five texts
    std::size_t at = 148;
    for (int text = 0; text < 5; ++text) {
        std::size_t size = 0;
        for (std::size_t i = 4; i-- > 0;) size = size << 8U | std::to_integer<std::size_t>(bytes[at + i]);
        at += 4 + size;
    }
    return at;
}

// Writes the size and the checksum that the bytes ask for, so that most of the rounds get past the first rules.
int sealed(std::uint8_t const* data, std::size_t size) {
    std::vector<std::byte> bytes(std::max<std::size_t>(size, 24));
    if (size > 0) std::memcpy(bytes.data(), data, size);
    for (std::size_t i = 0; i < 8; ++i) bytes[12 + i] = static_cast<std::byte>(bytes.size() >> 8 * i & 255U);
    std::uint32_t const sum = crc32c_of(std::span(bytes).first(bytes.size() - 4));
    for (std::size_t i = 0; i < 4; ++i) bytes[bytes.size() - 4 + i] = static_cast<std::byte>(sum >> 8 * i & 255U);
    fuzz::refusing([&bytes] {
        state s = lm().restore(bytes);
        // What was taken up is held, number by number; the plan is the model's own.
        std::vector<std::byte> const again = lm().snapshot(s);
        std::size_t const at = payload_of(bytes), there = payload_of(again);
        if (!std::equal(bytes.begin() + static_cast<std::ptrdiff_t>(at), bytes.end() - 4, again.begin() + static_cast<std::ptrdiff_t>(there), again.end() - 4))
            std::abort();
        std::int64_t const length = s.length();
        if (length < 80) lm().step(s, 1);
        lm().truncate(s, length / 2);
        if (s.length() != length / 2) std::abort();
    });
    return 0;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(std::uint8_t const* data, std::size_t size) {
    fuzz::refusing([data, size] { lm().restore(std::as_bytes(std::span<std::uint8_t const>(data, size))); });
    return sealed(data, size);
}

#ifdef TENON_FUZZ_MAIN
int main() {
    std::vector<std::string> corpus;
    for (int const positions : {0, 1, 3, 65}) {
        state s = lm().make_state();
        for (int t = 0; t < positions; ++t) lm().step(s, t % 17);
        std::vector<std::byte> const bytes = lm().snapshot(s);
        corpus.emplace_back(reinterpret_cast<char const*>(bytes.data()), bytes.size());
    }
    std::string several = corpus[1];  // a layer left out, the count with it
    several.erase(several.size() - 4 - (20 + 2 * 2 * 4 * 4));
    corpus.push_back(several);
    std::string_view const words[]{"TENONSNP",
                                   "canonical_1",
                                   "canonical",
                                   "eigen",
                                   "stored",
                                   "bf16",
                                   "f32",
                                   "0@0;1@1,0",
                                   std::string_view("\0\0\0\0", 4),
                                   std::string_view("\1\0\0\0", 4),
                                   std::string_view("\2\0\0\0", 4),
                                   std::string_view("\3\0\0\0\0\0\0\0", 8),
                                   std::string_view("\120\0\0\0\0\0\0\0", 8),
                                   std::string_view("\121\0\0\0\0\0\0\0", 8),
                                   std::string_view("\0\0\0\0\1\0\0\0", 8),
                                   std::string_view("\0\0\xC0\x7F", 4),
                                   "\xFF\xFF\xFF\xFF",
                                   "\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF",
                                   "\xFF\xFF\xFF\xFF\xFF\xFF\xFF\x7F"};
    return fuzz::run(LLVMFuzzerTestOneInput, corpus, words, 200'000);
}
#endif
