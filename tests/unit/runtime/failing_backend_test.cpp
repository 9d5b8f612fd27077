// A backend that throws in the middle of a call: the caller gets its exception, nobody waits for ever, and the model goes on.
// SPDX-License-Identifier: Apache-2.0
#include <doctest/doctest.h>
#include <tenon/tenon.hpp>

#include <array>
#include <limits>
#include <atomic>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "support/random_model.hpp"

namespace {

std::atomic<int> calls_until_failure{-1};  // of one operation, over all ranks; below 0: never

/// device::cpu, but for a gated unit that may throw.
class failing_backend final : public tenon::device::backend {
public:
    std::string_view name() const noexcept override { return "user"; }
    std::size_t multiply_scratch_floats(int rows, int columns) const noexcept override {
        return cpu().multiply_scratch_floats(rows, columns);
    }
    std::size_t attention_scratch_floats(int head_dim) const noexcept override { return cpu().attention_scratch_floats(head_dim); }
    std::size_t packed_bytes(tenon::kernel::packed_matrix const& m) const noexcept override { return cpu().packed_bytes(m); }
    void pack(void* to, tenon::kernel::packed_matrix const& m, int first, int rows, std::byte const* from, std::ptrdiff_t stride,
              tenon::dtype type) const override {
        cpu().pack(to, m, first, rows, from, stride, type);
    }
    void unpack(void* to, std::ptrdiff_t stride, tenon::kernel::packed_matrix const& m, int first, int rows) const override {
        cpu().unpack(to, stride, m, first, rows);
    }
    void multiply(float* y, std::ptrdiff_t y_stride, tenon::kernel::packed_matrix const& w, float const* x, std::ptrdiff_t x_stride,
                  int rows, float* scratch) const override {
        cpu().multiply(y, y_stride, w, x, x_stride, rows, scratch);
    }
    void rms_norm(float* y, std::ptrdiff_t y_stride, float const* x, std::ptrdiff_t x_stride, float const* gain, int n, float epsilon,
                  int rows) const override {
        cpu().rms_norm(y, y_stride, x, x_stride, gain, n, epsilon, rows);
    }
    void rope(float* x, std::ptrdiff_t stride, int rows, int heads, int head_dim, float const* c, float const* s) const override {
        cpu().rope(x, stride, rows, heads, head_dim, c, s);
    }
    void swiglu(float* y, float const* gate, float const* up, std::size_t n) const override {
        if (calls_until_failure.load() >= 0 && calls_until_failure.fetch_sub(1) == 0)
            tenon::detail::refuse("memory_suffices", "the gated unit found none");
        cpu().swiglu(y, gate, up, n);
    }
    void add(float* out, float const* low, float const* high, std::size_t n) const override { cpu().add(out, low, high, n); }
    void add_bias(float* y, std::ptrdiff_t stride, float const* b, int n, int rows) const override {
        cpu().add_bias(y, stride, b, n, rows);
    }
    void attention(tenon::kernel::attention_call const& call) const override { cpu().attention(call); }
    void exp(float* y, float const* x, std::size_t n) const override { cpu().exp(y, x, n); }

private:
    static tenon::device::backend const& cpu() { return tenon::device::cpu<>::instance("auto"); }
};

template <int... Index>
struct failing {
    static constexpr tenon::device_kind kind = tenon::device_kind::user;
    static constexpr int most_ranks = tenon::most_ranks_of_a_stage;
    static constexpr bool canonical = true;
    static constexpr std::array<tenon::device_id, sizeof...(Index)> devices{tenon::device_id{tenon::device_kind::user, Index}...};
    static tenon::device::backend const& instance(std::string_view) {
        static failing_backend const only;
        return only;
    }
};

std::vector<float> logits(tenon::language_model& lm, tenon::state& s) {
    std::vector<tenon::token_id> const ids{1, 2, 3, 4, 5};
    tenon::feed const f{&s, ids};
    auto const rows = lm.forward({&f, 1});
    return {rows.begin(), rows.end()};
}

}  // namespace

TEST_CASE("What an operation throws reaches the caller under every runtime, and leaves states and model as they were") {
    support::random_model const model(support::geometry{.layers = 3}, 11);
    for (auto const runtime : {tenon::runtime_kind::threads, tenon::runtime_kind::sequential})
        for (std::string const plan : {"all@0", "all@0,1", "0@0,1;1-2@2,3", "0@0;1@1;2@2"}) {
            calls_until_failure = -1;
            auto lm = tenon::dynamic_causal_lm<failing>::load(model.directory(), tenon::plan::parse(plan), runtime);
            tenon::state plain = lm.make_state(), s = lm.make_state();
            std::vector<float> const expected = logits(lm, plain);
            for (int at = 0; at < 3; ++at) {
                calls_until_failure = at;
                CHECK_THROWS_WITH_AS(logits(lm, s), doctest::Contains("the gated unit found none"), tenon::refusal);
                CHECK(s.length() == 0);
            }
            calls_until_failure = -1;
            CHECK(logits(lm, s) == expected);
        }
}

TEST_CASE("A call that fails after a router found nothing but NaN says nothing of the next call") {
    support::geometry g{.layers = 2, .hidden = 64, .ffn = 32};
    g.family = "mixtral";
    g.experts = {.count = 8, .chosen = 2, .width = 32, .normalised = true};
    support::random_model files(g, 97);
    auto& router = files.tensors().at(files.shape().router_name(0)).values;
    router[5 * 64] = std::numeric_limits<float>::infinity();
    files.write();
    auto lm = tenon::dynamic_causal_lm<failing>::load(files.directory(), tenon::plan::parse("all@0"), tenon::runtime::sequential{});
    std::vector<tenon::token_id> all, good;
    for (int t = 0; t < g.vocab; ++t) all.push_back(t);
    for (int t = 0; t < g.vocab && good.empty(); ++t) {
        tenon::state s = lm.make_state();
        try {
            lm.step(s, t);
            good.push_back(t);
        } catch (tenon::refusal const&) {}
    }
    REQUIRE(good.size() == 1);
    tenon::state s = lm.make_state(), a = lm.make_state();
    tenon::feed const bad{&s, all};
    calls_until_failure = 0;
    CHECK_THROWS_WITH_AS(lm.forward({&bad, 1}), doctest::Contains("the gated unit found none"), tenon::refusal);
    calls_until_failure = -1;
    CHECK_NOTHROW(lm.step(a, good[0]));
}
