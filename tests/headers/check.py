# Compiles the public headers: each alone, all in both orders, in two translation units that link, for the macros they leave, and where
# min and max are macros already.
# SPDX-License-Identifier: Apache-2.0
#
#   check.py alone|together|link|macros|minmax HEADER... -- COMPILER [FLAG...]      headers as below include/
import pathlib
import re
import subprocess
import sys
import tempfile

WARNINGS = ["-Wall", "-Wextra", "-Wpedantic", "-Wshadow", "-Wconversion", "-Werror"]


def including(headers):
    return "".join(f"#include <{header}>\n" for header in headers)


def run(command, text):
    done = subprocess.run([*command, "-x", "c++", "-"], input=text, text=True, errors="replace", check=False,
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    if done.returncode != 0:
        sys.exit(f"{' '.join(command)}\n{text}\n{done.stderr}")
    return done.stdout


def alone(headers, compiler):
    for header in headers:
        run([*compiler, *WARNINGS, "-fsyntax-only"], including([header, header]))


def together(headers, compiler):
    for order in (headers, headers[::-1]):
        run([*compiler, *WARNINGS, "-fsyntax-only"], including(order))


def link(headers, compiler):
    """What is defined in a header and is not inline is defined twice here."""
    with tempfile.TemporaryDirectory() as folder:
        objects = []
        for name, text in (("one", including(headers)), ("two", including(headers[::-1]) + "int main() {}\n")):
            objects.append(str(pathlib.Path(folder, name + ".o")))
            run([*compiler, "-c", "-o", objects[-1]], text)
        program = str(pathlib.Path(folder, "program"))
        subprocess.run([compiler[0], *objects, "-pthread", "-o", program], check=True)
        subprocess.run([program], check=True)


def macros(headers, compiler):
    """-dD keeps the directives and says which file each is in."""
    current, left = "", {}
    for line in run([*compiler, "-E", "-dD"], including(headers)).splitlines():
        if marker := re.match(r'# \d+ "(.*?)"', line):
            current = marker[1]
        elif undefined := re.match(r"#undef (\w+)", line):
            left.pop(undefined[1], None)
        elif (defined := re.match(r"#define (\w+)", line)) and "/include/tenon/" in current:
            left[defined[1]] = current
    stray = {name: file for name, file in left.items() if not name.startswith("TENON_")}
    if stray:
        sys.exit("\n".join(f"{file} leaves the macro {name}" for name, file in stray.items()))


def minmax(headers, compiler):
    """As <windows.h> leaves them. The standard library first, which would undefine them. No header of ours may undefine them either."""
    run([*compiler, *WARNINGS, "-fsyntax-only"], "#include <bits/stdc++.h>\n"
        "#define min(a, b) ((a) < (b) ? (a) : (b))\n#define max(a, b) ((a) > (b) ? (a) : (b))\n" + including(headers) +
        "#if !defined(min) || !defined(max)\n#error a header undefines min or max\n#endif\n")


def main(arguments):
    end = arguments.index("--")
    checks = {"alone": alone, "together": together, "link": link, "macros": macros, "minmax": minmax}
    checks[arguments[0]](arguments[1:end], arguments[end + 1:])


if __name__ == "__main__":
    main(sys.argv[1:])
