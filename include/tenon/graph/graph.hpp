// The graph as a type: a model and its stages, checked where it is written, lowered to constants.
// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <array>
#include <cstddef>
#include <string_view>
#include <tenon/graph/cost.hpp>
#include <tenon/graph/lower.hpp>
#include <tenon/graph/plan.hpp>
#include <tenon/graph/plan_builders.hpp>
#include <tenon/graph/resolve.hpp>
#include <tenon/graph/spell.hpp>
#include <tenon/graph/validate.hpp>
#include <type_traits>
#include <utility>

namespace tenon::inline v0 {

template <int Position>
struct at_stage;
template <quantity What, int Value>
struct has;
template <int... Values>
struct would_do;
template <int... Values>
struct would_do_or_gather;  ///< these values with this join, or this one with join::gather

/// Appears in the diagnostic when a graph is refused.
template <law Law, class Where, class Left, class Right, class Remedy>
struct broken_law {
    static_assert(Law == law::none, "graph refused: the law and the numbers are the arguments of broken_law<> nearby");
};

template <int Position, role What>
struct at_tensor;  ///< of a stage

namespace detail {
// Spells a violation as a type. Declared only; a function template, because GCC 12 crashes on alias templates here.
template <violation V, std::size_t... I>
auto spell(std::index_sequence<I...>)
    -> broken_law<V.which, at_stage<V.stage>, has<V.left.what, V.left.value>, has<V.right.what, V.right.value>,
                  std::conditional_t<V.gather_would_do, would_do_or_gather<V.instead.value[I]...>, would_do<V.instead.value[I]...>>>;

template <violation V>
struct judge {
    using verdict = decltype(spell<V>(std::make_index_sequence<static_cast<std::size_t>(V.instead.count)>{}));
};

template <violation V, role What, std::size_t... I>
auto spell_of_tensor(std::index_sequence<I...>)
    -> broken_law<V.which, at_tensor<V.stage, What>, has<V.left.what, V.left.value>, has<V.right.what, V.right.value>,
                  std::conditional_t<V.gather_would_do, would_do_or_gather<V.instead.value[I]...>, would_do<V.instead.value[I]...>>>;

/// Ill-formed, naming `broken_law`, where a lawful graph cannot be held in a format.
template <violation V, role What>
struct judge_format {
    using verdict = decltype(spell_of_tensor<V, What>(std::make_index_sequence<static_cast<std::size_t>(V.instead.count)>{}));
    static_assert(sizeof(verdict) != 0);
    static constexpr bool lawful = !V;
};

// No constant expression calls the first of these; the second has the numbers in the diagnostic.
inline void refused() {}
constexpr void cost_is_of_a_format_that_can_be_held(law broken, role, quantity, int, quantity, int) {
    if (broken != law::none) refused();
}

/// Stages written as types. Flat: a std::tuple of 256 took 3.6 s to compile, this 0.3 s.
template <class Model, class... Stages>
struct from_types {
    using devices = device::policies<typename Stages::device_policy...>;
    static constexpr std::array<stage_traits, sizeof...(Stages)> stages{Stages::traits...};
    static constexpr violation verdict = validate(Model::config, stages);
};

template <plan::spelled Text>
struct literal_source {
    static constexpr plan::extent room = plan::measure(Text.view());
    static constexpr auto parse() {
        plan::fixed<room.parts, room.devices> p{};
        p.broken = plan::read(Text.view(), p.parts, p.devices);
        return p;
    }
    static constexpr auto value = parse();
    static constexpr violation verdict = value.broken;
};

/// A plan that a builder makes: `Build(sink)` returns the first broken law.
template <class Build>
struct built_source {
    static constexpr plan::detail::part_count count() {
        plan::detail::part_count n{};
        (void)Build::into(n);
        return n;
    }
    static constexpr auto make() {
        constexpr std::size_t parts = count().used;
        plan::detail::fixed_sink<(parts > 0 ? parts : 1)> out{};
        out.plan.broken = Build::into(out);
        out.plan.owners = Build::owners;
        return out.plan;
    }
    static constexpr auto value = make();
    static constexpr violation verdict = value.broken;
};
template <int... Owners>
struct by_owners {
    static constexpr int owners = sizeof...(Owners);
    template <class Sink>
    static constexpr violation into(Sink& out) {
        std::array<int, sizeof...(Owners)> const list{Owners...};
        return plan::build_owners(list, out);
    }
};
template <int Layers, int... Cuts>
struct by_cuts {
    static constexpr int owners = 0;
    template <class Sink>
    static constexpr violation into(Sink& out) {
        std::array<int, sizeof...(Cuts)> const cuts{Cuts...};
        return plan::build_pipeline(std::span<int const>(cuts), Layers, out);
    }
};
template <int Layers, int Stages>
struct evenly {
    static constexpr int owners = 0;
    template <class Sink>
    static constexpr violation into(Sink& out) {
        return plan::build_pipeline(Stages, Layers, out);
    }
};

/// Stages written as a plan, spelled or built.
template <class Model, class Source, class Devices>
struct from_plan {
    using source = Source;
    using devices = Devices;
    struct settled_devices {
        std::array<device_id, source::value.devices.size()> ids{};
        violation broken{};
    };
    static constexpr settled_devices settle() {
        settled_devices d{};
        d.broken = source::verdict;
        if (!d.broken) d.broken = plan::settle_devices(source::value, Devices::available[0].kind, d.ids);
        return d;
    }
    static constexpr settled_devices settled = settle();

    struct found {
        std::array<stage_traits, plan::most_stages(source::value.parts.size())> list{};
        std::size_t count = 0;
        violation broken{};
    };
    static constexpr found find() {
        found f{};
        std::array<int, source::value.parts.size()> scratch{};
        f.broken = settled.broken;
        if (!f.broken)
            f.broken = plan::resolve(source::value, settled.ids, Devices::available, Model::config.layers, scratch, f.list, f.count);
        if (f.broken) f.count = 0;
        return f;
    }
    static constexpr found resolved = find();
    static constexpr auto take() {
        std::array<stage_traits, resolved.count> s{};
        for (std::size_t i = 0; i < resolved.count; ++i) s[i] = resolved.list[i];
        return s;
    }
    static constexpr auto stages = take();
    static constexpr violation verdict = resolved.broken ? resolved.broken : validate(Model::config, stages);
};

/// The constants of a lawful graph; of a refused one all are empty, so that nothing follows the one error.
template <class Model, class Source>
struct facts {
    static constexpr bool lawful = !Source::verdict;
    static constexpr ir_size measure() {
        ir_size n{};
        if constexpr (lawful) lower(Model::config, Source::stages, n);
        return n;
    }
    static constexpr ir_size size = measure();
    static constexpr auto lower_it() {
        ir<size.nodes, size.tensors, size.edges> g{};
        if constexpr (lawful) lower(Model::config, Source::stages, g);
        return g;
    }
    static constexpr auto lowered = lower_it();
    static constexpr graph_view view{&Model::config,
                                     lawful ? std::span<stage_traits const>(Source::stages) : std::span<stage_traits const>{}, lowered};

    static constexpr auto spell_it() {
        constexpr std::size_t length = [] {
            letter_count n{};
            if constexpr (lawful) spell_plan(Source::stages, device_kind::cpu, n);
            return n.used;
        }();
        letters<length> out{};
        if constexpr (lawful) spell_plan(Source::stages, device_kind::cpu, out);
        return out;
    }
};
template <class Facts>
inline constexpr auto spelled_plan = Facts::spell_it();

/// Costs of a refused graph: nothing, so that a budget inside it says nothing more.
struct no_cost {
    constexpr int ranks() const { return 0; }
    constexpr device_id device_of(rank_index) const { return {}; }
    constexpr std::int64_t weight_bytes(auto) const { return 0; }
    constexpr std::int64_t kv_bytes_per_position(auto) const { return 0; }
    constexpr std::int64_t kv_bytes(auto, int) const { return 0; }
    constexpr std::int64_t activation_bytes_per_token(rank_index) const { return 0; }
    constexpr std::int64_t flops_per_token(auto, int = 1) const { return 0; }
    constexpr std::int64_t seam_messages_per_token(int) const { return 0; }
    constexpr std::int64_t seam_bytes_per_token(int) const { return 0; }
    constexpr std::int64_t join_messages_per_token(int) const { return 0; }
    constexpr std::int64_t join_bytes_per_token(int) const { return 0; }
    constexpr std::int64_t joins(int) const { return 0; }
};

/// What a graph offers, however its stages were written.
template <class Model, class Source>
struct graph_members {
    using model = Model;
    using facts = detail::facts<Model, Source>;
    using devices = typename Source::devices;  ///< the policies that its stages name
    static constexpr bool lawful = facts::lawful;

    /// Bytes, operations and messages as constants. `stored` is the checkpoint's element type, for what keeps it. Of a format that the
    /// graph cannot be held in (`validate_format`) it is no constant expression, and a loader refuses it.
    static constexpr auto cost(weights format, dtype stored = dtype::f32) {
        if constexpr (facts::lawful) {
            format_violation const v = validate_format(facts::view, format);
            detail::cost_is_of_a_format_that_can_be_held(v.broken.which, v.what, v.broken.left.what, v.broken.left.value,
                                                         v.broken.right.what, v.broken.right.value);
            return cost_view(facts::view, format, stored);
        } else {
            return no_cost{};
        }
    }
    /// The same, ill-formed and naming `broken_law` where the graph cannot be held in that format.
    template <weights Format>
    static constexpr auto cost(dtype stored = dtype::f32) {
        if constexpr (facts::lawful) {
            constexpr format_violation v = validate_format(facts::view, Format);
            if constexpr (detail::judge_format<v.broken, v.what>::lawful)
                return cost_view(facts::view, Format, stored);
            else
                return no_cost{};
        } else {
            return no_cost{};
        }
    }
    static constexpr ir_view ir() { return facts::lowered; }
    /// Model, stages and lowered graph, as the readers of graph/ and the runtimes take them.
    static constexpr graph_view view() { return facts::view; }
    /// The plan that means these stages.
    static constexpr std::string_view plan() { return spelled_plan<facts>.view(); }
};
}  // namespace detail

/// A model and its stages, in order. Ill-formed, naming `broken_law`, if `validate` objects.
template <class Model, stage_type... Stages>
struct graph : detail::graph_members<Model, detail::from_types<Model, Stages...>> {
    // sizeof, not a member, a base or a static constant: clang drops a class derived from a broken one and reports every
    // use of it, and nothing instantiates a static data member. This way there is one error, and the members stay.
    static_assert(sizeof(typename detail::judge<detail::from_types<Model, Stages...>::verdict>::verdict) != 0);
};

/// The same, with the stages written as a plan; `Devices` are the backends that it may name, the first that of devices without a kind.
template <class Model, plan::spelled Text, class Devices = device::backends<device::cpu>>
struct planned : detail::graph_members<Model, detail::from_plan<Model, detail::literal_source<Text>, Devices>> {
    static_assert(sizeof(typename detail::judge<detail::from_plan<Model, detail::literal_source<Text>, Devices>::verdict>::verdict) != 0);
};

namespace detail {
template <class Model, class Build>
using built_plan = from_plan<Model, built_source<Build>, device::backends<device::cpu>>;
}  // namespace detail

/// The same, with one device for every layer, in layer order; neighbours on one device are one stage.
template <class Model, int... Owners>
struct owned : detail::graph_members<Model, detail::built_plan<Model, detail::by_owners<Owners...>>> {
    static_assert(sizeof(typename detail::judge<detail::built_plan<Model, detail::by_owners<Owners...>>::verdict>::verdict) != 0);
};

/// The same, as an even pipeline: stage s is on device s and begins at layer floor(s layers / stages).
template <class Model, int Stages>
struct pipelined : detail::graph_members<Model, detail::built_plan<Model, detail::evenly<Model::config.layers, Stages>>> {
    static_assert(
        sizeof(typename detail::judge<detail::built_plan<Model, detail::evenly<Model::config.layers, Stages>>::verdict>::verdict) != 0);
};

/// The same, as a pipeline whose second and later stages begin at the layers `Cuts`.
template <class Model, int... Cuts>
struct pipelined_at : detail::graph_members<Model, detail::built_plan<Model, detail::by_cuts<Model::config.layers, Cuts...>>> {
    static_assert(
        sizeof(typename detail::judge<detail::built_plan<Model, detail::by_cuts<Model::config.layers, Cuts...>>::verdict>::verdict) != 0);
};

/// A graph: `graph<...>`, `planned<...>`, or a struct derived from one.
template <class G> concept graph_type = requires {
    typename G::model;
    { G::view() } -> std::convertible_to<graph_view>;
};

namespace detail {
template <plan::spelled Text>
struct checked_literal {
    static_assert(sizeof(typename judge<literal_source<Text>::verdict>::verdict) != 0);
    static constexpr auto const& value = literal_source<Text>::value;
};
}  // namespace detail

namespace plan {
/// The plan that a text spells, as a constant. Ill-formed, naming `broken_law`, if it does not parse.
template <spelled Text>
inline constexpr auto const& literal = tenon::v0::detail::checked_literal<Text>::value;
}  // namespace plan

}  // namespace tenon::inline v0
