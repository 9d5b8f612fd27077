// A steady decode step asks nobody for memory, whatever the plan, where all ranks are in this process. This program counts every operator
// new. SPDX-License-Identifier: Apache-2.0
#include "support/families.hpp"
#include "support/random_model.hpp"
#include "support/runs.hpp"

#include <doctest/doctest.h>
#include <tenon/dynamic_causal_lm.hpp>

#include <atomic>
#include <cstdlib>
#include <new>
#include <span>
#include <string>
#include <vector>
#if defined(__GLIBC__)
#include <malloc.h>
#endif

using namespace tenon;
using namespace support;

namespace {
std::atomic<long> allocations{0};

void* counted(std::size_t bytes, std::size_t alignment = alignof(std::max_align_t)) {
    allocations.fetch_add(1, std::memory_order_relaxed);
    void* const memory = std::aligned_alloc(alignment, (bytes + alignment) / alignment * alignment);
    if (memory == nullptr) std::abort();
    return memory;
}
[[gnu::noinline]] void give_back(void* memory) { std::free(memory); }  // inlined into a delete g++ sees a mismatch with new
}  // namespace

void* operator new(std::size_t bytes) { return counted(bytes); }
void* operator new(std::size_t bytes, std::align_val_t alignment) { return counted(bytes, static_cast<std::size_t>(alignment)); }
void operator delete(void* memory) noexcept { give_back(memory); }
void operator delete(void* memory, std::size_t) noexcept { give_back(memory); }
void operator delete(void* memory, std::align_val_t) noexcept { give_back(memory); }
void operator delete(void* memory, std::size_t, std::align_val_t) noexcept { give_back(memory); }

namespace {
/// Allocations of a call.
template <class Call>
long in(Call call) {
    long const before = allocations.load();
    call();
    return allocations.load() - before;
}

/// Of memory that is asked for without operator new too; 0 where the system does not say.
std::size_t bytes_in_use() {
    std::size_t bytes = 0;
#if defined(__GLIBC__)
#if __GLIBC_PREREQ(2, 33)
    bytes = ::mallinfo2().uordblks;
#endif
#endif
    return bytes;
}

void check_steady(std::string const& directory, std::vector<std::string> const& plans) {
    for (std::string const& text : plans)
        for (runtime_kind const kind : {runtime_kind::sequential, runtime_kind::threads}) {
            CAPTURE(text);
            CAPTURE(static_cast<int>(kind));
            auto m = dynamic_causal_lm<>::load(directory, plan::parse(text), kind);
            ids const prompt{1, 2, 3};
            state one = m.make_state(80), other = m.make_state(80);
            m.prefill(one, prompt, 3);
            m.prefill(other, prompt, 3);
            feed feeds[]{{&one, std::span(prompt).first(1)}, {&other, std::span(prompt).last(1)}};
            for (int i = 0; i < 3; ++i) {  // the largest batch has been here
                m.step(one, 1);
                m.forward(feeds, rows_wanted::last);
            }
            CHECK(in([&] {
                      for (int i = 0; i < 20; ++i) m.step(one, i);
                  }) == 0);
            CHECK(in([&] {
                      for (int i = 0; i < 20; ++i) m.forward(feeds, rows_wanted::last);
                  }) == 0);
            // A generation makes its room when it begins: a longer one asks no more often.
            auto const generated = [&](int count) { return in([&] { m.generate({1, 2, 3}, {.max_new_tokens = count}); }); };
            long const of_ten = generated(10);
            CHECK(of_ten > 0);
            CHECK(generated(60) == of_ten);
        }
}
}  // namespace

TEST_CASE("A decode step of a dense model allocates nothing") {
    random_model const files(dense_families()[0], 31);
    check_steady(files.directory(), {"all@0", "all@0,1", "all@0,1:tensor.reduce", "0-1@0;2-3@1", "0-1@0,1;2-3@1"});
}

TEST_CASE("A decode step of a model that routes experts allocates nothing") {
    random_model const files(routed_families()[0], 32);
    check_steady(files.directory(),
                 {"all@0", "all@0,1:expert", "all@0,1:tensor+expert", "all@0,1:tensor+expert_width", "0-1@0;2-3@1,2:tensor+expert"});
}

TEST_CASE("Nor does one whose threads share a context that becomes longer, and no scratch grows") {
    geometry g = dense_families()[0];
    g.kv_heads = 1;
    g.head_dim = 128;  // what is left to be merged is more than any other scratch
    g.max_positions = 2048;
    random_model const files(g, 33);
    load_options how;
    how.threads = 2;
    auto m = dynamic_causal_lm<>::load(files.directory(), plan::parse("all@0"), runtime::sequential{}, how);
    state one = m.make_state(1800);
    m.prefill(one, ids(1200, 5), 4);
    for (int i = 0; i < 3; ++i) m.step(one, i);
    std::size_t const before = bytes_in_use();
    CHECK(in([&] {
              for (int i = 0; i < 500; ++i) m.step(one, i % 50);
          }) == 0);
    CHECK(bytes_in_use() == before);
}
