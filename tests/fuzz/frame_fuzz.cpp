// Any bytes as a frame: a bundle that packs to the same bytes, or a refusal; and a contract that a taken bundle keeps.
// SPDX-License-Identifier: Apache-2.0
#include "mutate.hpp"

#include <tenon/boundary/contract.hpp>
#include <tenon/boundary/frame.hpp>

#include <vector>

using namespace tenon::boundary;

namespace {

// What a stage relies on when it indexes.
bool keeps_its_contract(bundle const& b, contract const& c) {
    std::size_t const rows = b.positions.size(), sequences = b.row_offsets.size() - 1;
    bool whole =
        b.residual.size() == rows * static_cast<std::size_t>(c.hidden) && b.row_offsets[sequences] == static_cast<std::int64_t>(rows);
    for (std::size_t s = 0; whole && s < sequences; ++s)
        for (std::int64_t row = b.row_offsets[s]; whole && row < b.row_offsets[s + 1]; ++row) {
            std::int64_t const position = b.positions[static_cast<std::size_t>(row)],
                               first = b.positions[static_cast<std::size_t>(b.row_offsets[s])];
            whole = position == first + row - b.row_offsets[s] && position >= 0 && position < c.max_positions;
        }
    for (float const x : b.residual) whole = whole && x - x == 0.0f;
    return whole;
}

void read(std::span<std::byte const> frame, frame_limits const& limits) {
    fuzz::refusing([frame, &limits] {
        if (frame_length(frame.first(std::min(frame.size(), frame_preamble_bytes)), limits) > limits.bytes) std::abort();
        bundle const b = unpack(frame, limits);
        bundle_view view = b;
        std::vector<std::byte> payload;
        if (frame[45] != static_cast<std::byte>(native_order)) {  // written again as it came: the payload's own bytes
            payload.assign(frame.end() - 4 - static_cast<std::ptrdiff_t>(view.residual.size()), frame.end() - 4);
            view.order = static_cast<byte_order>(frame[45]);
            view.residual = payload;
        }
        fuzz::never_refusing([&] {
            std::vector<std::byte> const again = pack(view, limits);
            if (!std::equal(again.begin(), again.end(), frame.begin(), frame.end()) || !(unpack(again, limits) == b)) std::abort();
        });
        for (std::int64_t const hidden : {1, 4}) {
            contract const c{.first_layer = 2, .hidden = hidden, .max_positions = 64};
            if (find_fault(view, c) != find_fault(b, c)) std::abort();  // whatever the byte order
            fuzz::refusing([&] {
                check(b, c, std::span<std::int64_t const>(b.positions).first(std::min<std::size_t>(b.positions.size(), 3)));
                if (!keeps_its_contract(b, c)) std::abort();
            });
            if (!find_fault(b, c) && !keeps_its_contract(b, c)) std::abort();
        }
    });
}

void put(std::vector<std::byte>& frame, std::size_t at, std::uint64_t value, std::size_t size) {
    for (std::size_t i = 0; i < size; ++i) frame[at + i] = static_cast<std::byte>(value >> 8 * i & 255U);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(std::uint8_t const* data, std::size_t size) {
    constexpr std::uint64_t most = ~std::uint64_t{0};
    auto const input = std::as_bytes(std::span<std::uint8_t const>(data, size));
    read(input, {});
    if (size < 36) return 0;
    // The same bytes with checksums that hold; and with a payload of what is left, so that most of them get to the fields.
    std::vector<std::byte> frame(input.begin(), input.end());
    for (bool const sized : {false, true}) {
        std::uint64_t const head = std::to_integer<std::uint64_t>(frame[12]) | std::to_integer<std::uint64_t>(frame[13]) << 8U;
        if (sized && head + 4 <= size) put(frame, 16, size - 4 - head, 8), put(frame, 14, 0, 2);
        put(frame, 28, tenon::crc32c_of(std::span(frame).first(28)), 4);
        put(frame, size - 4, tenon::crc32c_of(std::span(frame).first(size - 4)), 4);
        read(frame, {});
        read(frame, {most, most, most, most});
    }
    return 0;
}

#ifdef TENON_FUZZ_MAIN
int main(int count, char** arguments) {
    std::vector<std::byte> const no_rows = pack({});
    std::string const seeds[]{{reinterpret_cast<char const*>(no_rows.data()), no_rows.size()}};
    using namespace std::string_view_literals;
    std::string_view const words[]{"\x89TENON\r\n"sv,
                                   "\x01\x00\x00\x00"sv,
                                   "\x02\x00\x00\x00"sv,
                                   "\x00"sv,
                                   "\x00\x00\x00\x00\x00\x00\x00\x00"sv,
                                   "\x01\x00\x00\x00\x00\x00\x00\x00"sv,
                                   "\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF"sv,
                                   "\xFF\xFF\xFF\xFF\xFF\xFF\xFF\x7F"sv,
                                   "\x00\x00\x00\x00\x00\x00\x00\x80"sv,
                                   "\x00\x00\x00\x00\x00\x00\x00\x20"sv,
                                   "\xFF\xFF\xFF\xFF"sv,
                                   "F32\0\0\0\0\0"sv,
                                   "BF16\0\0\0\0"sv,
                                   "F64\0\0\0\0\0"sv,
                                   "F8_E4M3\0"sv,
                                   "BOOL\0\0\0\0"sv,
                                   "\x00\x00\x80\x7F"sv,
                                   "\x7F\x80\x00\x00"sv,
                                   "llama"sv,
                                   "residual_stream"sv,
                                   "canonical_1"sv};
    return fuzz::run(count, arguments, LLVMFuzzerTestOneInput, seeds, words, 200'000);
}
#endif
