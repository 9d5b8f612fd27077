// The embedded model's type and its checkpoint describe one model.
// SPDX-License-Identifier: Apache-2.0
#include "../../../examples/embedded_model/embedded.hpp"

#include <doctest/doctest.h>
#include <tenon/checkpoint/config_json.hpp>
#include <tenon/checkpoint/mapped_file.hpp>

#include <string>

TEST_CASE("embedded.hpp has the numbers of the embedded model's config.json") {
    std::string const path = std::string(TENON_EMBEDDED_MODEL) + "/config.json";
    tenon::checkpoint::mapped_file const file(path);
    CHECK(tenon::checkpoint::read_config(file.text(), path) == embedded_model::config);
}

TEST_CASE("the embedded model's text survives its vocabulary") {
    std::string const text = "caf\xC3\xA9, \"quite\"\n";
    CHECK(text_of(tokens_of(text)) == text);
}
