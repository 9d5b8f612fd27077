# tenon-plan: validates, prints ownership and cost in three forms, and reads no weight.
# SPDX-License-Identifier: Apache-2.0
import json
import pathlib
import shutil
import struct
import tempfile
import unittest

from support import DATA, GQA, MHA, MOE, ToolTest, call

LLAMA_405B = str(DATA / "configs/Llama-3.1-405B.json")


class Plan(ToolTest):
    def json_of(self, *arguments):
        done = call("tenon-plan", *arguments, "--format", "json")
        self.assertEqual((done.returncode, done.stderr), (0, b""), arguments)
        return json.loads(done.stdout)

    def test_ownership_and_cost(self):
        found = self.json_of("--model", GQA, "--plan", "0-1@0,1;2-3@2")
        self.assertEqual((found["plan"], found["weights"], found["stored"], found["layers"]), ("0-1@0,1;2-3@2", "stored", "BF16", 4))
        self.assertEqual([(s["first_layer"], s["last_layer"], len(s["ranks"])) for s in found["stages"]], [(0, 1, 2), (2, 3, 1)])
        self.assertEqual([d["device"] for d in found["devices"]], ["cpu.0", "cpu.1", "cpu.2"])
        # Two layers, the head, the norms: bf16 matrices, float32 vectors.
        layer = 2 * (64 * 64 * 2 + 64 * 16 * 2 + 3 * 64 * 96) + 4 * 2 * 64
        self.assertEqual(found["devices"][2]["weight_bytes"], 2 * layer + 2 * 128 * 64 + 4 * 64)
        self.assertEqual(found["seams"][0]["bytes_per_token"], 4 * 64)

    def test_weights_and_what_is_stored_set_the_bytes(self):
        def total(*arguments):
            return sum(d["weight_bytes"] for d in self.json_of("--plan", "all@0", *arguments)["devices"])

        stored, bf16, f32 = (total("--model", GQA, "--weights", w) for w in ("stored", "bf16", "f32"))
        self.assertEqual(stored, bf16)
        self.assertGreater(f32, bf16)
        projections = 4 * (2 * 64 * 64 + 2 * 16 * 64 + 3 * 96 * 64) + 128 * 64
        self.assertEqual(bf16 - total("--model", GQA, "--weights", "q8"), 2 * projections - 34 * projections // 32)
        self.assertEqual(total("--config", f"{GQA}/config.json"), stored)
        self.assertEqual(total("--model", MHA), total("--model", MHA, "--weights", "f32"))
        with tempfile.TemporaryDirectory() as scratch:
            config = json.loads(pathlib.Path(GQA, "config.json").read_text())
            for key, name, wanted in (("torch_dtype", "float16", "F16"), ("dtype", "bfloat16", "BF16"), ("dtype", "float32", "F32"), ("note", "", "F32")):
                config.pop("torch_dtype", None), config.pop("dtype", None)
                config[key] = name
                pathlib.Path(scratch, "config.json").write_text(json.dumps(config))
                self.assertEqual(self.json_of("--config", f"{scratch}/config.json", "--plan", "all@0")["stored"], wanted)

    def test_the_numeric_profile_is_shown(self):
        self.assertEqual(self.json_of("--model", GQA, "--plan", "all@0")["profile"], "canonical_1")
        self.assertEqual(self.json_of("--model", GQA, "--plan", "all@0", "--profile", "bf16_pair_1")["profile"], "bf16_pair_1")
        exact = self.json_of("--model", MHA, "--plan", "all@0", "--profile", "fixed15_1")
        self.assertEqual((exact["profile"], exact["weights"]), ("fixed15_1", "fixed15"))
        self.assertIn(b"\nprofile  fast\n", call("tenon-plan", "--model", MHA, "--plan", "all@0", "--profile", "fast").stdout)

    def test_the_format_of_keys_and_values_sets_their_bytes(self):
        def kept(*arguments):
            found = self.json_of("--model", GQA, "--plan", "0-1@0,1;2-3@xtensor.2", *arguments)
            of = [r for s in found["stages"] for r in s["ranks"]] + found["devices"]
            return found["kv"], [r["kv_bytes_per_position"] for r in of], [r["weight_bytes"] for r in of]

        # Two layers of one KV head and two of both, eight wide: keys and values, on three ranks and as many devices.
        elements = 2 * [2 * 2 * 8, 2 * 2 * 8, 2 * 2 * 16]
        self.assertEqual(kept()[:2], ("f32", [4 * n for n in elements]))
        self.assertEqual(kept(), kept("--kv", "f32"))
        self.assertEqual(kept("--kv", "bf16"), ("bf16", [2 * n for n in elements], kept()[2]))
        rows = {}
        for kv in ("f32", "bf16"):
            text = call("tenon-plan", "--model", GQA, "--plan", "all@0", "--kv", kv).stdout.decode()
            self.assertIn(f"\nKV       {kv}\n", text)
            rows[kv] = next(line for line in text.splitlines() if line.startswith("cpu.0")).split()
        self.assertEqual((rows["f32"][3], rows["bf16"][3]), (str(4 * 4 * 2 * 16), str(2 * 4 * 2 * 16)))

    def test_a_format_of_keys_and_values_is_refused_where_a_run_refuses_it(self):
        for device in ("cpu", "xtensor", "eigen"):
            for plan in ("all@0", "0-1@0;2-3@0,1"):
                for kv in ("f32", "bf16"):
                    planned, run = (call(name, "--model", GQA, "--plan", plan, "--device", device, "--kv", kv, *more)
                                    for name, more in (("tenon-plan", []), ("tenon-run", ["--ids", "1", "--max-new-tokens", 1])))
                    self.assertEqual((planned.returncode, planned.stderr), (run.returncode, run.stderr))
                    self.assertEqual(planned.returncode, 2 if (device, kv) == ("eigen", "bf16") else 0)
        self.refused("device_reads_kv_format", "tenon-plan", "--model", GQA, "--plan", "all@eigen.0", "--kv", "bf16")

    def test_text_and_dot(self):
        text = call("tenon-plan", "--model", GQA, "--plan", "all@0")
        self.assertEqual((text.returncode, text.stderr), (0, b""))
        self.assertIn(b"weight bytes", text.stdout)
        self.assertEqual(call("tenon-plan", "--model", GQA, "--plan", "all@0", "--format", "text").stdout, text.stdout)
        dot = call("tenon-plan", "--config", f"{GQA}/config.json", "--plan", "0-1@0;2-3@1", "--format", "dot").stdout.decode()
        self.assertTrue(dot.startswith("digraph ") and dot.endswith("}\n"), dot)

    def test_a_large_published_model_needs_its_config_alone(self):
        found = self.json_of("--config", LLAMA_405B, "--plan", ";".join(f"{s}-{s + 17}@{','.join(str(8 * s + i) for i in range(8))}" for s in range(0, 126, 18)))
        self.assertEqual((len(found["stages"]), len(found["devices"])), (7, 56))
        self.assertGreater(sum(d["weight_bytes"] for d in found["devices"]), 2 * 405_000_000_000)

    def test_it_reads_no_weight(self):
        # A terabyte that is a hole in the file: its header says where the embedding lies and as what, and nothing else is touched.
        with tempfile.TemporaryDirectory() as scratch:
            shutil.copy(f"{GQA}/config.json", scratch)
            header = {"model.embed_tokens.weight": {"dtype": "F16", "shape": [1 << 29, 1 << 10], "data_offsets": [0, 1 << 40]}}
            text = json.dumps(header).encode()
            with open(f"{scratch}/model.safetensors", "wb") as file:
                file.write(struct.pack("<Q", len(text)) + text)
                try:
                    file.truncate(8 + len(text) + (1 << 40))
                except OSError:
                    self.skipTest("no sparse files here")
            self.assertEqual(self.json_of("--model", scratch, "--plan", "all@0")["stored"], "F16")

    def test_a_block_that_a_join_would_cut_is_named_from_the_config_alone(self):
        def said(width, ranks, rule, *arguments):
            with tempfile.TemporaryDirectory() as scratch:
                config = json.loads(pathlib.Path(MOE, "config.json").read_text()) | {"moe_intermediate_size": width}
                pathlib.Path(scratch, "config.json").write_text(json.dumps(config))
                plan = f"all@{','.join(map(str, range(ranks)))}:{rule}"
                planned = call("tenon-plan", "--config", f"{scratch}/config.json", "--plan", plan, *arguments)
                run = call("tenon-run", "--model", scratch, "--plan", plan, "--ids", "1", *arguments)
                if planned.returncode != 0:  # a run says the same, and looks for no weights
                    self.assertEqual((run.returncode, run.stderr), (planned.returncode, planned.stderr))
                return planned.returncode, planned.stderr.decode()

        for width, ranks, segments, would_do in ((320, 4, 2, "1 or 2"), (320, 8, 2, "1 or 2"), (18432, 32, 8, "1, 2, 4 or 8")):
            needs = ("join::reduce needs a rank count that divides the segments of every product it cuts; join::gather does not; "
                     f"stage 0: segments = {segments}, ranks = {ranks}; ranks = {would_do} would do; join::gather would do on {ranks} ranks\n")
            self.assertEqual(said(width, ranks, "expert_width.reduce"), (2, f"refused: reduce_divides_segments: {needs}"))
            self.assertEqual(said(width, ranks, "expert_width.reduce", "--weights", "q8"),
                             (2, f"refused: reduce_divides_segments: tensor expert_down of {width} inputs, in blocks of 32: {needs}"))
            self.assertEqual(said(width, ranks, "expert_width", "--weights", "q8"), (0, ""))
            self.assertEqual(said(width, segments, "expert_width.reduce", "--weights", "q8"), (0, ""))

    def test_refusals_and_errors(self):
        self.refused("blocks_divide_inputs", "tenon-plan", "--model", DATA / "golden/qwen2_f32", "--plan", "all@0", "--weights", "q8")
        self.refused("reduce_divides_segments", "tenon-plan", "--model", GQA, "--plan", "all@0,1,2,3:tensor.reduce", "--weights", "q8")
        self.refused("file_opens", "tenon-plan", "--config", "/nonexistent.json", "--plan", "all@0")
        self.refused("architecture_is_certified", "tenon-plan", "--config", DATA / "configs/DeepSeek-V3.json", "--plan", "all@0")
        self.fails("tenon-plan", says="required|--plan")
        self.fails("tenon-plan", "--model", GQA, says="--plan")
        self.fails("tenon-plan", "--plan", "all@0")
        self.fails("tenon-plan", "--plan", "all@0", "--model", GQA, "--config", f"{GQA}/config.json")
        self.fails("tenon-plan", "--model", GQA, "--plan", "all@0", "--format", "svg", says="--format")
        self.fails("tenon-plan", "--model", GQA, "--plan", "all@0", "--weights", "f64", says="--weights")
        self.fails("tenon-plan", "--model", GQA, "--plan", "all@0", "--kv", "f16", says="--kv")


if __name__ == "__main__":
    unittest.main()
