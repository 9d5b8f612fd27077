#!/usr/bin/env python3
"""Writes docs/laws.md from the table in core/law.hpp, so that a law's words stand in one place.

SPDX-License-Identifier: Apache-2.0

    docs/make_laws.py           write
    docs/make_laws.py --check   exit 1 if the page is not what would be written
"""
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "laws.md"

HEAD = """# Laws

Every rule about a model, a plan, a placement or a boundary has a name, and one `constexpr` function that decides it. A graph type
that breaks one does not compile, and the diagnostic has the name and the numbers; a plan, a checkpoint or a placement map that breaks
one at run time throws `graph_error`, whose `law_name()` is the same name and whose `why()` is the value that the compiler would have
printed:

```text
heads_divide_over_ranks: heads divide evenly over a stage's ranks; stage 0: heads = 8, ranks = 3; ranks = 1, 2, 4 or 8 would do
```

What would do upholds every law of that stage, not only the one that objected. Names are stable: a script may match them.
What else is refused, of checkpoints and calls, is in [checkpoints.md](checkpoints.md) and [runtimes.md](runtimes.md).

<!-- Written by docs/make_laws.py from include/tenon/core/law.hpp; edit the words there. -->
"""


def page():
    source = (ROOT / "include/tenon/core/law.hpp").read_text(encoding="utf-8")
    words = dict(re.findall(r'\{"(\w+)",\s*"([^"]*)"\}', source))
    body = re.search(r"enum class law[^{]*\{(.*?)\};", source, re.S).group(1)
    text, used = HEAD, set()
    for line in body.splitlines():
        heading = re.match(r"\s*// (.*)", line)
        if heading:
            text += f"\n## {heading.group(1)[0].upper() + heading.group(1)[1:]}\n\n| law | what it says |\n|---|---|\n"
            continue
        for name in re.findall(r"\w+", line):
            if name in ("none", "count_"):
                continue
            text += f"| `{name}` | {words[name]} |\n"
            used.add(name)
    missing = set(words) - used - {"none"}
    if missing:
        sys.exit("laws without a place on the page: " + ", ".join(sorted(missing)))
    return text


def main():
    text = page()
    if "--check" in sys.argv:
        if not PAGE.is_file() or PAGE.read_text(encoding="utf-8") != text:
            sys.exit("docs/laws.md is not what docs/make_laws.py writes")
        return
    PAGE.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
