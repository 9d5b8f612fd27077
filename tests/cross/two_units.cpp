// One of two translation units of a program: compiled twice with unlike flags, as TENON_UNIT first_digest and second_digest, the latter
// with the program's main. An inline function is then there twice, in different code; whichever is linked, both print one digest.
// SPDX-License-Identifier: Apache-2.0
#include "digest.hpp"

unsigned long long TENON_UNIT(char const* folder) {
    return digest_of<tenon::device::cpu>(folder, "0-1@0,1;2-3@2", tenon::runtime_kind::threads);
}

#ifdef TENON_MAIN
unsigned long long first_digest(char const* folder);

int main(int, char** argv) {
    unsigned long long const first = first_digest(argv[1]), second = second_digest(argv[1]);
    std::printf("%016llx %016llx\n", first, second);
    return first == second ? 0 : 1;
}
#endif
