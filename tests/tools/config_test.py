# tenon-config: its header is the config that read_config gives, and the graph that the plan means.
# SPDX-License-Identifier: Apache-2.0
import json
import os
import pathlib
import re
import shlex
import shutil
import subprocess
import tempfile
import unittest

from support import DATA, GQA, MHA, MOE, ToolTest, call

INCLUDE = pathlib.Path(__file__).resolve().parents[2] / "include"
COMPILER = shlex.split(os.environ.get("CXX", "")) or [next(filter(None, map(shutil.which, ("c++", "g++", "clang++", "clang++-19"))), "c++")]

CERTIFIED = {"llama", "mistral", "qwen2", "qwen3", "phi3", "mixtral", "qwen3_moe"}
ROUTED = {"num_local_experts": 6, "num_experts_per_tok": 3, "moe_intermediate_size": 24}
SLIDING, FULL = "sliding_attention", "full_attention"

TRAPS = [  # what the published ones lack
    {"rope_scaling": {"type": "linear", "factor": 2.5}, "rms_norm_eps": 1.0000001e-6},
    {"rope_theta": 1234567.8901234567, "attention_bias": True, "mlp_bias": True, "tie_word_embeddings": True},
    {"rms_norm_eps": 0.1, "rope_theta": 1e20, "head_dim": 24, "vocab_size": 131, "max_position_embeddings": 2048},
    {"rms_norm_eps": 2.2250738585072014e-308, "rope_theta": 0.30000000000000004},
    {"rope_scaling": {"rope_type": "llama3", "factor": 32.0, "low_freq_factor": 1.5, "high_freq_factor": 4.25, "original_max_position_embeddings": 8192}},
    {"model_type": "mistral", "head_dim": 32, "sliding_window": None, "rope_scaling": {"type": "linear", "factor": 2.0}},
    {"model_type": "mistral"},
    {"model_type": "qwen2", "use_sliding_window": True, "sliding_window": 9, "max_window_layers": 3},
    {"model_type": "qwen2", "use_sliding_window": True, "sliding_window": 9, "max_window_layers": 0, "tie_word_embeddings": True},
    {"model_type": "qwen2", "use_sliding_window": True, "sliding_window": 9, "layer_types": [SLIDING, FULL, FULL, SLIDING]},
    {"model_type": "qwen3", "head_dim": 8, "attention_bias": True, "use_sliding_window": True, "sliding_window": 1, "layer_types": [FULL, SLIDING, FULL, SLIDING]},
    {"model_type": "qwen3", "head_dim": 128, "use_sliding_window": True, "sliding_window": 9, "layer_types": [FULL, FULL, FULL, SLIDING]},
    {"model_type": "phi3", "sliding_window": 2047, "head_dim": 16},
    {"model_type": "mixtral", "num_local_experts": 6, "num_experts_per_tok": 3, "sliding_window": 9, "head_dim": 16},
    {"model_type": "qwen3_moe", **ROUTED},
    {"model_type": "qwen3_moe", **ROUTED, "norm_topk_prob": True, "decoder_sparse_step": 2, "head_dim": 24, "attention_bias": True},
    {"model_type": "qwen3_moe", **ROUTED, "mlp_only_layers": [0, 2], "use_sliding_window": True, "sliding_window": 5},
    {"model_type": "qwen3_moe", **ROUTED, "decoder_sparse_step": 4, "mlp_only_layers": [1]},
    {"model_type": "qwen3_moe", **ROUTED, "decoder_sparse_step": 7},
    {"model_type": "qwen3_moe", **ROUTED, "num_local_experts": 0},
]


class Config(ToolTest):
    def header(self, *arguments):
        done = call("tenon-config", *arguments)
        self.assertEqual((done.returncode, done.stderr), (0, b""), arguments)
        return done.stdout.decode()

    def test_every_config_and_plan_survives(self):
        with tempfile.TemporaryDirectory() as scratch:
            cases = [(f"{GQA}/config.json", "0-1@0,1;2-3@2"), (f"{MHA}/config.json", "2-3@5,7:tensor.reduce;0@1:none;1@0,3:tensor"), (f"{MHA}/config.json", None),
                     (f"{MOE}/config.json", "0@0,1;1@0,1:expert;2@0,1:tensor.reduce+expert.exact;3@0,1:tensor+expert_width.reduce")]
            for path in [*sorted((DATA / "configs").glob("*.json")), *sorted((DATA / "golden").glob("*/config.json"))]:
                if json.loads(path.read_text()).get("model_type") in CERTIFIED:
                    cases.append((str(path), None))
            self.assertGreater(len(cases), 28)
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
                     "struct my_model_graph : tenon::graph<struct my_model,", "tenon::stage<tenon::layers<0, 1>, tenon::device::cpu<0, 1>>",
                     ".rope_theta = 500000.0", "tenon::rope_scaling::llama3"):
            self.assertIn(line, text)
        self.assertEqual(self.header(f"{GQA}/config.json"), self.header(f"{GQA}/config.json", "--plan", "all@0"))

    def test_families_and_windows(self):
        golden = DATA / "golden"
        for folder, lines in {"mistral_swa_bf16": ("tenon::model::mistral({", ".window = 8});"), "qwen2_tied_bf16": ("tenon::model::qwen2({", ".tied = true});"),
                              "qwen3_fp8": ("tenon::model::qwen3({", ".head_dim = 32,")}.items():
            text = self.header(golden / folder / "config.json")
            for line in lines:
                self.assertIn(line, text)
        with tempfile.TemporaryDirectory() as scratch:
            path = pathlib.Path(scratch, "config.json")
            plain = json.loads(pathlib.Path(MHA, "config.json").read_text()) | {"model_type": "qwen2", "use_sliding_window": True, "sliding_window": 9}
            path.write_text(json.dumps(plain | {"max_window_layers": 3}))
            self.assertIn(".window = 9,\n        .first_window_layer = 3});", self.header(path))
            path.write_text(json.dumps(plain | {"layer_types": [SLIDING, FULL, SLIDING, FULL]}))
            text = self.header(path)
            self.assertIn("config = tenon::model::with_window(tenon::model::qwen2({", text)
            self.assertIn("}),\n        9, {0, 2});", text)

    def test_devices_bring_their_headers(self):
        found = subprocess.run(["pkg-config", "--cflags", "eigen3"], capture_output=True, text=True) if shutil.which("pkg-config") else None
        flags = shlex.split(found.stdout) if found and found.returncode == 0 else []
        compiler = [*COMPILER, "-std=c++20", f"-I{INCLUDE}", *flags, "-fsyntax-only"]
        for kind, library, plan, stages in (("eigen", "Eigen/Core", "0-1@eigen.0;2-3@eigen.2", ("tenon::device::eigen<0>", "tenon::device::eigen<2>")),
                                            ("xtensor", "xtensor/xtensor.hpp", "0@0;1-3@xtensor.1,xtensor.2:tensor", ("tenon::device::cpu<0>", "tenon::device::xtensor<1, 2>"))):
            text = self.header(f"{MHA}/config.json", "--name", "m", "--plan", plan)
            self.assertIn(f"#pragma once\n#include <tenon/device/{kind}.hpp>\n#include <tenon/tenon.hpp>\n", text)
            for stage in stages:
                self.assertIn(stage, text)
            with tempfile.TemporaryDirectory() as scratch:
                pathlib.Path(scratch, "m.hpp").write_text(text)
                pathlib.Path(scratch, "library.cpp").write_text(f"#include <{library}>\n")
                pathlib.Path(scratch, "main.cpp").write_text(f'#include "m.hpp"\nstatic_assert(sizeof(m_graph) != 0);\n')
                if subprocess.run([*compiler, f"{scratch}/library.cpp"], capture_output=True).returncode == 0:
                    built = subprocess.run([*compiler, f"{scratch}/main.cpp"], capture_output=True, text=True)
                    self.assertEqual(built.returncode, 0, built.stderr[:4000])
        self.assertNotIn("tenon/device/", self.header(f"{MHA}/config.json", "--plan", "all@0"))

    def refuses_name(self, name):
        self.refused("name_is_an_identifier", "tenon-config", f"{GQA}/config.json", "--name", name)

    def test_names(self):
        for bad in ("", "1a", "a-b", "a b", "a;}", "int", "co_await", "_x", "_X", "a__b", "a_", "tenon", "std", "main", "config", "\u00e9", "a\nb", "linux",
                    "INT_MAX", "NULL", "EOF", "FILE", "A9", "M_PIf", "TENON_GRAPH", "size_t", "ptrdiff_t", "int8_t", "my_type_t", "errno", "stdin", "tm", "va_list"):
            self.refuses_name(bad)
        for good in ("a", "a9", "llama_3_8b", "model", "Llama3_8B", "tinyT", "time", "t"):
            self.assertIn(f"struct {good}_graph", self.header(f"{GQA}/config.json", "--name", good))

    def test_no_name_that_a_header_takes_is_accepted(self):
        """Asks the compiler: every macro, and every word of the headers that cannot be a model's name at file scope."""
        with tempfile.TemporaryDirectory() as scratch:
            source, probe = pathlib.Path(scratch, "headers.cpp"), pathlib.Path(scratch, "probe.cpp")
            source.write_text("#include <tenon/tenon.hpp>\n")
            ask = lambda *how: subprocess.run([*COMPILER, "-std=c++20", f"-I{INCLUDE}", *how], capture_output=True, text=True)
            macros = set(re.findall(r"^#define (\w+)", ask("-dM", "-E", source).stdout, re.M))
            reserved = re.compile(r"^_|__|_$|^[A-Z0-9]+(_|$)|_t$")  # by the marks that test_names tries
            words = sorted({w for w in re.findall(r"\b[A-Za-z]\w*", ask("-E", "-P", source).stdout) if not reserved.search(w)} - macros)
            self.assertGreater(len(words), 1000)
            probe.write_text("#include <tenon/tenon.hpp>\ntemplate <class> struct probe_of;\n" +
                             "".join(f"struct {w} {{ static constexpr int config = 0; }}; using probe_of_{w} = probe_of<struct {w}>;\n" for w in words))
            errors = ask("-fsyntax-only", "-w", "-ferror-limit=0" if "clang" in ask("--version").stdout else "-fmax-errors=0", probe).stderr
            broken = {words[int(line) - 3] for line in re.findall(r"probe\.cpp:(\d+):\d+: error", errors) if int(line) > 2}
            self.assertIn("int", broken)
            self.assertIn("tm", broken)
            for name in sorted(broken | {m for m in macros if not reserved.search(m)}) + sorted(macros)[::40]:
                self.refuses_name(name)

    def test_refusals_and_errors(self):
        self.refused("file_opens", "tenon-config", "/nonexistent.json")
        self.refused("file_opens", "tenon-config", GQA)
        self.refused("architecture_is_certified", "tenon-config", DATA / "configs/DeepSeek-V3.json")
        self.fails("tenon-config", says="config")
        self.fails("tenon-config", f"{GQA}/config.json", f"{MHA}/config.json")
        self.fails("tenon-config", f"{GQA}/config.json", "--nonsense", says="--nonsense")


if __name__ == "__main__":
    unittest.main()
