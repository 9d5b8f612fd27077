// The instruction sets that the kernels are written for, and which of them this machine has. Knows no kernel.
// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <cstdint>
#include <string_view>

namespace tenon::inline v0::kernel {

enum class isa : std::uint8_t { portable, avx2, avx512, neon };

constexpr std::string_view name_of(isa i) {
    switch (i) {
        case isa::avx2: return "avx2";
        case isa::avx512: return "avx512";
        case isa::neon: return "neon";
        case isa::portable: break;
    }
    return "portable";
}

/// Built for this architecture and present on this machine, the operating system's part included.
inline bool supported([[maybe_unused]] isa i) noexcept {
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__CUDACC__)
    __builtin_cpu_init();
    if (i == isa::avx2) return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
    if (i == isa::avx512)
        return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("avx512f") &&
               __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
#elif defined(__aarch64__) && defined(__GNUC__) && !defined(__CUDACC__)
    if (i == isa::neon) return true;
#endif
    return i == isa::portable;
}

/// Whether products over pairs of bf16 have an instruction of their own beside those of avx512.
inline bool has_native_pairs() noexcept {
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__CUDACC__)
    __builtin_cpu_init();
    return supported(isa::avx512) && __builtin_cpu_supports("avx512bf16");
#else
    return false;
#endif
}

/// Whether that instruction multiplies twice as fast as fma: AMD's, all of them. Intel's have been measured at half the rate of fma.
inline bool native_pairs_are_fast() noexcept {
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__CUDACC__)
    return has_native_pairs() && __builtin_cpu_is("amd");
#else
    return false;
#endif
}

/// Whether this machine has AVX-512 VNNI, the instruction that adds up products of bytes. Tables of isa::avx512 use it where it is.
inline bool multiplies_bytes() noexcept {
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__CUDACC__)
    return supported(isa::avx512) && __builtin_cpu_supports("avx512vnni");
#else
    return false;
#endif
}

/// The fastest one supported; every one gives the same bits.
inline isa best_isa() noexcept {
    for (isa i : {isa::avx512, isa::avx2, isa::neon})
        if (supported(i)) return i;
    return isa::portable;
}

}  // namespace tenon::inline v0::kernel
