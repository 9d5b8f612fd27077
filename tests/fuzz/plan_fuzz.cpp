// Any bytes as a plan: a plan that no other spelling changes, and for every model a lawful graph; or a refusal that points into the text.
// SPDX-License-Identifier: Apache-2.0
#include "mutate.hpp"

#include <tenon/device/concept.hpp>
#include <tenon/graph/plan_value.hpp>
#include <tenon/model/kinds.hpp>
#include <tenon/model/llama.hpp>
#include <tenon/model/mixtral.hpp>

#include <algorithm>
#include <array>
#include <optional>

using namespace tenon;

namespace {

constexpr std::array available{device::traits{device_kind::cpu}, device::traits{device_kind::xtensor, 4},
                               device::traits{device_kind::eigen, 2, false}};
constexpr auto dense = model::llama({.layers = 6, .hidden = 64, .heads = 8, .kv_heads = 4, .ffn = 256, .vocab = 101});
constexpr auto mixed = model::with_experts(dense, {.count = 8, .chosen = 2, .width = 256}, {2, 3, 5});
constexpr auto routed = model::mixtral(
    {.layers = 4, .hidden = 64, .heads = 8, .kv_heads = 4, .experts = 4, .experts_per_token = 2, .expert_width = 96, .vocab = 61});
constexpr auto smallest = model::llama({.layers = 1, .hidden = 2, .heads = 1, .kv_heads = 1, .ffn = 1, .vocab = 2});

bool same_stages(model_config const& config, std::span<stage_traits const> a, std::span<stage_traits const> b) {
    return std::equal(a.begin(), a.end(), b.begin(), b.end(), [&config](stage_traits const& x, stage_traits const& y) {
        bool const same_rules =
            effective(config, x, x.ranks()) == effective(config, y, y.ranks());  // one rank needs none, and "none" is not spelled
        return x.first_layer == y.first_layer && x.last_layer == y.last_layer && same_rules &&
               std::equal(x.devices.begin(), x.devices.end(), y.devices.begin(), y.devices.end());
    });
}

// A plan in the text's own words, or the law that it breaks, which is that of the constant's reader, at a character that the text has.
std::optional<plan::value> read(std::string_view text) {
    plan::extent const room = plan::measure(text);
    std::vector<plan::part> parts(room.parts);
    std::vector<device_id> devices(room.devices);
    violation const broken = plan::read(text, parts, devices);
    try {
        plan::value v = plan::parse(text);
        if (broken || v.parts.empty() || v.devices.empty()) std::abort();
        return v;
    } catch (graph_error const& e) {
        if (!(e.why() == broken) || !broken || e.law_name().empty()) std::abort();
        if (broken.left.what == quantity::character && (broken.left.value < 0 || static_cast<std::size_t>(broken.left.value) > text.size()))
            std::abort();
        return {};
    }
}

// What a model makes of it: every layer once and in order, no law broken, and a plan of its own that means the same.
void lay_out(model_config const& config, plan::view p) {
    fuzz::refusing([&] {
        dynamic_graph const graph(config, p, available);
        int next = 0;
        for (stage_traits const& s : graph.view().stages) {
            if (s.first_layer != next || s.last_layer < next || s.devices.empty()) std::abort();
            next = s.last_layer + 1;
        }
        if (next != config.layers || validate(config, graph.view().stages) || graph.ir().tensors.empty()) std::abort();
        fuzz::never_refusing([&] {
            std::string const spelled = graph.plan();
            dynamic_graph const again(config, plan::parse(spelled), available);
            if (again.plan() != spelled || !same_stages(config, graph.view().stages, again.view().stages)) std::abort();
        });
    });
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(std::uint8_t const* data, std::size_t size) {
    std::string_view const text = size == 0 ? std::string_view() : std::string_view(reinterpret_cast<char const*>(data), size);
    if (std::optional<plan::value> const p = read(text))
        for (model_config const* config : {&dense, &mixed, &routed, &smallest}) lay_out(*config, *p);
    return 0;
}

#ifdef TENON_FUZZ_MAIN
int main(int count, char** arguments) {
    std::string const seeds[]{"all@0",
                              "all@0,1",
                              "all@0,1,2,3:tensor.reduce",
                              "0-2@0;3-5@1",
                              "3-5@1;0-2@0",
                              "0-1@0,1:tensor;2-5@2",
                              "0@0,1;4@0,1",
                              "all@0,1,2:expert",
                              "2-3@0,1:tensor+expert;5@0,1:expert_width.reduce;0-1@0;4@0",
                              "0-1@cpu.0;2-5@xtensor.0,xtensor.1:tensor.gather",
                              "all@eigen.0",
                              "all@0,1:expert.exact",
                              "0-200@0,1",
                              "3-1@0,1",
                              "0@0,0",
                              "0@0,1;0@0,1",
                              "all@0,1;5@0,1",
                              "-1@0,1",
                              "0@0,1,",
                              "banana",
                              "0@2147483647",
                              "2147483647@0",
                              "0-2147483648@0",
                              ""};
    std::string_view const words[]{"all",
                                   "@",
                                   ",",
                                   ";",
                                   "-",
                                   ".",
                                   ":",
                                   "+",
                                   "0",
                                   "1",
                                   "5",
                                   "00",
                                   "-1",
                                   "2147483647",
                                   "2147483648",
                                   "99999999999999999999",
                                   "cpu.",
                                   "xtensor.",
                                   "eigen.",
                                   "cuda.",
                                   "user.",
                                   "none",
                                   "tensor",
                                   "tensor.gather",
                                   "tensor.reduce",
                                   "expert",
                                   "expert.exact",
                                   "expert_width",
                                   "expert_width.reduce",
                                   "0-1@0,1",
                                   ";2-5@2",
                                   ":tensor+expert",
                                   " ",
                                   "\n",
                                   std::string_view("\0", 1)};
    return fuzz::run(count, arguments, LLVMFuzzerTestOneInput, seeds, words, 200'000);
}
#endif
