#!/usr/bin/env python3
"""Runs two commands in turn, again and again, and prints the ratio of their medians.

    python3 bench/compare.py --runs 9 --value decode_tokens_per_s \\
        "build/bench/tenon-bench --config c.json --weights bf16 --json" \\
        --other-value 'tg[0-9]+.*?([0-9.]+)' "some-other-program --flags"

A machine that others use drifts within minutes; two commands that alternate drift together, so that their ratio can be trusted where
their figures cannot. A value is a key of the JSON object that a command prints, or a regular expression whose first group is the number
(the last match counts); without one the seconds of the whole command are compared. The first run of each warms up and is not counted.
Exit status: 0; 1 where a command fails or prints no such value; 2 for bad arguments.
"""
import argparse
import json
import re
import statistics
import subprocess
import sys
import time


class no_value(Exception):
    pass


def value_of(output, seconds, what):
    """The number that `what` finds in what a command printed."""
    if what is None:
        return seconds
    begin, end = output.find("{"), output.rfind("}")
    if begin >= 0 and end > begin:
        try:
            found = json.loads(output[begin : end + 1]).get(what)
            if isinstance(found, (int, float)) and not isinstance(found, bool):
                return float(found)
        except (json.JSONDecodeError, AttributeError):
            pass
    try:
        matches = re.findall(what, output)
    except re.error as wrong:
        raise no_value(f"{what!r} is neither a key of what was printed nor a regular expression: {wrong}")
    if not matches:
        raise no_value(f"no {what!r} in what was printed:\n{output[-2000:]}")
    last = matches[-1] if isinstance(matches[-1], str) else matches[-1][0]
    try:
        return float(last)
    except ValueError:
        raise no_value(f"{what!r} finds {last!r}, which is no number; the first group is to be one")


def run(command, what):
    begin = time.perf_counter()
    done = subprocess.run(command, shell=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    seconds = time.perf_counter() - begin
    if done.returncode != 0:
        raise no_value(f"exit status {done.returncode} of {command}:\n{done.stdout[-2000:]}")
    return value_of(done.stdout, seconds, what)


def spread(values):
    return f"{statistics.median(values):.6g} ({min(values):.6g} to {max(values):.6g})"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("first", help="a command, for the shell")
    parser.add_argument("second", help="what it is compared with")
    parser.add_argument("--value", help="of both commands, or of the first: a JSON key or a regular expression; seconds where left out")
    parser.add_argument("--other-value", help="of the second, where it prints another")
    parser.add_argument("--runs", type=int, default=7, help="counted runs of each (default 7)")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    arguments = parser.parse_args()
    if arguments.runs < 1:
        parser.error("--runs is 1 or more")
    commands = [(arguments.first, arguments.value), (arguments.second, arguments.other_value or arguments.value)]
    values = [[], []]
    try:
        for attempt in range(arguments.runs + 1):
            for which in (0, 1) if attempt % 2 == 0 else (1, 0):  # neither always goes first
                value = run(*commands[which])
                if attempt > 0:
                    values[which].append(value)
    except no_value as failed:
        print(failed, file=sys.stderr)
        return 1
    medians = [statistics.median(v) for v in values]
    pairs = [a / b for a, b in zip(*values) if b != 0]
    ratio = medians[0] / medians[1] if medians[1] != 0 else float("inf")
    if arguments.json:
        print(json.dumps({"first": values[0], "second": values[1], "medians": medians, "ratio_of_medians": ratio,
                          "median_of_ratios": statistics.median(pairs) if pairs else None}))
    else:
        print(f"first   {spread(values[0])}\nsecond  {spread(values[1])}")
        print(f"ratio of medians, first to second: {ratio:.3f}" + (f"; of pairs {min(pairs):.3f} to {max(pairs):.3f}" if pairs else ""))
    return 0


if __name__ == "__main__":
    sys.exit(main())
