# Compiles a wrong program twice: as written, one error that reads as expected; repaired, none.
# SPDX-License-Identifier: Apache-2.0
#
#   check.py CASE.cpp -- COMPILER [FLAG...]
#
# A case holds one or more lines `// expect: REGEX`, each to be found in what the compiler prints, and under `#ifdef REPAIRED`
# the same program without the mistake: so it was refused for that mistake and for nothing else.
import os
import re
import subprocess
import sys


def compile_case(command, case, *flags):
    run = subprocess.run([*command, *flags, "-fsyntax-only", case], text=True, errors="replace", check=False,
                         stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env={**os.environ, "LC_ALL": "C"})
    return run.returncode, run.stdout


def faults(case, command):
    with open(case, encoding="utf-8") as text:
        source = text.read()
    expected = [regex.strip() for regex in re.findall(r"^\s*//\s*expect:(.*)$", source, re.M)]
    if not expected or not all(expected):
        return [f"{case}: no `// expect: REGEX`"], ""
    if "REPAIRED" not in source:
        return [f"{case}: no repair under `#ifdef REPAIRED`"], ""
    found = []
    status, output = compile_case(command, case)
    errors = [line for line in output.splitlines() if "error:" in line]
    if status == 0:
        found.append("compiled, and must not")
    elif len(errors) != 1:
        found.append(f"{len(errors)} errors where one is expected")
    found += [f"the diagnostic does not match: {regex}" for regex in expected if not re.search(regex, output)]
    status, repaired = compile_case(command, case, "-DREPAIRED")
    if status != 0:
        found.append("does not compile when repaired")
        output += "\n-- repaired --\n" + repaired
    return found, output


def main(arguments):
    end = arguments.index("--")
    found, output = faults(arguments[0], arguments[end + 1:])
    for fault in found:
        print(fault)
    if found:
        print("-- the compiler said --\n" + output)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
