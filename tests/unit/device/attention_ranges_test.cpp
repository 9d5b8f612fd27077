// Blocks of the KV cache shared out over threads: where the cuts fall, when they pay, and that the bits are those of one thread.
// SPDX-License-Identifier: Apache-2.0
#define EIGEN_RUNTIME_NO_MALLOC  // in every file of this runner that includes Eigen
#include "../kernel/reference.hpp"

#include <tenon/device/attention_ranges.hpp>
#include <tenon/device/cpu.hpp>
#include <tenon/runtime/thread_crew.hpp>

#include <doctest/doctest.h>

#include <cstdint>
#include <vector>

using namespace reference;
using tenon::kv_format;
using tenon::device::detail::attention_piece;
using tenon::device::detail::attention_ranges;
using tenon::kernel::attention_call;
using calls = std::vector<attention_call>;

namespace {
/// One thread that runs the parts of several, the last one first.
class reversed_crew final : public tenon::device::crew {
public:
    explicit reversed_crew(int parts) : parts_(parts) {}
    int size() const noexcept override { return parts_; }
    void run(work& w) override {
        for (int p = parts_ - 1; p >= 0; --p) w.run(p);
    }

private:
    int parts_;
};

struct geometry { int heads, kv_heads, head_dim, rows; std::int64_t window; };

attention_call shape(geometry const& g, std::int64_t length) {
    return {.rows = g.rows, .heads = g.heads, .kv_heads = g.kv_heads, .head_dim = g.head_dim, .first_position = length - g.rows, .window = g.window, .scale = 0.37f};
}
calls shapes(geometry const& g, std::vector<int> const& lengths, int later = 0) {
    calls all;
    for (int const length : lengths) all.push_back(shape(g, length + later));
    return all;
}

/// Some sequences of a geometry, each with `length` positions in its cache, of which the last `rows` ask.
struct sequences {
    sequences(geometry const& g, std::vector<int> const& lengths, kv_format format, random_numbers& random, float oddness) : width(g.heads * g.head_dim) {
        all = shapes(g, lengths);
        caches.resize(2 * all.size());
        for (std::size_t s = 0; s < all.size(); ++s) {
            std::ptrdiff_t const stride = std::ptrdiff_t{(lengths[s] + 63) / 64 * 64} * g.head_dim, row = std::ptrdiff_t{g.kv_heads} * g.head_dim;
            queries.push_back(random.row(at(g.rows * width), 4.0f));
            floats k = random.row(at(lengths[s] * row), 2.0f), v = random.row(k.size());
            if (oddness > 0.0f)
                for (int i = 0; i < 40; ++i) (i % 2 == 0 ? k : v)[random.next() % k.size()] = i % 3 == 0 ? std::nanf("") : i % 3 == 1 ? oddness : -oddness;
            for (int i = 0; i < 2; ++i) caches[2 * s + at(i)].assign(at(stride * g.kv_heads), std::nanf(""));
            tenon::kernel::kv_place const place{caches[2 * s].data(), caches[2 * s + 1].data(), stride, format};
            tenon::kernel::store_kv(place, 0, g.kv_heads, g.head_dim, 0, lengths[s], k.data(), v.data(), row);
            tenon::kernel::read_from(all[s], place);
        }
        for (std::size_t s = 0; s < all.size(); ++s) all[s].q = queries[s].data();
    }
    sequences(sequences const&) = delete;
    sequences& operator=(sequences const&) = delete;

    /// The outputs of all sequences; the scratch is what is asked for calls `later` positions on, and what lies behind it is not touched.
    floats attend(isa which, tenon::device::crew& threads, int later = 0) {
        auto const& backend = tenon::device::cpu<0>::instance(tenon::kernel::name_of(which));
        calls afterwards = all;
        std::size_t outputs = 0;
        for (std::size_t s = 0; s < all.size(); ++s) {
            afterwards[s].first_position += later;
            outputs += at(all[s].rows * width);
        }
        std::size_t const asked = backend.attend_all_scratch_floats(afterwards, threads.size());
        floats out(outputs, -7.0f), scratch(asked + 16, std::nanf(""));
        std::fill(scratch.end() - 16, scratch.end(), 5.0f);
        float* to = out.data();
        for (attention_call& c : all) {
            c.out = to;
            c.q_stride = c.out_stride = width;
            to += c.rows * width;
        }
        backend.attend_all(all, scratch.data(), threads);
        CHECK(std::count(scratch.end() - 16, scratch.end(), 5.0f) == 16);
        return out;
    }

    std::ptrdiff_t width;
    std::vector<floats> queries, caches;
    calls all;
};

/// On how many numbers of threads blocks were shared out.
int check_bits(geometry const& g, std::vector<int> const& lengths, std::vector<isa> const& sets, float oddness = 0.0f) {
    random_numbers random;
    int shared = 0;
    for (kv_format const format : {kv_format::f32, kv_format::bf16}) {
        sequences some(g, lengths, format, random, oddness);
        tenon::device::no_crew nobody;
        floats const expected = some.attend(isa::portable, nobody);
        for (int threads = 1; threads <= 8; ++threads) {
            shared += attention_ranges(some.all, threads).worth_it() ? 1 : 0;
            reversed_crew crew(threads);
            CAPTURE(g.head_dim);
            CAPTURE(g.window);
            CAPTURE(threads);
            for (isa const i : sets) CHECK_EQ(difference(some.attend(i, crew), expected), "");
            CHECK_EQ(difference(some.attend(sets.back(), crew, 37), expected), "");
        }
    }
    return shared;
}

int check_bits(geometry const& g, std::vector<int> const& lengths, float oddness = 0.0f) { return check_bits(g, lengths, all_supported(), oddness); }
}  // namespace

TEST_CASE("A batch's blocks shared out over 1 to 8 threads give the bits of one thread, whatever the heads, the windows and the lengths") {
    for (geometry const& g : {geometry{8, 1, 128, 1, 0}, geometry{1, 1, 8, 1, 0}, geometry{6, 3, 20, 1, 0}, geometry{7, 1, 17, 1, 0},
                              geometry{3, 1, 5, 1, 0}, geometry{2, 1, 1, 1, 0}, geometry{5, 5, 80, 1, 0}}) {
        CHECK(check_bits(g, {1100}) > 2);
        CHECK(check_bits(g, {1500, 70, 1}) > 2);
    }
    for (int const length : {511, 512, 513, 575, 576, 577, 1023, 1025}) CHECK(check_bits({4, 1, 24, 1, 0}, {length}) > 2);
    for (std::int64_t const window : {500, 512, 513, 639})
        for (int const length : {512, 640, 700, 1100, 1279, 1280}) check_bits({4, 1, 16, 1, window}, {length, 90, 800});
    CHECK(check_bits({4, 1, 16, 1, 700}, {1300, 90}) > 2);
    CHECK(check_bits({60, 2, 16, 1, 0}, {900}) > 2);  // groups of query heads
}

TEST_CASE("Several rows of a sequence are shared out where each KV head's are one group, and begin and end at blocks of their own") {
    for (geometry const& g : {geometry{4, 1, 16, 5, 0}, geometry{3, 3, 12, 7, 0}, geometry{1, 1, 33, 24, 0}})
        for (int const length : {640, 643, 1027}) CHECK(check_bits(g, {length, 333}) > 2);
    for (int const length : {1000, 1024, 1026, 1031}) CHECK(check_bits({2, 1, 16, 9, 900}, {length}) > 2);
    check_bits({2, 1, 16, 9, 70}, {1031, 1030, 1026, 1025});
    check_bits({4, 2, 16, 40, 0}, {700});  // several groups: as they were
}

TEST_CASE("Eight thousand positions, and numbers that are none, reach the output as on one thread") {
    for (geometry const& g : {geometry{8, 1, 128, 1, 0}, geometry{2, 1, 19, 1, 0}, geometry{3, 3, 16, 1, 4096}}) {
        CHECK(check_bits(g, {8192}, {tenon::kernel::best_isa()}) > 2);
        CHECK(check_bits(g, {8000, 130}, {tenon::kernel::best_isa()}) > 2);
    }
    for (float const odd : {3e38f, std::numeric_limits<float>::infinity()}) CHECK(check_bits({4, 2, 24, 1, 0}, {1500, 700}, odd) > 2);
}

TEST_CASE("Threads that run at the same time give them too") {
    random_numbers random;
    sequences some({6, 1, 48, 1, 0}, {3000, 200, 1}, kv_format::f32, random, 0.0f);
    tenon::device::no_crew nobody;
    floats const expected = some.attend(tenon::kernel::best_isa(), nobody);
    for (int const threads : {2, 3, 5}) {
        tenon::detail::thread_crew crew(threads, threads, -1);
        for (int i = 0; i < 50; ++i) CHECK_EQ(difference(some.attend(tenon::kernel::best_isa(), crew), expected), "");
    }
}

TEST_CASE("Ranges are equally long and cover every item once, in order; what one leaves and what it has merged have room") {
    random_numbers random;
    int seen = 0;
    for (int trial = 0; trial < 1000; ++trial) {
        geometry const g{4, 1 << random.next() % 3, 3, 1 + static_cast<int>(random.next() % 5), trial % 3 == 0 ? static_cast<std::int64_t>(1 + random.next() % 900) : 0};
        std::vector<int> lengths(1 + random.next() % 5);
        for (int& n : lengths) n = g.rows + static_cast<int>(random.next() % 1500);
        int const threads = 2 + static_cast<int>(random.next() % 7);
        calls const some = shapes(g, lengths);
        attention_ranges const ranges(some, threads);
        if (!ranges.worth_it()) continue;
        std::vector<std::int64_t> longest(at(threads)), left(at(threads));
        std::vector<attention_piece> list;
        ++seen;
        ranges.each([&](attention_piece const& p) { list.push_back(p); });
        std::int64_t total = 0;
        std::size_t next = 0;
        for (attention_call const& c : some)
            for (int i = 0; i < tenon::kernel::attention_items(c); ++i) {
                std::int64_t const blocks = tenon::kernel::attention_item_of(c, i).blocks;
                std::int64_t end = 0;
                for (; end < blocks; end = list[next++].end) {
                    attention_piece const& p = list.at(next);
                    REQUIRE((p.call == &c && p.item == i && p.begin == end && p.end > p.begin && p.range >= (next == 0 ? 0 : list[next - 1].range)));
                    longest[at(p.range)] += p.end - p.begin;
                    if (p.begin > 0) left[at(p.range)] += p.end - p.begin;
                }
                REQUIRE(end == blocks);
                total += blocks;
            }
        CHECK(next == list.size());
        for (int r = 0; r < threads; ++r) {
            CHECK((longest[at(r)] * threads < total + threads || longest[at(r)] < 8));  // fewer ranges than threads, not shorter ones
            CHECK(static_cast<std::size_t>(1 + left[at(r)]) * ranges.left_floats() <= ranges.scratch_floats());
        }
        // earlier positions need no more than was asked for
        for (int const later : {0, 1, 13, 64, 200, 3000})
            CHECK(ranges.scratch_floats() <= attention_ranges(shapes(g, lengths, later), threads, 1).scratch_floats());
    }
    CHECK(seen > 100);
}

TEST_CASE("Blocks are shared out where items would leave threads idle, and only there") {
    auto const pays = [](geometry const& g, std::vector<int> const& lengths, int threads) { return attention_ranges(shapes(g, lengths), threads).worth_it(); };
    CHECK(pays({8, 1, 128, 1, 0}, {8192}, 2));
    CHECK(pays({6, 3, 128, 1, 0}, {8192}, 2));
    CHECK(pays({8, 8, 128, 1, 0}, {8192}, 3));
    CHECK(pays({8, 1, 128, 1, 0}, {8192, 100}, 2));  // one sequence is the work
    CHECK_FALSE(pays({8, 4, 128, 1, 0}, {8192}, 2));
    CHECK_FALSE(pays({8, 1, 128, 1, 0}, {8192, 8000}, 2));
    CHECK_FALSE(pays({8, 1, 128, 1, 0}, {8192}, 1));
    CHECK_FALSE(pays({8, 1, 128, 1, 0}, {100}, 2));     // too few blocks
    CHECK_FALSE(pays({8, 1, 128, 1, 64}, {8192}, 2));   // the window leaves no more
    CHECK_FALSE(pays({8, 1, 128, 512, 0}, {8192}, 2));  // a prefill has many items
    calls exact = shapes({8, 1, 128, 1, 0}, {8192});
    exact[0].fixed15 = true;
    CHECK_FALSE(attention_ranges(exact, 2).worth_it());
}
