// The cosines and sines of rotary position embedding, in binary64 with `+ - * /` alone: the same bits at compile time and on any machine.
// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <tenon/core/config.hpp>
#include <tenon/kernel/float_environment.hpp>

#include <cstddef>
#include <cstdint>
#include <type_traits>
#include <vector>
#if defined(__clang__)
#pragma float_control(precise, on, push)
#endif

namespace tenon::inline v0::kernel {

namespace detail {

/// a * b, rounded. At run time it passes a barrier, so that no compiler can fuse it with the addition that follows (g++ and clang do by default).
constexpr double times(double a, double b) {
    double product = a * b;
    if (!std::is_constant_evaluated()) {
#if defined(__SSE2__)
        __asm__("" : "+x"(product));
#elif defined(__aarch64__)
        __asm__("" : "+w"(product));
#else
        __asm__("" : "+m"(product));
#endif
    }
    return product;
}

/// Moderate arguments: |x| below 700.
constexpr double exp_of(double x) {
    double const n = static_cast<double>(static_cast<long long>(times(x, 1.4426950408889634) + (x < 0 ? -0.5 : 0.5)));
    double const r = (x - times(n, 0.693147180369123816490)) - times(n, 1.90821492927058770002e-10);
    double y = 1.0;
    for (int i = 20; i >= 1; --i) y = 1.0 + times(y, r) / i;
    for (int e = static_cast<int>(n); e > 0; --e) y = times(y, 2.0);
    for (int e = static_cast<int>(n); e < 0; ++e) y = times(y, 0.5);
    return y;
}

/// x > 0.
constexpr double log_of(double x) {
    int e = 0;
    for (; x > 1.4142135623730951; ++e) x = times(x, 0.5);
    for (; x < 0.7071067811865476; --e) x = times(x, 2.0);
    double const z = (x - 1.0) / (x + 1.0), square = times(z, z);
    double s = 0.0;
    for (int i = 41; i >= 1; i -= 2) s = times(s, square) + 1.0 / i;
    return (times(e, 1.90821492927058770002e-10) + times(times(2.0, z), s)) + times(e, 0.693147180369123816490);
}

struct sine_and_cosine {
    double sine = 0.0, cosine = 0.0;
};

/// 0 <= angle < 2^31 or so: the quarter turns are taken off in three parts, the rest is a Taylor polynomial.
constexpr sine_and_cosine turn(double angle) {
    auto const quarters = static_cast<long long>(times(angle, 0.63661977236758134308) + 0.5);
    auto const n = static_cast<double>(quarters);
    double const r = ((angle - times(n, 1.57079632673412561417e+00)) - times(n, 6.07710050630396597660e-11)) - times(n, 2.02226624879595063154e-21);
    double const square = times(r, r);
    double s = 1.0, c = 1.0;
    for (int i = 9; i >= 1; --i) {
        s = 1.0 - times(s, square) / ((2 * i) * (2 * i + 1));
        c = 1.0 - times(c, square) / ((2 * i - 1) * (2 * i));
    }
    s = times(s, r);
    switch (quarters & 3) {
        case 0: return {s, c};
        case 1: return {c, -s};
        case 2: return {-s, -c};
        default: return {-c, s};
    }
}

/// How fast pair j turns per position: theta^(-2 j / D), scaled.
constexpr double rope_frequency(rope const& law, int head_dim, int j) {
    double const unscaled = exp_of(times(-log_of(law.theta), times(2.0, j) / head_dim));
    if (law.scaling == rope_scaling::linear) return unscaled / law.factor;
    if (law.scaling == rope_scaling::llama3) {
        double const original = law.original_positions, low = law.low_freq_factor, high = law.high_freq_factor;
        double const wavelength = 6.283185307179586 / unscaled;
        if (wavelength < original / high) return unscaled;
        if (wavelength > original / low) return unscaled / law.factor;
        double const smooth = (original / wavelength - low) / (high - low);
        return times(1.0 - smooth, unscaled) / law.factor + times(smooth, unscaled);
    }
    return unscaled;
}

}  // namespace detail

/// The frequencies of one model's rotation. `row` gives the tables that the rope kernel reads: D / 2 cosines and sines of one position.
///
/// Error against exact arithmetic below 3e-8 (the rounding to binary32) up to position 1 000 003.
class rope_frequencies {
public:
    rope_frequencies(rope const& law, int head_dim) : per_position_(static_cast<std::size_t>(head_dim / 2)) {
        for (int j = 0; j < head_dim / 2; ++j) per_position_[static_cast<std::size_t>(j)] = detail::rope_frequency(law, head_dim, j);
    }

    void row(std::int64_t position, float* cosines, float* sines) const {
        for (std::size_t j = 0; j < per_position_.size(); ++j) {
            auto const [sine, cosine] = detail::turn(detail::times(static_cast<double>(position), per_position_[j]));
            cosines[j] = static_cast<float>(cosine);
            sines[j] = static_cast<float>(sine);
        }
    }

private:
    std::vector<double> per_position_;
};

}  // namespace tenon::inline v0::kernel
#if defined(__clang__)
#pragma float_control(pop)
#endif
