// What a stage takes, as a value, and whether a bundle is that: one constexpr function over plain values, whose order is fixed.
// Runs no stage.
// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <tenon/boundary/bundle.hpp>
#include <tenon/core/config.hpp>
#include <tenon/core/dtype.hpp>
#include <tenon/core/error.hpp>
#include <tenon/core/profile.hpp>
#include <tenon/model/registry.hpp>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>

namespace tenon::inline v0::boundary {

/// Whether a stage reads every number that it is handed, and refuses an infinity or a NaN.
enum class finiteness : std::uint8_t { strict, off };

/// What a stage takes. One that begins at layer 0 takes token ids, and no bundle.
struct contract {
    adapter_id adapter = adapter_id::llama;
    int schema = boundary_schema;
    std::string_view tensor = tensor_name;
    int first_layer = 0;  ///< of the stage
    std::string_view profile = numeric::canonical_1.name;
    std::int64_t hidden = 0;  ///< H
    dtype element = dtype::f32;
    int streams = 1;
    std::int64_t max_positions = 0;
    finiteness values = finiteness::strict;
    bool operator==(contract const&) const = default;
};

/// The contract of the stage that begins at `first_layer`. Throws refusal `seam_is_inside_the_model` unless a layer stands before it.
constexpr contract contract_of(model_config const& c, int first_layer, boundary_traits crossing = {}) {
    if (first_layer < 1 || first_layer >= c.layers)
        tenon::v0::detail::refuse("seam_is_inside_the_model", "a stage that takes a bundle begins at layer " + std::to_string(first_layer) +
                                                                  " of " + std::to_string(c.layers) + "; 1 to " +
                                                                  std::to_string(c.layers - 1) + " would do");
    return {.adapter = c.adapter,
            .schema = crossing.schema,
            .first_layer = first_layer,
            .hidden = c.hidden,
            .element = crossing.element,
            .max_positions = c.max_positions};
}

/// The bundle that keeps a contract, over a stage's float32 residual (T, H) or (T, streams, H): every row, un-normalised.
inline bundle_view bundle_for(contract const& next, std::span<std::int64_t const> row_offsets, std::span<std::int64_t const> positions,
                              std::span<float const> residual) {
    return {.adapter = model::name_of(next.adapter),
            .schema = next.schema,
            .tensor = next.tensor,
            .next_layer = next.first_layer,
            .profile = next.profile,
            .shape = shape_of(static_cast<std::int64_t>(positions.size()), next.streams, next.hidden),
            .streams = next.streams,
            .row_offsets = row_offsets,
            .positions = positions,
            .residual = std::as_bytes(residual)};
}

/// A rule that a bundle breaks, what breaks it, and what would not.
struct fault {
    std::string_view law{};   ///< empty: every rule holds
    std::string_view what{};  ///< of the bundle
    std::int64_t seen = 0;
    std::int64_t least = 0, most = 0;             ///< what would do, both ends included
    std::string_view seen_word{}, wanted_word{};  ///< instead of the numbers, where `what` is none
    std::string_view place{};                     ///< what `at` counts; empty: the bundle as a whole
    std::int64_t at = 0;
    constexpr explicit operator bool() const { return !law.empty(); }
    bool operator==(fault const&) const = default;
};

namespace detail {

inline constexpr std::int64_t any_more = (std::numeric_limits<std::int64_t>::max)();

constexpr fault differs(std::string_view law, std::string_view what, std::int64_t seen, std::int64_t wanted) {
    return seen == wanted ? fault{} : fault{.law = law, .what = what, .seen = seen, .least = wanted, .most = wanted};
}
constexpr fault differs(std::string_view law, std::string_view what, std::string_view seen, std::string_view wanted) {
    return seen == wanted ? fault{} : fault{.law = law, .what = what, .seen_word = seen, .wanted_word = wanted};
}

constexpr fault broken_by_identity(bundle_view const& b, contract const& c) {
    model::adapter const* const known = model::find_adapter(b.adapter);
    std::string_view const name = model::name_of(c.adapter);
    if (!model::is_certified(b.adapter))
        return {.law = "bundle_adapter_is_certified", .what = "the adapter", .seen_word = b.adapter, .wanted_word = name};
    if (known->id != c.adapter)
        return {.law = "bundle_adapter_is_the_stages", .what = "the adapter", .seen_word = b.adapter, .wanted_word = name};
    if (fault const f = differs("bundle_schema_is_the_stages", "the schema", b.schema, c.schema)) return f;
    if (fault const f = differs("bundle_tensor_is_the_stages", "the tensor", b.tensor, c.tensor)) return f;
    if (b.normalized) return {.law = "bundle_is_not_normalized", .what = "normalized", .seen_word = "true", .wanted_word = "false"};
    if (fault const f = differs("bundle_layer_is_the_stages", "next_layer", b.next_layer, c.first_layer)) return f;
    return differs("bundle_profile_is_the_stages", "the numeric profile", b.profile, c.profile);
}

constexpr fault broken_by_shape(bundle_view const& b, contract const& c) {
    residual_shape const wanted = shape_of(b.shape.extents[0], c.streams, c.hidden);
    if (fault const f = differs("bundle_rank_is_the_stages", "the residual's rank", b.shape.rank, wanted.rank)) return f;
    if (b.shape.extents[0] < 0)
        return {.law = "bundle_rows_are_counted", .what = "the number of rows", .seen = b.shape.extents[0], .most = any_more};
    for (std::size_t i = 1; i < wanted.extents.size(); ++i)
        if (fault f = differs("bundle_shape_is_the_stages", "the extent", b.shape.extents[i], wanted.extents[i])) {
            f.place = "axis";
            f.at = static_cast<std::int64_t>(i);
            return f;
        }
    if (b.element != c.element) {
        bool const known = static_cast<std::size_t>(b.element) < dtype_table.size();
        return differs("bundle_dtype_is_the_stages", "the dtype", known ? name_of(b.element) : "unknown", name_of(c.element));
    }
    return differs("bundle_streams_are_the_stages", "the number of streams", b.streams, c.streams);
}

/// Offsets begin at 0, ascend and end at T: whoever comes after may index with them.
constexpr fault broken_by_offsets(bundle_view const& b) {
    std::span<std::int64_t const> const offsets = b.row_offsets;
    if (offsets.empty())
        return {.law = "bundle_row_offsets_begin_at_zero", .what = "the number of row offsets", .seen = 0, .least = 1, .most = any_more};
    if (fault const f = differs("bundle_row_offsets_begin_at_zero", "the first row offset", offsets[0], 0)) return f;
    for (std::size_t i = 1; i < offsets.size(); ++i)
        if (offsets[i] <= offsets[i - 1])
            return {.law = "bundle_row_offsets_ascend",
                    .what = "the end of its rows",
                    .seen = offsets[i],
                    .least = offsets[i - 1] < any_more ? offsets[i - 1] + 1 : any_more,
                    .most = any_more,
                    .place = "sequence",
                    .at = static_cast<std::int64_t>(i) - 1};
    return differs("bundle_row_offsets_cover_the_rows", "the last row offset", offsets.back(), b.shape.extents[0]);
}

constexpr fault broken_by_positions(bundle_view const& b, contract const& c) {
    auto const count = static_cast<std::int64_t>(b.positions.size());
    if (fault const f = differs("bundle_positions_are_the_rows", "the number of positions", count, b.shape.extents[0])) return f;
    std::size_t row = 0;
    for (std::size_t s = 1; s < b.row_offsets.size(); ++s)
        for (bool first = true; row < static_cast<std::size_t>(b.row_offsets[s]); ++row, first = false) {
            std::int64_t const seen = b.positions[row];
            fault f{.what = "the position", .seen = seen, .place = "row", .at = static_cast<std::int64_t>(row)};
            if (!first && seen != b.positions[row - 1] + 1) {
                f.law = "bundle_positions_follow_on";
                f.least = f.most = b.positions[row - 1] + 1;
                return f;
            }
            if (seen < 0 || seen >= c.max_positions) {
                f.law = "bundle_positions_fit_the_model";
                f.most = c.max_positions - 1;
                return f;
            }
        }
    return {};
}

constexpr fault broken_by_size(bundle_view const& b) {
    std::int64_t wanted = bytes_of(b.element);
    for (std::size_t i = 0; i < static_cast<std::size_t>(b.shape.rank); ++i) {
        std::int64_t const extent = b.shape.extents[i];
        if (extent != 0 && wanted > any_more / extent)
            return {.law = "bundle_payload_is_the_shapes",
                    .what = "the shape's size in bytes",
                    .seen_word = "2^63 or more",
                    .wanted_word = "less"};
        wanted *= extent;
    }
    return differs("bundle_payload_is_the_shapes", "the residual's size in bytes", static_cast<std::int64_t>(b.residual.size()), wanted);
}

/// The bits that are all set in an infinity or a NaN; 0 for elements that are neither.
constexpr std::uint64_t exponent_of(dtype d) {
    switch (d) {
        case dtype::f64: return 0x7FF0000000000000U;
        case dtype::f32: return 0x7F800000U;
        case dtype::bf16: return 0x7F80U;
        case dtype::f16: return 0x7C00U;
        case dtype::f8_e5m2: return 0x7CU;
        case dtype::f8_e4m3: return 0x7FU;  // NaN alone
        default: return 0;
    }
}

/// Whether no number of a whole residual in this machine's order is infinite or NaN, in blocks that a compiler makes vectors of.
template <class Word>
bool all_finite(std::span<std::byte const> bytes, Word exponent) {
    constexpr std::size_t block = 1024;
    for (std::size_t at = 0; at < bytes.size();) {
        Word found = 0;
        std::size_t const end = bytes.size() - at < block ? bytes.size() : at + block;
        for (; at < end; at += sizeof(Word)) {
            Word bits = 0;
            std::memcpy(&bits, bytes.data() + at, sizeof bits);
            found |= static_cast<Word>((bits & exponent) == exponent);
        }
        if (found != 0) return false;
    }
    return true;
}

template <class Word>
constexpr fault broken_by_number(bundle_view const& b) {
    constexpr std::size_t width = sizeof(Word);
    std::uint64_t const exponent = exponent_of(b.element), fraction = (exponent & (~exponent + 1)) - 1;
    if (!std::is_constant_evaluated())
        if (b.order == native_order && all_finite(b.residual, static_cast<Word>(exponent))) return {};
    bool const big = b.order == byte_order::big;
    for (std::size_t at = 0; at + width <= b.residual.size(); at += width) {
        std::uint64_t bits = 0;
        for (std::size_t i = 0; i < width; ++i) bits |= std::to_integer<std::uint64_t>(b.residual[at + i]) << 8 * (big ? width - 1 - i : i);
        if ((bits & exponent) == exponent)
            return {.law = "bundle_values_are_finite",
                    .what = "the number",
                    .seen_word = (bits & fraction) != 0 || b.element == dtype::f8_e4m3 ? "NaN" : "infinite",
                    .wanted_word = "a finite one",
                    .place = "value",
                    .at = static_cast<std::int64_t>(at / width)};
    }
    return {};
}

constexpr fault broken_by_numbers(bundle_view const& b) {
    if (exponent_of(b.element) == 0) return {};
    switch (bytes_of(b.element)) {
        case 1: return broken_by_number<std::uint8_t>(b);
        case 2: return broken_by_number<std::uint16_t>(b);
        case 4: return broken_by_number<std::uint32_t>(b);
        default: return broken_by_number<std::uint64_t>(b);
    }
}

}  // namespace detail

/// The first rule that a bundle breaks, in this order: adapter (any alias will do), schema, tensor name, normalised flag, layer,
/// numeric profile; shape, dtype, streams; row offsets, positions; size of the payload; finite numbers.
constexpr fault find_fault(bundle_view const& b, contract const& c) {
    if (fault const f = detail::broken_by_identity(b, c)) return f;
    if (fault const f = detail::broken_by_shape(b, c)) return f;
    if (fault const f = detail::broken_by_offsets(b)) return f;
    if (fault const f = detail::broken_by_positions(b, c)) return f;
    if (fault const f = detail::broken_by_size(b)) return f;
    return c.values == finiteness::strict ? detail::broken_by_numbers(b) : fault{};
}

/// As above; then whether each sequence goes on where the receiver's state of it ends.
///
///   held  (B)  positions that the states hold
constexpr fault find_fault(bundle_view const& b, contract const& c, std::span<std::int64_t const> held) {
    if (fault const f = find_fault(b, c)) return f;
    std::size_t const sequences = b.row_offsets.size() - 1;
    if (fault const f = detail::differs("bundle_sequences_are_the_states", "the number of sequences", static_cast<std::int64_t>(sequences),
                                        static_cast<std::int64_t>(held.size())))
        return f;
    for (std::size_t s = 0; s < sequences; ++s)
        if (fault f = detail::differs("bundle_positions_continue_the_states", "the first position",
                                      b.positions[static_cast<std::size_t>(b.row_offsets[s])], held[s])) {
            f.place = "sequence";
            f.at = static_cast<std::int64_t>(s);
            return f;
        }
    return {};
}

/// "row 3: the position is 4; 7 would do"
template <class = void>
std::string sentence_of(fault const& f) {
    std::string text = f.place.empty() ? std::string() : std::string(f.place) + " " + std::to_string(f.at) + ": ";
    bool const words = !f.wanted_word.empty();
    text += std::string(f.what) + " is " + (words ? detail::shown(f.seen_word) : std::to_string(f.seen)) + "; ";
    if (words)
        text += f.wanted_word;
    else if (f.most < f.least)
        return text + "none would do";
    else
        text += std::to_string(f.least) + (f.most == f.least            ? ""
                                           : f.most == detail::any_more ? " or more"
                                                                        : " to " + std::to_string(f.most));
    return text + " would do";
}

/// The architecture has a name that nothing certifies.
class uncertified_architecture : public boundary_error {
    using boundary_error::boundary_error;
};
/// The bundle is not what the stage takes.
class contract_error : public boundary_error {
    using boundary_error::boundary_error;
};

namespace detail {
template <class = void>
void require(fault const& f) {
    if (!f) return;
    if (f.law == "bundle_adapter_is_certified")
        tenon::v0::detail::raise(uncertified_architecture(f.law, sentence_of(f) + "; certified: " + model::certified_names()));
    tenon::v0::detail::raise(contract_error(f.law, sentence_of(f)));
}
}  // namespace detail

/// Refuses a bundle that breaks its receiver's contract, by the name of the first rule that it breaks: `uncertified_architecture` or
/// `contract_error`.
template <class = void>
void check(bundle_view const& b, contract const& c) {
    detail::require(find_fault(b, c));
}
template <class = void>
void check(bundle_view const& b, contract const& c, std::span<std::int64_t const> held) {
    detail::require(find_fault(b, c, held));
}

}  // namespace tenon::inline v0::boundary
