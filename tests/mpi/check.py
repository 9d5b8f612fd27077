# Runs a program under mpirun with 1 to 4 processes, each run within a deadline; nothing may be left running.
# SPDX-License-Identifier: Apache-2.0
#
#   check.py MPIRUN PROGRAM
import os
import subprocess
import sys

DEADLINE = 240  # seconds for one run


def run(mpirun, program, processes):
    env = os.environ | {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1", "OMPI_MCA_rmaps_base_oversubscribe": "1",
                        "OMPI_MCA_btl_vader_single_copy_mechanism": "none"}
    command = [mpirun, "-n", str(processes), program]
    try:
        done = subprocess.run(command, env=env, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=DEADLINE)
    except subprocess.TimeoutExpired as late:
        print(f"{' '.join(command)} has not ended after {DEADLINE} s\n{late.stdout}\n{late.stderr}")
        return False
    good = done.returncode == 0 and f"{processes} processes: 0 failed checks" in done.stdout
    if not good:
        print(f"{' '.join(command)} gave {done.returncode}\n{done.stdout[-3000:]}{done.stderr[-3000:]}")
    return good


def main(arguments):
    mpirun, program = arguments
    results = [run(mpirun, program, processes) for processes in (1, 2, 3, 4)]
    print(f"{sum(results)} of {len(results)} runs passed")
    return 0 if all(results) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
