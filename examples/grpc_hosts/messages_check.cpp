// Whether a bundle survives being a message, and whether a message that is wrong is refused by the name that a wrong bundle has. Exit
// status 0 where everything held. SPDX-License-Identifier: Apache-2.0
#include <tenon/boundary/contract.hpp>
#include <tenon/model/llama.hpp>

#include "messages.hpp"

#include <cstdio>
#include <functional>
#include <limits>
#include <string>
#include <vector>

using namespace tenon;
using namespace grpc_hosts;

namespace {
constexpr auto config = model::llama({.layers = 4, .hidden = 4, .heads = 2, .kv_heads = 2, .ffn = 8, .vocab = 16, .max_positions = 32});
constexpr boundary::contract takes = boundary::contract_of(config, 2);
constexpr std::int64_t row_offsets[]{0, 2, 3}, positions[]{5, 6, 0};
constexpr float residual[]{1.0f, -2.0f, 0.5f, 0x1p-149f, -0.0f, 3.0f, 4.0f, 5.0f, 6.0f, 7.0f, 8.0f, 9.0f};

int failures = 0;

void check(bool holds, std::string const& what) {
    if (holds) return;
    ++failures;
    std::printf("%s\n", what.c_str());
}

boundary::bundle_view sound() { return boundary::bundle_for(takes, row_offsets, positions, residual); }

/// After a way over bytes, as gRPC makes them.
wire::Bundle sent(wire::Bundle const& m) {
    wire::Bundle arrived;
    check(arrived.ParseFromString(m.SerializeAsString()), "a message that is not whole");
    return arrived;
}

void refuses(std::string const& law, std::function<void(wire::Bundle&)> const& spoil) {
    wire::Bundle m = message_of(sound());
    spoil(m);
    std::string said = "nothing is refused";
    try {
        wire::Bundle const arrived = sent(m);
        boundary::check(view_of(arrived), takes);
    } catch (refusal const& r) { said = r.law_name(); }
    check(said == law, law + " expected: " + said);
}
}  // namespace

int main() {
    wire::Bundle const arrived = sent(message_of(sound()));
    check(view_of(arrived) == sound(), "another bundle than was sent");
    boundary::check(view_of(arrived), takes);

    std::vector<std::byte> turned(sound().residual.begin(), sound().residual.end());
    for (std::size_t at = 0; at < turned.size(); at += 4) std::swap(turned[at], turned[at + 3]), std::swap(turned[at + 1], turned[at + 2]);
    boundary::bundle_view big = sound();
    big.order = boundary::native_order == boundary::byte_order::big ? boundary::byte_order::little : boundary::byte_order::big;
    big.residual = turned;
    wire::Bundle const other_order = sent(message_of(big));
    check(view_of(other_order) == big, "another bundle than was sent in the other byte order");
    boundary::check(view_of(other_order), takes);

    refuses("message_is_whole", [](wire::Bundle& m) { m.clear_normalized(); });
    refuses("message_is_whole", [](wire::Bundle& m) { m.Clear(); });
    refuses("message_rank_fits", [](wire::Bundle& m) { m.mutable_shape()->Resize(5, 1); });
    refuses("message_dtype_is_known", [](wire::Bundle& m) { m.set_dtype("f32"); });
    refuses("message_byte_order_is_known", [](wire::Bundle& m) { m.clear_byte_order(); });
    refuses("message_byte_order_is_known", [](wire::Bundle& m) { m.set_byte_order(static_cast<wire::ByteOrder>(3)); });

    refuses("bundle_adapter_is_certified", [](wire::Bundle& m) { m.clear_adapter(); });
    refuses("bundle_adapter_is_the_stages", [](wire::Bundle& m) { m.set_adapter("mistral"); });
    refuses("bundle_schema_is_the_stages", [](wire::Bundle& m) { m.clear_schema(); });
    refuses("bundle_tensor_is_the_stages", [](wire::Bundle& m) { m.set_tensor("logits"); });
    refuses("bundle_is_not_normalized", [](wire::Bundle& m) { m.set_normalized(true); });
    refuses("bundle_layer_is_the_stages", [](wire::Bundle& m) { m.clear_next_layer(); });
    refuses("bundle_profile_is_the_stages", [](wire::Bundle& m) { m.clear_profile(); });
    refuses("bundle_rank_is_the_stages", [](wire::Bundle& m) { m.clear_shape(); });
    refuses("bundle_rows_are_counted", [](wire::Bundle& m) { m.set_shape(0, std::numeric_limits<std::int64_t>::min()); });
    refuses("bundle_shape_is_the_stages", [](wire::Bundle& m) { m.set_shape(1, 5); });
    refuses("bundle_dtype_is_the_stages", [](wire::Bundle& m) { m.set_dtype("BF16"); });
    refuses("bundle_streams_are_the_stages", [](wire::Bundle& m) { m.clear_streams(); });
    refuses("bundle_row_offsets_begin_at_zero", [](wire::Bundle& m) { m.clear_row_offsets(); });
    refuses("bundle_row_offsets_ascend", [](wire::Bundle& m) { m.set_row_offsets(1, 0); });
    refuses("bundle_row_offsets_cover_the_rows", [](wire::Bundle& m) { m.set_row_offsets(2, 4); });
    refuses("bundle_positions_are_the_rows", [](wire::Bundle& m) { m.clear_positions(); });
    refuses("bundle_positions_follow_on", [](wire::Bundle& m) { m.set_positions(1, 9); });
    refuses("bundle_positions_fit_the_model", [](wire::Bundle& m) { m.set_positions(2, 32); });
    refuses("bundle_payload_is_the_shapes", [](wire::Bundle& m) { m.mutable_residual()->pop_back(); });
    refuses("bundle_values_are_finite", [](wire::Bundle& m) { m.mutable_residual()->replace(0, 4, 4, '\xff'); });

    std::printf("%d failed checks\n", failures);
    return failures == 0 ? 0 : 1;
}
