# Published geometries as types: the header that tenon-config prints has, as constants of its graph, the numbers that tenon-plan prints of
# the same config and plan. Every one is a static_assert of one program.
# SPDX-License-Identifier: Apache-2.0
import json
import os
import pathlib
import shlex
import shutil
import subprocess
import tempfile
import unittest

from support import DATA, ToolTest, call

INCLUDE = pathlib.Path(__file__).resolve().parents[2] / "include"
COMPILER = shlex.split(os.environ.get("CXX", "")) or [next(filter(None, map(shutil.which, ("c++", "g++", "clang++", "clang++-19"))), "c++")]
FAMILIES = {"llama", "mistral", "qwen2", "qwen3", "phi3", "mixtral", "qwen3_moe"}
ROUTED = {"mixtral", "qwen3_moe"}


def plans_of(layers):
    """Whole; tensor parallel by both joins; a pipeline of unequal stages, one device serving two; a pipeline of tensor stages."""
    a, b, last = layers // 3, layers // 2 + 1, layers - 1
    return ["all@0", "all@0,1:tensor.reduce", "all@0,1,2,3", "all@0,1,2,3,4,5,6,7:tensor.reduce", f"0@5;1-{b}@1;{b + 1}-{last}@5",
            f"0-{a}@0,1:tensor.reduce;{a + 1}-{b}@2,3,4,5;{b + 1}-{last}@0"]


def expert_plans_of(layers):
    """Whole experts, evenly or not; their widths by both joins; beside heads; in a pipeline whose stages cut different things."""
    last = layers - 1
    return ["all@0,1,2:expert", "all@0,1,2,3:expert.exact", "all@0,1:expert_width", "all@0,1:expert_width.reduce", "all@0,1,2,3:tensor+expert",
            f"0-3@0,1:tensor.reduce+expert_width.reduce;4-{last}@2,3,4:expert"]


def assertions(graph, found):
    """What tenon-plan found, as static_asserts about a graph type."""
    cost = f"{graph}::cost(tenon::weights::{found['weights']}, tenon::dtype::{found['stored'].lower()})"
    lines = [f"constexpr auto cost_of_{graph} = {cost};", f'static_assert({graph}::plan() == "{found["plan"]}");']

    def holds(call, value):
        lines.append(f"static_assert(cost_of_{graph}.{call} == {value});")

    for s in found["stages"]:
        for r in s["ranks"]:
            at = f"tenon::rank_index{{{r['rank']}}}"
            holds(f"weight_bytes({at})", r["weight_bytes"])
            holds(f"kv_bytes_per_position({at})", r["kv_bytes_per_position"])
            holds(f"kv_bytes({at}, 100)", 128 * r["kv_bytes_per_position"])
            holds(f"flops_per_token({at})", r["flops_per_token"])
        for what in ("joins", "join_messages_per_token", "join_bytes_per_token"):
            holds(f"{what}({s['stage']})", s[what])
    for d in found["devices"]:
        kind, index = d["device"].split(".")
        holds(f"weight_bytes(tenon::device_id{{tenon::device_kind::{kind}, {index}}})", d["weight_bytes"])
    for s in found["seams"]:
        holds(f"seam_messages_per_token({s['after_stage']})", s["messages_per_token"])
        holds(f"seam_bytes_per_token({s['after_stage']})", s["bytes_per_token"])
    return lines


class Published(ToolTest):
    def test_constants_of_the_type_are_the_numbers_of_the_plan(self):
        program, graphs = [], 0
        with tempfile.TemporaryDirectory() as scratch:
            for path in sorted((DATA / "configs").glob("*.json")):
                config = json.loads(path.read_text())
                if config.get("model_type") not in FAMILIES:
                    continue
                lawful = 0
                layers = config["num_hidden_layers"]
                for plan in plans_of(layers) + (expert_plans_of(layers) if config["model_type"] in ROUTED else []):
                    priced = call("tenon-plan", "--config", path, "--plan", plan, "--format", "json")
                    name = f"m{graphs}"
                    printed = call("tenon-config", path, "--plan", plan, "--name", name)
                    self.assertEqual((printed.returncode, printed.stderr), (priced.returncode, priced.stderr), (path.name, plan))
                    self.assertIn(priced.returncode, (0, 2), (path.name, plan))
                    if priced.returncode == 0:
                        pathlib.Path(scratch, f"{name}.hpp").write_bytes(printed.stdout)
                        program += [f'#include "{name}.hpp"  // {path.name}', *assertions(f"{name}_graph", json.loads(priced.stdout))]
                        lawful, graphs = lawful + 1, graphs + 1
                self.assertGreater(lawful, 1, path.name)
            self.assertGreater(graphs, 100)
            pathlib.Path(scratch, "main.cpp").write_text("\n".join(program) + "\n")
            command = [*COMPILER, "-std=c++20", "-O0", "-fsyntax-only", f"-I{INCLUDE}", f"{scratch}/main.cpp"]
            built = subprocess.run(command, capture_output=True, text=True)
            self.assertEqual(built.returncode, 0, built.stderr[:4000])


if __name__ == "__main__":
    unittest.main()
