// What crosses a seam, as far as a graph must agree on it: the schema and the element type.
// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <concepts>
#include <string_view>
#include <tenon/core/dtype.hpp>

namespace tenon::inline v0 {

inline constexpr int boundary_schema = 1;  ///< the version that this library speaks

struct boundary_traits {
    int schema = boundary_schema;
    dtype element = dtype::f32;
    bool operator==(boundary_traits const&) const = default;
};

namespace boundary {
template <class B> concept policy = requires {
    { B::crossing } -> std::convertible_to<boundary_traits>;
};

inline constexpr std::string_view tensor_name = "residual_stream";

/// The residual stream, un-normalised, every position row, float32.
template <int Schema = boundary_schema, dtype Element = dtype::f32>
struct residual {
    static constexpr boundary_traits crossing{Schema, Element};
};

static_assert(policy<residual<>>);
}  // namespace boundary

}  // namespace tenon::inline v0
