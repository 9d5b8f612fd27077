// As digest_main.cpp, with Eigen's arithmetic: one digest within one build, however many threads Eigen may use. Argument: FOLDER.
// SPDX-License-Identifier: Apache-2.0
#include "digest.hpp"

#include <tenon/device/eigen.hpp>

int main(int argc, char** argv) {
    if (argc == 2) return print_digests<tenon::device::eigen>(argv[1], {});
    std::fprintf(stderr, "eigen-digest FOLDER\n");
    return 1;
}
