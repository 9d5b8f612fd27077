// What a tail gives: the rows of logits that were asked for and, under a sampling contract, the token of each. Computes nothing.
// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <tenon/core/config.hpp>
#include <tenon/core/sampling.hpp>
#include <tenon/detail/deferred.hpp>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace tenon::inline v0::boundary {

template <class = void>
struct basic_tail_output;
using tail_output = basic_tail_output<>;  // lazy: instantiated by who uses it

/// Only a tail prunes: of a bundle's rows it keeps those that are wanted, in the order of the bundle.
template <class Lazy>
struct basic_tail_output {
    template <class T>
    using deferred = tenon::v0::detail::deferred<Lazy, T>;

    int vocab = 0;                                    ///< V
    deferred<std::vector<float>> logits{};            ///< (rows, V)
    deferred<std::vector<std::int64_t>> sequences{};  ///< (rows): which of the bundle's, counted from 0
    deferred<std::vector<std::int64_t>> positions{};  ///< (rows): in the sequence
    std::optional<sampling> contract{};               ///< by which `chosen` was chosen
    deferred<std::vector<token_id>> chosen{};         ///< (rows): the token that follows; empty without a contract

    std::size_t rows() const noexcept { return positions.size(); }
    /// Logits (V) of one row.
    std::span<float const> row(std::size_t index) const noexcept {
        return std::span<float const>(logits).subspan(index * static_cast<std::size_t>(vocab), static_cast<std::size_t>(vocab));
    }
};

}  // namespace tenon::inline v0::boundary
