// Any bytes as what a worker or its host is told: a message, who somebody is, a part whose graph is lawful, or a refusal; and never more
// memory than bytes have come. SPDX-License-Identifier: Apache-2.0
#include "mutate.hpp"

#include <tenon/device/cpu.hpp>
#include <tenon/graph/plan_value.hpp>
#include <tenon/model/llama.hpp>
#include <tenon/model/mixtral.hpp>
#include <tenon/runtime/processes/channel.hpp>
#include <tenon/runtime/processes/identity.hpp>
#include <tenon/runtime/processes/part.hpp>

#include <cstring>
#include <span>
#include <string>
#include <vector>

namespace {

namespace detail = tenon::detail;

/// What comes over a channel, as its other end wrote it.
void converse(std::span<std::byte const> bytes) {
    auto [ours, theirs] = detail::socket_pair();
    std::size_t const most = bytes.size() < 4096 ? bytes.size() : 4096;  // what a socket holds for sure
    if (most > 0 && ::send(theirs.number(), bytes.data(), most, MSG_DONTWAIT) != static_cast<::ssize_t>(most)) std::abort();
    theirs.close();
    detail::channel talk(std::move(ours));
    detail::message m;
    double const end = detail::monotonic_seconds() + 60;
    for (int i = 0; talk.receive(m, end) == detail::channel_end::open; ++i)
        if (i > 4096 / 16) std::abort();
    if (m.payload.capacity() > (std::size_t{8} << 20)) std::abort();
}

/// Every kind of value, after one another.
void read_values(std::span<std::byte const> bytes) {
    detail::byte_reader in(bytes);
    for (;;) switch (in.one_of<std::uint8_t>(7)) {
            case 0: in.take<std::int64_t>(); break;
            case 1: in.text(); break;
            case 2: in.list<float>(); break;
            case 3: detail::read_experts(in); break;
            case 4: in.flag(); break;
            case 5: in.one_of(detail::last_of<tenon::dtype>); break;
            case 6: in.some(in.take<std::uint8_t>()); break;
            default: in.end(); return;
        }
}

void build(std::span<std::byte const> bytes) {
    detail::byte_reader in(bytes);
    detail::worker_part const part = detail::read_part(in);
    detail::byte_writer again;
    write(again, part);
    if (again.bytes().size() != bytes.size() || std::memcmp(again.bytes().data(), bytes.data(), bytes.size()) != 0) std::abort();
    detail::basic_rebuilt_graph<> const graph(part);
    if (validate(part.config, graph.view().stages) || graph.view().ir.tensors.empty()) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(std::uint8_t const* data, std::size_t size) {
    auto const bytes = std::as_bytes(std::span(data, size));
    if (size >= sizeof(detail::message_header)) {
        detail::message_header h;
        std::memcpy(static_cast<void*>(&h), data, sizeof h);
        fuzz::refusing([&h] { detail::check_header(h); });
    }
    if (size < 256) fuzz::refusing([bytes] { converse(bytes); });
    fuzz::refusing([bytes] { read_values(bytes); });
    fuzz::refusing([bytes] {
        std::string const text = detail::read_identity(bytes);
        if (text.size() != bytes.size() || std::memcmp(text.data(), bytes.data(), bytes.size()) != 0) std::abort();
        detail::require_same_build(detail::build_identity{}.show(), text);
    });
    fuzz::refusing([bytes] { build(bytes); });
    return 0;
}

#ifdef TENON_FUZZ_MAIN
namespace {
std::string text_of(detail::byte_writer const& out) { return {reinterpret_cast<char const*>(out.bytes().data()), out.bytes().size()}; }

/// The part of one worker of a model under a plan, as its host sends it.
std::string part_of(tenon::model_config const& config, std::string const& plan, std::vector<int> const& owners = {}) {
    tenon::dynamic_graph const graph(config, tenon::plan::parse(plan), tenon::device::backends<tenon::device::cpu>::available);
    detail::worker_part part{.worker = 1, .config = config, .directory = "model", .digest = std::string(64, '0'), .isa = "auto"};
    for (tenon::stage_traits const& s : graph.view().stages) part.stages.push_back({s, {s.devices.begin(), s.devices.end()}, owners});
    detail::byte_writer out;
    write(out, part);
    return text_of(out);
}
std::string message_of(detail::message_kind kind, std::uint64_t says, std::string const& payload) {
    detail::byte_writer out;
    out.put(detail::message_header{.kind = kind, .bytes = says});
    return text_of(out) + payload;
}
}  // namespace

int main(int count, char** arguments) {
    auto const llama = tenon::model::llama({.layers = 4, .hidden = 64, .heads = 8, .kv_heads = 4, .ffn = 256, .vocab = 61});
    auto const mixtral = tenon::model::mixtral(
        {.layers = 2, .hidden = 64, .heads = 8, .kv_heads = 4, .experts = 4, .experts_per_token = 2, .expert_width = 32, .vocab = 61});
    std::string const seeds[]{part_of(llama, "0-1@0,1;2-3@2"),
                              part_of(llama, "all@0,1,2,3:tensor.reduce"),
                              part_of(mixtral, "all@0,1:tensor+expert", {0, 1, 1, 0}),
                              detail::build_identity{}.show(),
                              message_of(detail::message_kind::done, 0, ""),
                              message_of(detail::message_kind::pieces, 5, "slice"),
                              message_of(detail::message_kind::failed, detail::most_message_bytes, "less"),
                              std::string("\4\1\5\3\0\0\0\0\0\0\0\0\0\7", 14)};
    using namespace std::string_view_literals;
    std::string_view const words[]{"\0"sv,
                                   "\1"sv,
                                   "\2"sv,
                                   "\377"sv,
                                   "\0\0\0\0"sv,
                                   "\1\0\0\0"sv,
                                   "\377\377\377\177"sv,
                                   "\0\0\0\200"sv,
                                   "\377\377\377\377"sv,
                                   "\0\0\0\0\0\0\0\0"sv,
                                   "\1\0\0\0\0\0\0\0"sv,
                                   "\0\0\0\0\1\0\0\0"sv,
                                   "\377\377\377\377\377\377\377\377"sv,
                                   "1TNN"sv,
                                   "\0\0\0\1"sv,
                                   "\0\1\0\0"sv};
    for (std::string const& part : {seeds[0], seeds[1], seeds[2]})
        build(std::as_bytes(std::span(part.data(), part.size())));  // these are lawful
    return fuzz::run(count, arguments, LLVMFuzzerTestOneInput, seeds, words, 60'000);
}
#endif
