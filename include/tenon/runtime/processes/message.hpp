// What a host and its workers say to each other: kinds of message, and values as bytes in this machine's own layout, since both sides are
// one build on one machine. Reading trusts nothing: whatever is too short, too long or left over is refused by name.
// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <tenon/core/error.hpp>
#include <tenon/runtime/census.hpp>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

namespace tenon::inline v0::detail {

/// The first of a message's bytes. A worker answers every command once, with `done`, `failed` or what it was asked for, then `done`.
enum class message_kind : std::uint32_t {
    hello,        ///< both: who they are
    build,        ///< host: the part that the worker is to build and load
    loaded,       ///< worker: one more slice has been read
    forward,      ///< host: run a batch
    reserve,      ///< host: room for a sequence
    forget,       ///< host: sequences that are no more
    counts,       ///< both: the census of the worker's ranks
    weigh,        ///< both: bytes of weights, rank by rank
    pieces,       ///< both: the slices that the worker's ranks hold
    read_layer,   ///< both: keys and values of a sequence
    write_layer,  ///< host
    done,         ///< worker
    failed,       ///< worker: the name of a law, and a sentence
    nudge,        ///< both: something lies in shared memory, for one that sleeps; no command and no answer
};
inline constexpr std::uint32_t last_message_kind = static_cast<std::uint32_t>(message_kind::nudge);

/// The same in every build, as the number of `hello` is: what another build says of itself must be heard.
struct message_header {
    std::uint32_t magic = 0x4e4e5431;  // "1TNN"
    message_kind kind = message_kind::hello;
    std::uint64_t bytes = 0;  ///< of the payload
};
inline constexpr std::uint64_t most_message_bytes = std::uint64_t{1} << 40;
inline constexpr std::size_t piece_bytes = std::size_t{16} << 20;  ///< of one slice in a message, at most, where a row is not more

/// Refuses a header that no tenon sends, and a payload longer than any.
inline void check_header(message_header const& h) {
    if (h.magic != message_header{}.magic || static_cast<std::uint32_t>(h.kind) > last_message_kind)
        refuse("worker_message_is_known",
               "a message begins with " + std::to_string(h.magic) + ", kind " + std::to_string(static_cast<std::uint32_t>(h.kind)) + "; " +
                   std::to_string(message_header{}.magic) + " and a kind up to " + std::to_string(last_message_kind) + " would do");
    if (h.bytes > most_message_bytes)
        refuse("worker_message_fits",
               "a message says that it has " + std::to_string(h.bytes) + " bytes; " + std::to_string(most_message_bytes) + " would do");
}

/// What crosses as its own bytes: nothing lies between its members, which would be whatever the sender's memory held.
template <class T>
inline constexpr bool is_all_value = std::is_trivially_copyable_v<T> &&
                                     (std::has_unique_object_representations_v<T> || std::is_floating_point_v<T>);

/// Values, one after the other.
class byte_writer {
public:
    template <class T>
    byte_writer& put(T const& value) {
        static_assert(is_all_value<T>);
        return append(&value, sizeof value);
    }
    template <class T>
    byte_writer& list(std::span<T const> values) {
        static_assert(is_all_value<T>);
        put(static_cast<std::uint64_t>(values.size()));
        return append(values.data(), values.size() * sizeof(T));
    }
    byte_writer& text(std::string_view s) { return list(std::span<char const>(s.data(), s.size())); }
    std::span<std::byte const> bytes() const { return bytes_; }
    void clear() { bytes_.clear(); }

private:
    byte_writer& append(void const* from, std::size_t count) {
        if (count == 0) return *this;
        std::size_t const at = bytes_.size();
        bytes_.resize(at + count);
        std::memcpy(bytes_.data() + at, from, count);
        return *this;
    }
    std::vector<std::byte> bytes_;
};

/// The same, read back.
class byte_reader {
public:
    explicit byte_reader(std::span<std::byte const> bytes) : left_(bytes) {}

    template <class T>
    T take() {
        static_assert(is_all_value<T>);
        T value;
        std::memcpy(static_cast<void*>(&value), some(sizeof value).data(), sizeof value);
        return value;
    }
    template <class T>
    std::vector<T> list() {
        std::vector<T> values;
        list(values);
        return values;
    }
    /// Into a list that may have the room.
    template <class T>
    void list(std::vector<T>& values) {
        static_assert(is_all_value<T>);
        auto const count = take<std::uint64_t>();
        if (count > left_.size() / sizeof(T)) short_of(count * sizeof(T));
        values.resize(static_cast<std::size_t>(count));
        if (count > 0) std::memcpy(static_cast<void*>(values.data()), some(values.size() * sizeof(T)).data(), values.size() * sizeof(T));
    }
    std::string text() {
        std::vector<char> const s = list<char>();
        return {s.begin(), s.end()};
    }
    bool flag() { return one_of<std::uint8_t>(1) != 0; }
    /// An enumerator, or a small number, up to `last`: other bytes would be none.
    template <class T>
    T one_of(T last) {
        using number =
            std::make_unsigned_t<typename std::conditional_t<std::is_enum_v<T>, std::underlying_type<T>, std::type_identity<T>>::type>;
        auto const given = take<number>();
        if (given > static_cast<number>(last))
            refuse("worker_message_is_whole",
                   std::to_string(given) + " is given; 0 to " + std::to_string(static_cast<number>(last)) + " would do");
        return static_cast<T>(given);
    }
    std::span<std::byte const> some(std::size_t count) {
        if (count > left_.size()) short_of(count);
        std::span<std::byte const> const taken = left_.first(count);
        left_ = left_.subspan(count);
        return taken;
    }
    void end() const {
        if (!left_.empty()) refuse("worker_message_is_whole", std::to_string(left_.size()) + " bytes are left over; none would do");
    }

private:
    [[noreturn]] void short_of(std::uint64_t wanted) const {
        refuse("worker_message_is_whole", std::to_string(left_.size()) + " bytes are left; " + std::to_string(wanted) + " would do");
    }
    std::span<std::byte const> left_;
};

/// What a rank did for the experts of its layers, number by number.
inline void write(byte_writer& out, std::vector<expert_census> const& experts) {
    out.put(static_cast<std::uint64_t>(experts.size()));
    for (expert_census const& e : experts) out.put(e.layer).put(e.dispatched_rows).put(e.returned_rows).put(e.bytes).put(e.experts);
}
inline std::vector<expert_census> read_experts(byte_reader& in) {
    std::vector<expert_census> experts;
    for (auto left = in.take<std::uint64_t>(); left > 0; --left) {
        expert_census& e = experts.emplace_back();
        e.layer = in.take<int>();
        for (std::int64_t* const count : {&e.dispatched_rows, &e.returned_rows, &e.bytes, &e.experts}) *count = in.take<std::int64_t>();
    }
    return experts;
}

}  // namespace tenon::inline v0::detail
