// A placement map as JSON text, read and written. Knows what holds within one map; whether it fits a model and a plan is for graph/ to say.
// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <tenon/checkpoint/json.hpp>
#include <tenon/checkpoint/mapped_file.hpp>
#include <tenon/checkpoint/sha256.hpp>
#include <tenon/core/config.hpp>
#include <tenon/core/error.hpp>
#include <tenon/core/law.hpp>
#include <tenon/detail/sort.hpp>
#include <tenon/device/concept.hpp>
#include <tenon/shard/placement_map.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace tenon::inline v0 {

/// What the text of a map says beside the placement: for people, and read by nobody. Each is a JSON value as it will stand there,
/// the keys inside it in the caller's order; what is empty is left out.
struct placement_notes {
    std::string_view strategy{}, traces{}, params{}, stats{};
};

namespace checkpoint::detail {

inline constexpr std::string_view placement_format = "tenon-expert-placement";
inline constexpr std::string_view placement_alias = "memra-ep-map-v1";  ///< another system's name for the same, without a version

template <class = void>
class basic_placement_reader;
using placement_reader = basic_placement_reader<>;  // lazy: instantiated by who uses it

/// Reads one map. Messages say where: "placement.json: layers[3].assignment[5] = 4; 0 to 3 would do".
template <class>
class basic_placement_reader {
public:
    basic_placement_reader(std::string_view text, std::string_view what) : what_(what), root_(json::parse(text, what)) {}

    placement_map read() {
        if (!root_.is(json::kind::object)) refuse("placement_is_an_object", "the text is " + json::show(root_), "an object");
        check_format();
        constexpr std::string_view known[]{"entry_rank", "expert_count", "format",   "layers", "params",
                                           "ranks",      "stats",        "strategy", "traces", "version"};
        constexpr std::string_view wanted[]{"entry_rank", "expert_count", "layers", "ranks"};
        check_keys(root_, "", known);
        check_presence(root_, "", wanted);
        read_counts();
        read_layers();
        return std::move(map_);
    }

private:
    using names = std::span<std::string_view const>;

    [[noreturn]] void refuse(std::string_view law, std::string const& seen, std::string const& remedy) const {
        tenon::v0::detail::refuse(law, std::string(what_) + ": " + seen + "; " + remedy + " would do");
    }

    static std::string listed(names list) {
        std::string text;
        for (std::string_view const name : list) text.append(text.empty() ? "" : ", ").append(name);
        return text;
    }
    static std::string range(std::int64_t least, std::int64_t most) { return std::to_string(least) + " to " + std::to_string(most); }

    void check_format() const {
        std::string const ours = json::quoted(placement_format), either = ours + " or " + json::quoted(placement_alias);
        json::value const *const format = root_.find("format"), *const version = root_.find("version");
        if (format == nullptr) refuse("placement_format_is_given", "format is missing", either);
        bool const alias = format->is(json::kind::string) && format->text == placement_alias;
        if (!alias && !(format->is(json::kind::string) && format->text == placement_format))
            refuse("placement_format_is_known", "format = " + json::show(*format), either);
        if (alias && version != nullptr)
            refuse("placement_alias_has_no_version", "version = " + json::show(*version) + " with format " + json::quoted(placement_alias),
                   "no version, or format " + ours);
        if (alias) return;
        if (version == nullptr) refuse("placement_version_is_known", "version is missing with format " + ours, "1");
        if (number(*version, "version", "1") != 1) refuse("placement_version_is_known", "version = " + version->text, "1");
    }

    void check_keys(json::value const& object, std::string const& where, names known) const {
        for (json::value const& member : object.children)
            if (std::find(known.begin(), known.end(), member.key) == known.end())
                refuse("placement_key_is_known", where + "the key " + json::quoted(member.key) + " is unknown", listed(known));
    }

    void check_presence(json::value const& object, std::string const& where, names wanted) const {
        std::string lacking;
        for (std::string_view const name : wanted)
            if (object.find(name) == nullptr) lacking.append(lacking.empty() ? "" : ", ").append(name);
        if (!lacking.empty()) refuse("placement_field_is_present", where + lacking + " missing", "each of " + listed(wanted));
    }

    /// An unsigned whole number, spelled as one.
    std::int64_t number(json::value const& v, std::string const& where, std::string const& remedy) const {
        std::optional<std::int64_t> const found = v.as_int64();
        if (!found || *found < 0)
            refuse("placement_number_is_whole", where + " = " + json::show(v), "a whole number in digits alone, " + remedy + ",");
        return *found;
    }

    void read_counts() {
        std::string const ranks_range = range(2, most_ranks_of_a_stage), experts_range = range(2, most_experts);
        std::int64_t const ranks = number(*root_.find("ranks"), "ranks", ranks_range);
        std::int64_t const experts = number(*root_.find("expert_count"), "expert_count", experts_range);
        std::int64_t const entry = number(*root_.find("entry_rank"), "entry_rank", "below ranks");
        std::string const spelled = "expert_count = " + std::to_string(experts);
        if (ranks < 2) refuse("placement_has_several_ranks", "ranks = " + std::to_string(ranks), ranks_range);
        if (ranks > most_ranks_of_a_stage) refuse("placement_ranks_fit", "ranks = " + std::to_string(ranks), ranks_range);
        if (experts == 0) refuse("placement_has_experts", spelled, experts_range);
        if (experts > most_experts) refuse("placement_experts_fit", spelled, experts_range);
        if (experts < ranks)
            refuse(name_of(law::every_rank_has_work), spelled + ", ranks = " + std::to_string(ranks),
                   "expert_count = " + range(ranks, most_experts));
        if (entry >= ranks)
            refuse("placement_entry_rank_exists", "entry_rank = " + std::to_string(entry) + ", ranks = " + std::to_string(ranks),
                   "entry_rank = " + range(0, ranks - 1));
        map_.ranks = static_cast<int>(ranks);
        map_.experts = static_cast<int>(experts);
        map_.entry_rank = static_cast<int>(entry);
    }

    void read_layers() {
        json::value const& list = *root_.find("layers");
        if (!list.is(json::kind::array)) refuse("placement_field_has_type", "layers = " + json::show(list), "an array of objects");
        if (list.children.empty()) refuse("placement_has_layers", "layers is empty", "an entry for every layer that routes experts");
        if (list.children.size() > static_cast<std::size_t>(most_layers))
            refuse("placement_layers_fit", "layers has " + std::to_string(list.children.size()) + " entries",
                   "at most " + std::to_string(most_layers));
        map_.layers.reserve(list.children.size());
        std::array<int, most_layers> entry_of{};  // of every layer, 1 + the entry that names it
        for (std::size_t i = 0; i < list.children.size(); ++i) {
            std::string const where = "layers[" + std::to_string(i) + "]";
            layer_placement const& placed = map_.layers.emplace_back(read_layer(list.children[i], where));
            int& entry = entry_of[static_cast<std::size_t>(placed.layer)];
            if (entry != 0)
                refuse("placement_layer_is_named_once",
                       where + ".layer = " + std::to_string(placed.layer) + ", as layers[" + std::to_string(entry - 1) + "].layer is",
                       "an entry for each layer once");
            entry = static_cast<int>(i) + 1;
        }
        tenon::v0::detail::sort(map_.layers,
                  [](layer_placement const& a, layer_placement const& b) { return a.layer < b.layer; });
    }

    layer_placement read_layer(json::value const& v, std::string const& where) const {
        if (!v.is(json::kind::object))
            refuse("placement_field_has_type", where + " = " + json::show(v), "an object of assignment and layer");
        constexpr std::string_view known[]{"assignment", "layer"};
        check_keys(v, where + ": ", known);
        check_presence(v, where + ": ", std::span(known).last(1));  // the other has a law of its own
        std::int64_t const layer = number(*v.find("layer"), where + ".layer", range(0, most_layers - 1));
        if (layer >= most_layers) refuse("placement_layers_fit", where + ".layer = " + std::to_string(layer), range(0, most_layers - 1));
        json::value const* const assignment = v.find("assignment");
        std::string const rank_of_each = "a rank for each of the " + std::to_string(map_.experts) + " experts";
        if (assignment == nullptr)
            refuse("placement_layer_has_assignment", where + ": assignment is missing from layer " + std::to_string(layer), rank_of_each);
        if (!assignment->is(json::kind::array))
            refuse("placement_field_has_type", where + ".assignment = " + json::show(*assignment), "an array with " + rank_of_each);
        if (assignment->children.size() != static_cast<std::size_t>(map_.experts))
            refuse(name_of(law::placement_names_every_expert),
                   where + ".assignment of layer " + std::to_string(layer) + " has " + std::to_string(assignment->children.size()) +
                       " entries",
                   rank_of_each);
        return {static_cast<int>(layer), read_owners(*assignment, where + ".assignment")};
    }

    std::vector<int> read_owners(json::value const& assignment, std::string const& where) const {
        std::vector<int> owners;
        owners.reserve(assignment.children.size());
        std::array<bool, most_ranks_of_a_stage> has_work{};
        std::string const remedy = range(0, map_.ranks - 1);
        for (std::size_t e = 0; e < assignment.children.size(); ++e) {
            std::string const element = where + "[" + std::to_string(e) + "]";
            std::int64_t const rank = number(assignment.children[e], element, remedy);
            if (rank >= map_.ranks) refuse(name_of(law::placement_rank_exists), element + " = " + std::to_string(rank), remedy);
            has_work[static_cast<std::size_t>(rank)] = true;
            owners.push_back(static_cast<int>(rank));
        }
        for (int r = 0; r < map_.ranks; ++r)
            if (!has_work[static_cast<std::size_t>(r)])
                refuse(name_of(law::every_rank_has_work), where + " gives rank " + std::to_string(r) + " no expert",
                       "an expert or more for each of the " + std::to_string(map_.ranks) + " ranks");
        return owners;
    }

    std::string_view what_;
    json::value root_;
    placement_map map_{};
};

}  // namespace checkpoint::detail

/// Reads the text of a map; `what` names it in messages. The layers may stand in any order and are returned ascending.
/// Refuses with the laws of json.hpp, and with `placement_is_an_object`, `placement_format_is_given`, `placement_format_is_known`,
/// `placement_version_is_known`, `placement_alias_has_no_version`, `placement_key_is_known`, `placement_field_is_present`,
/// `placement_field_has_type`, `placement_number_is_whole`, `placement_has_several_ranks`, `placement_ranks_fit`,
/// `placement_has_experts`, `placement_experts_fit`, `placement_entry_rank_exists`, `placement_has_layers`, `placement_layers_fit`,
/// `placement_layer_is_named_once`, `placement_layer_has_assignment`, `placement_names_every_expert`, `placement_rank_exists` and
/// `every_rank_has_work`.
template <class = void>
placement_map read_placement_map(std::string_view text, std::string_view what = "placement map") {
    placement_map map = checkpoint::detail::placement_reader(text, what).read();
    map.sha256 = checkpoint::sha256_of(text);
    return map;
}

/// Reads the file of a map. Refuses as above and with `file_opens`.
template <class = void>
placement_map read_placement_file(std::string const& path) {
    checkpoint::mapped_file const file(path);
    return read_placement_map(file.text(), path);
}

/// The text of a map, keys sorted and a layer a line: the same map and notes give the same bytes, and reading them gives the map.
/// Refuses with the names above what would not be read back, and notes that are no JSON.
template <class = void>
std::string render(placement_map const& map, placement_notes const& notes = {}) {
    std::string text = "{\n  \"entry_rank\": " + std::to_string(map.entry_rank) + ",\n  \"expert_count\": " + std::to_string(map.experts) +
                       ",\n  \"format\": \"" + std::string(checkpoint::detail::placement_format) + "\",\n  \"layers\": [";
    std::string_view separator = "\n    ";
    for (layer_placement const& placed : map.layers) {
        text.append(separator).append("{\"assignment\": [");
        for (std::size_t e = 0; e < placed.owners.size(); ++e) text.append(e == 0 ? "" : ", ").append(std::to_string(placed.owners[e]));
        text.append("], \"layer\": ").append(std::to_string(placed.layer)).append("}");
        separator = ",\n    ";
    }
    text += "\n  ]";
    auto const put = [&text](std::string_view key, std::string_view value) {
        if (value.empty()) return;
        checkpoint::json::parse(value, std::string(key).append(" of the map to be written"));
        text.append(",\n  \"").append(key).append("\": ").append(value);
    };
    put("params", notes.params);
    put("ranks", std::to_string(map.ranks));
    put("stats", notes.stats);
    put("strategy", notes.strategy);
    put("traces", notes.traces);
    text += ",\n  \"version\": 1\n}\n";
    if (read_placement_map(text, "the map to be written") != map)
        tenon::v0::detail::refuse("placement_layers_ascend",
                                  "the layers of the map to be written are not in order; ascending ones would do");
    return text;
}

}  // namespace tenon::inline v0
