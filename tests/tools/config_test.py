# tenon-config: its header is the config that read_config gives, and the graph that the plan means.
# SPDX-License-Identifier: Apache-2.0
import json
import os
import pathlib
import shlex
import shutil
import subprocess
import tempfile
import unittest

from support import DATA, GQA, MHA, ToolTest, call

INCLUDE = pathlib.Path(__file__).resolve().parents[2] / "include"
COMPILER = shlex.split(os.environ.get("CXX", "")) or [next(filter(None, map(shutil.which, ("c++", "g++", "clang++", "clang++-19"))), "c++")]

TRAPS = [  # what the published ones lack
    {"rope_scaling": {"type": "linear", "factor": 2.5}, "rms_norm_eps": 1.0000001e-6},
    {"rope_theta": 1234567.8901234567, "attention_bias": True, "mlp_bias": True, "tie_word_embeddings": True},
    {"rms_norm_eps": 0.1, "rope_theta": 1e20, "head_dim": 24, "vocab_size": 131, "max_position_embeddings": 2048},
    {"rms_norm_eps": 2.2250738585072014e-308, "rope_theta": 0.30000000000000004},
    {"rope_scaling": {"rope_type": "llama3", "factor": 32.0, "low_freq_factor": 1.5, "high_freq_factor": 4.25, "original_max_position_embeddings": 8192}},
]


class Config(ToolTest):
    def header(self, *arguments):
        done = call("tenon-config", *arguments)
        self.assertEqual((done.returncode, done.stderr), (0, b""), arguments)
        return done.stdout.decode()

    def test_every_config_and_plan_survives(self):
        with tempfile.TemporaryDirectory() as scratch:
            cases = [(f"{GQA}/config.json", "0-1@0,1;2-3@2"), (f"{MHA}/config.json", "2-3@5,7:tensor.reduce;0@1:none;1@0,3:tensor"), (f"{MHA}/config.json", None)]
            for path in sorted((DATA / "configs").glob("*.json")):
                if json.loads(path.read_text()).get("model_type") == "llama":
                    cases.append((str(path), None))
            self.assertGreater(len(cases), 9)
            plain = json.loads(pathlib.Path(MHA, "config.json").read_text())
            for i, trap in enumerate(TRAPS):
                pathlib.Path(scratch, f"trap{i}.json").write_text(json.dumps(plain | trap))
                cases.append((f"{scratch}/trap{i}.json", "1-3@1;0@0"))
            program = ["#include <tenon/tenon.hpp>", "#include <cstdio>", "#include <string>"]
            checks = []
            for i, (path, plan) in enumerate(cases):
                text = self.header(path, "--name", f"m{i}", *(["--plan", plan] if plan else []))
                pathlib.Path(scratch, f"m{i}.hpp").write_text(text)
                program.append(f'#include "m{i}.hpp"')
                checks.append(f'    failed += check<m{i}, m{i}_graph>("{path}", "{plan or "all@0"}");')
            program.append("""
template <class Model, class Graph>
int check(char const* path, char const* plan) {
    tenon::model_config const file = tenon::checkpoint::read_config(tenon::checkpoint::mapped_file(path).text(), path);
    tenon::dynamic_graph const graph(file, tenon::plan::parse(plan));
    bool const same = Model::config == file && std::string(Graph::plan()) == graph.plan();
    if (!same) std::printf("%s %s\\n", path, plan);
    return same ? 0 : 1;
}
int main() {
    int failed = 0;
""" + "\n".join(checks) + "\n    return failed;\n}\n")
            pathlib.Path(scratch, "main.cpp").write_text("\n".join(program))
            built = subprocess.run([*COMPILER, "-std=c++20", "-O0", "-Wall", "-Wextra", "-Wpedantic", "-Wshadow", "-Wconversion", "-Werror", f"-I{INCLUDE}",
                                    "-o", f"{scratch}/main", f"{scratch}/main.cpp", "-pthread"], capture_output=True, text=True)
            self.assertEqual(built.returncode, 0, built.stderr[:4000])
            ran = subprocess.run([f"{scratch}/main"], capture_output=True, text=True)
            self.assertEqual((ran.returncode, ran.stdout), (0, ""))

    def test_the_form_of_the_header(self):
        text = self.header(f"{GQA}/config.json", "--name", "my_model", "--plan", "0-1@0,1;2-3@2")
        for line in ("#pragma once", "#include <tenon/tenon.hpp>", "struct my_model {", "static constexpr auto config = tenon::model::llama({",
                     "struct my_model_graph : tenon::graph<my_model,", "tenon::stage<tenon::layers<0, 1>, tenon::device::cpu<0, 1>>",
                     ".rope_theta = 500000.0", "tenon::rope_scaling::llama3"):
            self.assertIn(line, text)
        self.assertEqual(self.header(f"{GQA}/config.json"), self.header(f"{GQA}/config.json", "--plan", "all@0"))

    def test_names(self):
        for bad in ("", "1a", "a-b", "a b", "a;}", "int", "co_await", "_x", "_X", "a__b", "a_", "tenon", "std", "main", "\u00e9", "a\nb", "linux"):
            self.refused("name_is_an_identifier", "tenon-config", f"{GQA}/config.json", "--name", bad)
        for good in ("a", "A9", "llama_3_8b", "model"):
            self.assertIn(f"struct {good}_graph", self.header(f"{GQA}/config.json", "--name", good))

    def test_refusals_and_errors(self):
        self.refused("file_opens", "tenon-config", "/nonexistent.json")
        self.refused("file_opens", "tenon-config", GQA)
        self.refused("architecture_is_certified", "tenon-config", DATA / "configs/Mixtral-8x7B.json")
        self.fails("tenon-config", says="config")
        self.fails("tenon-config", f"{GQA}/config.json", f"{MHA}/config.json")
        self.fails("tenon-config", f"{GQA}/config.json", "--nonsense", says="--nonsense")


if __name__ == "__main__":
    unittest.main()
