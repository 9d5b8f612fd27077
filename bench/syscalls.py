# Counts the system calls of steady decode steps: strace's counts of two runs of different length, so that loading is in both and falls out.
# SPDX-License-Identifier: Apache-2.0
#
#   syscalls.py LATENCY_BENCH MODEL [--steps N] [--plan PLAN]... [--runtime NAME]... [--enforce]
#
# A traced call takes a hundred times as long as it does otherwise, so that whoever waits for one that is traced gives up looking and makes calls of
# its own; the least of several runs counts. Where ranks, and the host of worker processes, outnumber the cores, whoever waits gives its turn away,
# which is a call: rows of that kind are marked, and --enforce leaves them out. Threads and workers are pinned, each to a core: two
# that share one cannot wait for each other otherwise.
import argparse
import collections
import os
import re
import shutil
import subprocess
import sys
import tempfile


def calls(strace, program, arguments):
    """System calls of a run and of all its threads and processes, by name."""
    with tempfile.NamedTemporaryFile("r", suffix=".strace") as report:
        subprocess.run([strace, "-f", "-c", "-U", "name,calls", "-o", report.name, program, *arguments], check=True, timeout=600,
                       stdin=subprocess.DEVNULL)
        counts = collections.Counter()
        for line in report:
            if found := re.fullmatch(r"\s*(\w+)\s+(\d+)\s*", line):
                counts[found[1]] += int(found[2])
        counts.pop("total", None)
        return counts


def a_step(strace, program, model, plan, runtime, steps, tries):
    """The fewest system calls of a step, and which."""
    best = None
    for _ in range(tries):
        short, long = (calls(strace, program, [model, plan, runtime, str(n)]) for n in (steps, 2 * steps))
        more = {name: (long[name] - short[name]) / steps for name in long | short if long[name] != short[name]}
        if best is None or sum(map(abs, more.values())) < sum(map(abs, best.values())):
            best = more
    return sum(best.values()), best


def runners(plan, runtime):
    devices = {device for part in plan.split(";") for device in part.split("@")[1].split(":")[0].split(",")}
    return {"sequential": 1, "threads": len(devices), "processes": len(devices) + 1}[runtime]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("program")
    parser.add_argument("model")
    parser.add_argument("--steps", type=int, default=2000)
    parser.add_argument("--tries", type=int, default=3)
    parser.add_argument("--plan", action="append")
    parser.add_argument("--runtime", action="append")
    parser.add_argument("--enforce", action="store_true", help="fail where a step makes a system call in twenty or more")
    given = parser.parse_args()
    strace = shutil.which("strace")
    if strace is None:
        sys.exit("no strace here; a package of that name would do")
    cores, failed = len(os.sched_getaffinity(0)), False
    print("| plan | runtime | system calls a step | which |\n|---|---|---|---|")
    for plan in given.plan or ["all@0", "all@0,1", "0-1@0;2-3@1"]:
        for runtime in given.runtime or ["sequential", "threads", "processes"]:
            total, more = a_step(strace, given.program, given.model, plan, runtime, given.steps, given.tries)
            crowded = runners(plan, runtime) > cores
            which = ", ".join(f"{name} {count:.3f}" for name, count in sorted(more.items(), key=lambda item: -item[1]) if abs(count) >= 0.001)
            print(f"| `{plan}` | {runtime} | {total:.3f}{', more runners than cores' if crowded else ''} | {which} |", flush=True)
            failed = failed or (not crowded and total >= 0.05)
    return 1 if given.enforce and failed else 0


if __name__ == "__main__":
    sys.exit(main())
