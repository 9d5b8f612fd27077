// A product whose inputs are cut over the ranks of a group, in integer codes: the ranks agree on the largest magnitude of every row, each adds
// up its own codes' products in 64 bits, and whoever needs an output adds the sums of all and rounds once. Bits do not depend on the cut.
// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <tenon/core/profile.hpp>
#include <tenon/core/share.hpp>
#include <tenon/detail/deferred.hpp>
#include <tenon/device/backend.hpp>
#include <tenon/runtime/batch.hpp>
#include <tenon/runtime/buffer.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace tenon::inline v0::detail {

/// One rank's side of it. Extents: rows of a batch, N outputs. The group meets between `measure` and `agree`, and between `add_up` and
/// `finish`; `peer(p)` is rank p's, or nullptr where it is left out.
template <class Lazy>
class basic_exact_join {
public:
    basic_exact_join(device::backend const& ops, numeric_profile const& profile)
        : ops_(profile.products == product_rule::fixed_point ? ops.exact() : nullptr) {}

    /// Whether the profile is one of exact products.
    explicit operator bool() const { return ops_ != nullptr; }

    /// Room for what peers read; in `shared` where they are in other processes.
    void publish(std::size_t rows, std::size_t outputs, arena* shared) {
        outputs_ = static_cast<std::ptrdiff_t>(outputs);
        magnitudes_.reserve(rows, shared);
        sums_.reserve(rows * outputs, shared);
    }
    /// Room for the rest; nothing after it allocates.
    void reserve(std::size_t rows, std::size_t outputs) {
        largest_.resize(rows);
        total_.resize(outputs);
    }

    /// Of rows [first, first + rows), of which this rank has `columns`.  x (rows, columns)
    void measure(float const* x, int columns, std::ptrdiff_t first, int rows) {
        ops_->magnitudes(magnitudes_.data() + first, x, columns, columns, rows);
    }
    /// The largest magnitude of every whole row, of what all ranks have measured; of what rank `alone` has, where that is one.
    template <class Peer>
    void agree(int rows, int ranks, int alone, Peer peer) {
        std::fill_n(largest_.begin(), rows, 0U);
        for (int p = 0; p < ranks; ++p)
            if (basic_exact_join const* const of = alone < 0 || p == alone ? peer(p) : nullptr; of != nullptr)
                for (std::ptrdiff_t t = 0; t < rows; ++t) {
                    std::uint32_t& seen = largest_[static_cast<std::size_t>(t)];
                    seen = (std::max)(seen, of->magnitudes_.data()[t]);
                }
    }
    /// What this rank's columns of those rows add to the products with w.
    void add_up(kernel::packed_matrix const& w, float const* x, std::ptrdiff_t first, int rows, float* scratch, device::crew& threads) {
        ops_->sums(sums_.data() + first * outputs_, w, x, w.columns, rows, largest_.data() + first, scratch, threads);
    }
    /// The product of a row: its outputs `columns`.
    template <class Peer>
    void finish(float* out, kernel::packed_matrix const& w, std::ptrdiff_t row, share columns, int ranks, Peer peer) {
        std::fill_n(total_.begin(), columns.size(), std::int64_t{0});
        for (int p = 0; p < ranks; ++p)
            if (basic_exact_join const* const of = peer(p); of != nullptr) {
                std::int64_t const* const part = of->sums_.data() + row * outputs_ + columns.begin;
                for (int n = 0; n < columns.size(); ++n) total_[static_cast<std::size_t>(n)] += part[n];
            }
        ops_->finish(out, total_.data(), w, columns.begin, columns.size(), largest_[static_cast<std::size_t>(row)]);
    }

    /// What `measure` leaves for the peers.
    publication magnitudes(std::int64_t rows) { return {magnitudes_.data(), rows, 1}; }
    /// What `add_up` leaves: each peer reads its columns, or the root all.
    publication sums(std::int64_t rows, bool by_columns) { return {sums_.data(), rows, outputs_, by_columns, !by_columns, 2}; }

private:
    device::exact_products const* ops_;
    std::ptrdiff_t outputs_ = 0;
    published<std::uint32_t> magnitudes_;  ///< of this rank's part of every row
    published<std::int64_t> sums_;         ///< (rows, N)
    deferred<Lazy, std::vector<std::uint32_t>> largest_;
    deferred<Lazy, std::vector<std::int64_t>> total_;
};

}  // namespace tenon::inline v0::detail
