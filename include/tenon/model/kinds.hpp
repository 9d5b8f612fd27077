// Which layers of a model are of which kind: those that see a window alone, those that route experts. Knows no family.
// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <tenon/core/config.hpp>
#include <tenon/core/error.hpp>

#include <array>
#include <cstddef>
#include <initializer_list>

namespace tenon::inline v0::model {

/// Layers, as a list says them: {1, 5}. Order and repetition mean nothing. A predicate, and a value of its own: no list need outlive it.
/// A layer that no model has is refused with `layers_within_model`; in a constant expression, by the compiler.
class layer_set {
public:
    constexpr layer_set() = default;
    constexpr layer_set(std::initializer_list<int> layers) {
        for (int const l : layers) add(l);
    }

    constexpr void add(int layer) {
        if (layer < 0 || layer >= most_layers) tenon::v0::detail::refuse("layers_within_model", "a listed layer is none of any model's");
        listed_[static_cast<std::size_t>(layer)] = true;
        end_ = layer < end_ ? end_ : layer + 1;
    }
    constexpr bool operator()(int layer) const { return layer >= 0 && layer < end_ && listed_[static_cast<std::size_t>(layer)]; }

    /// The same, of a model of that many layers; one that it does not have is refused as above.
    constexpr layer_set const& within(int layers) const {
        if (end_ > layers) tenon::v0::detail::refuse("layers_within_model", "a listed layer is none of the model's");
        return *this;
    }

private:
    std::array<bool, most_layers> listed_{};
    int end_ = 0;  ///< one after the last that is listed
};

/// Every `step`-th layer, counted from 1, but those of `except`.
struct every_nth {
    int step = 1;
    layer_set except{};

    constexpr bool operator()(int layer) const { return (layer + 1) % step == 0 && !except(layer); }
};

/// The model of which every layer is `change(kind, layer)`, from the kind that it was of. Kinds are numbered as the layers come to
/// them, so that equal models compare equal however they were described. More than four kinds are refused with `shape_fits`; in a
/// constant expression, by the compiler.
template <class Change>
constexpr model_config with_kinds(model_config const& c, Change change) {
    model_config made = c;
    made.kind_count = 0;
    made.kinds = {};
    made.kind_of = {};
    int const layers = c.layers < most_layers ? c.layers : most_layers;
    for (int l = 0; l < layers; ++l) {
        block_kind const kind = change(c.layer(l), l);
        int k = 0;
        while (k < made.kind_count && made.kinds[static_cast<std::size_t>(k)] != kind) ++k;
        if (k == most_kinds) tenon::v0::detail::refuse("shape_fits", "the layers are of more than 4 kinds");
        if (k == made.kind_count) made.kinds[static_cast<std::size_t>(made.kind_count++)] = kind;
        made.kind_of[static_cast<std::size_t>(l)] = static_cast<std::uint8_t>(k);
    }
    return made.kind_count > 0 ? made : c;
}

/// The model whose layers with `windowed(layer)` see at most `window` keys, and the others all before them, whatever they saw.
/// Source: Beltagy et al. 2020, "Longformer", section 3.1.
template <class Predicate>
constexpr model_config with_window(model_config const& c, int window, Predicate windowed) {
    return with_kinds(c, [window, &windowed](block_kind kind, int layer) {
        kind.attention.window = windowed(layer) ? window : 0;
        return kind;
    });
}
/// The same with the windowed layers in a list, of which the model must have all.
constexpr model_config with_window(model_config const& c, int window, layer_set const& windowed) {
    return with_window<layer_set const&>(c, window, windowed.within(c.layers));
}

/// The model whose layers with `routed(layer)` route these experts instead of the FFN that they had; the others keep theirs. So dense
/// layers, layers of other experts and windows compose, as long as they make four kinds or fewer.
/// Source: Shazeer et al. 2017, "Outrageously Large Neural Networks", section 2.
template <class Predicate>
constexpr model_config with_experts(model_config const& c, routed_experts const& experts, Predicate routed) {
    return with_kinds(c, [&experts, &routed](block_kind kind, int layer) {
        return routed(layer) ? block_kind{.attention = kind.attention, .ffn = {}, .experts = experts} : kind;
    });
}
/// The same with the routed layers in a list, of which the model must have all.
constexpr model_config with_experts(model_config const& c, routed_experts const& experts, layer_set const& routed) {
    return with_experts<layer_set const&>(c, experts, routed.within(c.layers));
}

}  // namespace tenon::inline v0::model
