// How numbers are stored: the types that a file may hold and the formats that a rank may keep.
// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace tenon::inline v0 {

/// Element types of a checkpoint tensor, by their names in a safetensors header.
enum class dtype : std::uint8_t { boolean, u8, i8, f8_e4m3, f8_e5m2, i16, u16, f16, bf16, i32, u32, f32, i64, u64, f64 };

struct dtype_words {
    std::string_view name;
    int bytes = 0;
};

inline constexpr std::array<dtype_words, 15> dtype_table{{{"BOOL", 1},
                                                          {"U8", 1},
                                                          {"I8", 1},
                                                          {"F8_E4M3", 1},
                                                          {"F8_E5M2", 1},
                                                          {"I16", 2},
                                                          {"U16", 2},
                                                          {"F16", 2},
                                                          {"BF16", 2},
                                                          {"I32", 4},
                                                          {"U32", 4},
                                                          {"F32", 4},
                                                          {"I64", 8},
                                                          {"U64", 8},
                                                          {"F64", 8}}};

constexpr std::string_view name_of(dtype d) { return dtype_table[static_cast<std::size_t>(d)].name; }
constexpr int bytes_of(dtype d) { return dtype_table[static_cast<std::size_t>(d)].bytes; }

/// The format in which a rank keeps its matrices. `stored` keeps what the file has: bf16 as it is, f32 and f16 as f32. `q8` keeps 8-bit
/// codes, 32 of them along a row under one scale, and multiplies codes: docs/numerics.md. `fixed15` keeps codes of 15 bits under one exponent
/// for each row: what the profile fixed15_1 holds, and no other profile; asking for that profile is enough.
enum class weights : std::uint8_t { stored, f32, bf16, q8, fixed15 };

/// How a rank holds one matrix: elements, blocks of a half-precision scale and 32 codes, or rows of codes and an exponent.
enum class held_as : std::uint8_t { f32, bf16, q8, fixed15 };

/// The format in which a rank keeps keys and values.
/// bf16 rounds what is written once, to nearest even; every read sees what is stored, that of the same call too.
enum class kv_format : std::uint8_t { f32, bf16 };

constexpr std::string_view name_of(kv_format f) { return f == kv_format::f32 ? "f32" : "bf16"; }
constexpr int bytes_of(kv_format f) { return f == kv_format::f32 ? 4 : 2; }

constexpr std::string_view name_of(held_as h) {
    constexpr std::array<std::string_view, 4> names{"f32", "bf16", "q8", "fixed15"};
    return names[static_cast<std::size_t>(h)];
}
constexpr std::string_view name_of(weights w) {
    return w == weights::stored ? "stored" : name_of(static_cast<held_as>(static_cast<int>(w) - 1));  // the same order
}

/// Bytes of so many elements; of q8 in whole blocks. Exponents of rows, four bytes each, are not counted.
constexpr std::int64_t bytes_of(held_as h, std::int64_t elements) {
    return h == held_as::f32 ? 4 * elements : h == held_as::q8 ? elements / 32 * 34 : 2 * elements;
}

}  // namespace tenon::inline v0
