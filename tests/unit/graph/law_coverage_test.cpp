// Every law has a program that a compiler refuses, or a reason why none can be written.
// SPDX-License-Identifier: Apache-2.0
#include <doctest/doctest.h>
#include <tenon/core/law.hpp>
#include <algorithm>
#include <array>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

using namespace tenon;

namespace {
/// The `// expect:` lines of every program that must not compile.
std::string expectations() {
    std::string text;
    for (auto const& entry : std::filesystem::directory_iterator(std::filesystem::path(TENON_TEST_DATA) / ".." / "compile_fail")) {
        if (entry.path().extension() != ".cpp") continue;
        std::ifstream file(entry.path());
        for (std::string line; std::getline(file, line);)
            if (line.find("// expect:") != std::string::npos) text += line + '\n';
    }
    return text;
}
}  // namespace

TEST_CASE("every law has a program that breaks it and does not compile") {
    std::string const expected = expectations();
    REQUIRE_FALSE(expected.empty());
    for (std::size_t i = 1; i < law_table.size(); ++i) {
        bool const refused = expected.find("law::" + std::string(law_table[i].name) + ",") != std::string::npos;
        CAPTURE(law_table[i].name);
        CHECK(refused);
    }
}

TEST_CASE("laws and quantities have words, and no two laws share a name") {
    for (std::size_t i = 0; i < law_table.size(); ++i) {
        CHECK_FALSE(law_table[i].name.empty());
        CHECK_FALSE(law_table[i].sentence.empty());
        for (std::size_t j = 0; j < i; ++j) CHECK(law_table[i].name != law_table[j].name);
    }
    for (std::string_view const name : quantity_names) CHECK_FALSE(name.empty());
}
