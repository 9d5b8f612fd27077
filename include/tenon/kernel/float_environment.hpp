// The floating-point environment that the arithmetic law needs: what a build must not ask for, and what a thread must not have set.
// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <cstdint>

#if defined(__FAST_MATH__) || defined(__ASSOCIATIVE_MATH__) || defined(__RECIPROCAL_MATH__) || defined(__NO_SIGNED_ZEROS__)
#error "tenon: the bits are fixed; build without -ffast-math and its parts"
#endif
#if defined(__FINITE_MATH_ONLY__) && __FINITE_MATH_ONLY__ == 1
#error "tenon: NaN and infinity are part of the law; build without -ffinite-math-only"
#endif
#if defined(__FLT_EVAL_METHOD__) && __FLT_EVAL_METHOD__ != 0
#error "tenon: binary32 arithmetic must round to binary32 (on 32-bit x86: -msse2 -mfpmath=sse)"
#endif

#if defined(__x86_64__) || defined(__i386__)
#include <xmmintrin.h>
#endif

namespace tenon::inline v0::kernel {

/// Keeps denormals and rounds to nearest in its scope, then restores what the caller had.
/// A program that was linked with -ffast-math flushes denormals from start-up; every thread that runs kernels holds one of these.
class flush_to_zero_guard {
public:
    flush_to_zero_guard() noexcept : saved_(read()) {
        if ((saved_ & altering) != 0) write(saved_ & ~altering);
    }
    ~flush_to_zero_guard() {
        if ((saved_ & altering) != 0) write(saved_);
    }
    flush_to_zero_guard(flush_to_zero_guard const&) = delete;
    flush_to_zero_guard& operator=(flush_to_zero_guard const&) = delete;

private:
#if defined(__x86_64__) || defined(__i386__)
    using word = std::uint32_t;
    static constexpr word altering = 0xe040;  // MXCSR: flush to zero, rounding mode, denormals are zero
    static word read() noexcept { return _mm_getcsr(); }
    static void write(word w) noexcept { _mm_setcsr(w); }
#elif defined(__aarch64__)
    using word = std::uint64_t;
    static constexpr word altering = 0x1c80003;  // FPCR: FZ, rounding mode, FZ16, AH, FIZ
    static word read() noexcept {
        word w = 0;
        __asm__ volatile("mrs %0, fpcr" : "=r"(w));
        return w;
    }
    static void write(word w) noexcept { __asm__ volatile("msr fpcr, %0" : : "r"(w) : "memory"); }
#else
    using word = std::uint32_t;
    static constexpr word altering = 0;
    static word read() noexcept { return 0; }
    static void write(word) noexcept {}
#endif
    word saved_;
};

}  // namespace tenon::inline v0::kernel
