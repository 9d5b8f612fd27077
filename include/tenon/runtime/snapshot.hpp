// A sequence as bytes: who may take them up, and the keys and values of every layer. Knows the format, byte by byte as docs/states.md has
// it; knows no ranks and no files.
// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <tenon/checkpoint/json.hpp>
#include <tenon/core/config.hpp>
#include <tenon/core/convert.hpp>
#include <tenon/core/crc32c.hpp>
#include <tenon/core/dtype.hpp>
#include <tenon/core/error.hpp>
#include <tenon/core/profile.hpp>
#include <tenon/detail/deferred.hpp>

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

namespace tenon::inline v0 {

inline constexpr std::uint32_t snapshot_schema = 1;

namespace detail {

inline constexpr std::string_view snapshot_magic = "TENONSNP";
inline constexpr std::size_t digest_digits = 64;

/// What a snapshot and the model that takes it up must agree on, and the plan, on which they need not.
struct snapshot_identity {
    std::string_view config{}, weights{};  ///< digests
    std::string_view profile = numeric::canonical_1.name;
    std::string_view arithmetic{};     ///< "canonical", or the kind of device that has another
    std::string_view weight_format{};  ///< as `load_options::weights` chose it
    kv_format kv = kv_format::f32;
    std::string_view plan{};
};

/// Keys and values of a layer, (T, K, D) of all KV heads, little-endian elements of the format, not aligned.
struct snapshot_layer {
    std::span<std::byte const> keys{}, values{};
};

/// What a snapshot says, as views of its bytes.
struct snapshot_view {
    snapshot_identity identity{};
    std::int64_t positions = 0;            ///< T
    std::vector<snapshot_layer> layers{};  ///< all of the model
};

/// Bytes, little-endian, to the end of a list.
class snapshot_writer {
public:
    explicit snapshot_writer(std::vector<std::byte>& to) : to_(&to) {}

    template <class Unsigned>
    snapshot_writer& number(Unsigned n) {
        static_assert(std::is_unsigned_v<Unsigned>);
        for (std::size_t i = 0; i < sizeof n; ++i) to_->push_back(static_cast<std::byte>(n >> 8 * i & 255U));
        return *this;
    }
    snapshot_writer& characters(std::string_view text) {
        for (char const c : text) to_->push_back(static_cast<std::byte>(c));
        return *this;
    }
    snapshot_writer& text(std::string_view t) { return number(static_cast<std::uint32_t>(t.size())).characters(t); }
    snapshot_writer& floats(std::span<float const> from) {
        std::size_t const at = to_->size();
        to_->resize(at + 4 * from.size());
        std::byte* to = to_->data() + at;
        if constexpr (std::endian::native == std::endian::little) {
            if (!from.empty()) std::memcpy(to, from.data(), from.size_bytes());
            return *this;
        }
        for (float const x : from) {
            auto const bits = std::bit_cast<std::uint32_t>(x);
            for (std::size_t i = 0; i < 4; ++i) *to++ = static_cast<std::byte>(bits >> 8 * i & 255U);
        }
        return *this;
    }

    /// Numbers of bfloat16, two bytes each.
    snapshot_writer& narrow(std::span<float const> from) {
        for (float const x : from) number(narrow_bf16(x));
        return *this;
    }

private:
    std::vector<std::byte>* to_;
};

/// Bytes from the front, none beyond the end.
class snapshot_reader {
public:
    explicit snapshot_reader(std::span<std::byte const> bytes) : bytes_(bytes) {}

    std::span<std::byte const> take(std::uint64_t count, std::string_view what) {
        if (count > bytes_.size() - at_)
            refuse("snapshot_is_whole", "it ends within " + std::string(what) + ": " + std::to_string(count) + " bytes from byte " +
                                            std::to_string(at_) + " on, and " + std::to_string(bytes_.size() - at_) + " are there");
        at_ += static_cast<std::size_t>(count);
        return bytes_.subspan(at_ - static_cast<std::size_t>(count), static_cast<std::size_t>(count));
    }
    template <class Unsigned>
    Unsigned number(std::string_view what) {
        static_assert(std::is_unsigned_v<Unsigned>);
        std::span<std::byte const> const from = take(sizeof(Unsigned), what);
        Unsigned n = 0;
        for (std::size_t i = sizeof n; i-- > 0;) n = static_cast<Unsigned>(n << 8U | std::to_integer<Unsigned>(from[i]));
        return n;
    }
    std::string_view characters(std::uint64_t count, std::string_view what) {
        std::span<std::byte const> const from = take(count, what);
        return {reinterpret_cast<char const*>(from.data()), from.size()};
    }
    std::string_view text(std::string_view what) { return characters(number<std::uint32_t>(what), what); }
    std::size_t left() const { return bytes_.size() - at_; }

private:
    std::span<std::byte const> bytes_;
    std::size_t at_ = 0;
};

/// Floats of one layer's keys, and of its values.
constexpr std::int64_t kv_floats(model_config const& c, int layer, std::int64_t positions) {
    grouped_attention const& a = c.layer(layer).attention;
    return positions * a.kv_heads * a.head_dim;
}

/// The bytes of a sequence of `positions`.
///
///   read(layer, keys, values)
///
/// fills the keys and values of a layer: (T, K, D) of all KV heads.
template <class Read>
std::vector<std::byte> write_snapshot(snapshot_identity const& of, model_config const& config, std::int64_t positions, Read read) {
    constexpr std::size_t size_at = snapshot_magic.size() + 4;
    std::vector<std::byte> bytes;
    snapshot_writer out(bytes);
    std::size_t all = 4, most = 0;  // the checksum
    for (int l = 0; l < config.layers; ++l) {
        auto const floats = static_cast<std::size_t>(kv_floats(config, l, positions));
        most = (std::max)(most, floats);
        all += 20 + 2 * floats * static_cast<std::size_t>(bytes_of(of.kv));
    }
    out.characters(snapshot_magic).number(snapshot_schema).number(std::uint64_t{0}).characters(of.config).characters(of.weights);
    out.text(of.profile).text(of.arithmetic).text(of.weight_format).text(name_of(of.kv)).text(of.plan);
    out.number(static_cast<std::uint64_t>(positions)).number(static_cast<std::uint32_t>(config.layers));
    all += bytes.size();
    for (std::size_t i = 0; i < 8; ++i) bytes[size_at + i] = static_cast<std::byte>(all >> 8 * i & 255U);
    bytes.reserve(all);
    std::vector<float> keys(most), values(most);
    for (int l = 0; l < config.layers; ++l) {
        grouped_attention const& a = config.layer(l).attention;
        auto const floats = static_cast<std::size_t>(kv_floats(config, l, positions));
        for (int const n : {l, a.kv_heads, a.head_dim}) out.number(static_cast<std::uint32_t>(n));
        out.number(static_cast<std::uint64_t>(positions));
        if (positions > 0) read(l, keys.data(), values.data());
        for (std::vector<float> const* const all_of : {&keys, &values}) {
            if (of.kv == kv_format::f32)
                out.floats({all_of->data(), floats});
            else
                out.narrow({all_of->data(), floats});
        }
    }
    out.number(crc32c_of(bytes));
    return bytes;
}

/// Refuses what differs. What the bytes say may be long, and is shown in part.
template <class = void>
void require_same(std::string_view law, std::string_view what, std::string_view theirs, std::string_view ours) {
    if (theirs == ours) return;
    std::string const shown = checkpoint::json::quoted(theirs.substr(0, 80)) + (theirs.size() > 80 ? "..." : "");
    refuse(law, std::string(what) + " is " + shown + " in the snapshot, and here " + std::string(ours));
}

/// Reads a snapshot of a model of this description. Everything is checked but the digest of the weights, which takes long to make and
/// is the caller's to compare; nothing is allocated but a list as long as the model's layers.
///
/// Refuses with `snapshot_begins_as_one`, `snapshot_schema_is_known`, `snapshot_is_whole`, `snapshot_checksum_matches`,
/// `snapshot_profile_is_this_one`, `snapshot_arithmetic_is_the_models`, `snapshot_kv_format_is_the_models`, `snapshot_config_is_the_models`,
/// `snapshot_weight_format_is_the_models`, `snapshot_has_every_layer`, `snapshot_layer_has_shape`, `positions_fit_the_model`.
template <class Lazy = void>
snapshot_view read_snapshot(std::span<std::byte const> bytes, snapshot_identity const& ours, model_config const& config) {
    if (bytes.size() < snapshot_magic.size() || snapshot_reader(bytes).characters(snapshot_magic.size(), "its name") != snapshot_magic)
        refuse("snapshot_begins_as_one", "the bytes do not begin with " + std::string(snapshot_magic));
    constexpr std::size_t checksum = 4, least = snapshot_magic.size() + 4 + 8 + checksum;
    if (bytes.size() < least)
        refuse("snapshot_is_whole", "it has " + std::to_string(bytes.size()) + " bytes; " + std::to_string(least) + " are the least");
    std::span<std::byte const> const checked = bytes.first(bytes.size() - checksum);
    snapshot_reader in(checked);
    in.take(snapshot_magic.size(), "its name");
    if (auto const schema = in.number<std::uint32_t>("its schema"); schema != snapshot_schema)
        refuse("snapshot_schema_is_known",
               "it has schema " + std::to_string(schema) + "; " + std::to_string(snapshot_schema) + " would do");
    if (auto const size = in.number<std::uint64_t>("its size"); size != bytes.size())
        refuse("snapshot_is_whole",
               "it says that it has " + std::to_string(size) + " bytes, and " + std::to_string(bytes.size()) + " are there");
    auto const told = snapshot_reader(bytes.last(checksum)).number<std::uint32_t>("its checksum");
    if (std::uint32_t const found = crc32c_of(checked); found != told)
        refuse("snapshot_checksum_matches", "its checksum is " + std::to_string(told) + ", that of its bytes " + std::to_string(found));

    deferred<Lazy, snapshot_view> v;
    v.identity.config = in.characters(digest_digits, "the digest of the config");
    v.identity.weights = in.characters(digest_digits, "the digest of the weights");
    v.identity.profile = in.text("the numeric profile");
    v.identity.arithmetic = in.text("the arithmetic");
    v.identity.weight_format = in.text("the format of the weights");
    std::string_view const kv_format = in.text("the format of keys and values");
    v.identity.plan = in.text("the plan");
    require_same("snapshot_profile_is_this_one", "the numeric profile", v.identity.profile, ours.profile);
    require_same("snapshot_arithmetic_is_the_models", "the arithmetic", v.identity.arithmetic, ours.arithmetic);
    require_same("snapshot_kv_format_is_the_models", "the format of keys and values", kv_format, name_of(ours.kv));
    require_same("snapshot_config_is_the_models", "the digest of the config", v.identity.config, ours.config);
    require_same("snapshot_weight_format_is_the_models", "the format of the weights", v.identity.weight_format, ours.weight_format);

    auto const positions = in.number<std::uint64_t>("the number of positions");
    if (positions > static_cast<std::uint64_t>(config.max_positions))
        refuse("positions_fit_the_model",
               "the snapshot holds " + std::to_string(positions) + " positions; the model has " + std::to_string(config.max_positions));
    v.positions = static_cast<std::int64_t>(positions);
    if (auto const layers = in.number<std::uint32_t>("the number of layers"); layers != static_cast<std::uint32_t>(config.layers))
        refuse("snapshot_has_every_layer",
               "it holds " + std::to_string(layers) + " layers; the model has " + std::to_string(config.layers));
    v.layers.reserve(static_cast<std::size_t>(config.layers));
    for (int l = 0; l < config.layers; ++l) {
        grouped_attention const& a = config.layer(l).attention;
        std::string const layer = "layer " + std::to_string(l);
        auto const same = [&](std::string_view what, std::uint64_t theirs, std::uint64_t expected) {
            if (theirs != expected)
                refuse("snapshot_layer_has_shape",
                       layer + ": " + std::string(what) + " is " + std::to_string(theirs) + "; " + std::to_string(expected) + " would do");
        };
        same("its number", in.number<std::uint32_t>(layer), static_cast<std::uint64_t>(l));
        same("the number of KV heads", in.number<std::uint32_t>(layer), static_cast<std::uint64_t>(a.kv_heads));
        same("head_dim", in.number<std::uint32_t>(layer), static_cast<std::uint64_t>(a.head_dim));
        same("the number of positions", in.number<std::uint64_t>(layer), positions);
        std::uint64_t const size = static_cast<std::uint64_t>(bytes_of(ours.kv)) * static_cast<std::uint64_t>(kv_floats(config, l, v.positions));
        std::span<std::byte const> const keys = in.take(size, layer);
        v.layers.push_back({keys, in.take(size, layer)});
    }
    if (in.left() != 0) refuse("snapshot_is_whole", std::to_string(in.left()) + " bytes follow the last layer");
    return v;
}

}  // namespace detail
}  // namespace tenon::inline v0
