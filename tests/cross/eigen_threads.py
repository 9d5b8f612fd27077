# Eigen's arithmetic has one digest within one build, whatever the plan and the number of OpenMP threads; builds may differ.
# SPDX-License-Identifier: Apache-2.0
#
#   eigen_threads.py EIGEN_DIGEST_MAIN.cpp INCLUDE_FLAGS... -- CHECKPOINT...
import os
import pathlib
import re
import subprocess
import sys
import tempfile

BUILDS = [["-O2"], ["-O2", "-fopenmp"], ["-O3", "-march=native", "-fopenmp"]]
THREADS = ["1", "2"]


def digests_of(program, checkpoint, threads):
    """{(weight format, digest)} over all plans."""
    run = subprocess.run([program, checkpoint], text=True, check=True, stdout=subprocess.PIPE, env={**os.environ, "OMP_NUM_THREADS": threads})
    return set(re.findall(r"^(\S+) .* ([0-9a-f]{16})$", run.stdout, re.M))


def main(arguments):
    end = arguments.index("--")
    (source, *flags), checkpoints = arguments[:end], arguments[end + 1:]
    failed = False
    with tempfile.TemporaryDirectory() as folder:
        program = str(pathlib.Path(folder, "digest"))
        for build in BUILDS:
            subprocess.run(["g++", "-std=c++20", *build, *flags, "-o", program, source, "-pthread"], check=True)
            for checkpoint in checkpoints:
                found = set.union(*(digests_of(program, checkpoint, threads) for threads in THREADS))
                one_each = len(found) == len({weights for weights, _ in found}) == 2
                failed |= not one_each
                print(f"{'one digest' if one_each else 'SEVERAL DIGESTS'}: {' '.join(build)}, {pathlib.Path(checkpoint).name}: {sorted(found)}", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
