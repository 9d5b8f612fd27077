// Routing and the routed sum: what a backend inherits and what cpu's kernels do against the law as array expressions, bit for bit.
// SPDX-License-Identifier: Apache-2.0
#define EIGEN_RUNTIME_NO_MALLOC  // in every file of this runner that includes Eigen
#include "../kernel/reference.hpp"

#include <tenon/device/cpu.hpp>
#include <tenon/device/eigen.hpp>
#include <tenon/device/xtensor.hpp>

#include <doctest/doctest.h>

using namespace reference;
using tenon::expert_scoring;
using tenon::group_worth;
using tenon::routed_experts;
using tenon::device::backend;
using ids = std::vector<std::int32_t>;

namespace {
float const inf = std::numeric_limits<float>::infinity();

backend const& specification() { return tenon::device::xtensor<0>::instance("auto"); }
backend const& eigen() { return tenon::device::eigen<0>::instance("auto"); }

std::vector<backend const*> kernels() {
    std::vector<backend const*> all;
    for (isa i : all_supported()) all.push_back(&tenon::device::cpu<0>::instance(tenon::kernel::name_of(i)));
    return all;
}

std::size_t below(random_numbers& random, std::size_t n) { return random.next() % n; }

/// Numbers, one in `rarity` of which is NaN, infinite, denormal, a signed zero, or beyond exp; 0: none.
floats strange(random_numbers& random, std::size_t n, std::uint64_t rarity) {
    float const odd[]{0.0f, -0.0f, 1e-42f, -3e-39f, inf, -inf, std::nanf(""), 3e38f, 88.5f, -87.4f, 0.25f};
    floats x = random.row(n, 4.0f);
    if (rarity != 0)
        for (float& v : x)
            if (below(random, rarity) == 0) v = odd[below(random, std::size(odd))];
    return x;
}

struct answer {
    ids experts;
    floats scores, gates;
    int without_choice = 0;
};

answer route(backend const& b, routed_experts const& how, floats const& logits, floats const& correction, int rows) {
    answer a{ids(at(rows * how.chosen + 1), -7), logits, floats(at(rows * how.chosen + 1), 5.0f)};  // nothing is written beyond the last
    floats scratch(at(how.count));
    a.without_choice = b.route({&how, a.scores.data(), correction.data(), scratch.data(), a.experts.data(), a.gates.data(), rows});
    return a;
}

/// Every instruction set's kernels against the specification.
void check_all(routed_experts const& how, floats const& logits, floats const& correction, int rows) {
    answer const should = route(specification(), how, logits, correction, rows);
    for (backend const* b : kernels()) {
        CAPTURE(b->isa());
        answer const is = route(*b, how, logits, correction, rows);
        REQUIRE(is.experts == should.experts);
        REQUIRE(difference(is.scores, should.scores) == "");
        REQUIRE(difference(is.gates, should.gates) == "");
        REQUIRE(is.without_choice == should.without_choice);
    }
}

routed_experts some_experts(random_numbers& random) {
    routed_experts how;
    how.groups = random.next() % 2 == 0 ? 1 : static_cast<int>(below(random, 9)) + 1;
    how.chosen_groups = static_cast<int>(below(random, at(how.groups))) + 1;
    how.count = how.groups * (static_cast<int>(below(random, 40)) + 1);
    how.chosen = static_cast<int>(below(random, at(how.count))) % 17 + 1;
    how.scoring = random.next() % 2 == 0 ? expert_scoring::softmax : expert_scoring::sigmoid;
    how.worth = random.next() % 2 == 0 ? group_worth::best : group_worth::two_best;
    how.correction = random.next() % 2 == 0;
    how.normalised = random.next() % 2 == 0;
    how.sum_epsilon = random.next() % 2 == 0 ? 0.0 : 1e-20;
    how.scale = random.next() % 2 == 0 ? 1.0 : 2.446;
    return how;
}
}  // namespace

TEST_CASE("experts and gates are the specification's, for any shape, however they are scored and chosen") {
    random_numbers random;
    for (int round = 0; round < 400; ++round) {
        routed_experts const how = some_experts(random);
        int const rows = round % 8;
        floats logits = strange(random, at(rows * how.count), round % 3 == 0 ? 7 : 0);
        floats const correction = strange(random, at(how.count), round % 7 == 0 ? 5 : 0);
        if (round % 5 == 0)
            for (float& x : logits) x = x > 1.0f ? 1.5f : -1.5f;  // ties
        if (round % 11 == 0 && rows > 2) std::fill_n(logits.begin() + 2 * how.count, how.count, std::nanf(""));
        CAPTURE(round);
        check_all(how, logits, correction, rows);
    }
}

TEST_CASE("experts and gates are the specification's where everything is chosen, for one expert and for the most that there are") {
    random_numbers random;
    struct shape {
        int count, chosen, groups, chosen_groups;
    };
    for (shape s : {shape{1, 1, 1, 1}, shape{2, 2, 2, 1}, shape{33, 33, 1, 1}, shape{64, 8, 64, 8}, shape{96, 96, 8, 8}, shape{96, 1, 3, 2},
                    shape{tenon::most_experts, 8, 1, 1}, shape{tenon::most_experts, 8, 8, 4},
                    shape{tenon::most_experts, 4, tenon::most_experts, 5}, shape{tenon::most_experts, tenon::most_experts, 1, 1}})
        for (int rows : {0, 1, 3}) {
            routed_experts how = some_experts(random);
            how.count = s.count;
            how.chosen = s.chosen;
            how.groups = s.groups;
            how.chosen_groups = s.chosen_groups;
            floats const correction = strange(random, at(s.count), 0);
            CAPTURE(s.count);
            CAPTURE(s.chosen);
            CAPTURE(s.groups);
            for (std::uint64_t rarity : {0u, 4u}) check_all(how, strange(random, at(rows * s.count), rarity), correction, rows);
            for (float same : {0.0f, -0.0f, 2.0f, inf, -inf, std::nanf("")})
                check_all(how, floats(at(rows * s.count), same), correction, rows);
        }
}

TEST_CASE("the routed sum is the specification's, for any number of columns and experts") {
    random_numbers random;
    for (int round = 0; round < 300; ++round) {
        int const count = static_cast<int>(below(random, round % 10 == 0 ? 1024 : 40)) + 1, wanted = static_cast<int>(below(random, 17));
        std::size_t const n = below(random, 150);
        ids experts;
        for (int e = 0; e < count; ++e)
            if (static_cast<int>(below(random, at(count - e))) < wanted - static_cast<int>(experts.size())) experts.push_back(e);
        std::uint64_t const rarity = round % 3 == 0 ? 6 : 0;
        floats const gates = strange(random, experts.size(), 2 * rarity), all = strange(random, experts.size() * n, rarity);
        std::vector<float const*> parts;
        for (std::size_t j = 0; j < experts.size(); ++j) parts.push_back(all.data() + j * n);
        auto const combined = [&](backend const& b) {
            floats out(n + 1, 5.0f);
            b.combine({out.data(), parts.data(), gates.data(), experts.data(), static_cast<int>(experts.size()), count, n});
            return out;
        };
        floats const should = combined(specification());
        CAPTURE(round);
        for (backend const* b : kernels()) REQUIRE(difference(combined(*b), should) == "");
        REQUIRE(difference(combined(eigen()), should) == "");  // inherited, and no exponential in it
    }
}

TEST_CASE("a backend of another arithmetic chooses by its own exponential as the specification would, the same in every batch") {
    namespace law = tenon::device::specification;
    random_numbers random;
    for (int round = 0; round < 100; ++round) {
        routed_experts const how = some_experts(random);
        int const rows = 5, E = how.count, k = how.chosen;
        floats const logits = strange(random, at(rows * E), 0), correction = strange(random, at(E), 0);
        answer const all = route(eigen(), how, logits, correction, rows), close = route(specification(), how, logits, correction, rows);
        CHECK(all.without_choice == -1);
        for (std::size_t i = 0; i < logits.size(); ++i) CHECK(all.scores[i] == doctest::Approx(close.scores[i]).epsilon(1e-5));

        law::matrix const scores = law::read(all.scores.data(), E, rows, E);
        law::matrix const values = how.correction ? law::matrix(scores + law::read(correction.data(), at(E))) : scores;
        law::matrix const place = law::places(law::in_best_groups(values, how)), gates = law::gates_of(scores, place, how);
        ids experts;
        floats weights;
        for (std::size_t t = 0; t < at(rows); ++t)
            for (std::size_t e = 0; e < at(E); ++e)
                if (place(t, e) < static_cast<float>(k)) {
                    experts.push_back(static_cast<std::int32_t>(e));
                    weights.push_back(gates(t, e));
                }
        CHECK(ids(all.experts.begin(), all.experts.end() - 1) == experts);
        CHECK(difference(floats(all.gates.begin(), all.gates.end() - 1), weights) == "");

        for (int t = 0; t < rows; ++t) {
            answer const one = route(eigen(), how, floats(logits.begin() + t * E, logits.begin() + (t + 1) * E), correction, 1);
            for (int j = 0; j < k; ++j) {
                CHECK(one.experts[at(j)] == all.experts[at(t * k + j)]);
                CHECK(bits(one.gates[at(j)]) == bits(all.gates[at(t * k + j)]));
            }
        }
    }
}
