# Saves sequences under plain, two and three MPI processes, goes on from them under the others, and compares the bytes that each of them saves.
# SPDX-License-Identifier: Apache-2.0
#
#   states.py MPIRUN PROGRAM      PROGRAM is that of states_main.cpp
import pathlib
import sys
import tempfile

from launch import passes, summary, together

# Plans of so many devices; of one, without MPI. Heads are cut in some layers, and lie on one process in others.
PLANS = {1: "all@0", 2: "0-2@0,1:tensor;3@1", 3: "0@2;1-2@0,1:tensor.reduce;3@0"}
MODELS = 3


def run(mpirun, program, what, processes, folder):
    runtime = "plain" if processes == 1 else "mpi"
    command = [program, what, runtime, PLANS[processes], folder]
    good = passes(command, 1) if processes == 1 else together(mpirun, processes, *command)
    if not good:
        print(f"{what} under {runtime}, {PLANS[processes]}")
    return good


def without_the_plan(path):
    """A snapshot's bytes but for its plan, its length and its checksum, which the plan's text moves."""
    data, at = path.read_bytes(), 148
    for _ in range(4):
        at += 4 + int.from_bytes(data[at:at + 4], "little")
    return data[:12] + data[20:at] + data[at + 4 + int.from_bytes(data[at:at + 4], "little"):-4]


def main(arguments):
    mpirun, program = arguments
    results = []
    with tempfile.TemporaryDirectory() as scratch:
        folders = {processes: pathlib.Path(scratch, str(processes)) for processes in PLANS}
        for processes, folder in folders.items():
            folder.mkdir()
            results.append(run(mpirun, program, "save", processes, folder))
        for saved, folder in folders.items():
            for number in range(MODELS if all(results) else 0):
                for what in (without_the_plan, lambda path: path.with_suffix(".rows").read_bytes()):
                    if what(folder / f"{number}") != what(folders[1] / f"{number}"):
                        print(f"model {number}: what {saved} processes save has other bytes than what one does")
                        results.append(False)
            for processes in folders:
                if processes == saved:
                    continue
                results.append(run(mpirun, program, "restore", processes, folder))
                for number in range(MODELS if results[-1] else 0):
                    if without_the_plan(folder / f"{number}") != without_the_plan(folder / f"{number}.again"):
                        print(f"model {number}: saved by {saved}, then by {processes} processes, it has other bytes")
                        results.append(False)
    return summary(results)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
