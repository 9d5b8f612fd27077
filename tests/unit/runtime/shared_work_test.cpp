// Work that the threads of a rank share out: every item is somebody's, once, and no part is empty; and memory that they touch together.
// SPDX-License-Identifier: Apache-2.0
#include <doctest/doctest.h>
#include <tenon/runtime/buffer.hpp>
#include <tenon/runtime/thread_crew.hpp>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>

using namespace tenon;

TEST_CASE("Shared work has every item once and no empty part, where there are fewer items than threads too") {
    for (int const threads : {1, 2, 3, 8}) {
        detail::thread_crew crew(threads, threads, -1);
        for (std::ptrdiff_t const count : {0, 1, 2, 5, 8, 100}) {
            CAPTURE(threads);
            CAPTURE(count);
            std::vector<std::atomic<int>> seen(static_cast<std::size_t>(count));
            std::atomic<int> empty{0};
            crew.share(count, 1, [&](std::ptrdiff_t begin, std::ptrdiff_t end) {
                empty += begin >= end;
                for (std::ptrdiff_t i = begin; i < end; ++i) ++seen[static_cast<std::size_t>(i)];
            });
            CHECK(empty == 0);
            CHECK(std::all_of(seen.begin(), seen.end(), [](std::atomic<int> const& n) { return n == 1; }));
        }
    }
}

TEST_CASE("Pieces of a pool are zero, aligned and keep what is written, whoever touches their pages") {
    detail::thread_crew crew(3, 3, -1);
    device::no_crew alone;
    detail::basic_pool<> pool;
    std::vector<unsigned char*> pieces;
    std::vector<std::size_t> sizes;
    for (std::size_t i = 0; i < 60; ++i) {
        sizes.push_back(i % 7 == 6 ? std::size_t{5} << 20 : 1 + i * 3001);
        auto* const piece = static_cast<unsigned char*>(pool.take(sizes.back(), i % 4 == 0 ? static_cast<device::crew&>(alone) : crew));
        REQUIRE(reinterpret_cast<std::uintptr_t>(piece) % 64 == 0);
        CHECK(std::all_of(piece, piece + sizes.back(), [](unsigned char c) { return c == 0; }));
        std::memset(piece, static_cast<int>(i + 1), sizes.back());
        pieces.push_back(piece);
    }
    for (std::size_t i = 0; i < pieces.size(); ++i)
        CHECK(std::all_of(pieces[i], pieces[i] + sizes[i], [i](unsigned char c) { return c == i + 1; }));
    CHECK_THROWS_WITH_AS(pool.take(std::size_t{1} << 60, alone), doctest::Contains("memory_suffices"), refusal);
    auto* const after = static_cast<unsigned char*>(pool.take(1000, alone));  // of the room that there was, or of new room
    std::memset(after, 0xff, 1000);
    for (std::size_t i = 0; i < pieces.size(); ++i)
        CHECK(std::all_of(pieces[i], pieces[i] + sizes[i], [i](unsigned char c) { return c == i + 1; }));
}
