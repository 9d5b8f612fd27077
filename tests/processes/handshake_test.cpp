// What a host and a worker must know of each other before a weight is read; what is no worker, of another build, or sees other files is refused.
// SPDX-License-Identifier: Apache-2.0
#include "support/minimal_model.hpp"
#include "support/runs.hpp"
#include "support/worker_watch.hpp"

#include <doctest/doctest.h>
#include <sys/stat.h>
#include <tenon/dynamic_causal_lm.hpp>
#include <tenon/runtime/processes.hpp>

#include <chrono>
#include <cstdlib>
#include <fstream>
#include <span>
#include <string>
#include <utility>
#include <vector>

using namespace tenon;
using namespace support;

namespace {
using devices = device::backends<device::cpu>;
std::uint64_t const backends = detail::number_of_backends<devices>();

ids const prompt{1, 2, 3};

dynamic_causal_lm<> load(random_model const& files, std::string const& program, double start_seconds = 30) {
    return dynamic_causal_lm<>::load(files.directory(), plan::parse("0@0;1@1"), runtime::processes{.worker_program = program, .start_seconds = start_seconds});
}

/// "law: sentence" of what a load throws.
std::string refused(random_model const& files, std::string const& program, double start_seconds = 30) {
    try {
        load(files, program, start_seconds);
    } catch (refusal const& r) { return r.what(); }
    return "nothing is refused";
}

bool mentions(std::string const& text, std::string const& words) { return text.find(words) != std::string::npos; }

/// An executable text for a shell.
std::string script(scratch_folder const& folder, std::string const& name, std::string const& lines) {
    folder.write(name, "#!/bin/sh\n" + lines + "\n");
    ::chmod(folder.path(name).c_str(), 0755);
    return folder.path(name);
}
}  // namespace

TEST_CASE("A program that is no worker is refused by name, soon, and leaves nothing") {
    random_model const files(tiny(), 1);
    scratch_folder const folder;
    holdings const before;
    struct other { std::string program, words; };
    folder.write("text", "no program");
    for (other const& o : {other{"/bin/true", "/bin/true is no worker: it has exited with status 0"}, {"/bin/false", "is no worker: it has exited with status 1"},
                           {"/bin/cat", "/bin/cat is no worker: it has exited with status 0"}, {script(folder, "leaves", "exec 3>&-; exec sleep 60"), "is no worker: it has closed its channel"},
                           {script(folder, "dies", "kill -9 $$"), "is no worker: it was ended by signal 9"}, {"/nowhere/worker", "/nowhere/worker does not start: No such file"},
                           {folder.path(), "does not start: Permission denied"}, {folder.path("text"), "does not start: Permission denied"},
                           {script(folder, "greets", "printf 'good day to you, good day' >&3; exec sleep 60"), "is no worker: it talks nonsense"}}) {
        CAPTURE(o.program);
        std::string const said = refused(files, o.program);
        CAPTURE(said);
        CHECK(said.starts_with("workers_start: "));
        CHECK(mentions(said, o.words));
        CHECK(mentions(said, "would do"));
        CHECK(holdings() == before);
    }
    for (std::string const& silent : {script(folder, "sleeps", "exec sleep 60"), script(folder, "stammers", "printf '1TNN' >&3; exec sleep 60")}) {
        CAPTURE(silent);
        auto const begin = std::chrono::steady_clock::now();
        std::string const said = refused(files, silent, 1);
        CHECK(std::chrono::steady_clock::now() - begin < std::chrono::seconds(20));
        CHECK(said.starts_with("workers_start: rank 0 on cpu.0, layers 0-0: " + silent + " is no worker: it does not say that it is one within 1 s"));
        CHECK(holdings() == before);
    }
}

namespace {
detail::build_identity const ours{.backends = backends};

/// What a load says of a worker that is of another build, and leaves nothing.
std::string refused_build(std::string const& program) {
    random_model const files(tiny(), 2);
    holdings const before;
    std::string const said = refused(files, program);
    CAPTURE(said);
    CHECK(said.starts_with("worker_is_of_this_build: the host is " + ours.show() + "; the worker is tenon "));
    CHECK(mentions(said, "; one build for both would do"));
    CHECK(holdings() == before);
    return said;
}
}  // namespace

TEST_CASE("What a build says of itself names all that its messages depend on") {
    CHECK(ours.show().starts_with("tenon " + std::string(version) + ", profiles " + ours.profiles + ", compiler "));
    CHECK(mentions(ours.show(), __VERSION__));
    CHECK(mentions(ours.show(), " bits, messages " + std::to_string(detail::message_format()) + ", backends " + std::to_string(backends)));
    for (detail::build_identity const& other : {detail::build_identity{.version = "0.0.1"}, {.profiles = "canonical-2"}, {.compiler = "another"}, {.format = 1}}) {
        CHECK(other.show() != detail::build_identity{}.show());
        CHECK(ours.is_to_greet(other.show()));  // to say so
    }
    CHECK(ours.is_to_greet(ours.show()));
    CHECK(!ours.is_to_greet(detail::build_identity{.backends = backends + 1}.show()));  // another hook of this program may be meant
    for (char const* const by_hand : {"", "1", "7", "yes"}) CHECK(!ours.is_to_greet(by_hand));
}

TEST_CASE("A worker of another build is refused, naming both, whatever it says of itself") {
    scratch_folder const folder;
    // The header of a greeting of 100 bytes, and a text that no build of today has.
    std::string const text = "tenon 31.0, profiles canonical9, compiler of another day, and whatever else is told of a build then.";
    REQUIRE(text.size() == 0144);
    std::string const said = refused_build(script(folder, "later", "printf '1TNN\\0\\0\\0\\0\\144\\0\\0\\0\\0\\0\\0\\0" + text + "' >&3; exec sleep 60"));
    CHECK(mentions(said, "; the worker is " + text + "; one build"));
}

TEST_CASE("A worker of another version, and one of another compiler, are refused, naming both") {
    char const *const later = std::getenv("TENON_OTHER_WORKER"), *const foreign = std::getenv("TENON_FOREIGN_WORKER");
    if (later == nullptr || *later == '\0')
        MESSAGE("there is no worker of another version here: not checked");
    else
        CHECK(mentions(refused_build(later), "the worker is tenon 9.9.9, profiles " + ours.profiles + ", compiler " + ours.compiler + ", messages " + std::to_string(ours.format)));
    if (foreign == nullptr || *foreign == '\0') {
        MESSAGE("there is no worker of another compiler here: not checked");
    } else {
        std::string const said = refused_build(foreign);
        CHECK(mentions(said, "the worker is tenon " + ours.version + ", profiles " + ours.profiles + ", compiler "));
        std::string const worker = said.substr(said.find("the worker is "));
        CHECK(!mentions(worker, "compiler " + ours.compiler));
        CHECK(mentions(worker, " for 64 bits, messages " + std::to_string(ours.format)));  // the compiler alone is another
    }
}

TEST_CASE("A worker may be started by way of another program, and reads the checkpoint that the host saw or refuses") {
    random_model const files(tiny(), 3), same(tiny(), 3), other(tiny(), 4);
    geometry wide = tiny();
    wide.vocab = 12;
    random_model const wider(wide, 3);
    scratch_folder const folder;
    holdings const before;
    auto plain = dynamic_causal_lm<>::load(files.directory(), plan::parse("all@0"), runtime::sequential{});
    floats const expected = rows_of(plain, prompt);
    std::string const self = detail::this_program(), checkpoint = files.directory() + "/model.safetensors";
    auto const replacing = [&](random_model const& by) {
        return script(folder, "replaces", "cp " + by.directory() + "/model.safetensors " + checkpoint + ".$$ && mv " + checkpoint + ".$$ " + checkpoint + " && exec " + self);
    };
    auto m = load(files, script(folder, "passes", "exec " + self));
    CHECK_EQ(first_difference(expected, rows_of(m, prompt)), "");
    auto n = load(files, replacing(same));
    CHECK_EQ(first_difference(expected, rows_of(n, prompt)), "");
    m.close();
    n.close();
    for (random_model const* by : {&other, &wider}) {
        files.write();
        std::string const said = refused(files, replacing(*by));
        CAPTURE(said);
        CHECK(said.starts_with("worker_reads_the_hosts_checkpoint: " + files.directory() + " has the digest "));
        CHECK(mentions(said, "; the host saw "));
        CHECK(holdings() == before);
    }
}

namespace {
/// A host of this test's own, that may say what no host says.
struct own_host {
    detail::worker_process worker{};
    detail::message heard{};
    double const end = detail::monotonic_seconds() + 60;

    explicit own_host(detail::build_identity const& as) : worker(detail::worker_process::start(detail::this_program(), as.show())) {}
    own_host() : own_host(detail::build_identity{.backends = backends}) {}

    void say(detail::message_kind kind, detail::byte_writer const& out, std::vector<int> const& files = {}) { worker.talk.send(kind, out.bytes(), end, files); }
    bool hears(detail::message_kind kind) { return worker.talk.receive(heard, end) == detail::channel_end::open && heard.kind == kind; }
    /// The law that the worker answers; empty where it does not refuse.
    std::string law() {
        if (!hears(detail::message_kind::failed)) return {};
        detail::byte_reader in(heard.payload);
        return in.text();
    }
    void greet(detail::build_identity const& as) {
        std::string const text = as.show();
        worker.talk.send(detail::message_kind::hello, std::as_bytes(std::span(text)), end);
        CHECK(hears(detail::message_kind::hello));
        CHECK(detail::read_identity(heard.payload) == detail::build_identity{.backends = backends}.show());
    }
    bool ends() { return worker.ends_within(60); }
};
}  // namespace

TEST_CASE("A worker refuses a host of another build, and what is no part, and ends") {
    using identity = detail::build_identity;
    for (identity const& other : {identity{.version = "0.0.1", .backends = backends}, identity{.profiles = "canonical-2", .backends = backends},
                                  identity{.compiler = "another", .backends = backends}, identity{.format = 1, .backends = backends}}) {
        CAPTURE(other.show());
        for (identity const& started_by : {other, ours}) {  // its worker greets it and refuses it, and so does one that only then hears of it
            own_host h(started_by);
            h.greet(other);
            CHECK(h.law() == "worker_is_of_this_build");
            CHECK(h.ends());
        }
    }
    {
        own_host h;
        h.greet({.backends = backends + 1});
        CHECK(h.law() == "worker_is_of_this_build");
        CHECK(h.ends());
    }
    for (std::string const& greeting : {std::string(), std::string("good day"), std::string("tenon \0", 7), "tenon " + std::string(2000, '9')}) {
        own_host h;
        h.worker.talk.send(detail::message_kind::hello, std::as_bytes(std::span(greeting)), h.end);
        CHECK(h.hears(detail::message_kind::hello));
        CHECK(h.law() == "worker_message_is_whole");
        CHECK(h.ends());
    }
    detail::byte_writer nothing, garbage;
    garbage.text("good day").put(std::uint64_t{1} << 60);
    detail::shared_memory const memory = detail::shared_memory::make(1 << 16);
    std::vector<int> const two{memory.file(), memory.file()};
    {
        own_host h;
        h.greet(ours);
        h.say(detail::message_kind::build, nothing);  // no memory beside it
        CHECK(h.law() == "worker_message_is_known");
        CHECK(h.ends());
    }
    {
        own_host h;
        h.greet(ours);
        h.say(detail::message_kind::forward, nothing, two);
        CHECK(h.law() == "worker_message_is_known");
        CHECK(h.ends());
    }
    {
        own_host h;
        h.greet(ours);
        h.say(detail::message_kind::build, garbage, two);
        CHECK(h.law() == "worker_message_is_whole");
        CHECK(h.ends());
    }
    for (int const end : {0, 1}) {  // a host that goes
        own_host h;
        if (end == 1) h.greet(ours);
        h.worker.talk.close();
        CHECK(h.ends());
    }
}

TEST_CASE("A worker that is told what it does not know says so and serves on; one that is told nonsense ends") {
    random_model const files(tiny(), 5);
    checkpoint::folder const folder(files.directory());
    dynamic_graph const graph(checkpoint::read_config(folder.config_text(), "config.json"), plan::parse("all@0"), devices::available);
    detail::shared_memory const control = detail::shared_memory::make(1 << 16), arena = detail::shared_memory::make(1 << 16);
    detail::control_block(control.data(), 1, 1).initialise();
    detail::worker_part part;
    part.config = *graph.view().config;
    for (stage_traits const& s : graph.view().stages) part.stages.push_back({s, {s.devices.begin(), s.devices.end()}, {}});
    part.directory = files.directory();
    part.digest = detail::digest_of(folder);
    auto const built = [&](own_host& h) {
        h.greet(ours);
        detail::byte_writer out;
        write(out, part);
        h.say(detail::message_kind::build, out, {control.file(), arena.file()});
    };
    {
        own_host h;
        built(h);
        REQUIRE(h.hears(detail::message_kind::done));
        detail::byte_writer nothing, rank;
        for (int i = 0; i < 3; ++i) {
            h.say(detail::message_kind::loaded, nothing);
            CHECK(h.law() == "worker_message_is_known");
            h.say(detail::message_kind::reserve, nothing);  // of what, and how much
            CHECK(h.law() == "worker_message_is_whole");
            h.say(detail::message_kind::forward, nothing);
            CHECK(h.law() == "worker_message_is_whole");
            h.say(detail::message_kind::counts, nothing);
            CHECK(h.hears(detail::message_kind::done));
        }
        ::send(h.worker.talk.number(), "good day to you, good day", 25, MSG_NOSIGNAL);
        CHECK(h.law() == "worker_message_is_known");
        CHECK(h.ends());
    }
    for (auto const& [change, law] : {std::pair{+[](detail::worker_part& p) { p.worker = 1; }, "worker_part_is_whole"},
                                      {+[](detail::worker_part& p) { p.worker = -1; }, "worker_part_is_whole"},
                                      {+[](detail::worker_part& p) { p.digest[0] = '-'; }, "worker_reads_the_hosts_checkpoint"},
                                      {+[](detail::worker_part& p) { p.config.layers = 3; }, "layers_cover_the_model"},
                                      {+[](detail::worker_part& p) { p.stages[0].traits.most_ranks = 1 << 30; }, "worker_part_is_whole"},
                                      {+[](detail::worker_part& p) { p.stages[0].devices[0].kind = device_kind::cuda; }, "device_is_available"},
                                      {+[](detail::worker_part& p) { p.isa = "abacus"; }, "isa_is_known"}}) {
        CAPTURE(law);
        detail::worker_part const kept = part;
        change(part);
        own_host h;
        built(h);
        CHECK(h.law() == law);
        CHECK(h.ends());
        part = kept;
    }
}
