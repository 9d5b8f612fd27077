// tenon-placement: makes a placement map from routing traces, and says what it is worth against the even split. Reads no model.
// SPDX-License-Identifier: Apache-2.0
#include "placement_strategies.hpp"
#include "tool_main.hpp"

#include <tenon/checkpoint/mapped_file.hpp>
#include <tenon/checkpoint/placement_json.hpp>
#include <tenon/checkpoint/routing_trace.hpp>
#include <tenon/checkpoint/sha256.hpp>

#include <nlohmann/json.hpp>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <iostream>
#include <map>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

namespace {

/// The most that the fullest rank may have, as a multiple of the mean: a decimal number, kept exactly.
struct balance_bound {
    std::int64_t millionths = 1'100'000;

    static balance_bound from(std::string_view text) {
        std::size_t const point = std::min(text.find('.'), text.size());
        std::string_view const whole = text.substr(0, point), part = text.substr(std::min(point + 1, text.size()));
        constexpr std::string_view digits = "0123456789";
        bool const plain = !whole.empty() && (point == text.size()) == part.empty() && (std::string(whole) += part).find_first_not_of(digits) == std::string::npos;
        if (!plain || whole.size() > 6 || part.size() > 6)
            throw CLI::ValidationError("--balance", "\"" + std::string(text) + "\" is not a number such as 1.25, with at most six digits before and after the point");
        std::string const scaled = std::string(whole).append(part).append(6 - part.size(), '0');
        return {tools::number_of<std::int64_t>(scaled, "--balance")};
    }

    /// Routed rows that one rank may have: floor(bound rows / ranks). Divides first: the product need not fit.
    std::int64_t of(std::int64_t rows, int ranks) const {
        std::int64_t const unit = std::int64_t{1'000'000} * ranks;
        return rows / unit * millionths + rows % unit * millionths / unit;
    }

    double value() const { return static_cast<double>(millionths) / 1e6; }
};

struct options {
    std::vector<std::string> traces{};
    std::string strategy{}, balance = "1.1", layers{}, out{};
    int ranks = 0, experts = 0;
    bool has_experts = false, has_layers = false, json = false;
};

/// What all traces say together.
struct measured {
    tenon::routing_shape shape{};
    std::map<int, tools::layer_traffic> layers{};
    nlohmann::json traces = nlohmann::json::array();  ///< of each: its name without folders, its rows, its digest
};

std::string spelled(tenon::routing_shape shape) { return "experts=" + std::to_string(shape.experts) + " chosen=" + std::to_string(shape.chosen); }

/// Counts one trace more. Refuses one of another shape than the first, whose path is `first`.
void add_trace(measured& all, std::string const& path, std::string const& first) {
    tenon::checkpoint::mapped_file const file(path);
    tenon::routing_trace_reader reader(file.text(), path);
    if (all.traces.empty()) all.shape = reader.shape();
    if (reader.shape() != all.shape)
        tools::refuse("traces_agree", path + " says " + spelled(reader.shape()) + ", " + first + " says " + spelled(all.shape) + "; traces of one model would do");
    std::int64_t rows = 0;
    for (tenon::routed_row row; reader.next(row); ++rows) all.layers.try_emplace(row.layer, all.shape.experts).first->second.add(row.experts);
    all.traces.push_back({{"file", path.substr(path.find_last_of('/') + 1)}, {"rows", rows}, {"sha256", tenon::checkpoint::sha256_of(file.text())}});
}

/// The layers of "0-3,7": ascending.
std::vector<int> layers_of(std::string_view list) {
    auto const wrong = [list](std::string const& why) { throw CLI::ValidationError("--layers", "\"" + std::string(list) + "\" " + why); };
    std::vector<int> layers;
    for (std::size_t at = 0; at <= list.size();) {
        std::size_t const comma = std::min(list.find(',', at), list.size());
        std::string_view const part = list.substr(at, comma - at);
        std::size_t const dash = part.find('-');
        int const first = tools::number_of<int>(part.substr(0, dash), "--layers");
        int const last = dash == std::string_view::npos ? first : tools::number_of<int>(part.substr(dash + 1), "--layers");
        if (first < 0 || last < first || (!layers.empty() && first <= layers.back())) wrong("does not ascend; layers such as 0-3,7 would do");
        if (last >= tenon::most_layers)
            tools::refuse("placement_layers_fit", "--layers names layer " + std::to_string(last) + "; 0 to " + std::to_string(tenon::most_layers - 1) + " would do");
        for (int layer = first; layer <= last; ++layer) layers.push_back(layer);
        at = comma + 1;
    }
    return layers;
}

/// The traffic of every layer: from the traces, or none in the layers that the options name.
measured traffic_of(options const& asked) {
    measured all;
    if (asked.traces.empty()) {
        if (asked.strategy != "even") tools::refuse("traces_are_given", "--strategy " + asked.strategy + " measures; --traces FILE would do");
        if (!asked.has_experts || !asked.has_layers)
            tools::refuse("placement_shape_is_given", "without --traces nothing says what is placed; --traces FILE, or --experts E and --layers FIRST-LAST, would do");
        if (asked.experts < 1 || asked.experts > tenon::most_experts)
            tools::refuse("placement_experts_fit", "--experts is " + std::to_string(asked.experts) + "; 2 to " + std::to_string(tenon::most_experts) + " would do");
        all.shape.experts = asked.experts;
        for (int const layer : layers_of(asked.layers)) all.layers.try_emplace(layer, asked.experts);
        return all;
    }
    if (asked.has_experts || asked.has_layers)
        tools::refuse("placement_shape_is_given_once", "the traces say the experts and the layers; --traces without --experts and --layers would do");
    for (std::string const& path : asked.traces) add_trace(all, path, asked.traces.front());
    if (all.layers.empty()) tools::refuse("traces_have_rows", asked.traces.front() + " has no row, nor has any other; the trace of a run that reads tokens would do");
    return all;
}

/// What one layer's map is worth, and the even split; or what all layers' are.
struct comparison {
    std::int64_t rows = 0, pairs = 0;
    tools::placement_worth map{}, even{};
    bool within_bound = true;

    comparison& operator+=(comparison const& other) {
        rows += other.rows;
        pairs += other.pairs;
        map.fullest += other.map.fullest;
        map.together += other.map.together;
        even.fullest += other.even.fullest;
        even.together += other.even.together;
        within_bound = within_bound && other.within_bound;
        return *this;
    }
};

/// A part of a whole to six decimals; nothing of nothing.
nlohmann::json share(std::int64_t part, std::int64_t whole) {
    if (whole == 0) return nullptr;
    return std::round(1e6 * static_cast<double>(part) / static_cast<double>(whole)) / 1e6;
}

nlohmann::json json_of(comparison const& c, bool bounded) {
    nlohmann::json out{{"rows", c.rows},
                       {"pairs", c.pairs},
                       {"largest_load", {{"map", share(c.map.fullest, c.rows)}, {"even", share(c.even.fullest, c.rows)}}},
                       {"same_rank", {{"map", share(c.map.together, c.pairs)}, {"even", share(c.even.together, c.pairs)}}}};
    if (bounded) out["within_bound"] = c.within_bound;
    return out;
}

/// A map that is made, and what it is worth, layer by layer.
class minting {
public:
    minting(options const& asked, measured const& all) : asked_(&asked), all_(&all), bound_(balance_bound::from(asked.balance)) {
        map_.ranks = asked.ranks;
        map_.experts = all.shape.experts;
        for (auto const& [layer, traffic] : all.layers) map_.layers.push_back({layer, tools::even_split(map_.experts, map_.ranks)});
        render(map_);  // refuses ranks and experts that no map has
        if (bounded() && (bound_.millionths < 1'000'000 || bound_.millionths > std::int64_t{1'000'000} * asked.ranks))
            tools::refuse("balance_is_a_bound", "--balance is " + asked.balance + "; 1 to " + std::to_string(asked.ranks) + ", the ranks, would do");
        for (tenon::layer_placement& placed : map_.layers) place(placed, all.layers.at(placed.layer));
    }

    tenon::placement_map const& map() const { return map_; }
    std::vector<comparison> const& layers() const { return layers_; }
    comparison const& total() const { return total_; }
    bool bounded() const { return asked_->strategy == "coactivation"; }

    nlohmann::json stats() const {
        nlohmann::json out{{"layers", nlohmann::json::array()}, {"total", json_of(total_, bounded())}};
        for (std::size_t i = 0; i < layers_.size(); ++i) {
            out["layers"].push_back(json_of(layers_[i], bounded()));
            out["layers"].back()["layer"] = map_.layers[i].layer;
        }
        return out;
    }

    /// The text of the map: the same for the same traces in the same order, wherever they lie.
    std::string text() const {
        std::string const strategy = dumped(asked_->strategy), params = dumped({{"balance", bound_.value()}}), traces = dumped(all_->traces), worth = dumped(stats());
        bool const traced = !all_->traces.empty();
        return render(map_, {.strategy = strategy, .traces = traced ? traces : "", .params = bounded() ? params : "", .stats = traced ? worth : ""});
    }

    static std::string dumped(nlohmann::json const& value) { return value.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace); }

private:
    void place(tenon::layer_placement& placed, tools::layer_traffic const& traffic) {
        comparison c{.rows = traffic.rows(), .pairs = traffic.pairs(), .even = tools::worth_of(traffic, placed.owners, map_.ranks)};
        std::int64_t const bound = bound_.of(c.rows, map_.ranks);
        if (asked_->strategy != "even") placed.owners = tools::by_frequency(traffic, map_.ranks);
        if (bounded()) {
            std::int64_t const least = tools::worth_of(traffic, placed.owners, map_.ranks).fullest;  // a bound below it would leave nothing
            placed.owners = tools::by_coactivation(traffic, map_.ranks, std::max(bound, least));
        }
        c.map = tools::worth_of(traffic, placed.owners, map_.ranks);
        c.within_bound = !bounded() || c.map.fullest <= bound;
        layers_.push_back(c);
        total_ += c;
    }

    options const* asked_;
    measured const* all_;
    balance_bound bound_;
    tenon::placement_map map_{};
    std::vector<comparison> layers_{};
    comparison total_{};
};

/// Writes a file that is there whole or not at all: beside its place, then renamed.
void write_whole(std::string const& path, std::string_view text) {
    struct ::stat facts {};
    if (::lstat(path.c_str(), &facts) == 0 && !S_ISREG(facts.st_mode)) throw std::runtime_error("--out: " + path + " is not a regular file");
    std::string const draft = path + "." + std::to_string(::getpid()) + ".tmp";
    int const file = ::open(draft.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    int error = file < 0 ? errno : 0;
    while (error == 0 && !text.empty()) {
        ::ssize_t const put = ::write(file, text.data(), text.size());
        if (put >= 0) text.remove_prefix(static_cast<std::size_t>(put));
        else if (errno != EINTR) error = errno;
    }
    if (error == 0 && ::fsync(file) != 0) error = errno;
    if (file >= 0 && ::close(file) != 0 && error == 0) error = errno;
    if (error == 0 && std::rename(draft.c_str(), path.c_str()) != 0) error = errno;
    if (error == 0) return;
    if (file >= 0) ::unlink(draft.c_str());
    throw std::runtime_error("--out: " + path + " cannot be written: " + std::strerror(error));
}

/// To the width of a column, from the left.
std::string column(std::string const& text, std::size_t width) { return std::string(width - std::min(width, text.size()), ' ') + text; }

std::string decimals(std::int64_t part, std::int64_t whole) {
    if (whole == 0) return "-";
    std::array<char, 64> digits{};
    auto const end = std::to_chars(digits.data(), digits.data() + digits.size(), static_cast<double>(part) / static_cast<double>(whole), std::chars_format::fixed, 4);
    return {digits.data(), end.ptr};
}

std::string row_of(std::string const& name, comparison const& c) {
    return column(name, 5) + column(std::to_string(c.rows), 12) + column(decimals(c.map.fullest, c.rows), 10) + column(decimals(c.even.fullest, c.rows), 10) +
           column(std::to_string(c.pairs), 12) + column(decimals(c.map.together, c.pairs), 10) + column(decimals(c.even.together, c.pairs), 10);
}

void print(minting const& made) {
    std::cout << "                    largest rank load                     same-rank pairs\n"
                 "layer        rows       map      even       pairs       map      even\n";
    for (std::size_t i = 0; i < made.layers().size(); ++i) {
        comparison const& c = made.layers()[i];
        std::cout << row_of(std::to_string(made.map().layers[i].layer), c) << (c.within_bound ? "\n" : "  over the bound\n");
    }
    std::cout << row_of("all", made.total()) << "\n\n";
}

void run(options const& asked) {
    measured const all = traffic_of(asked);
    minting const made(asked, all);
    std::string const text = made.text(), digest = tenon::checkpoint::sha256_of(text);
    if (!asked.out.empty()) write_whole(asked.out, text);
    if (asked.json) {
        nlohmann::json report = made.stats();
        report["strategy"] = asked.strategy;
        report["ranks"] = made.map().ranks;
        report["experts"] = made.map().experts;
        report["sha256"] = digest;
        std::cout << minting::dumped(report) << '\n';
        return;
    }
    if (!asked.traces.empty()) print(made);
    std::cout << "strategy = " << asked.strategy << ", layers = " << made.layers().size() << ", experts = " << made.map().experts << ", ranks = " << made.map().ranks
              << ", entry rank = " << made.map().entry_rank << "\nsha256 = " << digest << '\n';
}

}  // namespace

int main(int argc, char** argv) {
    return tools::exit_status("Makes a placement map from routing traces, and compares it with the even split.", "tenon-placement", [&](CLI::App& app) {
        options asked;
        app.add_option("--traces", asked.traces, "what tenon-run --trace-routing wrote; several after it or the option several times")
            ->type_name("FILE")->expected(1, 1'000'000)->allow_extra_args(false);
        tools::add_number(app, "--ranks", asked.ranks, "ranks of the stages that the map is for")->required();
        app.add_option("--strategy", asked.strategy, "how experts are placed")
            ->check(CLI::IsMember(std::vector<std::string>{"even", "frequency", "coactivation"}))->required();
        CLI::Option const* const balance = app.add_option("--balance", asked.balance, "most rows of a rank over the mean, for coactivation")->type_name("NUMBER")->capture_default_str();
        CLI::Option const* const experts = tools::add_number(app, "--experts", asked.experts, "of one layer, for an even map without traces");
        CLI::Option const* const layers = app.add_option("--layers", asked.layers, "that route experts, 0-3,7, for an even map without traces")->type_name("LIST");
        CLI::Option const* const out = app.add_option("--out", asked.out, "the map; without it the comparison alone is made")->type_name("FILE");
        app.add_flag("--json", asked.json, "print one JSON object");
        app.parse(argc, argv);
        if (out->count() > 0 && asked.out.empty()) throw CLI::ValidationError("--out", "the path is empty");
        if (balance->count() > 0 && asked.strategy != "coactivation")
            tools::refuse("balance_bounds_coactivation", "--strategy " + asked.strategy + " takes no --balance; --strategy coactivation would do");
        asked.has_experts = experts->count() > 0;
        asked.has_layers = layers->count() > 0;
        run(asked);
    });
}
