# Compiles the first program of README.md, then the same with the wrong split, whose diagnostic must be the one that README shows.
# SPDX-License-Identifier: Apache-2.0
#
#   readme.py README.md -- COMPILER [FLAG...]
import re
import subprocess
import sys


def blocks(text, language):
    return re.findall(rf"^```{language}\n(.*?)^```", text, re.M | re.S)


def plain(text):
    """Without what the compilers spell differently: namespaces, and the space between two closing brackets."""
    return re.sub(r"\s+", " ", re.sub(r"\btenon::|\bv0::", "", text).replace("> >", ">>")).strip()


def compile_text(command, text):
    run = subprocess.run([*command, "-fsyntax-only", "-x", "c++", "-"], input=text, text=True, errors="replace", check=False,
                         stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    return run.returncode, run.stdout


def main(arguments):
    end = arguments.index("--")
    with open(arguments[0], encoding="utf-8") as file:
        readme = file.read()
    command = arguments[end + 1:]
    program, wrong_split = blocks(readme, "cpp")[:2]
    shown = plain(blocks(readme[readme.index("<!-- diagnostic: begin -->"):], "text")[0])

    status, output = compile_text(command, program)
    if status != 0:
        return f"the first program of README does not compile:\n{output}"
    wrong, changed = re.subn(r"^struct split .*?^};\n", lambda _: wrong_split, program, flags=re.M | re.S)
    if changed != 1:
        return "README's first program has no `struct split` to replace"
    _, output = compile_text(command, wrong)
    errors = sum("error:" in line for line in output.splitlines())
    if errors != 1:
        return f"{errors} errors where README promises one:\n{output}"
    if shown not in plain(output):
        return f"the compiler does not say what README shows:\n{shown}\n-- but --\n{output}"
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
