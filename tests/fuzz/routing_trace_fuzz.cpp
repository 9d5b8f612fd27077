// Any bytes as a routing trace: the very text that its rows are written as, or a refusal.
// SPDX-License-Identifier: Apache-2.0
#include "mutate.hpp"

#include <tenon/checkpoint/routing_trace.hpp>

#include <sstream>

extern "C" int LLVMFuzzerTestOneInput(std::uint8_t const* data, std::size_t size) {
    std::string_view const text = size == 0 ? std::string_view() : std::string_view(reinterpret_cast<char const*>(data), size);
    std::ostringstream out;
    std::size_t whole = 0;  // bytes of the lines that were read
    try {
        tenon::routing_trace_reader reader(text, "fuzz");
        tenon::routing_trace_writer writer(out, reader.shape());
        whole = text.find('\n') + 1;
        for (tenon::routed_row row; reader.next(row); whole = text.find('\n', whole) + 1) {
            if (row.layer < 0 || row.layer >= tenon::most_layers || row.experts.size() != static_cast<std::size_t>(reader.shape().chosen))
                std::abort();
            writer.write(row);  // a refusal here would name the text to be written, and end the program below
        }
        writer.finish();
        if (whole != text.size()) std::abort();
    } catch (tenon::refusal const& r) {
        if (std::string_view(r.what()).find(": fuzz: line ") == std::string_view::npos) std::abort();
    }
    if (out.str() != text.substr(0, whole)) std::abort();
    return 0;
}

#ifdef TENON_FUZZ_MAIN
int main(int count, char** arguments) {
    std::string const seeds[]{"tenon-routing-trace 1 experts=4 chosen=2\n0 0 0 1 3\n2 0 0 0 1\n0 7 9223372036854775807 2 3\n",
                              "tenon-routing-trace 1 experts=1024 chosen=1\n255 0 0 1023\n",
                              "tenon-routing-trace 1 experts=8 chosen=8\n0 0 0 0 1 2 3 4 5 6 7\n",
                              "tenon-routing-trace 1 experts=1 chosen=1\n", ""};
    std::string_view const words[]{"0",
                                   "1",
                                   "-1",
                                   "+1",
                                   "01",
                                   "1.0",
                                   "1e0",
                                   "255",
                                   "256",
                                   "1023",
                                   "1024",
                                   "9223372036854775807",
                                   "9223372036854775808",
                                   "18446744073709551617",
                                   " ",
                                   "  ",
                                   "\t",
                                   "\n",
                                   "\r\n",
                                   "\n\n",
                                   " 1",
                                   " 3\n",
                                   "0 0 0 1 3\n",
                                   "experts=",
                                   " chosen=",
                                   "tenon-routing-trace 1 experts=4 chosen=2\n",
                                   "tenon-routing-trace 2 "};
    return fuzz::run(count, arguments, LLVMFuzzerTestOneInput, seeds, words, 200'000);
}
#endif
