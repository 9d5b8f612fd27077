// Any bytes as a placement map: a map that keeps its laws and comes back from its own text, or a refusal.
// SPDX-License-Identifier: Apache-2.0
#include "mutate.hpp"

#include <tenon/checkpoint/placement_json.hpp>

#include <vector>

namespace {

// What a reader of a map relies on.
bool keeps_its_laws(tenon::placement_map const& map) {
    bool whole = map.ranks >= 2 && map.ranks <= tenon::most_ranks_of_a_stage && map.experts >= map.ranks &&
                 map.experts <= tenon::most_experts && map.entry_rank >= 0 && map.entry_rank < map.ranks && !map.layers.empty() &&
                 map.sha256.size() == 64;
    int before = -1;
    for (tenon::layer_placement const& placed : map.layers) {
        whole = whole && placed.layer > before && placed.layer < tenon::most_layers &&
                placed.owners.size() == static_cast<std::size_t>(map.experts);
        before = placed.layer;
        for (int r = 0; whole && r < map.ranks; ++r) whole = std::count(placed.owners.begin(), placed.owners.end(), r) > 0;
        for (int const owner : placed.owners) whole = whole && owner >= 0 && owner < map.ranks;
    }
    return whole;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(std::uint8_t const* data, std::size_t size) {
    std::string_view const text = size == 0 ? std::string_view() : std::string_view(reinterpret_cast<char const*>(data), size);
    fuzz::refusing([text] {
        tenon::placement_map const map = tenon::read_placement_map(text, "fuzz");
        if (!keeps_its_laws(map)) std::abort();
        fuzz::never_refusing([&map] {
            std::string const again = render(map);
            if (tenon::read_placement_map(again, "again") != map || render(tenon::read_placement_map(again, "again")) != again)
                std::abort();
        });
    });
    fuzz::refusing([text] {  // a note is a whole JSON value, or it is refused: it can say nothing of the placement
        tenon::placement_map const map{2, 0, 2, {{0, {0, 1}}}, {}};
        std::string const noted = render(map, {.stats = text});
        fuzz::never_refusing([&] {
            if (tenon::read_placement_map(noted, "noted") != map) std::abort();
        });
    });
    return 0;
}

#ifdef TENON_FUZZ_MAIN
int main(int count, char** arguments) {
    std::string const seeds[]{
        R"({"format":"tenon-expert-placement","version":1,"ranks":2,"entry_rank":0,"expert_count":4,"layers":[{"layer":7,"assignment":[0,1,1,1]},{"layer":3,"assignment":[1,0,0,1]}]})",
        R"({"format":"memra-ep-map-v1","ranks":3,"entry_rank":2,"expert_count":3,"layers":[{"layer":0,"assignment":[2,1,0]}]})",
        R"({"strategy":"}]","traces":["[{","\"}"],"params":{"balance":1.1},"stats":null,"format":"tenon-expert-placement","version":1,"ranks":2,"entry_rank":1,"expert_count":2,"layers":[{"assignment":[1,0],"layer":255}]})",
        R"({"format":"tenon-expert-placement","version":1,"ranks":64,"entry_rank":0,"expert_count":1024,"layers":[]})", R"({"rows":96})"};
    std::string_view const words[]{"0",
                                   "1",
                                   "2",
                                   "-1",
                                   "1.0",
                                   "1e0",
                                   "\"1\"",
                                   "255",
                                   "256",
                                   "1024",
                                   "9223372036854775807",
                                   "18446744073709551617",
                                   "null",
                                   "[]",
                                   "{}",
                                   "\"}\"",
                                   "\"]\"",
                                   "\"tenon-expert-placement\"",
                                   "\"memra-ep-map-v1\"",
                                   "\"version\":1,",
                                   "\"ranks\":2,",
                                   "\"ranks\":3",
                                   "\"expert_count\":2",
                                   "\"entry_rank\"",
                                   "\"layers\":",
                                   "\"layer\":7",
                                   "\"assignment\":[0,1]",
                                   ",{\"layer\":4,\"assignment\":[0,1,0,1]}",
                                   "\"stats\":{},",
                                   ",\"ranks\":9",
                                   ",",
                                   ":",
                                   "}",
                                   "{",
                                   "]",
                                   "[",
                                   "\""};
    return fuzz::run(count, arguments, LLVMFuzzerTestOneInput, seeds, words, 100'000);
}
#endif
