// Any bytes as JSON, and as the index of shards: a value or a refusal.
// SPDX-License-Identifier: Apache-2.0
#include "mutate.hpp"

#include <tenon/checkpoint/folder.hpp>
#include <tenon/checkpoint/json.hpp>

namespace json = tenon::checkpoint::json;

namespace {
// Touches what a reader of the tree would touch.
std::size_t visit(json::value const& v) {
    std::size_t sum = json::show(v).size() + v.key.size();
    if (v.as_int64() && !v.as_double()) std::abort();  // an exact integer is a number
    if (v.is(json::kind::object) && !v.children.empty() && v.find(v.children.back().key) != &v.children.back()) std::abort();
    for (json::value const& child : v.children) sum += visit(child);
    return sum;
}

// Every tensor of an index is found, and its file is a name that stays in the folder.
void read_index(std::string_view text) {
    tenon::checkpoint::detail::shard_index const index = tenon::checkpoint::detail::read_index(text, "fuzz");
    for (auto const& p : index.tensors) {
        if (tenon::checkpoint::detail::find(index.tensors, p.name) != &p) std::abort();
        std::string const& file = index.shards.at(p.shard);
        if (file.empty() || file == ".." || file.find('/') != std::string::npos) std::abort();
    }
}
}  // namespace

extern "C" int LLVMFuzzerTestOneInput(std::uint8_t const* data, std::size_t size) {
    std::string_view const text = size == 0 ? std::string_view() : std::string_view(reinterpret_cast<char const*>(data), size);
    fuzz::refusing([text] {
        json::value const v = json::parse(text, "fuzz");
        visit(v);
        if (!json::same(v, json::parse(text, "again"))) std::abort();
    });
    fuzz::refusing([text] { read_index(text); });
    return 0;
}

#ifdef TENON_FUZZ_MAIN
int main(int count, char** arguments) {
    std::string const seeds[]{R"({"a":[1,-2.5e3,true,false,null],"b":{},"c":"x","d":[]})",
                              R"({"\u0061":"\uD83D\uDE00\"\\\/\b\f\n\r\t","é":"€"})",
                              R"([[[[[[[[[[{"a":{"a":{"a":[]}}}]]]]]]]]]])",
                              R"([9223372036854775807,-9223372036854775808,1e999,-0,0.1,1e-400])",
                              R"({"metadata":{"total_size":1},"weight_map":{"a":"s-1","b":"s-2","c":"s-1"}})",
                              R"({"weight_map":{"a":"../s","b":"/s","c":"..","d":"s\u0000"}})",
                              "\"\"",
                              ""};
    std::string_view const words[]{"{",
                                   "}",
                                   "[",
                                   "]",
                                   ",",
                                   ":",
                                   "\"",
                                   "\\",
                                   "\\u",
                                   "\\uD800",
                                   "\\uDC00",
                                   "e",
                                   ".",
                                   "-",
                                   "0",
                                   "1e9",
                                   "null",
                                   "true",
                                   "\xED\xA0\x80",
                                   "\xF0\x9F\x98\x80",
                                   "\xEF\xBB\xBF",
                                   "[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[",
                                   "\"a\":1,\"a\":1",
                                   "\"weight_map\":{",
                                   "\"a\":\"s-2\"",
                                   "..",
                                   "/",
                                   " ",
                                   "\n"};
    return fuzz::run(count, arguments, LLVMFuzzerTestOneInput, seeds, words, 200'000);
}
#endif
