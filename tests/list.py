# Lists source files for Meson, which has no glob.
# SPDX-License-Identifier: Apache-2.0
#
#   list.py ROOT/FOLDER PATTERN [--main yes|no]   paths below the folder, sorted, one a line; with or without a main of their own
#   list.py ROOT                                  every file that the build files ask for so: when this changes, configure again
import pathlib
import re
import sys

WATCHED = {"include": "*.hpp", "tests": "*_test.cpp", "tests/fuzz": "*_fuzz.cpp", "tests/compile_fail": "*.cpp", "tests/tools": "*_test.py",
           "examples": "*.cpp", "bench": "*.cpp"}


def has_main(path):
    return re.search(r"^\s*(auto|int)\s+main\s*\(", path.read_text(encoding="utf-8", errors="replace"), re.M) is not None


def files(top, pattern):
    return [path for path in sorted(top.rglob(pattern)) if path.is_file()] if top.is_dir() else []


def main(arguments):
    top = pathlib.Path(arguments[0])
    if len(arguments) == 1:
        found = [path for folder, pattern in WATCHED.items() for path in files(top / folder, pattern)]
        found += [path for path in [top / "examples/embedded_model/model/config.json"] if path.is_file()]
    else:
        found = files(top, arguments[1])
    if "--main" in arguments:
        found = [path for path in found if has_main(path) == (arguments[-1] == "yes")]
    for path in found:
        print(path.relative_to(top).as_posix())


if __name__ == "__main__":
    main(sys.argv[1:])
