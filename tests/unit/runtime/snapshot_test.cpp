// Sequences as bytes: saved and restored they go on with the bits of never having stopped, under any plan, runtime and process; cut back they
// go on with the bits of never having been fed; and whatever is damaged, another model's or not whole is refused by name.
// SPDX-License-Identifier: Apache-2.0
#include "support/families.hpp"
#include "support/random_model.hpp"
#include "support/runs.hpp"

#include <doctest/doctest.h>
#include <sys/wait.h>
#include <tenon/device/eigen.hpp>
#include <tenon/device/xtensor.hpp>
#include <tenon/dynamic_causal_lm.hpp>
#include <tenon/runtime/processes.hpp>
#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <iterator>
#include <limits>
#include <optional>
#include <string>
#include <vector>

using namespace tenon;
using namespace support;

namespace {

using bytes = std::vector<std::byte>;
using plans = std::vector<std::string>;

dynamic_causal_lm<> loaded(random_model const& files, std::string const& text = "all@0", load_options const& options = {}) {
    return dynamic_causal_lm<>::load(files.directory(), plan::parse(text), runtime::sequential{}, options);
}

/// Logits (tokens, V) of `tokens` fed to a state.
floats fed(language_model& m, state& s, std::span<token_id const> tokens) {
    floats rows;
    if (tokens.empty()) return rows;
    feed const one{&s, tokens};
    append(rows, m.forward({&one, 1}, rows_wanted::all));
    return rows;
}

std::span<float const> rows_from(language_model const& m, floats const& rows, std::size_t first) {
    return std::span(rows).subspan(first * static_cast<std::size_t>(m.config().vocab));
}

/// What a model that keeps on gives, a model that stops after `at` tokens and another that goes on from its bytes.
void check_goes_on(language_model& from, language_model& to, ids const& tokens, floats const& expected, std::size_t at) {
    CAPTURE(at);
    state before = from.make_state();
    fed(from, before, std::span(tokens).first(at));
    bytes const saved = from.snapshot(before);
    state after = to.restore(saved);
    CHECK(after.length() == static_cast<std::int64_t>(at));
    CHECK_EQ(first_difference(rows_from(to, expected, at), fed(to, after, std::span(tokens).subspan(at))), "");
    CHECK(before.length() == static_cast<std::int64_t>(at));
    CHECK_EQ(first_difference(rows_from(from, expected, at), fed(from, before, std::span(tokens).subspan(at))), "");  // it was only looked at
}

void put(bytes& to, std::size_t at, std::uint64_t number, std::size_t size) {
    for (std::size_t i = 0; i < size; ++i) to[at + i] = static_cast<std::byte>(number >> 8 * i & 255U);
}
std::uint32_t number_at(bytes const& from, std::size_t at) {
    std::uint32_t n = 0;
    for (std::size_t i = 4; i-- > 0;) n = n << 8U | std::to_integer<std::uint32_t>(from[at + i]);
    return n;
}

/// With the size and the checksum that its bytes ask for, so that what lies deeper is looked at.
bytes sealed(bytes b) {
    put(b, 12, b.size(), 8);
    put(b, b.size() - 4, crc32c_of(std::span(b).first(b.size() - 4)), 4);
    return b;
}

/// Where the parts of a snapshot begin, as docs/states.md has them.
struct places {
    std::size_t config = 20, weights = 84, profile = 148, arithmetic = 0, weight_format = 0, kv_format = 0, plan = 0, positions = 0, layers = 0, first_layer = 0;
    explicit places(bytes const& b) {
        arithmetic = profile + 4 + number_at(b, profile);
        weight_format = arithmetic + 4 + number_at(b, arithmetic);
        kv_format = weight_format + 4 + number_at(b, weight_format);
        plan = kv_format + 4 + number_at(b, kv_format);
        positions = plan + 4 + number_at(b, plan);
        layers = positions + 8;
        first_layer = layers + 4;
    }
};

geometry small_shape() {
    return {.name = "small", .layers = 2, .hidden = 16, .heads = 2, .kv_heads = 1, .ffn = 32, .vocab = 17, .max_positions = 96};
}
random_model const& small() {
    static random_model const f(small_shape(), 31);
    return f;
}
ids const some{1, 2, 3, 4, 5, 6, 7};

bytes small_snapshot(std::span<token_id const> tokens = some) {
    auto m = loaded(small());
    state s = m.make_state();
    fed(m, s, tokens);
    return m.snapshot(s);
}

}  // namespace

TEST_CASE("A sequence that is saved and restored goes on with the bits of never having stopped, under any other plan") {
    plans const dense{"all@0", "all@0,1", "0-1@0;2-3@1", "all@0,1,2,3,4,5,6,7", "0@0;1@1,2,3,4:tensor.reduce;2-3@1,0:tensor.gather"};
    plans const routed{"all@0", "all@0,1,2:expert", "all@0,1:tensor+expert", "0-1@0,1,2,3,4,5,6,7;2-3@0", "0-1@0,1:expert;2@0,1:tensor;3@1,2:expert_width"};
    auto families = dense_families();
    for (geometry const& g : routed_families()) families.push_back(g);
    std::uint64_t seed = 70;
    for (geometry const& g : families) {
        CAPTURE(g.name);
        random_model const files(g, ++seed);
        random_bits random(seed);
        ids const tokens = random_tokens(random, 75, g.vocab);
        std::vector<dynamic_causal_lm<>> models;
        for (std::string const& text : g.experts.count > 0 ? routed : dense) models.push_back(loaded(files, text));
        floats const expected = rows_of(models[0], tokens);
        std::size_t const stops[]{1, 63, 64, 65, 70};
        for (std::size_t i = 0; i < models.size(); ++i)
            for (std::size_t j = 0; j < models.size(); ++j) {
                CAPTURE(models[i].plan());
                CAPTURE(models[j].plan());
                check_goes_on(models[i], models[j], tokens, expected, stops[(i + j) % std::size(stops)]);
            }
    }
}

TEST_CASE("The bytes are the same whatever plan and runtime made them, but for the plan's own words") {
    for (geometry g : {small_shape(), routed_families()[1]}) {
        g.kv_heads = 2;
        random_model const files(g, 33);
        auto plain = loaded(files);
        state s = plain.make_state();
        fed(plain, s, some);
        bytes const first = plain.snapshot(s);
        CHECK(plain.snapshot(s) == first);
        auto const check = [&](language_model& m) {
            state t = m.make_state(3);
            for (token_id const id : some) m.step(t, id);
            bytes const other = m.snapshot(t);
            places const a(first), b(other);
            CHECK(std::equal(first.begin() + 20, first.begin() + static_cast<std::ptrdiff_t>(a.plan), other.begin() + 20));
            CHECK(std::equal(first.begin() + static_cast<std::ptrdiff_t>(a.positions), first.end() - 4, other.begin() + static_cast<std::ptrdiff_t>(b.positions), other.end() - 4));
        };
        for (std::string const text : {"all@0", "all@0,1", "0@0;1@1,0"}) {
            CAPTURE(text);
            if (g.layers != 2 && text == "0@0;1@1,0") continue;
            auto serial = loaded(files, text);
            check(serial);
            auto threaded = dynamic_causal_lm<>::load(files.directory(), plan::parse(text), runtime::threads{});
            check(threaded);
            auto xtensor = dynamic_causal_lm<device::xtensor>::load(files.directory(), plan::parse(text));
            check(xtensor);
        }
    }
}

TEST_CASE("Runtimes take over from each other, worker processes among them") {
    random_model const files(dense_families()[1], 34);
    random_bits random(34);
    ids const tokens = random_tokens(random, 75, files.shape().vocab);
    auto serial = loaded(files);
    floats const expected = rows_of(serial, tokens);
    auto threaded = dynamic_causal_lm<>::load(files.directory(), plan::parse("all@0,1,2,3"), runtime::threads{});
    auto workers = dynamic_causal_lm<>::load(files.directory(), plan::parse("0-1@0,1,2,3;2-3@1"), runtime::processes{});
    language_model* const all[]{&serial, &threaded, &workers};
    for (language_model* const from : all)
        for (language_model* const to : all)
            for (std::size_t const at : {std::size_t{0}, std::size_t{5}, std::size_t{66}}) check_goes_on(*from, *to, tokens, expected, at);
}

TEST_CASE("(in a process of its own) saves or goes on" * doctest::description("run by the case below; does nothing by itself")) {
    char const* const what = std::getenv("TENON_SNAPSHOT_TEST");
    char const* const where = std::getenv("TENON_SNAPSHOT_FOLDER");
    if (what == nullptr || where == nullptr) return;
    std::string const folder = where;
    auto m = dynamic_causal_lm<>::load(folder, plan::parse(*what == 's' ? "all@0" : "0@0;1@1"));
    auto const write = [&folder](std::string const& name, void const* data, std::size_t size) {
        std::ofstream(folder + "/" + name, std::ios::binary).write(static_cast<char const*>(data), static_cast<std::streamsize>(size));
    };
    if (*what == 's') {
        state s = m.make_state();
        fed(m, s, std::span(some).first(4));
        bytes const saved = m.snapshot(s);
        write("saved.bin", saved.data(), saved.size());
        return;
    }
    std::ifstream in(folder + "/saved.bin", std::ios::binary);
    std::string const text((std::istreambuf_iterator<char>(in)), std::istreambuf_iterator<char>());
    state s = m.restore(std::as_bytes(std::span(text)));
    floats const rows = fed(m, s, std::span(some).subspan(4));
    write("rows.bin", rows.data(), rows.size() * sizeof(float));
}

TEST_CASE("One process saves, another restores under another plan, and a third that never stopped agrees") {
    random_model const files(small_shape(), 35);
    auto const in_a_process = [&files](char const* what) {
        ::pid_t const child = ::fork();
        REQUIRE(child >= 0);
        if (child == 0) {
            ::setenv("TENON_SNAPSHOT_TEST", what, 1);
            ::setenv("TENON_SNAPSHOT_FOLDER", files.directory().c_str(), 1);
            ::execl("/proc/self/exe", "snapshot", "--test-case=(in a process of its own)*", "--minimal", static_cast<char*>(nullptr));
            ::_exit(127);
        }
        int status = -1;
        REQUIRE(::waitpid(child, &status, 0) == child);
        REQUIRE(status == 0);
    };
    in_a_process("save");
    in_a_process("go on");
    std::ifstream in(files.folder().path("rows.bin"), std::ios::binary);
    std::string const text((std::istreambuf_iterator<char>(in)), std::istreambuf_iterator<char>());
    floats got(text.size() / sizeof(float));
    std::memcpy(got.data(), text.data(), got.size() * sizeof(float));
    auto m = loaded(files);
    CHECK_EQ(first_difference(rows_from(m, rows_of(m, some), 4), got), "");
}

TEST_CASE("An empty sequence is a snapshot too") {
    auto m = loaded(small());
    state const empty = m.make_state();
    bytes const saved = m.snapshot(empty);
    CHECK(saved.size() < 500);
    state s = m.restore(saved);
    CHECK(s.length() == 0);
    CHECK_EQ(first_difference(rows_of(m, some), fed(m, s, some)), "");
}

TEST_CASE("A restored sequence has the room that is asked for, and grows or keeps to it") {
    auto m = loaded(small());
    bytes const saved = small_snapshot();
    state grows = m.restore(saved), wide = m.restore(saved, 90), fixed = m.restore(saved, 8, growth::fixed);
    CHECK(wide.kv_bytes(0) == 2 * grows.kv_bytes(0));
    m.prefill(grows, ids(80, 1));
    CHECK(grows.length() == 87);
    m.step(fixed, 1);
    CHECK(law_of([&] { m.step(fixed, 1); }) == "state_has_room");
    CHECK(law_of([&] { m.restore(saved, 6, growth::fixed); }) == "state_has_room");
    CHECK(law_of([&] { m.restore(saved, 0, growth::fixed); }) == "state_has_room");
    CHECK(law_of([&] { m.restore(saved, 97); }) == "positions_fit_the_model");
    CHECK(law_of([&] { m.restore(saved, -1); }) == "positions_fit_the_model");
    bytes const full = small_snapshot(ids(96, 3));
    state all = m.restore(full);
    CHECK(law_of([&] { m.step(all, 1); }) == "positions_fit_the_model");
    m.truncate(all, 95);
    m.step(all, 1);
}

TEST_CASE("A sequence that is cut back goes on with the bits of never having been fed the rest") {
    for (geometry const& g : {dense_families()[1], dense_families()[3], routed_families()[0]}) {
        CAPTURE(g.name);
        random_model const files(g, 36);
        random_bits random(36);
        ids const tokens = random_tokens(random, 75, g.vocab), rejected = random_tokens(random, 9, g.vocab);
        for (std::string const text : {"all@0", "0-1@0,1,2,3,4,5,6,7;2-3@1"}) {
            CAPTURE(text);
            auto m = loaded(files, text);
            floats const expected = rows_of(m, tokens);
            state s = m.make_state();
            floats got = fed(m, s, std::span(tokens).first(1));
            for (std::size_t at = 1; at < tokens.size();) {  // as drafts are: some are fed, the first few are kept
                std::size_t const n = std::min<std::size_t>(1 + at % 5, tokens.size() - at);
                append(got, fed(m, s, std::span(tokens).subspan(at, n)));
                at += n;
                if (s.length() + 9 > m.config().max_positions) continue;
                fed(m, s, std::span(rejected).first(1 + at % 9));
                m.truncate(s, static_cast<std::int64_t>(at));
                CHECK(s.length() == static_cast<std::int64_t>(at));
            }
            CHECK_EQ(first_difference(expected, got), "");
            m.truncate(s, s.length());
            for (std::int64_t const keep : {70, 64, 63, 8, 1, 0}) {
                CAPTURE(keep);
                m.truncate(s, keep);
                state short_of_it = m.restore(m.snapshot(s));
                auto const from = static_cast<std::size_t>(keep);
                std::span<float const> const rest = rows_from(m, expected, from);
                CHECK_EQ(first_difference(rest, fed(m, s, std::span(tokens).subspan(from))), "");
                CHECK_EQ(first_difference(rest, fed(m, short_of_it, std::span(tokens).subspan(from))), "");
            }
        }
    }
}

TEST_CASE("What lay beyond a cut reaches nothing, were it NaN") {
    auto m = loaded(small());
    bytes poisoned = small_snapshot();
    std::size_t at = places(poisoned).first_layer;
    std::size_t const row = 8 * sizeof(float), T = some.size();
    for (int layer = 0; layer < 2; ++layer, at += 20 + 2 * T * row)
        for (std::size_t part = 0; part < 2; ++part)
            for (std::size_t i = 3 * row; i < T * row; i += 4) put(poisoned, at + 20 + part * T * row + i, 0x7FC00000U + i % 3 * 0x00400000U, 4);
    state s = m.restore(sealed(poisoned));
    m.truncate(s, 3);
    CHECK_EQ(first_difference(rows_from(m, rows_of(m, some), 3), fed(m, s, std::span(some).subspan(3))), "");
}

TEST_CASE("A cut keeps what is held, and refuses the rest by name") {
    auto m = loaded(small()), other = loaded(small());
    state s = m.make_state(), never;
    fed(m, s, some);
    for (std::int64_t const n : {std::int64_t{8}, std::int64_t{-1}, std::numeric_limits<std::int64_t>::max(), std::numeric_limits<std::int64_t>::min()})
        CHECK(law_of([&] { m.truncate(s, n); }) == "state_holds_positions");
    CHECK_THROWS_WITH(m.truncate(s, 8), doctest::Contains("the first 8 positions are to be kept; 0 to 7 would do"));
    CHECK(s.length() == 7);
    CHECK(law_of([&] { m.truncate(never, 0); }) == "state_is_alive");
    CHECK(law_of([&] { other.truncate(s, 0); }) == "state_belongs_to_the_model");
    CHECK(s.length() == 7);
}

TEST_CASE("States and models that cannot be saved or restored are refused by name") {
    auto m = loaded(small()), other = loaded(small());
    state s = m.make_state(), never;
    fed(m, s, some);
    CHECK(law_of([&] { m.snapshot(never); }) == "state_is_alive");
    CHECK(law_of([&] { other.snapshot(s); }) == "state_belongs_to_the_model");
    state released = m.make_state();
    released.release();
    CHECK(law_of([&] { m.snapshot(released); }) == "state_is_alive");
    bytes const saved = m.snapshot(s);
    state theirs = other.restore(saved);  // belongs to whom restored it
    CHECK(law_of([&] { m.step(theirs, 1); }) == "state_belongs_to_the_model");
    other.step(theirs, 1);

    struct meddler final : logits_observer {
        language_model* model = nullptr;
        state* held = nullptr;
        bytes const* saved = nullptr;
        int refused = 0;
        void row(std::size_t, std::int64_t, std::span<float const>) override {
            refused += law_of([this] { model->snapshot(*held); }) == "model_serves_one_call";
            refused += law_of([this] { model->restore(*saved); }) == "model_serves_one_call";
            refused += law_of([this] { model->truncate(*held, 0); }) == "model_serves_one_call";
        }
    } watching;
    watching.model = &m;
    watching.held = &s;
    watching.saved = &saved;
    generation_options o{.max_new_tokens = 1};
    o.observer = &watching;
    m.generate({1}, o);
    CHECK(watching.refused == 3);
    CHECK(s.length() == 7);

    m.close();
    CHECK(law_of([&] { m.snapshot(s); }) == "model_is_open");
    CHECK(law_of([&] { m.restore(saved); }) == "model_is_open");
    CHECK(law_of([&] { m.truncate(s, 0); }) == "model_is_open");
}

TEST_CASE("Every byte that is damaged and every byte that is missing is refused, and so is one too many") {
    auto m = loaded(small());
    bytes const saved = small_snapshot(std::span(some).first(2));
    std::size_t accepted = 0;
    for (std::size_t i = 0; i < saved.size(); ++i)
        for (unsigned const flip : {1U, 0x80U, 0xFFU}) {
            bytes damaged = saved;
            damaged[i] ^= static_cast<std::byte>(flip);
            std::string const law = law_of([&] { m.restore(damaged); });
            bool const named = i < 8 ? law == "snapshot_begins_as_one" : i < 12 ? law == "snapshot_schema_is_known" : i < 20 ? law == "snapshot_is_whole" : law == "snapshot_checksum_matches";
            accepted += named ? 0 : 1;
        }
    CHECK(accepted == 0);
    for (std::size_t n = 0; n < saved.size(); ++n) {
        std::string const law = law_of([&] { m.restore(std::span(saved).first(n)); });
        accepted += law == (n < 8 ? "snapshot_begins_as_one" : "snapshot_is_whole") ? 0 : 1;
    }
    CHECK(accepted == 0);
    bytes longer = saved;
    longer.push_back(std::byte{0});
    CHECK(law_of([&] { m.restore(longer); }) == "snapshot_is_whole");
    CHECK(m.restore(saved).length() == 2);
}

TEST_CASE("Bytes that were sealed anew are refused for what they say, and nothing is made of them") {
    auto m = loaded(small());
    bytes const saved = small_snapshot();
    places const at(saved);
    auto const with = [&saved](std::size_t where, std::uint64_t number, std::size_t size) {
        bytes b = saved;
        put(b, where, number, size);
        return sealed(b);
    };
    auto const law = [&m](bytes const& b) { return law_of([&] { m.restore(b); }); };
    CHECK(law(with(at.positions, 7, 8)) == "nothing is refused");
    for (std::uint64_t const schema : {0U, 2U, 0xFFFFFFFFU}) CHECK(law(with(8, schema, 4)) == "snapshot_schema_is_known");
    CHECK(law(with(at.profile + 4, 'k', 1)) == "snapshot_profile_is_this_one");
    CHECK(law(with(at.arithmetic + 4, 'k', 1)) == "snapshot_arithmetic_is_the_models");
    CHECK(law(with(at.weight_format + 4, 'k', 1)) == "snapshot_weight_format_is_the_models");
    CHECK(law(with(at.kv_format + 4, 'b', 1)) == "snapshot_kv_format_is_the_models");
    CHECK(law(with(at.config, '?', 1)) == "snapshot_config_is_the_models");
    CHECK(law(with(at.weights, '?', 1)) == "snapshot_weights_are_the_models");
    for (std::size_t const text : {at.profile, at.arithmetic, at.weight_format, at.kv_format, at.plan})
        for (std::uint64_t const size : {std::uint64_t{0xFFFFFFFFU}, std::uint64_t{saved.size()}}) CHECK(law(with(text, size, 4)) == "snapshot_is_whole");
    CHECK(law(with(at.plan + 4, 'x', 1)) == "nothing is refused");  // a plan is told, not asked for
    for (std::uint64_t const positions : {std::uint64_t{97}, std::uint64_t{1} << 32U, std::uint64_t{1} << 63U, ~std::uint64_t{0}})
        CHECK(law(with(at.positions, positions, 8)) == "positions_fit_the_model");
    for (std::uint64_t const positions : {0U, 6U, 8U, 96U}) CHECK(law(with(at.positions, positions, 8)) == "snapshot_layer_has_shape");
    for (std::uint64_t const layers : {0U, 1U, 3U, 0xFFFFFFFFU}) CHECK(law(with(at.layers, layers, 4)) == "snapshot_has_every_layer");
    std::size_t const layer = 20 + 2 * 7 * 8 * sizeof(float);
    for (std::size_t l = 0; l < 2; ++l) {
        std::size_t const first = at.first_layer + l * layer;
        CHECK(law(with(first, 5, 4)) == "snapshot_layer_has_shape");       // its number
        CHECK(law(with(first + 4, 2, 4)) == "snapshot_layer_has_shape");   // KV heads
        CHECK(law(with(first + 8, 16, 4)) == "snapshot_layer_has_shape");  // head_dim
        CHECK(law(with(first + 12, 6, 8)) == "snapshot_layer_has_shape");  // positions
    }
    bytes fewer = saved;  // a layer left out, and the count says so
    fewer.erase(fewer.end() - 4 - static_cast<std::ptrdiff_t>(layer), fewer.end() - 4);
    CHECK(law(sealed(fewer)) == "snapshot_is_whole");
    put(fewer, at.layers, 1, 4);
    CHECK(law(sealed(fewer)) == "snapshot_has_every_layer");
    bytes more = saved;
    more.insert(more.end() - 4, 4, std::byte{0});
    CHECK(law(sealed(more)) == "snapshot_is_whole");
    bytes all = saved;  // every position that the model has is claimed, and not one is there
    put(all, at.positions, 96, 8);
    put(all, at.first_layer + 12, 96, 8);
    CHECK(law(sealed(all)) == "snapshot_is_whole");
    CHECK_THROWS_WITH(m.restore(sealed(all)), doctest::Contains("it ends within layer 0"));
    bytes swapped = saved;
    std::swap_ranges(swapped.begin() + static_cast<std::ptrdiff_t>(at.first_layer), swapped.begin() + static_cast<std::ptrdiff_t>(at.first_layer + layer),
                     swapped.begin() + static_cast<std::ptrdiff_t>(at.first_layer + layer));
    CHECK(law(sealed(swapped)) == "snapshot_layer_has_shape");
    CHECK(law({}) == "snapshot_begins_as_one");
    state s = m.make_state();
    fed(m, s, some);
    CHECK(m.snapshot(s) == saved);
}

TEST_CASE("A twin that differs in one bit of one weight is refused, and so are another description and another format of the weights") {
    bytes const saved = small_snapshot();
    {
        random_model twin(small_shape(), 31);
        auto same = loaded(twin);
        CHECK(same.restore(saved).length() == 7);
        float& weight = twin.tensors().at("model.layers.1.mlp.down_proj.weight").values.back();
        weight = std::bit_cast<float>(std::bit_cast<std::uint32_t>(weight) ^ 1U);
        twin.write();
        auto tuned = loaded(twin);
        CHECK(law_of([&] { tuned.restore(saved); }) == "snapshot_weights_are_the_models");
        state s = tuned.make_state();
        std::string const theirs(reinterpret_cast<char const*>(saved.data()) + 84, 64);
        bytes const own_bytes = tuned.snapshot(s);
        std::string const ours(reinterpret_cast<char const*>(own_bytes.data()) + 84, 64);
        CHECK(ours != theirs);
        CHECK_THROWS_WITH(tuned.restore(saved), doctest::Contains(theirs.c_str()));  // both digests are named
        CHECK_THROWS_WITH(tuned.restore(saved), doctest::Contains(ours.c_str()));
    }
    geometry g = small_shape();
    g.theta = 20000.0;
    random_model const rotated(g, 31);
    auto other = loaded(rotated);
    CHECK(law_of([&] { other.restore(saved); }) == "snapshot_config_is_the_models");
    load_options narrow;
    narrow.weights = weights::bf16;
    auto rounded = loaded(small(), "all@0", narrow);
    CHECK(law_of([&] { rounded.restore(saved); }) == "snapshot_weight_format_is_the_models");
}

TEST_CASE("An arithmetic of its own is refused by the canonical one and takes up its own") {
    bytes const saved = small_snapshot();
    auto m = loaded(small());
    auto eigen = dynamic_causal_lm<device::eigen>::load(small().directory(), plan::parse("all@0"));
    CHECK(law_of([&] { eigen.restore(saved); }) == "snapshot_arithmetic_is_the_models");
    state s = eigen.make_state();
    fed(eigen, s, some);
    bytes const own = eigen.snapshot(s);
    CHECK_THROWS_WITH(m.restore(own), doctest::Contains("the arithmetic is \"eigen\" in the snapshot, and here canonical"));
    auto split = dynamic_causal_lm<device::eigen>::load(small().directory(), plan::parse("0@0;1@1,0"));
    check_goes_on(eigen, split, some, rows_of(eigen, some), 3);
}

TEST_CASE("The same weights in shards, with another table beside them that nobody reads, are the same model") {
    geometry g = small_shape();
    g.family = "qwen2";
    g.tied = true;
    random_model const one(g, 37);
    random_model const several(g, 37);
    CHECK(std::remove(several.folder().path("model.safetensors").c_str()) == 0);
    std::vector<std::vector<std::byte>> data;
    std::vector<checkpoint::tensor_view> views;
    auto tensors = several.tensors();
    tensors["lm_head.weight"] = tensors.at("model.embed_tokens.weight");
    for (auto const& [name, t] : tensors) data.push_back(t.bytes());
    std::size_t i = 0;
    for (auto const& [name, t] : tensors) views.push_back({name, t.type, t.shape, data[i++]});
    std::string index;
    for (std::size_t const shard : {std::size_t{0}, std::size_t{1}, std::size_t{2}}) {
        std::vector<checkpoint::tensor_view> part;
        for (std::size_t v = 0; v < views.size(); ++v)
            if (v * 7 % 3 == shard) {
                part.push_back(views[v]);
                index += (index.empty() ? "\"" : ",\"") + views[v].name + "\":\"s" + std::to_string(shard) + ".safetensors\"";
            }
        checkpoint::write_safetensors(several.folder().path("s" + std::to_string(shard) + ".safetensors"), part);
    }
    several.folder().write("model.safetensors.index.json", "{\"weight_map\":{" + index + "}}");
    auto a = loaded(one), b = loaded(several, "all@0,1");
    ids const tokens(some);
    check_goes_on(a, b, tokens, rows_of(a, tokens), 4);
    check_goes_on(b, a, tokens, rows_of(a, tokens), 3);
}

TEST_CASE("A checkpoint that is written over after it was loaded is no longer the model's; one that is replaced or gone was") {
    random_model files(small_shape(), 38);
    std::string const path = files.folder().path("model.safetensors");
    {
        auto m = loaded(files);
        state s = m.make_state();
        CHECK(std::rename(path.c_str(), (path + ".old").c_str()) == 0);
        files.write();
        CHECK(law_of([&] { m.snapshot(s); }) == "nothing is refused");
        CHECK(std::remove((path + ".old").c_str()) == 0);
        CHECK(law_of([&] { m.snapshot(s); }) == "nothing is refused");
    }
    auto m = loaded(files), hashed = loaded(files);
    state s = m.make_state(), t = hashed.make_state();
    bytes const saved = hashed.snapshot(t);
    ::usleep(20'000);  // the clock of a file has steps
    std::fstream(path, std::ios::binary | std::ios::in | std::ios::out).seekp(-1, std::ios::end).put('?');
    CHECK(law_of([&] { m.snapshot(s); }) == "checkpoint_stays_as_it_was");
    CHECK(law_of([&] { m.restore(saved); }) == "checkpoint_stays_as_it_was");
    CHECK(hashed.snapshot(t) == saved);  // known since before
    CHECK(m.step(s, 1).size() == 17);
}
