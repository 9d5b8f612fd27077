// What both programs know: how the model is cut, and who they are to each other, by certificates of one authority.
// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <tenon/graph/graph.hpp>
#include <tenon/tenon.hpp>

#include "../embedded_model/embedded.hpp"

#include <fstream>
#include <iterator>
#include <stdexcept>
#include <string>

namespace grpc_hosts {

/// Head and middle for one program, the tail for another.
struct split : tenon::graph<embedded_model,
    tenon::stage<tenon::layers<0, 0>, tenon::device::cpu<0>>,
    tenon::stage<tenon::layers<1, embedded_model::half - 1>, tenon::device::cpu<1>>,
    tenon::stage<tenon::layers<embedded_model::half, embedded_model::last>, tenon::device::cpu<2, 3>>> {};

/// The PEM files of a folder: the authority that the other side must be certified by, and one's own certificate and key.
struct identity {
    std::string authority, certificate, key;

    explicit identity(std::string const& folder)
        : authority(text_of_file(folder + "/authority.pem")),
          certificate(text_of_file(folder + "/certificate.pem")),
          key(text_of_file(folder + "/key.pem")) {}

private:
    static std::string text_of_file(std::string const& path) {
        std::ifstream file(path, std::ios::binary);
        if (!file) throw std::runtime_error(path + " cannot be read");
        return {std::istreambuf_iterator<char>(file), {}};
    }
};

}  // namespace grpc_hosts
