// Reads the reference of a golden checkpoint: prompts, greedy continuations and binary64 logits.
// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <nlohmann/json.hpp>

#include <cstdint>
#include <cstring>
#include <fstream>
#include <iterator>
#include <stdexcept>
#include <string>
#include <vector>

namespace support {

/// The numbers of a version 1.0 .npy file of little-endian float64, or of float32.
template <class T>
std::vector<T> read_npy(std::string const& path) {
    std::ifstream file(path, std::ios::binary);
    std::string const all((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
    if (all.size() < 10 || all.compare(1, 5, "NUMPY") != 0) throw std::runtime_error(path + " is no .npy file");
    std::size_t const begin = 10 + static_cast<unsigned char>(all[8]) + 256U * static_cast<unsigned char>(all[9]);
    std::string const type = sizeof(T) == 8 ? "'<f8'" : "'<f4'";
    if (all.substr(10, begin - 10).find(type) == std::string::npos) throw std::runtime_error(path + " does not hold " + type);
    std::vector<T> numbers((all.size() - begin) / sizeof(T));
    std::memcpy(numbers.data(), all.data() + begin, numbers.size() * sizeof(T));
    return numbers;
}

struct golden {
    std::string directory{};
    std::vector<std::vector<std::int32_t>> prompts{}, greedy{};
    std::vector<std::size_t> row_offsets{};
    int new_tokens = 0;
    std::vector<double> logits{}, decode_logits{};
};

inline golden read_golden(std::string const& directory) {
    golden g;
    g.directory = directory;
    std::ifstream file(directory + "/reference.json");
    nlohmann::json const j = nlohmann::json::parse(file);
    g.prompts = j.at("prompts").get<std::vector<std::vector<std::int32_t>>>();
    g.greedy = j.at("greedy").get<std::vector<std::vector<std::int32_t>>>();
    g.row_offsets = j.at("row_offsets").get<std::vector<std::size_t>>();
    g.new_tokens = j.at("new_tokens").get<int>();
    g.logits = read_npy<double>(directory + "/logits_f64.npy");
    g.decode_logits = read_npy<double>(directory + "/decode_logits_f64.npy");
    return g;
}

}  // namespace support
