// --placement of every tool that takes a placement map, and the receipt of what was read.
// SPDX-License-Identifier: Apache-2.0
#pragma once
#include "tool_main.hpp"

#include <tenon/checkpoint/placement_json.hpp>

#include <CLI/CLI.hpp>

#include <nlohmann/json.hpp>

#include <optional>
#include <string>
#include <string_view>

namespace tools {

/// The option and its other name. Both may be given when they name one file.
class placement_option {
public:
    explicit placement_option(CLI::App& app) {
        option_ = app.add_option("--placement", path_, "which rank owns which expert: a map, as tenon-placement writes one")->type_name("MAP");
        alias_ = app.add_option("--expert-map", alias_path_, "the same as --placement")->type_name("MAP");
    }

    /// Reads the map, where one is asked for. Refuses with `placement_is_named`, `placement_is_named_once`, `placement_opens`, and with the
    /// laws of a map.
    void read() {
        std::string const name = option_->count() > 0 ? "--placement" : "--expert-map";
        if (option_->count() + alias_->count() == 0) return;
        if (option_->count() > 0 && alias_->count() > 0 && path_ != alias_path_)
            refuse("placement_is_named_once", "--placement is " + path_ + " and --expert-map is " + alias_path_ + "; one of them, or the same file in both, would do");
        if (option_->count() == 0) path_ = alias_path_;
        if (path_.empty()) refuse("placement_is_named", name + " is empty; the path of a map would do");
        try {
            map_ = tenon::read_placement_file(path_);
        } catch (tenon::refusal const& r) {
            if (r.law_name() != "file_opens") throw;
            refuse("placement_opens", name + " " + std::string(r.what()).substr(r.law_name().size() + 2));
        }
    }

    std::string const& path() const { return path_; }
    tenon::placement_map const* map() const { return map_ ? &*map_ : nullptr; }

private:
    std::string path_, alias_path_;
    CLI::Option *option_ = nullptr, *alias_ = nullptr;
    std::optional<tenon::placement_map> map_;
};

/// What was read, by the digest of the exact text.
inline nlohmann::ordered_json receipt_of(tenon::placement_map const& map, std::string_view path) {
    return {{"path", path}, {"sha256", map.sha256}, {"layers", map.layers.size()}, {"experts", map.experts}, {"ranks", map.ranks}, {"entry_rank", map.entry_rank}};
}

}  // namespace tools
