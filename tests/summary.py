# Counts what `meson test` ran: the cases of a doctest runner, or else the test as one. Prints `N passed, N failed`.
# SPDX-License-Identifier: Apache-2.0
#
#   summary.py TESTLOG.json      fails if a test failed, crashed or timed out, or if nothing ran
import json
import re
import sys

CASES = re.compile(r"\[doctest\] test cases:\s*(\d+)\s*\|\s*(\d+) passed\s*\|\s*(\d+) failed")


def count(test):
    """What one test adds to (passed, failed). A runner that did not end well has failed once at least."""
    good = test["result"] in ("OK", "EXPECTEDFAIL")
    # The program's own last line, without colours; a runner without a single case has tested nothing.
    found = CASES.findall(re.sub(r"\x1b\[[0-9;]*m", "", test.get("stdout") or ""))
    if not found:
        return (1, 0) if good else (0, 1)
    total, passed, failed = (int(number) for number in found[-1])
    if good and total == 0:
        return 0, 1
    return passed, failed if good else max(failed, 1)


def main(path):
    try:
        with open(path, encoding="utf-8") as log:
            tests = [json.loads(line) for line in log if line.strip()]
    except OSError:
        tests = []
    for test in tests:
        if test["result"] == "SKIP":
            print(f"SKIP: {test['name']}: {(test.get('stdout') or '').strip()}")
    counts = [count(test) for test in tests if test["result"] != "SKIP"]
    passed, failed = sum(c[0] for c in counts), sum(c[1] for c in counts)
    for test, (_, bad) in zip((t for t in tests if t["result"] != "SKIP"), counts):
        if bad:
            print(f"{test['result']}: {test['name']}")
    if not counts:
        print("nothing ran")
    print(f"{passed} passed, {failed} failed")
    return 0 if passed and not failed else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
