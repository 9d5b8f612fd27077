// Slices of a model's tensors, by what they do: rows and columns of a role of a layer, straight from the mapped file where it stores
// floats, decoded a band of rows at a time where it stores codes and scales. Nothing outside the slice is read, and what has been read of
// the file is given back at once: who loads holds its own slices, and not the pages of the file beside them.
// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <tenon/checkpoint/block_scaling.hpp>
#include <tenon/checkpoint/folder.hpp>
#include <tenon/checkpoint/inventory.hpp>
#include <tenon/core/config.hpp>
#include <tenon/core/convert.hpp>
#include <tenon/core/share.hpp>
#include <tenon/graph/lower.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace tenon::inline v0::checkpoint {

template <class = void>
class basic_tensor_source;
using tensor_source = basic_tensor_source<>;  // lazy: instantiated by who uses it

/// A folder whose headers `check_inventory` has passed, read by role. Refers to the folder and the config; may be read by several threads.
template <class Lazy>
class basic_tensor_source {
public:
    basic_tensor_source(folder const& files, model_config const& config, block_scaling scaling)
        : files_(&files), config_(&config), scaling_(scaling), layout_(expert_layout_of(files)) {}

    expert_layout layout() const { return layout_; }

    /// The file tensor in which `t` of a layer, and of an expert there, lies.
    std::string name_of(tensor const& t, int layer, int expert = 0) const { return place_of(t, layer, expert, *config_, layout_).name; }

    /// The element type of the values: bf16 and f16 as stored, f32 for codes with scales.
    dtype type_of(tensor const& t, int layer, int expert = 0) const {
        dtype const stored = files_->find(name_of(t, layer, expert))->type;
        return stored == dtype::f8_e4m3 ? dtype::f32 : stored;
    }

    /// Rows and columns of `t`, of which a vector has one column.
    ///
    ///   put(first_row, row_count, source, row_stride_bytes, type)
    ///
    /// is called for consecutive bands of rows, counted from `rows.begin`: for floats with the bytes of the file, `read_bytes` of it at a
    /// time; for codes every `band_rows` rows, with float32 that are gone after the call.
    template <class Put>
    void read(tensor const& t, int layer, int expert, share rows, share columns, Put put) const {
        tensor_place const place = place_of(t, layer, expert, *config_, layout_);
        tensor_view const& file = *files_->find(place.name);
        std::int64_t const first = place.first_row + rows.begin;
        std::ptrdiff_t const size = bytes_of(file.type), stride = t.columns * size;
        std::byte const* const source = file.data.data() + first * stride + columns.begin * size;
        bool const codes = file.type == dtype::f8_e4m3;
        tensor_view const* const scales = codes ? files_->find(place.name + std::string(detail::scale_suffix)) : nullptr;
        auto const count = static_cast<std::size_t>(columns.size());
        std::vector<float> band(codes ? band_rows * count : 0);
        int const most = static_cast<int>((std::max)(read_bytes / stride / band_rows, std::ptrdiff_t{1})) * band_rows;
        for (int begin = 0, end = 0; begin < rows.size(); begin = end) {
            end = begin + (std::min)(most, rows.size() - begin);
            if (!codes) put(begin, end - begin, source + begin * stride, stride, file.type);
            for (int r = begin; codes && r < end; r += band_rows) {
                int const high = (std::min)(band_rows, end - r);
                for (int i = 0; i < high; ++i)
                    decode(band.data() + static_cast<std::size_t>(i) * count, source + (r + i) * stride, *scales, first + r + i, columns);
                put(r, high, reinterpret_cast<std::byte const*>(band.data()), static_cast<std::ptrdiff_t>(count * sizeof(float)),
                    dtype::f32);
            }
            auto const read = static_cast<std::size_t>((end - begin - 1) * stride + columns.size() * size);
            files_->forget({source + begin * stride, read});
        }
        if (codes) files_->forget(scales->data);
    }

    static constexpr int band_rows = 32;
    static constexpr std::ptrdiff_t read_bytes = std::ptrdiff_t{1} << 20;  ///< of whole rows; `band_rows` rows where those are more

private:
    /// value = code times the scale of its block, rounded once; a block is named by the file tensor's own row and column.
    void decode(float* to, std::byte const* codes, tensor_view const& scales, std::int64_t row, share columns) const {
        std::byte const* const of_row = scales.data.data() + row / scaling_.rows * scales.shape[1] * 4;
        for (std::int64_t c = columns.begin; c < columns.end;) {
            std::int64_t const block = c / scaling_.columns, end = std::min<std::int64_t>(columns.end, (block + 1) * scaling_.columns);
            float const scale = load_f32(of_row + block * 4);
            for (; c < end; ++c) *to++ = widen_f8_e4m3(std::to_integer<std::uint8_t>(*codes++)) * scale;
        }
    }

    folder const* files_;
    model_config const* config_;
    block_scaling scaling_;
    expert_layout layout_;
};

}  // namespace tenon::inline v0::checkpoint
