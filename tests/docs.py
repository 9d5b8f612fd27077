#!/usr/bin/env python3
"""Compiles every C++ program of the documentation: a ```cpp block whose fence says `complete`. Checks the page of laws as well.

SPDX-License-Identifier: Apache-2.0

    docs.py DOCS_FOLDER -- COMPILER FLAG...
"""
import pathlib
import re
import subprocess
import sys
import tempfile

BLOCK = re.compile(r"^```cpp complete\n(.*?)^```$", re.M | re.S)


def main(arguments):
    end = arguments.index("--")
    folder, command = pathlib.Path(arguments[0]), arguments[end + 1:]
    if subprocess.run([sys.executable, str(folder / "make_laws.py"), "--check"], check=False).returncode != 0:
        sys.exit(1)
    failed = count = 0
    with tempfile.TemporaryDirectory() as work:
        source = pathlib.Path(work) / "block.cpp"
        for page in sorted(folder.glob("*.md")):
            for number, block in enumerate(BLOCK.findall(page.read_text(encoding="utf-8"))):
                count += 1
                source.write_text(block, encoding="utf-8")
                done = subprocess.run([*command, "-Wall", "-Wextra", "-Werror", "-fsyntax-only", str(source)], capture_output=True, text=True, check=False)
                if done.returncode != 0:
                    failed += 1
                    print(f"{page.name}, program {number}:\n{done.stderr}")
    print(f"{count} programs, {failed} refused")
    sys.exit(1 if failed or count == 0 else 0)


if __name__ == "__main__":
    main(sys.argv[1:])
