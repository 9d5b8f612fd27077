#!/usr/bin/env python3
"""Compile time as a number with a budget: user CPU seconds, the median of several runs, for each compiler that is here.

SPDX-License-Identifier: Apache-2.0

    bench/compile_time.py [--runs N] [--compilers g++ clang++-19] [--enforce]

  describing   model/llama.hpp and graph/graph.hpp against <vector> <string> <span>        at most 2 times
  front door   tenon.hpp against the standard headers that it includes                     at most 2 times
  80 layers    a static graph of 80 layers and 8 stages against one of 2 layers             at most 3 s more

With --enforce the exit status is 1 when a budget is exceeded. A loaded machine lengthens both sides of a ratio, not always alike.
"""
import argparse
import pathlib
import re
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
INCLUDE = re.compile(r"^\s*#\s*include\s*<([^>]+)>", re.M)


def outside_headers(front):
    """The headers that are not ours, of everything that `front` includes: what its user pays for without tenon as well."""
    seen, queue, outside = set(), [front], set()
    while queue:
        name = queue.pop()
        if name in seen:
            continue
        seen.add(name)
        path = ROOT / "include" / name
        if not path.is_file():
            outside.add(name)
            continue
        queue += INCLUDE.findall(path.read_text(encoding="utf-8"))
    return sorted(outside)


def text_of(headers, known=lambda name: True):
    return "".join(f"#include <{name}>\n" for name in headers if known(name))


GRAPH = """#include <tenon/tenon.hpp>
using namespace tenon;
struct model_type {{ static constexpr auto config = model::llama({{.layers = {layers}, .hidden = 8192, .heads = 64, .kv_heads = 8, .ffn = 28672, .vocab = 128256}}); }};
struct split : graph<model_type, {stages}> {{
    static_assert(cost(weights::bf16).weight_bytes(device_index{{0}}) < 100'000'000'000);
}};
long long run(char const* path) {{
    auto lm = causal_lm<split>::load(path, runtime::threads{{}});
    return static_cast<long long>(lm.generate({{1, 2, 3}}).size()) + split::cost(weights::f32).weight_bytes(rank_index{{0}});
}}
"""


def graph_of(layers, stages):
    cut = [layers * s // stages for s in range(stages + 1)]
    types = [f"stage<layers<{cut[s]}, {cut[s + 1] - 1}>, device::cpu<{2 * s}, {2 * s + 1}>, shard::tensor<>>" for s in range(stages)]
    return GRAPH.format(layers=layers, stages=",\n    ".join(types))


def user_seconds(command):
    before = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        sys.exit(f"{' '.join(command)}\n{done.stderr}")
    return resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime - before


class compiler:
    def __init__(self, path, runs, folder):
        self.path, self.runs, self.folder = path, runs, pathlib.Path(folder)

    def has(self, name):
        source = self.folder / "has.cpp"
        source.write_text(f"#include <{name}>\n")
        return subprocess.run(self.command(source, ["-fsyntax-only"]), capture_output=True, check=False).returncode == 0

    def command(self, source, flags):
        return [self.path, "-std=c++20", "-I" + str(ROOT / "include"), *flags, str(source)]

    def medians(self, texts, flags):
        """The runs of all texts alternate, so that a busy moment of the machine meets them alike."""
        sources = []
        for i, text in enumerate(texts):
            sources.append(self.folder / f"case_{i}.cpp")
            sources[-1].write_text(text)
        times = [[user_seconds(self.command(source, flags)) for source in sources] for _ in range(self.runs)]
        return [statistics.median(column) for column in zip(*times)]


def main():
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--runs", type=int, default=3)
    options.add_argument("--compilers", nargs="+", default=["g++", "clang++-19"])
    options.add_argument("--enforce", action="store_true")
    chosen = options.parse_args()

    standard = outside_headers("tenon/tenon.hpp")
    over = 0

    def report(name, what, measured, base, figure, budget, unit):
        nonlocal over
        over += figure > budget
        verdict = "" if figure <= budget else "   OVER"
        print(f"{name:12} {what:26} {measured:6.2f} s against {base:5.2f} s: {figure:5.2f} {unit}, budget {budget:.0f}{verdict}", flush=True)

    with tempfile.TemporaryDirectory() as folder:
        for name in chosen.compilers:
            path = shutil.which(name)
            if path is None:
                print(f"{name}: not here")
                continue
            c = compiler(path, chosen.runs, folder)
            syntax = ["-fsyntax-only"]
            ours, plain, front, outside = c.medians(
                [text_of(["tenon/model/llama.hpp", "tenon/graph/graph.hpp"]), text_of(["vector", "string", "span"]),
                 text_of(["tenon/tenon.hpp"]), text_of(standard, c.has)], syntax)
            report(name, "describing, parsed", ours, plain, ours / plain, 2, "times")
            report(name, "front door, parsed", front, outside, front / outside, 2, "times")
            for what, flags in (("80 layers, parsed", syntax), ("80 layers, -O2", ["-O2", "-c", "-o", "/dev/null"])):
                large, small = c.medians([graph_of(80, 8), graph_of(2, 1)], flags)
                report(name, what, large, small, large - small, 3, "s more")
    print("headers from outside: " + " ".join(standard))
    sys.exit(1 if over and chosen.enforce else 0)


if __name__ == "__main__":
    main()
