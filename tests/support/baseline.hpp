// Parity with plain: what one rank gives for seventeen sequences, and the checks that a split model gives the same bits in one piece, in
// chunks and in ragged batches.
// SPDX-License-Identifier: Apache-2.0
#pragma once
#include "random_model.hpp"
#include "runs.hpp"

#include <doctest/doctest.h>
#include <tenon/dynamic_causal_lm.hpp>

#include <string>
#include <utility>
#include <vector>

namespace support {

using namespace tenon;
using plans = std::vector<std::string>;
using sizes = std::vector<std::size_t>;

/// What plain gives for a checkpoint: seventeen sequences of different lengths, each alone and in one piece.
struct baseline {
    std::string directory;
    load_options how{};
    std::vector<ids> sequences;
    std::vector<floats> rows;

    explicit baseline(std::string folder, load_options options = {}) : directory(std::move(folder)), how(options) {
        load_options slow = how;
        slow.isa = "portable";
        auto m = dynamic_causal_lm<>::load(directory, plan::parse("all@0"), runtime::sequential{}, slow);
        random_bits random(42);
        for (int i = 0; i < 17; ++i) sequences.push_back(random_tokens(random, i == 0 ? 71 : 1 + (i * 5) % 13, m.config().vocab));
        for (ids const& s : sequences) rows.push_back(rows_of(m, s));
    }
};

/// One sequence, `chunk` tokens a call. Row t of a prefill is the row of step t.
inline void check_chunk(language_model& m, baseline const& b, std::size_t which, std::size_t chunk) {
    CAPTURE(chunk);
    CHECK_EQ(first_difference(b.rows[which], rows_of(m, b.sequences[which], chunk)), "");
}

/// The first `size` sequences together: every row has the bits that it has alone.
inline void check_batch(language_model& m, baseline const& b, std::size_t size) {
    CAPTURE(size);
    std::vector<floats> const got = ragged_rows_of(m, std::span<ids const>(b.sequences).first(size));
    for (std::size_t i = 0; i < size; ++i) {
        CAPTURE(i);
        CHECK_EQ(first_difference(b.rows[i], got[i]), "");
    }
}

inline void check_everything(language_model& m, baseline const& b) {
    for (std::size_t const chunk : sizes{0, 7, 2, 1}) check_chunk(m, b, 3, chunk);
    for (std::size_t const chunk : sizes{0, 7}) check_chunk(m, b, 0, chunk);
    for (std::size_t const size : sizes{1, 2, 3, 5, 8, 17}) check_batch(m, b, size);
}

/// A sample of it. For threads that outnumber the cores and sleep at every join, and where the sequential runtime has seen all.
inline void check_some(language_model& m, baseline const& b) {
    check_chunk(m, b, 0, 0);
    check_chunk(m, b, 3, 2);
    check_batch(m, b, 5);
}

inline void check_plans(baseline const& b, plans const& list, bool everything = true) {
    for (std::string const& text : list) {
        CAPTURE(text);
        auto serial = dynamic_causal_lm<>::load(b.directory, plan::parse(text), runtime::sequential{}, b.how);
        if (everything)
            check_everything(serial, b);
        else
            check_some(serial, b);
        auto threaded = dynamic_causal_lm<>::load(b.directory, plan::parse(text), runtime::threads{}, b.how);
        check_some(threaded, b);
    }
}

}  // namespace support
