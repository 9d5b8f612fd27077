// A main for a fuzz target: its seeds, its corpus and seeded mutations of both, the same on every machine. Knows no format.
//
//   PROGRAM [FOLDER...]             the seeds, the files of the folders, and mutations of them
//   PROGRAM --write-corpus FOLDER   writes the seeds, one a file
//   PROGRAM --write-words FILE      writes the words as a dictionary of libFuzzer's
// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <tenon/core/error.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace fuzz {

/// Runs the call; a refusal is a right answer, any other exception ends the program, and so does a sanitizer.
template <class Call>
void refusing(Call&& call) {
    try {
        call();
    } catch (tenon::refusal const& r) {
        if (r.law_name().empty()) std::abort();
    }
}

/// Runs what follows from an input that was taken: a refusal of our own words ends the program too.
template <class Call>
void never_refusing(Call&& call) noexcept {
    call();
}

/// Source: Steele, Lea, Flood 2014, "Fast splittable pseudorandom number generators" (splitmix64).
class generator {
public:
    explicit generator(std::uint64_t seed) : state_(seed) {}
    std::uint64_t operator()() {
        std::uint64_t z = state_ += 0x9E3779B97F4A7C15U;
        z = (z ^ (z >> 30U)) * 0xBF58476D1CE4E5B9U;
        z = (z ^ (z >> 27U)) * 0x94D049BB133111EBU;
        return z ^ (z >> 31U);
    }
    std::size_t below(std::size_t end) { return end == 0 ? 0 : static_cast<std::size_t>((*this)() % end); }

private:
    std::uint64_t state_;
};

/// One to four small damages: a bit, a byte, a cut, a repeated or moved piece, a word that parsers stumble over.
inline std::string mutated(std::string text, std::string_view other, std::span<std::string_view const> words, generator& random) {
    for (std::size_t step = 0, steps = 1 + random.below(4); step < steps; ++step) {
        std::size_t const at = random.below(text.size() + 1), length = random.below(std::min<std::size_t>(text.size() - at, 24) + 1);
        switch (random.below(7)) {
            case 0:
                if (at < text.size()) text[at] = static_cast<char>(static_cast<unsigned char>(text[at]) ^ (1U << random.below(8)));
                break;
            case 1:
                if (at < text.size()) text[at] = static_cast<char>(static_cast<unsigned char>(random()));
                break;
            case 2: text.erase(at, length); break;
            case 3: text.insert(random.below(text.size() + 1), text.substr(at, length)); break;
            case 4: text.replace(at, length, words[random.below(words.size())]); break;
            case 5: text.replace(at, length, other.substr(random.below(other.size()), 24)); break;
            default: text.resize(at); break;
        }
    }
    return text;
}

/// What every mutation starts from: the seeds, then the files of the folders by their names.
inline std::vector<std::string> corpus_of(std::span<std::string const> seeds, std::span<char* const> folders) {
    std::vector<std::filesystem::path> paths;
    for (char const* const folder : folders)
        for (auto const& entry : std::filesystem::directory_iterator(folder)) paths.push_back(entry.path());
    std::sort(paths.begin(), paths.end());
    std::vector<std::string> corpus(seeds.begin(), seeds.end());
    for (std::filesystem::path const& path : paths) {
        std::ifstream file(path, std::ios::binary);
        corpus.emplace_back(std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>());
    }
    return corpus;
}

/// Words as libFuzzer reads them: every byte escaped, since a word may hold any.
inline void write_words(std::filesystem::path const& to, std::span<std::string_view const> words) {
    std::ofstream file(to);
    for (std::string_view const word : words) {
        file << '"';
        for (char const c : word) {
            char escaped[8];
            std::snprintf(escaped, sizeof escaped, "\\x%02X", static_cast<unsigned>(static_cast<unsigned char>(c)));
            file << escaped;
        }
        file << "\"\n";
    }
    if (!file.flush()) std::abort();
}

/// What a target's main does with its arguments, as said above. Returns the exit status.
inline int run(int count, char** arguments, int (*target)(std::uint8_t const*, std::size_t), std::span<std::string const> seeds,
               std::span<std::string_view const> words, int rounds) {
    std::span<char* const> const folders(arguments + 1, static_cast<std::size_t>(count - 1));
    std::string_view const mode = folders.size() == 2 ? folders[0] : "";
    if (mode == "--write-words") return write_words(folders[1], words), 0;
    if (mode == "--write-corpus") {
        std::filesystem::create_directories(folders[1]);
        for (std::size_t i = 0; i < seeds.size(); ++i) {
            std::ofstream file(std::filesystem::path(folders[1]) / ("seed_" + std::to_string(i)), std::ios::binary);
            if (!(file << seeds[i]).flush()) std::abort();
        }
        return 0;
    }
    std::vector<std::string> const corpus = corpus_of(seeds, folders);
    auto const feed = [target](std::string const& text) { target(reinterpret_cast<std::uint8_t const*>(text.data()), text.size()); };
    generator random(20240229);
    for (std::string const& text : corpus) feed(text);
    for (int round = 0; round < rounds; ++round)
        feed(mutated(corpus[random.below(corpus.size())], corpus[random.below(corpus.size())], words, random));
    std::printf("%zu inputs, %d mutations\n", corpus.size(), rounds);
    return 0;
}

}  // namespace fuzz
