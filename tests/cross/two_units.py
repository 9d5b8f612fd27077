# Links two translation units that were compiled with unlike compilers or flags into one program, in both orders, so that either's copy
# of an inline function is the one that is linked. Every unit of every program must print one digest.
# SPDX-License-Identifier: Apache-2.0
#
#   two_units.py TWO_UNITS.cpp INCLUDE_FOLDER CHECKPOINT
import pathlib
import shutil
import subprocess
import sys
import tempfile

PLAIN = ["g++", "-O0", "-march=x86-64"]
NATIVE = ["g++", "-O3", "-march=native", "-ffp-contract=fast"]
CLANG = ["clang++-19", "-O2", "-ffp-contract=fast"]
PAIRS = [(PLAIN, NATIVE), (CLANG, NATIVE)]


def main(source, include, checkpoint):
    digests = set()
    with tempfile.TemporaryDirectory() as folder:
        units = {}

        def compiled(command, *macros):
            key = " ".join([*command, *macros])
            if key not in units:
                units[key] = str(pathlib.Path(folder, f"unit{len(units)}.o"))
                subprocess.run([*command, "-std=c++20", "-I" + include, *macros, "-c", "-o", units[key], source], check=True)
            return units[key]

        for first, second in PAIRS:
            if missing := [c[0] for c in (first, second) if shutil.which(c[0]) is None]:
                print(f"skipped: {missing[0]} is not here")
                continue
            objects = [compiled(first, "-DTENON_UNIT=first_digest"), compiled(second, "-DTENON_UNIT=second_digest", "-DTENON_MAIN")]
            for order in (objects, objects[::-1]):
                program = str(pathlib.Path(folder, "program"))
                subprocess.run(["g++", *order, "-pthread", "-o", program], check=True)
                run = subprocess.run([program, checkpoint], text=True, check=False, stdout=subprocess.PIPE)
                print(f"{run.stdout.strip() or 'exit ' + str(run.returncode)}: {' '.join(first)} | {' '.join(second)}", flush=True)
                digests.update(run.stdout.split() or [f"exit {run.returncode}"])
    return 0 if len(digests) == 1 and not next(iter(digests)).startswith("exit") else 1


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
