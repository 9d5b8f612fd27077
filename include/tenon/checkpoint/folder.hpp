// A checkpoint folder: which files hold its tensors, and that together they hold each once. Knows file names and the index;
// does not know which tensors a model needs.
// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <tenon/checkpoint/json.hpp>
#include <tenon/checkpoint/mapped_file.hpp>
#include <tenon/checkpoint/safetensors.hpp>
#include <tenon/core/error.hpp>
#include <tenon/detail/deferred.hpp>
#include <tenon/detail/sort.hpp>

#include <dirent.h>
#include <sys/stat.h>
#include <algorithm>
#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace tenon::inline v0::checkpoint {

namespace detail {

inline constexpr std::string_view single_name = "model.safetensors", index_name = "model.safetensors.index.json";

/// Whether the folder has an entry of that name. A link to nowhere counts, so that it is not passed over: opening it says what is wrong.
inline bool has_entry(std::string const& directory, std::string_view name) {
    struct ::stat facts {};
    return ::lstat((directory + "/" + std::string(name)).c_str(), &facts) == 0;
}

/// Whether there is a file behind that name: a link to nowhere, as an unfinished download leaves it, does not count.
inline bool has_file(std::string const& directory, std::string_view name) {
    struct ::stat facts {};
    return ::stat((directory + "/" + std::string(name)).c_str(), &facts) == 0;
}

/// The names in a folder that end in .safetensors, sorted. Refuses with `checkpoint_folder_opens`.
template <class Lazy = void>
std::vector<std::string> safetensors_names(std::string const& directory) {
    ::DIR* const folder = ::opendir(directory.c_str());
    if (folder == nullptr)
        tenon::v0::detail::refuse("checkpoint_folder_opens", directory + ": " + std::strerror(errno) + "; a folder with config.json and " +
                                                                 std::string(single_name) + " would do");
    tenon::v0::detail::deferred<Lazy, std::vector<std::string>> names;
    constexpr std::string_view ending = ".safetensors";
    while (::dirent const* const entry = ::readdir(folder)) {
        std::string_view const name = entry->d_name;
        if (name.size() > ending.size() && name.substr(name.size() - ending.size()) == ending) names.emplace_back(name);
    }
    ::closedir(folder);
    tenon::v0::detail::sort(names);
    return names;
}

/// "a, b, c, d, e and 7 more"
template <class = void>
std::string first_five(std::span<std::string const> names) {
    std::string text;
    for (std::size_t i = 0; i < names.size() && i < 5; ++i) text += (i == 0 ? "" : ", ") + names[i];
    return names.size() > 5 ? text + " and " + std::to_string(names.size() - 5) + " more" : text;
}

struct placement {
    std::string name{};  ///< of a tensor
    std::size_t shard = 0;
};

/// What an index says: the files, sorted, and where each tensor is, sorted by tensor.
struct shard_index {
    std::vector<std::string> shards{};
    std::vector<placement> tensors{};
};

template <class Lazy = void>
placement const* find(tenon::v0::detail::deferred<Lazy, std::span<placement const>> sorted, std::string_view name) noexcept {
    auto const at = std::lower_bound(sorted.begin(), sorted.end(), name, [](placement const& p, std::string_view n) { return p.name.compare(n) < 0; });
    return at != sorted.end() && at->name == name ? &*at : nullptr;
}

/// Reads the index; its `total_size` is often wrong and is not read. Refuses with the laws of json.hpp,
/// `checkpoint_index_is_complete` and `checkpoint_shard_name_is_bare`.
template <class Lazy = void>
shard_index read_index(std::string_view text, std::string const& what) {
    auto const refuse = [&what](std::string_view law, std::string const& why) { tenon::v0::detail::refuse(law, what + ": " + why); };
    json::value const index = json::parse(text, what);
    json::value const* const map = index.find("weight_map");
    if (map == nullptr || !map->is(json::kind::object) || map->children.empty())
        refuse("checkpoint_index_is_complete", "weight_map is " +
                                                   (map == nullptr                ? "absent"
                                                    : map->is(json::kind::object) ? "empty"
                                                                                  : json::show(*map)) +
                                                   "; an object from tensor names to file names would do");
    tenon::v0::detail::deferred<Lazy, shard_index> result;
    for (json::value const& entry : map->children) {
        if (!entry.is(json::kind::string))
            refuse("checkpoint_index_is_complete",
                   "tensor " + json::quoted(entry.key) + " is mapped to " + json::show(entry) + "; a file name would do");
        std::string const& file = entry.text;
        if (file.empty() || file == "." || file == ".." || file.find_first_of(std::string_view("/\\\0", 3)) != std::string::npos)
            refuse("checkpoint_shard_name_is_bare", "tensor " + json::quoted(entry.key) + " is mapped to " + json::quoted(file) +
                                                        "; the name of a file in this folder, without a path, would do");
        result.shards.push_back(file);
    }
    tenon::v0::detail::sort(result.shards);
    result.shards.erase(std::unique(result.shards.begin(), result.shards.end()), result.shards.end());
    result.tensors.reserve(map->children.size());
    for (json::value const& entry : map->children) {
        auto const at = std::lower_bound(result.shards.begin(), result.shards.end(), entry.text);
        result.tensors.push_back({entry.key, static_cast<std::size_t>(at - result.shards.begin())});
    }
    tenon::v0::detail::sort(result.tensors, [](placement const& a, placement const& b) { return a.name < b.name; });
    return result;
}

}  // namespace detail

template <class = void>
class basic_folder;
using folder = basic_folder<>;  // lazy: instantiated by who uses it

/// The tensors of a folder, from one file or from the shards that its index names.
///
/// `model.safetensors` is read alone when it is there; else `model.safetensors.index.json` says which files are read, whatever
/// their names; else the folder's only *.safetensors file is read. Every file is mapped, none is read beyond its header.
/// Move-only; views and names stay valid while it or what it was moved to lives.
///
/// Refuses with the laws of mapped_file.hpp, json.hpp and safetensors.hpp and: `checkpoint_folder_opens`,
/// `checkpoint_folder_has_tensors`, `checkpoint_shards_are_indexed`, `checkpoint_index_is_complete`,
/// `checkpoint_shard_name_is_bare`, `checkpoint_shards_are_present`, `checkpoint_tensor_is_in_one_shard`,
/// `checkpoint_tensor_is_mapped`, `checkpoint_tensors_are_present`.
template <class Lazy>
class basic_folder {
    using safetensors_file = basic_safetensors_file<Lazy>;

public:
    explicit basic_folder(std::string directory) : directory_(std::move(directory)) {
        if (directory_.find('\0') != std::string::npos) refuse("checkpoint_folder_opens", "the path has a zero byte");
        tenon::v0::detail::deferred<Lazy, std::vector<std::string>> const names = detail::safetensors_names(directory_);
        if (detail::has_entry(directory_, detail::single_name))
            open_only(std::string(detail::single_name));
        else if (detail::has_entry(directory_, detail::index_name))
            open_indexed();
        else if (names.size() == 1)
            open_only(names.front());
        else if (names.empty())
            refuse("checkpoint_folder_has_tensors",
                   "no *.safetensors file; model.safetensors, or shards and model.safetensors.index.json, would do");
        else
            refuse("checkpoint_shards_are_indexed", std::to_string(names.size()) + " files and no index: " + detail::first_five(names) +
                                                        "; model.safetensors.index.json beside them would do");
    }

    /// The tensor of that name, or nullptr.
    tensor_view const* find(std::string_view name) const noexcept {
        std::size_t const at = position(name);
        return at < tensors_.size() ? tensors_[at] : nullptr;
    }

    std::span<tensor_view const* const> tensors() const noexcept { return tensors_; }  ///< of all files, sorted by name

    /// The names of all tensors, sorted.
    std::vector<std::string_view> names() const {
        std::vector<std::string_view> result;
        result.reserve(tensors_.size());
        for (tensor_view const* const t : tensors_) result.push_back(t->name);
        return result;
    }

    std::string const& directory() const noexcept { return directory_; }
    std::span<std::string const> file_names() const noexcept { return file_names_; }  ///< the files that are read, sorted
    std::span<safetensors_file const> files() const noexcept { return files_; }       ///< in that order

    /// Refuses with `checkpoint_stays_as_it_was` where a file has been written to since it was mapped.
    void require_unchanged() const {
        for (safetensors_file const& f : files_)
            if (f.file().is_written_over())
                refuse("checkpoint_stays_as_it_was",
                       f.path() + " has been written to since it was loaded; a new file in its place would do");
    }
    /// Gives back the memory of what has been read of the files.
    void forget() const noexcept {
        for (safetensors_file const& f : files_) f.file().forget();
    }
    /// The same of some bytes of a tensor.
    void forget(std::span<std::byte const> part) const noexcept {
        for (safetensors_file const& f : files_) f.file().forget(part);
    }

    /// The text of config.json. Refuses with `file_opens`.
    std::string config_text() const { return std::string(mapped_file(directory_ + "/config.json").text()); }

private:
    [[noreturn]] void refuse(std::string_view law, std::string_view why) const {
        tenon::v0::detail::refuse(law, directory_ + ": " + std::string(why));
    }

    void open_only(std::string name) {
        files_.emplace_back(directory_ + "/" + name);
        file_names_.push_back(std::move(name));
        tensors_.reserve(files_[0].tensors().size());
        for (tensor_view const& t : files_[0].tensors()) tensors_.push_back(&t);
    }

    void open_indexed() {
        mapped_file const index_file(directory_ + "/" + std::string(detail::index_name));
        tenon::v0::detail::deferred<Lazy, detail::shard_index> index = detail::read_index(index_file.text(), index_file.path());
        tenon::v0::detail::deferred<Lazy, std::vector<std::string>> missing;
        for (std::string const& name : index.shards)
            if (!detail::has_file(directory_, name)) missing.push_back(name);
        if (!missing.empty())
            refuse("checkpoint_shards_are_present", std::to_string(index.shards.size() - missing.size()) + " of the " +
                                                        std::to_string(index.shards.size()) +
                                                        " files that the index names are here; missing: " + detail::first_five(missing));
        files_.reserve(index.shards.size());
        for (std::string const& name : index.shards) files_.emplace_back(directory_ + "/" + name);
        file_names_ = std::move(index.shards);
        for (std::size_t shard = 0; shard < files_.size(); ++shard)
            for (tensor_view const& t : files_[shard].tensors()) {
                check_place(index.tensors, t.name, shard);
                tensors_.push_back(&t);
            }
        tenon::v0::detail::sort(tensors_, [](tensor_view const* a, tensor_view const* b) { return a->name < b->name; });
        tenon::v0::detail::deferred<Lazy, std::vector<std::string>> absent;
        for (detail::placement const& p : index.tensors)
            if (find(p.name) == nullptr) absent.push_back(json::quoted(p.name) + " (" + file_names_[p.shard] + ")");
        if (!absent.empty())
            refuse("checkpoint_tensors_are_present",
                   std::to_string(absent.size()) + " of the " + std::to_string(index.tensors.size()) +
                       " tensors that the index maps are not in their files: " + detail::first_five(absent));
    }

    void check_place(std::span<detail::placement const> map, std::string const& tensor, std::size_t shard) const {
        detail::placement const* const place = detail::find(map, tensor);
        std::string const where =
            place != nullptr && place->shard == shard ? std::string() : "tensor " + json::quoted(tensor) + " is in " + file_names_[shard];
        if (place == nullptr) refuse("checkpoint_tensor_is_mapped", where + ", and the index does not map it");
        if (place->shard == shard) return;
        std::string const& other = file_names_[place->shard];
        if (files_[place->shard].find(tensor) != nullptr)
            refuse("checkpoint_tensor_is_in_one_shard", where + " and in " + other + ", to which the index maps it; one of them would do");
        refuse("checkpoint_tensor_is_mapped", where + ", and the index maps it to " + other);
    }

    std::size_t position(std::string_view name) const noexcept {
        // compare, not <: clang 14 finds no operator< for a string and a view here.
        auto const less = [](tensor_view const* t, std::string_view n) { return t->name.compare(n) < 0; };
        auto const at = std::lower_bound(tensors_.begin(), tensors_.end(), name, less);
        return at != tensors_.end() && (*at)->name == name ? static_cast<std::size_t>(at - tensors_.begin()) : tensors_.size();
    }

    std::string directory_;
    tenon::v0::detail::deferred<Lazy, std::vector<std::string>> file_names_{};
    std::vector<safetensors_file> files_{};
    tenon::v0::detail::deferred<Lazy, std::vector<tensor_view const*>> tensors_{};
};

}  // namespace tenon::inline v0::checkpoint
