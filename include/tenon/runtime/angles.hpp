// The rotation angles of a batch's rows, kind of layer by kind of layer.
// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <tenon/core/config.hpp>
#include <tenon/detail/deferred.hpp>
#include <tenon/kernel/float_environment.hpp>
#include <tenon/kernel/rope_frequencies.hpp>
#include <tenon/runtime/batch.hpp>

#include <cstddef>
#include <vector>

namespace tenon::inline v0::detail {

template <class = void>
class basic_angles;
using rotation_angles = basic_angles<>;  // lazy: instantiated by who uses it

template <class Lazy>
class basic_angles {
public:
    explicit basic_angles(model_config const& config) : config_(&config) {
        kernel::flush_to_zero_guard const exact;
        for (int k = 0; k < config.kind_count; ++k)
            frequencies_.emplace_back(config.rope, config.kinds[static_cast<std::size_t>(k)].attention.head_dim);
    }

    void fill(batch& b) const {
        kernel::flush_to_zero_guard const exact;
        for (std::size_t k = 0; k < frequencies_.size(); ++k)
            if (rotation_of(*config_, k) == k) fill(b, b.rotations[k], frequencies_[k], config_->kinds[k].attention.head_dim / 2);
    }

private:
    static void fill(batch const& b, rotation& r, kernel::rope_frequencies const& frequencies, int pairs) {
        auto const half = static_cast<std::size_t>(pairs);
        r.cosines.resize(b.tokens.size() * half);
        r.sines.resize(b.tokens.size() * half);
        for (batch_part const& p : b.parts)
            for (int t = 0; t < p.rows; ++t) {
                std::size_t const at = static_cast<std::size_t>(p.first_row + t) * half;
                frequencies.row(p.first_position + t, r.cosines.data() + at, r.sines.data() + at);
            }
    }

    model_config const* config_;
    deferred<Lazy, std::vector<kernel::rope_frequencies>> frequencies_;  ///< by kind of layer
};

}  // namespace tenon::inline v0::detail
