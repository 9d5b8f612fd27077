// What crosses a seam, as a value. Knows no stage that would take it (contract.hpp) and no bytes on a wire (frame.hpp).
// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <tenon/boundary/boundary.hpp>
#include <tenon/core/dtype.hpp>
#include <tenon/core/error.hpp>
#include <tenon/core/profile.hpp>
#include <tenon/detail/deferred.hpp>

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace tenon::inline v0::boundary {

enum class byte_order : std::uint8_t { little = 1, big = 2 };  ///< as a frame spells them
inline constexpr byte_order native_order = std::endian::native == std::endian::big ? byte_order::big : byte_order::little;

inline constexpr int most_extents = 4;

/// Extents of a tensor; those from `rank` on are 0.
struct residual_shape {
    int rank = 0;
    std::array<std::int64_t, most_extents> extents{};
    bool operator==(residual_shape const&) const = default;
};

/// (T, H); with several parallel residual streams (T, streams, H).
constexpr residual_shape shape_of(std::int64_t rows, int streams, std::int64_t hidden) {
    return streams == 1 ? residual_shape{2, {rows, hidden, 0, 0}} : residual_shape{3, {rows, streams, hidden, 0}};
}

/// A bundle of which nothing is copied: refers to what its maker keeps.
///
///   row_offsets  (B + 1)            rows of sequence i of the batch: row_offsets[i] .. row_offsets[i + 1]
///   positions    (T)                of every row in its sequence
///   residual     (T, H) or (T, streams, H), row-major, aligned to nothing
struct bundle_view {
    std::string_view adapter{};  ///< a name or alias of the architecture
    int schema = boundary_schema;
    std::string_view tensor = tensor_name;
    bool normalized = false;  ///< whether the final norm has been applied; no stage takes such a bundle
    int next_layer = 0;       ///< the first that has not been applied
    std::string_view profile = numeric::canonical_1.name;
    residual_shape shape{};
    dtype element = dtype::f32;
    int streams = 1;
    std::span<std::int64_t const> row_offsets{};
    std::span<std::int64_t const> positions{};
    byte_order order = native_order;  ///< of `residual`
    std::span<std::byte const> residual{};
};

template <class = void>
struct basic_bundle;
using bundle = basic_bundle<>;  // lazy: instantiated by who uses it

/// A bundle that owns what it is made of, in this machine's byte order.
template <class Lazy>
struct basic_bundle {
    template <class T>
    using deferred = tenon::v0::detail::deferred<Lazy, T>;

    std::string adapter{};
    int schema = boundary_schema;
    std::string tensor{tensor_name};
    bool normalized = false;
    int next_layer = 0;
    std::string profile{numeric::canonical_1.name};
    residual_shape shape{};
    dtype element = dtype::f32;
    int streams = 1;
    deferred<std::vector<std::int64_t>> row_offsets{}, positions{};
    deferred<std::vector<float>> residual{};
    deferred<std::vector<std::byte>> encoded{};  ///< the residual, where `element` is not float32

    operator bundle_view() const {
        return {.adapter = adapter,
                .schema = schema,
                .tensor = tensor,
                .normalized = normalized,
                .next_layer = next_layer,
                .profile = profile,
                .shape = shape,
                .element = element,
                .streams = streams,
                .row_offsets = row_offsets,
                .positions = positions,
                .order = native_order,
                .residual = element == dtype::f32 ? std::as_bytes(std::span<float const>(residual)) : std::span<std::byte const>(encoded)};
    }
};

/// Field by field; numbers bit by bit, so that -0 differs from 0 and a NaN equals itself.
constexpr bool operator==(bundle_view const& a, bundle_view const& b) {
    auto const same = [](auto x, auto y) {
        bool equal = x.size() == y.size();
        for (std::size_t i = 0; equal && i < x.size(); ++i) equal = x[i] == y[i];
        return equal;
    };
    return a.adapter == b.adapter && a.schema == b.schema && a.tensor == b.tensor && a.normalized == b.normalized &&
           a.next_layer == b.next_layer && a.profile == b.profile && a.shape == b.shape && a.element == b.element &&
           a.streams == b.streams && same(a.row_offsets, b.row_offsets) && same(a.positions, b.positions) && a.order == b.order &&
           same(a.residual, b.residual);
}

namespace detail {
/// A word of a message: at most 80 bytes, no control characters.
template <class = void>
std::string shown(std::string_view word) {
    if (word.empty()) return "empty";
    std::string text(word.substr(0, 80));
    for (char& c : text)
        if (c < ' ' || c > '~') c = '?';
    return text;
}
}  // namespace detail

/// What crosses a seam and must not.
class boundary_error : public refusal {
    using refusal::refusal;
};

}  // namespace tenon::inline v0::boundary
