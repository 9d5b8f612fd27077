// Any bytes as a safetensors file: tensors that lie inside the bytes, or a refusal.
// SPDX-License-Identifier: Apache-2.0
#include "mutate.hpp"

#include <tenon/checkpoint/safetensors.hpp>
#include <tenon/checkpoint/writer.hpp>

using namespace tenon::checkpoint;

namespace {

std::string container(std::string_view header, std::string_view data) {
    std::string result;
    for (std::size_t i = 0; i < 8; ++i) result += static_cast<char>(static_cast<unsigned char>(header.size() >> (8 * i)));
    return result.append(header).append(data);
}

void read(std::span<std::byte const> bytes) {
    fuzz::refusing([bytes] {
        std::vector<tensor_view> const tensors = read_safetensors(bytes, "fuzz");
        std::size_t total = 0;
        for (tensor_view const& t : tensors) {
            total += t.data.size();
            for (std::byte const b : t.data) total += std::to_integer<std::size_t>(b) >> 8U;  // reads every byte, adds nothing
            if (find(tensors, t.name) != &t) std::abort();
        }
        if (total > bytes.size()) std::abort();
        // What was read can be written and read again, and is then the same file.
        fuzz::never_refusing([&tensors] {
            std::string const written = safetensors_bytes(tensors);
            if (safetensors_bytes(read_safetensors(std::as_bytes(std::span<char const>(written)), "again")) != written) std::abort();
        });
    });
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(std::uint8_t const* data, std::size_t size) {
    read(std::as_bytes(std::span<std::uint8_t const>(data, size)));
    // The same bytes behind a length that is right, and as a header alone, so that most of them get past the first rule.
    std::string const text = size == 0 ? std::string() : std::string(reinterpret_cast<char const*>(data), size);
    std::string const as_header = container(text, "0123456789abcdef");
    read(std::as_bytes(std::span<char const>(as_header)));
    std::size_t const end = text.rfind('}');
    if (size < 8 || end == std::string::npos || end < 8) return 0;
    std::string const repaired = container(std::string_view(text).substr(8, end - 7), std::string_view(text).substr(end + 1));
    read(std::as_bytes(std::span<char const>(repaired)));
    return 0;
}

#ifdef TENON_FUZZ_MAIN
int main(int count, char** arguments) {
    // What the format allows and what writers have got wrong: one name twice, one range twice, a shape beyond its range, reversed,
    // negative, fractional and quoted offsets, bytes of several elements, a header that is no object.
    std::string const headers[]{
        R"({"a":{"dtype":"F32","shape":[2,1],"data_offsets":[0,8]},"b":{"dtype":"BF16","shape":[4],"data_offsets":[8,16]}})",
        R"({"__metadata__":{"format":"pt"},"s":{"dtype":"F64","shape":[],"data_offsets":[0,8]},"t":{"dtype":"I64","shape":[1],"data_offsets":[8,16]}})",
        R"({"z":{"dtype":"U8","shape":[0,3],"data_offsets":[0,0]},"é":{"dtype":"F8_E4M3","shape":[16],"data_offsets":[0,16]}}   )",
        R"({"w":{"dtype":"F8_E4M3","shape":[2,6],"data_offsets":[4,16]},"w_scale_inv":{"dtype":"F32","shape":[1,1],"data_offsets":[0,4]}})",
        R"({"a":{"dtype":"U8","shape":[16],"data_offsets":[0,16]},"a":{"dtype":"U8","shape":[16],"data_offsets":[0,16]}})",
        R"({"a":{"dtype":"U8","shape":[16],"data_offsets":[0,16]},"b":{"dtype":"U8","shape":[16],"data_offsets":[0,16]}})",
        R"({"a":{"dtype":"F32","shape":[1000,1000],"data_offsets":[0,4]}})",
        R"({"a":{"dtype":"U8","shape":[4],"data_offsets":[8,4]}})",
        R"({"a":{"dtype":"U8","shape":[5],"data_offsets":[-1,4]}})",
        R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4.0]}})",
        R"({"a":{"dtype":"F32","shape":[1],"data_offsets":["0","4"]}})",
        R"({"a":{"dtype":"F4","shape":[2,8],"data_offsets":[0,8]}})",
        "[]",
        "{}"};
    std::vector<std::string> seeds(std::begin(headers), std::end(headers));
    for (std::string const& header : headers)
        seeds.push_back(container(header, std::string_view("0123456789abcdef", header.size() == 2 ? 0U : 16U)));
    std::string_view const words[]{"18446744073709551615",
                                   "9223372036854775807",
                                   "4294967296",
                                   "-1",
                                   "1.0",
                                   "0",
                                   "8",
                                   "16",
                                   "F4",
                                   "F8_E8M0",
                                   "null",
                                   "[]",
                                   "{}",
                                   "\"",
                                   ",",
                                   "\"dtype\"",
                                   "\"shape\"",
                                   "\"data_offsets\"",
                                   "\"__metadata__\"",
                                   "[0,8]",
                                   "[8,16]",
                                   "\xFF",
                                   std::string_view("\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF", 8),
                                   "    "};
    return fuzz::run(count, arguments, LLVMFuzzerTestOneInput, seeds, words, 200'000);
}
#endif
