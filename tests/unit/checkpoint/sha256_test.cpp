// The published vectors, and what the standard says of lengths around a block.
// SPDX-License-Identifier: Apache-2.0
#include <tenon/checkpoint/sha256.hpp>

#include <doctest/doctest.h>
#include <cstddef>
#include <span>
#include <string>
#include <string_view>

using tenon::checkpoint::sha256;
using tenon::checkpoint::sha256_of;

namespace {

constexpr bool digest_is(std::string_view text, std::string_view digest) {
    auto const digits = sha256().add(text).digits();
    return std::string_view(digits.data(), digits.size()) == digest;
}

// Source: NIST, examples of FIPS 180-4 with SHA-256: none, one and two blocks.
static_assert(digest_is("", "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"));
static_assert(digest_is("abc", "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"));
static_assert(digest_is("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq",
                        "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1"));

}  // namespace

TEST_CASE("the vectors of the standard, a million letters among them") {
    CHECK(sha256_of("") == "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
    CHECK(sha256_of("abc") == "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
    CHECK(sha256_of("abcdefghbcdefghicdefghijdefghijkefghijklfghijklmghijklmnhijklmnoijklmnopjklmnopqklmnopqrlmnopqrsmnopqrstnopqrstu") ==
          "cf5b16a778af8380036ce59e7b0492370b249b11e8f07a51afac45037afee9d1");
    CHECK(sha256_of(std::string(1'000'000, 'a')) == "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
}

TEST_CASE("lengths around a block, whose padding needs one block more or not") {
    // Source: Python's hashlib.
    struct known {
        std::size_t length;
        std::string_view digest;
    };
    constexpr known table[]{{55, "9f4390f8d30c2dd92ec9f095b65e2b9ae9b0a925a5258e241c9f1e910f734318"},
                            {56, "b35439a4ac6f0948b6d6f9e3c6af0f5f590ce20f1bde7090ef7970686ec6738a"},
                            {63, "7d3e74a05d7db15bce4ad9ec0658ea98e3f06eeecf16b4c6fff2da457ddc2f34"},
                            {64, "ffe054fe7ae0cb6dc65c3af9b61d5209f439851db43d0ba5997337df154668eb"},
                            {65, "635361c48bb9eab14198e76ea8ab7f1a41685d6ad62aa9146d301d4f17eb0ae0"}};
    for (known const& k : table) CHECK(sha256_of(std::string(k.length, 'a')) == k.digest);
}

TEST_CASE("pieces give the digest of the whole, as text or as bytes") {
    std::string text;
    for (int i = 0; i < 300; ++i) text += static_cast<char>(static_cast<unsigned char>(i));
    for (std::size_t cut = 0; cut <= text.size(); cut += 7) {
        std::string_view const first = std::string_view(text).substr(0, cut), second = std::string_view(text).substr(cut);
        sha256 whole;
        whole.add(first);
        CHECK(whole.hex() == sha256_of(first));
        whole.add(std::as_bytes(std::span<char const>(second.data(), second.size())));
        CHECK(whole.hex() == sha256_of(text));
    }
}
