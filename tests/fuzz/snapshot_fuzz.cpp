// Any bytes as a snapshot: a sequence that holds what they say, or a refusal.
// SPDX-License-Identifier: Apache-2.0
#include "mutate.hpp"
#include "support/random_model.hpp"

#include <tenon/dynamic_causal_lm.hpp>

#include <vector>

using namespace tenon;

namespace {

language_model& lm() {
    static support::random_model const files(
        {.name = "fuzz", .layers = 2, .hidden = 16, .heads = 4, .kv_heads = 2, .ffn = 32, .vocab = 17, .max_positions = 80}, 3);
    static auto loaded = dynamic_causal_lm<>::load(files.directory(), plan::parse("0@0;1@1,0"), runtime::sequential{});
    return loaded;
}

constexpr std::size_t size_at = 12, digests_at = 20, texts_at = 148;  // as docs/states.md has the format

std::size_t payload_of(std::span<std::byte const> bytes) {  // where the number of positions stands: after five texts
    std::size_t at = texts_at;
    for (int text = 0; text < 5; ++text) {
        std::size_t size = 0;
        for (std::size_t i = 4; i-- > 0;) size = size << 8U | std::to_integer<std::size_t>(bytes[at + i]);
        at += 4 + size;
    }
    return at;
}

// What was taken up is held, number by number; the plan is the model's own. And it goes on.
void go_on(state& s, std::span<std::byte const> taken) {
    std::vector<std::byte> const again = lm().snapshot(s);
    std::span<std::byte const> const theirs = taken.subspan(payload_of(taken)), ours = std::span(again).subspan(payload_of(again));
    if (!std::equal(theirs.begin(), theirs.end() - 4, ours.begin(), ours.end() - 4)) std::abort();
    std::int64_t const length = s.length();
    if (length < 80) lm().step(s, 1);
    lm().truncate(s, length / 2);
    if (s.length() != length / 2) std::abort();
}

// What stands before the texts of a snapshot of this very model: the name, the schema, the size and two digests.
std::span<std::byte const> own_front() {
    static std::vector<std::byte> const own = [] {
        state s = lm().make_state();
        return lm().snapshot(s);
    }();
    return std::span(own).first(texts_at);
}

// Writes the size and the checksum that the bytes ask for, so that most of the rounds get past the first rules.
void sealed(std::vector<std::byte> bytes) {
    for (std::size_t i = 0; i < 8; ++i) bytes[size_at + i] = static_cast<std::byte>(bytes.size() >> 8 * i & 255U);
    std::uint32_t const sum = crc32c_of(std::span(bytes).first(bytes.size() - 4));
    for (std::size_t i = 0; i < 4; ++i) bytes[bytes.size() - 4 + i] = static_cast<std::byte>(sum >> 8 * i & 255U);
    fuzz::refusing([&bytes] {
        state s = lm().restore(bytes);
        fuzz::never_refusing([&] { go_on(s, bytes); });
    });
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(std::uint8_t const* data, std::size_t size) {
    fuzz::refusing([data, size] { lm().restore(std::as_bytes(std::span<std::uint8_t const>(data, size))); });
    std::vector<std::byte> bytes(std::max<std::size_t>(size, 24));
    if (size > 0) std::memcpy(bytes.data(), data, size);
    sealed(bytes);
    std::span<std::byte const> const front = own_front();
    if (size < front.size() + 24 || std::equal(front.begin() + digests_at, front.end(), bytes.begin() + digests_at)) return 0;
    std::copy(front.begin(), front.end(), bytes.begin());  // of another model: as if it were of this one
    sealed(std::move(bytes));
    return 0;
}

#ifdef TENON_FUZZ_MAIN
int main(int count, char** arguments) {
    std::vector<std::string> seeds;
    for (int const positions : {0, 1, 3, 65}) {
        state s = lm().make_state();
        for (int t = 0; t < positions; ++t) lm().step(s, t % 17);
        std::vector<std::byte> const bytes = lm().snapshot(s);
        seeds.emplace_back(reinterpret_cast<char const*>(bytes.data()), bytes.size());
    }
    std::string several = seeds[1];  // a layer left out, the count with it
    several.erase(several.size() - 4 - (20 + 2 * 2 * 4 * 4));
    seeds.push_back(several);
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
    return fuzz::run(count, arguments, LLVMFuzzerTestOneInput, seeds, words, 200'000);
}
#endif
