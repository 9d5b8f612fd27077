# Runs a program and the worker processes that it starts under valgrind: no error and no leak, in any of them.
# SPDX-License-Identifier: Apache-2.0
#
#   check.py VALGRIND PROGRAM [ARGUMENT...]      exit status 77 where there is no valgrind, which Meson counts as skipped
import os
import pathlib
import platform
import re
import subprocess
import sys
import tempfile

SKIPPED, ERRORS, DEADLINE = 77, 99, 600
TRIES = 3
SUMMARY = re.compile(r"ERROR SUMMARY: (\d+) errors")
COMMAND = re.compile(r"== Command: (.*)")
STACK = re.compile(r"^==\d+==    at 0x", re.M)


def isa():
    """The best instruction set that valgrind knows: not AVX-512."""
    if platform.machine() not in ("x86_64", "AMD64"):
        return "auto"
    return "avx2" if re.search(r"^flags.*\bavx2\b", pathlib.Path("/proc/cpuinfo").read_text(encoding="utf-8"), re.M) else "portable"


def run(valgrind, command):
    """The program's exit status and output, and what valgrind says of every process."""
    with tempfile.TemporaryDirectory() as scratch:
        watched = [valgrind, "--trace-children=yes", f"--error-exitcode={ERRORS}", "--leak-check=full", f"--log-file={scratch}/%p",
                   f"--suppressions={pathlib.Path(__file__).with_name('running_thread.supp')}", *command]
        done = subprocess.run(watched, env=os.environ | {"TENON_ISA": isa()}, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=DEADLINE)
        return done, [path.read_text(encoding="utf-8", errors="replace") for path in sorted(pathlib.Path(scratch).iterdir())]


def faulty(log):
    """Whether valgrind has found something; a process that was killed has no summary, and shows what was found until then."""
    summary = SUMMARY.search(log)
    return summary[1] != "0" if summary else STACK.search(log) is not None


def main(arguments):
    valgrind, *command = arguments
    if not valgrind:
        print("SKIPPED: valgrind is not here, so that nobody looks for errors and leaks of worker processes")
        return SKIPPED
    command[0] = str(pathlib.Path(command[0]).resolve())  # as a worker is started
    workers = 0
    for _ in range(TRIES):  # a host ends a worker that takes a second to leave, which valgrind's search for leaks may on a busy machine
        done, logs = run(valgrind, command)
        bad = [log for log in logs if faulty(log)]
        # A worker is the program without arguments.
        workers += sum((found := COMMAND.search(log)) is not None and found[1] == command[0] and SUMMARY.search(log) is not None for log in logs)
        for log in bad:
            print("\n".join(line for line in log.splitlines() if line.startswith("==")))
        print(f"{done.stdout}{done.stderr}exit status {done.returncode}; {len(logs)} processes, {len(bad)} with errors or leaks; {workers} workers seen to their end")
        if done.returncode != 0 or bad:
            return 1
        if workers >= 2:
            return 0
    return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
