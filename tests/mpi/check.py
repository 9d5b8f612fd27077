# Runs a program under mpirun with 1 to 4 processes, or as many as told, with an MPI for one thread, and with one that throws in a step, each
# run within a deadline; nothing may be left running.
# SPDX-License-Identifier: Apache-2.0
#
#   check.py MPIRUN PROGRAM [PROCESSES...]
import sys

from launch import ended, summary, together


def thrown(mpirun, processes, program):
    """The others wait for what never comes: all are ended, and the reason is told."""
    reason = f"process {processes - 1} of the model: memory_suffices: the gated unit found none; all processes are ended"
    return ended([mpirun, "-n", processes, program, "throws"], lambda code, out, err: code != 0 and reason in err and "has gone on" not in out)


def main(arguments):
    mpirun, program, *told = arguments
    runs = [together(mpirun, processes, program) for processes in told or (1, 2, 3, 4)]
    runs.append(together(mpirun, 2, program, "single"))
    return summary(runs + [thrown(mpirun, processes, program) for processes in (2, 3)])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
