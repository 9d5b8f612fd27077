// Which experts a router chose for every token of a run, as lines of text: what placements are measured from. A strict reader and the
// writer. Knows the format; knows no model and no placement.
// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <tenon/checkpoint/json.hpp>
#include <tenon/core/config.hpp>
#include <tenon/core/error.hpp>
#include <tenon/detail/deferred.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <iosfwd>
#include <limits>
#include <span>
#include <string>
#include <string_view>

namespace tenon::inline v0 {

/// What a trace counts with; its first line.
struct routing_shape {
    int experts = 0;  ///< E of every layer
    int chosen = 0;   ///< k, of one token
    bool operator==(routing_shape const&) const = default;
};

/// The choice of one token in one layer; a line.
struct routed_row {
    int layer = 0;                            ///< counted through the model, from 0
    std::int64_t sequence = 0, position = 0;  ///< of the token: the number of its sequence, and its place in that
    std::span<std::int32_t const> experts{};  ///< (k): ids, ascending
};

namespace checkpoint::detail {

inline constexpr std::string_view trace_magic = "tenon-routing-trace 1 experts=", trace_chosen = " chosen=";

/// The number that `text` spells in digits alone, without a leading zero; -1 when it is none or does not fit.
constexpr std::int64_t plain_number(std::string_view text) {
    if (text.empty() || text.size() > 19 || (text.size() > 1 && text[0] == '0')) return -1;
    std::uint64_t value = 0;
    for (char const c : text) {
        if (c < '0' || c > '9') return -1;
        value = 10 * value + static_cast<std::uint64_t>(c - '0');
    }
    return value <= static_cast<std::uint64_t>((std::numeric_limits<std::int64_t>::max)()) ? static_cast<std::int64_t>(value) : -1;
}

/// A line of a trace: "run.trace: line 7".
struct trace_place {
    std::string_view what{};
    std::int64_t line = 0;
};

/// What reader and writer refuse alike.
template <class = void>
struct trace_laws {
    [[noreturn]] static void refuse(std::string_view law, trace_place where, std::string const& seen, std::string const& remedy) {
        tenon::v0::detail::refuse(
            law, std::string(where.what) + ": line " + std::to_string(where.line) + ": " + seen + "; " + remedy + " would do");
    }

    static routing_shape checked(std::int64_t experts, std::int64_t chosen, trace_place where) {
        std::string const counted = "experts=" + std::to_string(experts);
        if (experts < 1 || experts > most_experts)
            refuse("routing_trace_shape_fits", where, counted, "1 to " + std::to_string(most_experts));
        if (chosen < 1 || chosen > experts)
            refuse("routing_trace_shape_fits", where, "chosen=" + std::to_string(chosen) + " of " + counted,
                   "chosen=1 to " + std::to_string(experts));
        return {static_cast<int>(experts), static_cast<int>(chosen)};
    }

    static void check_layer(std::int64_t layer, trace_place where) {
        if (layer >= most_layers)
            refuse("routing_trace_layer_fits", where, "layer " + std::to_string(layer), "0 to " + std::to_string(most_layers - 1));
    }

    static void check_expert(std::int64_t id, routing_shape shape, trace_place where) {
        if (id < 0 || id >= shape.experts)
            refuse("routing_trace_expert_exists", where, "expert " + std::to_string(id), "0 to " + std::to_string(shape.experts - 1));
    }

    static void check_order(std::int64_t before, std::int64_t id, trace_place where) {
        if (before == id)
            refuse("routing_trace_experts_are_distinct", where, "expert " + std::to_string(id) + " twice", "every expert once");
        if (before > id)
            refuse("routing_trace_experts_ascend", where, "expert " + std::to_string(id) + " after " + std::to_string(before),
                   "ascending ids");
    }
};

}  // namespace checkpoint::detail

template <class = void>
class basic_routing_trace_reader;
using routing_trace_reader = basic_routing_trace_reader<>;  // lazy: instantiated by who uses it

/// Reads the text of a trace line by line; holds one line. Refers to the text and to `what`, which names it in messages.
/// Refuses with the number of the line, and `routing_trace_header_is_known`, `routing_trace_shape_fits`, `routing_trace_line_ends`,
/// `routing_trace_number_is_plain`, `routing_trace_layer_fits`, `routing_trace_row_is_whole`, `routing_trace_expert_exists`,
/// `routing_trace_experts_are_distinct` or `routing_trace_experts_ascend`.
template <class Lazy>
class basic_routing_trace_reader {
public:
    basic_routing_trace_reader(std::string_view text, std::string_view what) : rest_(text), what_(what) {
        using namespace checkpoint::detail;
        std::string_view const line = take_line();
        std::size_t const magic = trace_magic.size(), cut = line.find(trace_chosen);
        bool const framed = line.substr(0, magic) == trace_magic && cut != std::string_view::npos && cut >= magic;
        std::int64_t const experts = framed ? plain_number(line.substr(magic, cut - magic)) : -1;
        std::int64_t const chosen = framed ? plain_number(line.substr(cut + trace_chosen.size())) : -1;
        if (experts < 0 || chosen < 0)
            laws::refuse("routing_trace_header_is_known", where(), "the line is " + checkpoint::json::quoted(line),
                         "\"" + std::string(trace_magic) + "E" + std::string(trace_chosen) + "K\"");
        shape_ = laws::checked(experts, chosen, where());
    }

    routing_shape shape() const noexcept { return shape_; }

    /// Reads one more line into `row`, whose ids stay until the next call; false when there is none.
    bool next(routed_row& row) {
        if (rest_.empty()) return false;
        std::string_view line = take_line();
        std::array<std::int64_t, 3> place{};
        std::size_t const wanted = place.size() + static_cast<std::size_t>(shape_.chosen);
        std::size_t count = 0;
        for (bool more = true; more; ++count) {
            std::int64_t const number = take_number(line, more, count);
            if (count < place.size())
                place[count] = number;
            else if (count < wanted)
                take_expert(count - place.size(), number);
        }
        if (count != wanted)
            laws::refuse(
                "routing_trace_row_is_whole", where(), std::to_string(count) + " numbers",
                std::to_string(wanted) + ", which are layer, sequence, position and " + std::to_string(shape_.chosen) + " experts,");
        laws::check_layer(place[0], where());
        row = {static_cast<int>(place[0]), place[1], place[2], std::span(ids_).first(static_cast<std::size_t>(shape_.chosen))};
        return true;
    }

private:
    using laws = checkpoint::detail::trace_laws<Lazy>;

    checkpoint::detail::trace_place where() const noexcept { return {what_, line_}; }

    std::string_view take_line() {
        ++line_;
        if (rest_.empty()) return {};
        std::size_t const end = rest_.find('\n');
        if (end == std::string_view::npos)
            laws::refuse("routing_trace_line_ends", where(), "the text ends inside the line", "a line feed at its end");
        std::string_view const line = rest_.substr(0, end);
        if (line.find('\r') != std::string_view::npos)
            laws::refuse("routing_trace_line_ends", where(), "the line has a carriage return", "a line feed alone at its end");
        rest_.remove_prefix(end + 1);
        return line;
    }

    /// The number that the line begins with, which is cut off it; `more` becomes whether a space followed.
    std::int64_t take_number(std::string_view& line, bool& more, std::size_t count) const {
        constexpr std::string_view names[]{"layer", "sequence", "position", "expert"};
        std::size_t const space = line.find(' ');
        more = space != std::string_view::npos;
        std::string_view const word = line.substr(0, space);
        line.remove_prefix(more ? space + 1 : line.size());
        std::int64_t const number = checkpoint::detail::plain_number(word);
        if (number < 0)
            laws::refuse("routing_trace_number_is_plain", where(),
                         "the " + std::string(names[count < 3 ? count : 3]) + " is " + checkpoint::json::quoted(word),
                         "a number below 2^63 in digits alone, one space from the next,");
        return number;
    }

    void take_expert(std::size_t slot, std::int64_t id) {
        laws::check_expert(id, shape_, where());
        if (slot > 0) laws::check_order(ids_[slot - 1], id, where());
        ids_[slot] = static_cast<std::int32_t>(id);
    }

    std::string_view rest_, what_;
    routing_shape shape_{};
    std::int64_t line_ = 0;
    std::array<std::int32_t, most_experts> ids_{};
};

template <class = void>
class basic_routing_trace_writer;
using routing_trace_writer = basic_routing_trace_writer<>;  // lazy, as above: whoever writes includes <ostream>

/// Writes a trace that the reader above reads: its first line when it is made, then one line a row, in whatever order they come.
/// Refers to the stream. Refuses with the reader's names what the reader would refuse, and with `file_is_written` when the stream
/// takes no more.
template <class Lazy>
class basic_routing_trace_writer {
public:
    using stream = detail::deferred<Lazy, std::ostream>;

    basic_routing_trace_writer(stream& out, routing_shape shape) : out_(out), shape_(laws::checked(shape.experts, shape.chosen, where())) {
        put(std::string(checkpoint::detail::trace_magic) + std::to_string(shape.experts) + std::string(checkpoint::detail::trace_chosen) +
            std::to_string(shape.chosen) + "\n");
    }

    void write(routed_row const& row) {
        std::string text;
        for (std::int64_t const number : {std::int64_t{row.layer}, row.sequence, row.position}) {
            if (number < 0)
                laws::refuse("routing_trace_number_is_plain", where(), "a layer, sequence or position is " + std::to_string(number),
                             "0 or more");
            text.append(text.empty() ? "" : " ").append(std::to_string(number));
        }
        laws::check_layer(row.layer, where());
        if (row.experts.size() != static_cast<std::size_t>(shape_.chosen))
            laws::refuse("routing_trace_row_is_whole", where(), std::to_string(row.experts.size()) + " experts",
                         std::to_string(shape_.chosen));
        for (std::size_t i = 0; i < row.experts.size(); ++i) {
            laws::check_expert(row.experts[i], shape_, where());
            if (i > 0) laws::check_order(row.experts[i - 1], row.experts[i], where());
            text.append(" ").append(std::to_string(row.experts[i]));
        }
        put(text + "\n");
    }

    /// Flushes the stream: a disk may be full only now.
    void finish() {
        out_.flush();
        check_stream();
    }

private:
    using laws = checkpoint::detail::trace_laws<Lazy>;

    checkpoint::detail::trace_place where() const noexcept { return {"the routing trace to be written", line_}; }

    void put(std::string const& line) {
        out_.write(line.data(), static_cast<std::ptrdiff_t>(line.size()));
        check_stream();
        ++line_;
    }
    void check_stream() const {
        if (!out_) laws::refuse("file_is_written", where(), "the stream takes no more", "a file on a device with room");
    }

    std::int64_t line_ = 1;
    stream& out_;
    routing_shape shape_;
};

}  // namespace tenon::inline v0
