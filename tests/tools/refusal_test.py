# What the tools refuse (exit 2, by name), what they cannot do (exit 1), and that nothing aborts them.
# SPDX-License-Identifier: Apache-2.0
import json
import pathlib
import random
import shutil
import tempfile
import unittest

from support import DATA, EMBEDDED, GOLDEN, GQA, MHA, ToolTest, call, npy, tool

RUNNERS = [name for name in ("tenon-run", "tenon-static-run") if tool(name)]


class Runners(ToolTest):
    def each(self, law, *arguments):
        for name in RUNNERS:
            self.refused(law, name, "--model", GQA, *arguments)

    def test_values_not_built_yet(self):
        if call("tenon-run", "--model", GQA, "--ids", "1", "--runtime", "mpi").returncode != 0:  # built without MPI
            self.each("runtime_is_available", "--ids", "1", "--runtime", "mpi")
        self.each("threads_are_available", "--ids", "1", "--threads", 1025)
        self.refused("device_has_threads", "tenon-run", "--model", GQA, "--ids", "1", "--plan", "all@xtensor.0", "--threads", 2)
        self.refused("device_reads_kv_format", "tenon-run", "--model", GQA, "--ids", "1", "--plan", "all@eigen.0", "--kv", "bf16")
        for plan in ("all@cuda.0", "0-1@0;2-3@cuda.1", "all@user.0"):
            self.refused("device_is_available", "tenon-run", "--model", GQA, "--ids", "1", "--plan", plan)

    def test_numeric_profiles(self):
        self.each("profile_is_known", "--ids", "1", "--profile", "canonical")
        self.each("profile_is_known", "--ids", "1", "--profile", "")
        self.each("profile_takes_format", "--ids", "1", "--profile", "fixed15_1", "--weights", "q8")
        self.each("profile_takes_format", "--ids", "1", "--profile", "bf16_pair_1", "--weights", "f32")
        self.refused("device_computes_profile", "tenon-run", "--model", GQA, "--ids", "1", "--profile", "bf16_pair_1", "--device", "xtensor")
        for law, arguments in (("profile_is_known", ["no_such"]), ("profile_takes_format", ["fixed15_1", "--weights", "bf16"]), ("device_computes_profile", ["bf16_pair_1", "--device", "eigen"]),
                               ("profile_takes_format", ["bf16_pair_1", "--weights", "f32"])):
            self.refused(law, "tenon-plan", "--model", GQA, "--plan", "all@0", "--profile", *arguments)

    def test_weights_that_no_block_holds(self):
        self.refused("blocks_divide_inputs", "tenon-run", "--model", DATA / "golden/qwen2_f32", "--ids", "1", "--weights", "q8")
        self.refused("device_holds_format", "tenon-run", "--model", GQA, "--ids", "1", "--weights", "q8", "--device", "eigen")

    def test_an_instruction_set_of_another_machine(self):
        refusals = 0
        for isa in ("avx2", "avx512", "neon"):
            done = call("tenon-run", "--model", GQA, "--ids", "1", "--isa", isa, "--json")
            self.assertIn(done.returncode, (0, 2), done.stderr)
            if done.returncode == 2:
                self.refused("isa_is_supported", "tenon-run", "--model", GQA, "--ids", "1", "--isa", isa)
                refusals += 1
        self.assertGreater(refusals, 0)  # no machine has all three

    def test_prompts(self):
        self.each("prompt_is_given")
        self.each("prompt_is_given_once", "--ids", "1", "--prompt", "a")
        self.each("prompt_has_tokens", "--ids", "")
        self.each("prompt_has_tokens", "--ids", "1", "--ids", "")
        self.refused("prompt_has_tokens", "tenon-run", "--prompt", "")

    def test_counts_out_of_range(self):
        for ids in ("128", "-1", "1,2,128", "2147483647", "-2147483648"):
            self.each("token_is_in_vocabulary", "--ids", ids)
        self.each("token_is_in_vocabulary", "--ids", "1", "--stop-ids", "128")
        self.each("token_is_in_vocabulary", "--ids", "1", "--stop-ids", "3,-1")
        self.each("new_tokens_are_counted", "--ids", "1", "--max-new-tokens", "-1")
        self.each("chunk_is_counted", "--ids", "1", "--chunk", "-1")
        self.each("threads_are_counted", "--ids", "1", "--threads", "0")
        self.each("positions_fit_the_model", "--ids", "1", "--max-new-tokens", "513")
        self.each("positions_fit_the_model", "--ids", "1", "--max-new-tokens", "2147483647", "--json")
        self.each("positions_fit_the_model", "--ids", ",".join(["1"] * 513), "--max-new-tokens", "0", "--json")
        self.run_json("--model", GQA, "--ids", ",".join(["1"] * 512), "--max-new-tokens", "1")

    def test_sampling(self):
        self.each("seed_is_given", "--ids", "1", "--temperature", "0.5")
        self.each("temperature_is_given", "--ids", "1", "--top-k", "5", "--seed", "1")
        self.each("temperature_is_given", "--ids", "1", "--top-p", "0.5", "--seed", "1")
        for bad in ("-1", "nan", "inf"):
            self.each("temperature_is_positive", "--ids", "1", "--temperature", bad, "--seed", "1")
        self.each("top_k_is_positive", "--ids", "1", "--temperature", "1", "--seed", "1", "--top-k", "-1")
        for bad in ("0", "1.5", "-1", "nan"):
            self.each("top_p_is_a_share", "--ids", "1", "--temperature", "1", "--seed", "1", "--top-p", bad)

    def test_plans(self):
        for law, plan in {"plan_is_not_empty": "", "plan_names_layers": "x", "plan_layer_is_named_once": "0-2@0;2-3@1", "layers_within_model": "0-4@0",
                          "heads_divide_over_ranks": "all@0,1,2", "devices_are_distinct": "all@0,0", "plan_number_fits": "all@99999999999",
                          "plan_rule_is_known": "all@0:magic", "unsharded_has_one_rank": "all@0,1:none"}.items():
            self.refused(law, "tenon-run", "--model", GQA, "--ids", "1", "--plan", plan)
            self.refused(law, "tenon-plan", "--model", GQA, "--plan", plan)
            self.refused(law, "tenon-config", f"{GQA}/config.json", "--plan", plan)

    def test_a_byte_vocabulary_is_declared_and_never_guessed(self):
        self.each("vocabulary_is_bytes", "--prompt", "a")
        declared = {"tokenizer_class": "ByteLevelVocabulary", "tenon_vocabulary": "bytes"}
        with tempfile.TemporaryDirectory() as scratch:
            folder = f"{scratch}/model"
            shutil.copytree(EMBEDDED, folder)
            tokenizer = pathlib.Path(folder, "tokenizer_config.json")
            for text in ("", "[]", "{", json.dumps({}), json.dumps({"tokenizer_class": "ByteLevelVocabulary"}), json.dumps({"tenon_vocabulary": "bytes"}),
                         json.dumps(declared | {"tenon_vocabulary": "BYTES"}), json.dumps(declared | {"tokenizer_class": 7})):
                tokenizer.write_text(text)
                self.refused("vocabulary_is_bytes", "tenon-run", "--model", folder, "--prompt", "a")
                self.assertNotIn("text", self.run_json("--model", folder, "--ids", "97"))
            tokenizer.unlink()
            self.refused("vocabulary_is_bytes", "tenon-run", "--model", folder, "--prompt", "a")
            shutil.copytree(GQA, f"{scratch}/small")
            pathlib.Path(scratch, "small/tokenizer_config.json").write_text(json.dumps(declared))
            self.refused("vocabulary_is_bytes", "tenon-run", "--model", f"{scratch}/small", "--prompt", "a")  # 128 ids are not 256 bytes
            self.assertNotIn("text", self.run_json("--model", f"{scratch}/small", "--ids", "97"))

    def test_checkpoints(self):
        with tempfile.TemporaryDirectory() as scratch:
            self.refused("file_opens", "tenon-run", "--model", f"{scratch}/none", "--ids", "1")
            folder = f"{scratch}/model"
            shutil.copytree(MHA, folder)
            weights = pathlib.Path(folder, "model.safetensors")
            whole = weights.read_bytes()
            weights.write_bytes(whole[:-1])
            for name in ("tenon-run", "tenon-plan"):
                rest = ["--ids", "1"] if name == "tenon-run" else []
                self.refused("safetensors_ends_with_data", name, "--model", folder, "--plan", "all@0", *rest)
            weights.unlink()
            self.refused("checkpoint_folder_has_tensors", "tenon-run", "--model", folder, "--ids", "1")
            pathlib.Path(folder, "config.json").write_text("{")
            self.refused("json_is_well_formed", "tenon-run", "--model", folder, "--ids", "1")

    def test_a_refused_run_leaves_no_file_and_keeps_one(self):
        with tempfile.TemporaryDirectory() as scratch:
            path = pathlib.Path(scratch, "l.npy")
            for name in RUNNERS:
                self.refused("token_is_in_vocabulary", name, "--model", GQA, "--ids", "999", "--logits-out", path)
                self.assertFalse(path.exists())
                path.write_text("kept")
                self.refused("token_is_in_vocabulary", name, "--model", GQA, "--ids", "999", "--logits-out", path)
                self.assertEqual(path.read_text(), "kept")
                self.assertEqual(call(name, "--model", GQA, "--ids", "9", "--max-new-tokens", "0", "--logits-out", path).returncode, 0)
                self.assertEqual(npy(path)[0], (1, 128))
                path.unlink()

    def test_other_errors(self):
        for name in RUNNERS:
            run = [name, "--model", GQA, "--ids", "1"]
            for option in ("--runtime", "--weights", "--isa"):
                self.fails(*run, option, "nonsense", says=option)
                self.fails(*run, option, "", says=option)
            for option in ("--threads", "--chunk", "--max-new-tokens", "--seed", "--top-k"):
                for bad in ("", "x", "1x", " 1", "0x10", "1.5", "+1", "1e3", "99999999999999999999999"):
                    self.fails(*run, option, bad, says=option)
                self.fails(*run, option, says=option)
            self.fails(*run, "--seed", "-1", says="--seed")
            for option in ("--temperature", "--top-p"):
                for bad in ("", "x", "1,5", "0.5f", "1e999"):
                    self.fails(*run, option, bad, says=option)
            for option in ("--ids", "--stop-ids"):
                for bad in ("1,,2", "1,", ",1", ",", "1;2", "a", "1.0", "[1]", "[1,2]", "99999999999"):
                    self.fails(*run, option, bad, says=option)
            self.fails(*run, "--nonsense", says="--nonsense")
            self.fails(*run, "--seed", "1", "--seed", "2", says="--seed")
            for bad in ("", "/nonexistent/folder/l.npy", "/"):
                self.fails(*run, "--logits-out", bad, says="--logits-out")
            if pathlib.Path("/dev/full").exists():
                self.fails(*run, "--logits-out", "/dev/full", says="--logits-out")

    def test_garbage_never_aborts(self):
        random.seed(1811)
        pieces = ["--model", "--plan", "--ids", "--prompt", "--json", "--chunk", "--weights", "--config", "--name", "--format", "--", "-", "---", "=", "--ids=",
                  "--plan=;", "all@0", "all", "@", "0-1@0;", "1,2", GQA, MHA, "\x01", "\u00e9", "-1", "nan", "%n%s", "{}", "x" * 5000, "json", "--seed", "--help "]
        for name in [*RUNNERS, "tenon-plan", "tenon-config"]:
            for _ in range(40):
                arguments = [random.choice(pieces) for _ in range(random.randint(0, 7))]
                done = call(name, *arguments)
                self.assertIn(done.returncode, (0, 1, 2), (name, arguments, done.stderr))
                self.assertEqual(done.returncode == 2, done.stderr.startswith(b"refused: "), (name, arguments, done.stderr))
                self.assertEqual(done.returncode == 0, done.stderr == b"", (name, arguments, done.stderr))


if __name__ == "__main__":
    unittest.main()
