// Bundles as messages of stage.proto, and back. Says what a message must have to be a bundle at all; whether a stage takes that bundle is
// its contract's question, as of every other bundle. SPDX-License-Identifier: Apache-2.0
#pragma once
#include <tenon/boundary/bundle.hpp>
#include <tenon/core/dtype.hpp>
#include <tenon/core/error.hpp>

#include "stage.pb.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace grpc_hosts {

namespace wire = tenon_example::v1;

/// A bundle as a message; the residual stays in the byte order that it has.
inline wire::Bundle message_of(tenon::boundary::bundle_view const& b) {
    wire::Bundle m;
    m.set_adapter(std::string(b.adapter));
    m.set_schema(b.schema);
    m.set_tensor(std::string(b.tensor));
    m.set_normalized(b.normalized);
    m.set_next_layer(b.next_layer);
    m.set_profile(std::string(b.profile));
    for (int axis = 0; axis < b.shape.rank; ++axis) m.add_shape(b.shape.extents[static_cast<std::size_t>(axis)]);
    m.set_dtype(std::string(name_of(b.element)));
    m.set_streams(b.streams);
    m.mutable_row_offsets()->Add(b.row_offsets.begin(), b.row_offsets.end());
    m.mutable_positions()->Add(b.positions.begin(), b.positions.end());
    m.set_byte_order(b.order == tenon::boundary::byte_order::big ? wire::BYTE_ORDER_BIG : wire::BYTE_ORDER_LITTLE);
    m.set_residual(b.residual.data(), b.residual.size());
    return m;
}

/// The bundle that a message is; refers to the message. Whoever takes it holds it to a contract: a stage's `forward`, or
/// `boundary::check`.
///
/// Refuses what is none by name: `message_is_whole`, `message_rank_fits`, `message_dtype_is_known`, `message_byte_order_is_known`.
inline tenon::boundary::bundle_view view_of(wire::Bundle const& m) {
    using tenon::refusal;
    tenon::boundary::bundle_view b;
    if (!m.has_normalized()) throw refusal("message_is_whole", "normalized is left out; true or false would do");
    if (m.shape_size() > tenon::boundary::most_extents)
        throw refusal("message_rank_fits", "the residual has " + std::to_string(m.shape_size()) + " extents; " +
                                               std::to_string(tenon::boundary::most_extents) + " or fewer would do");
    auto const* const type = std::find_if(tenon::dtype_table.begin(), tenon::dtype_table.end(),
                                          [&](tenon::dtype_words const& known) { return known.name == m.dtype(); });
    if (type == tenon::dtype_table.end())
        throw refusal("message_dtype_is_known", "the dtype is \"" + m.dtype().substr(0, 80) + "\"; a name that safetensors has would do");
    if (m.byte_order() != wire::BYTE_ORDER_LITTLE && m.byte_order() != wire::BYTE_ORDER_BIG)
        throw refusal("message_byte_order_is_known", "the byte order is " + std::to_string(m.byte_order()) + "; 1 or 2 would do");
    b.adapter = m.adapter();
    b.schema = m.schema();
    b.tensor = m.tensor();
    b.normalized = m.normalized();
    b.next_layer = m.next_layer();
    b.profile = m.profile();
    b.shape.rank = m.shape_size();
    std::copy(m.shape().begin(), m.shape().end(), b.shape.extents.begin());
    b.element = static_cast<tenon::dtype>(type - tenon::dtype_table.begin());
    b.streams = m.streams();
    b.row_offsets = {m.row_offsets().data(), static_cast<std::size_t>(m.row_offsets_size())};
    b.positions = {m.positions().data(), static_cast<std::size_t>(m.positions_size())};
    b.order = m.byte_order() == wire::BYTE_ORDER_BIG ? tenon::boundary::byte_order::big : tenon::boundary::byte_order::little;
    b.residual = std::as_bytes(std::span(m.residual()));
    return b;
}

}  // namespace grpc_hosts
