// A digest for each of several plans over a checkpoint folder: every compiler, flag, architecture and instruction set must print the
// same. Arguments: FOLDER ISA.
// SPDX-License-Identifier: Apache-2.0
#include "digest.hpp"

int main(int argc, char** argv) {
    if (argc == 3) return print_digests<tenon::device::cpu>(argv[1], argv[2]);
    std::fprintf(stderr, "digest FOLDER ISA\n");
    return 1;
}
