# Runs a program under mpirun with 1 to 4 processes, or as many as told, each run within a deadline; nothing may be left running.
# SPDX-License-Identifier: Apache-2.0
#
#   check.py MPIRUN PROGRAM [PROCESSES...]
import sys

from launch import summary, together


def main(arguments):
    mpirun, program, *told = arguments
    return summary([together(mpirun, processes, program) for processes in told or (1, 2, 3, 4)])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
