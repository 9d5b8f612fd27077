# tenon-run and the static runner: what they answer, line by line of their contract.
# SPDX-License-Identifier: Apache-2.0
import hashlib
import json
import pathlib
import shutil
import struct
import tempfile
import unittest

from support import EMBEDDED, GOLDEN, GQA, MHA, MIXTRAL, MOE, ToolTest, call, ids, npy, reference, tool

PLANS = {
    MHA: ["all@0", "0@0;1-3@1", "0@0;1@1;2@2;3@3", "all@0,1", "all@0,1:tensor.reduce", "all@0,1,2,3:tensor.gather", "0-1@0,1;2-3@2", "1-2@1;0@0;3@0"],
    GQA: ["all@0", "0-1@0;2-3@1", "all@0,1", "all@0,1,2,3", "0-1@0,1;2-3@2", "0@0;1-3@1,2,3,4:tensor.gather"],
    MOE: ["all@0", "all@0,1", "all@0,1,2:expert", "all@0,1,2,3:tensor+expert", "all@0,1:expert_width.reduce", "0-1@0,1:expert;2-3@2,0:tensor+expert_width"],
    MIXTRAL: ["all@0", "all@0,1,2,3,4:expert", "all@0,1:expert.exact", "0@0;1-3@1,2:tensor+expert"],
}
KEYS = ["ids", "row_offsets", "logits_sha256", "prefill_tokens_per_s", "decode_tokens_per_s", "peak_rss_bytes", "census"]


class Answers(ToolTest):
    def prompt(self, folder):
        return reference(folder)["prompts"][0]

    def test_greedy_ids_are_the_references(self):
        for folder in GOLDEN:
            known = reference(folder)
            for prompt, greedy in zip(known["prompts"], known["greedy"]):
                made = self.run_json("--model", folder, "--ids", ids(prompt), "--max-new-tokens", len(greedy))
                self.assertEqual(made["ids"], [prompt + greedy])
                self.assertEqual(made["row_offsets"], [0, len(prompt) + len(greedy) - 1])
                self.assertEqual(list(made), KEYS)  # no text: these folders declare no byte vocabulary

    def test_logits_are_the_references(self):
        for folder in GOLDEN:
            known = reference(folder)
            prompt, greedy = known["prompts"][0], known["greedy"][0]
            with tempfile.TemporaryDirectory() as scratch:
                path = f"{scratch}/logits.npy"
                made = self.run_json("--model", folder, "--ids", ids(prompt), "--max-new-tokens", len(greedy), "--logits-out", path)
                shape, ours, raw = npy(path)
            (_, vocab), prefill, _ = npy(f"{folder}/logits_f64.npy")
            decode = npy(f"{folder}/decode_logits_f64.npy")[1]
            wanted = list(prefill) + list(decode)[vocab:]
            self.assertEqual(shape, (len(prompt) + len(greedy) - 1, vocab))
            self.assertLess(max(abs(a - b) for a, b in zip(ours, wanted, strict=True)), 2e-4)
            self.assertEqual(hashlib.sha256(raw).hexdigest(), made["logits_sha256"])

    def test_every_plan_runtime_chunk_and_instruction_set_gives_the_same_bits(self):
        for folder, plans in PLANS.items():
            prompt = self.prompt(folder)
            digests = {}
            for plan in plans:
                for rest in (["--runtime", "sequential"], ["--runtime", "threads", "--chunk", "1"], ["--chunk", "7"], ["--chunk", "0", "--isa", "portable"],
                             ["--runtime", "processes", "--chunk", "5"]):
                    made = self.run_json("--model", folder, "--plan", plan, "--ids", ids(prompt), "--max-new-tokens", 6, *rest)
                    digests.setdefault((made["logits_sha256"], str(made["ids"])), []).append((plan, rest))
            self.assertEqual(len(digests), 1, digests)

    def test_threads_of_a_rank_change_no_bit_whatever_the_cache_keeps(self):
        for kv in ("f32", "bf16"):
            digests = set()
            for plan in ("all@0", "0-1@0,1;2-3@2"):
                for rest in ((), ("--threads", 2), ("--threads", 3, "--runtime", "processes"), ("--threads", 2, "--runtime", "sequential", "--chunk", 3)):
                    made = self.run_json("--model", GQA, "--plan", plan, "--ids", ids(self.prompt(GQA)), "--max-new-tokens", 6, "--kv", kv, *rest)
                    digests.add(made["logits_sha256"])
            self.assertEqual(len(digests), 1, kv)

    def test_processes_answer_as_threads_do(self):
        timed = ("prefill_tokens_per_s", "decode_tokens_per_s", "peak_rss_bytes")
        for folder, plan in ((GQA, "0-1@0,1;2-3@2"), (MOE, "all@0,1:tensor+expert"), (MIXTRAL, "0@0;1-3@xtensor.1,xtensor.2:expert")):
            prompt = self.prompt(folder)
            for rest in (["--max-new-tokens", 5], ["--ids", ids(prompt[:3]), "--temperature", "0.9", "--top-k", 40, "--top-p", "0.95", "--seed", 7]):
                with tempfile.TemporaryDirectory() as scratch:
                    made, written = [], []
                    for runtime in ("threads", "processes"):
                        files = ["--logits-out", f"{scratch}/l.npy", "--trace-routing", f"{scratch}/t"]
                        answer = self.run_json("--model", folder, "--plan", plan, "--ids", ids(prompt), *rest, "--runtime", runtime, *(files if folder != GQA else files[:2]))
                        made.append({key: value for key, value in answer.items() if key not in timed})
                        written.append([path.read_bytes() for path in sorted(pathlib.Path(scratch).iterdir())])
                self.assertEqual(made[0], made[1])
                self.assertEqual(written[0], written[1])
                self.assertEqual(len(written[0]), 1 if folder == GQA else 2)

    def test_a_worker_variable_in_the_environment_is_refused(self):
        done = call("tenon-run", "--model", MHA, "--ids", "1", "--runtime", "processes", environment={"TENON_WORKER": "1"})
        self.assertEqual((done.returncode, done.stdout), (2, b""))
        self.assertRegex(done.stderr, rb"\Arefused: worker_is_no_host: [^\n]+\n\Z")

    def test_no_new_tokens_give_the_prompts_rows(self):
        prompt = self.prompt(MHA)
        with tempfile.TemporaryDirectory() as scratch:
            made = self.run_json("--model", MHA, "--ids", ids(prompt), "--max-new-tokens", 0, "--logits-out", f"{scratch}/l.npy")
            self.assertEqual(npy(f"{scratch}/l.npy")[0], (len(prompt), 128))
        self.assertEqual((made["ids"], made["row_offsets"], made["decode_tokens_per_s"]), ([prompt], [0, len(prompt)], 0))
        one = self.run_json("--model", MHA, "--ids", ids(prompt), "--max-new-tokens", 1)
        self.assertEqual((one["row_offsets"], one["logits_sha256"]), (made["row_offsets"], made["logits_sha256"]))

    def test_a_ragged_batch_is_its_sequences_alone(self):
        prompt = self.prompt(GQA)
        prompts = [prompt[:1], prompt, prompt[3:10], prompt[:2], prompt[5:6]]
        for plan in PLANS[GQA]:
            with tempfile.TemporaryDirectory() as scratch:
                asked = ["--model", GQA, "--plan", plan, "--max-new-tokens", 5, "--chunk", 3]
                each = [part for p in prompts for part in ("--ids", ids(p))]
                whole = self.run_json(*asked, *each, "--logits-out", f"{scratch}/all.npy")
                rows, expected, offsets = b"", [], [0]
                for p in prompts:
                    alone = self.run_json(*asked, "--ids", ids(p), "--logits-out", f"{scratch}/one.npy")
                    rows += npy(f"{scratch}/one.npy")[2]
                    expected += alone["ids"]
                    offsets.append(offsets[-1] + len(p) + 4)
                self.assertEqual(npy(f"{scratch}/all.npy")[2], rows)
                self.assertEqual((whole["ids"], whole["row_offsets"]), (expected, offsets))
                self.assertEqual(whole["logits_sha256"], hashlib.sha256(rows).hexdigest())

    def test_generation_ends_at_a_stop_id_alone(self):
        known = reference(MHA)
        prompt, greedy = known["prompts"][0], known["greedy"][0]
        first = {token: greedy.index(token) for token in greedy}
        for token, at in list(first.items())[:4]:
            others = ids(t for t in range(128) if t not in first)
            for given in (["--stop-ids", f"{token}"], ["--stop-ids", others, "--stop-ids", f"{token}"]):
                made = self.run_json("--model", MHA, "--ids", ids(prompt), "--max-new-tokens", len(greedy), *given)
                self.assertEqual(made["ids"], [prompt + greedy[: at + 1]])
                self.assertEqual(made["row_offsets"], [0, len(prompt) + at])
        # config.json has eos_token_id 2: nothing that was not asked for stops it, in a batch one sequence's end leaves the others.
        both = self.run_json("--model", MHA, "--ids", ids(prompt), "--ids", ids(prompt[:1]), "--max-new-tokens", 16, "--stop-ids", greedy[0])
        self.assertEqual(both["ids"][0], prompt + greedy[:1])
        alone = self.run_json("--model", MHA, "--ids", ids(prompt[:1]), "--max-new-tokens", 16, "--stop-ids", greedy[0])
        self.assertEqual(both["ids"][1], alone["ids"][0])

    def test_a_seed_gives_the_same_tokens_under_every_plan(self):
        prompt = self.prompt(GQA)
        draw = ["--temperature", "0.9", "--top-k", 40, "--top-p", "0.95", "--max-new-tokens", 12]
        of_plan = [self.run_json("--model", GQA, "--plan", plan, "--ids", ids(prompt), *draw, "--seed", 7)["ids"] for plan in PLANS[GQA]]
        self.assertEqual([x for x in of_plan if x != of_plan[0]], [])
        self.assertNotEqual(self.run_json("--model", GQA, "--ids", ids(prompt), *draw, "--seed", 8)["ids"], of_plan[0])
        # Sequence i samples with sequence number i: the first is as alone, the same prompt again is drawn anew.
        twice = self.run_json("--model", GQA, "--ids", ids(prompt), "--ids", ids(prompt), *draw, "--seed", 7)["ids"]
        self.assertEqual(twice[0], of_plan[0][0])
        self.assertNotEqual(twice[1], twice[0])
        most = ["--seed", 2**64 - 1, "--max-new-tokens", 2]
        self.run_json("--model", GQA, "--ids", "1", "--temperature", 1, *most)
        greedy = self.run_json("--model", GQA, "--ids", ids(prompt), "--max-new-tokens", 12)["ids"]
        self.assertEqual(self.run_json("--model", GQA, "--ids", ids(prompt), "--temperature", 0, "--max-new-tokens", 12)["ids"], greedy)

    def test_weights_of_another_format(self):
        prompt = ids(self.prompt(GQA))
        stored, widened, same = (self.run_json("--model", GQA, "--ids", prompt, "--weights", w)["logits_sha256"] for w in ("stored", "f32", "bf16"))
        self.assertEqual([widened, same], [stored, stored])  # bf16 in the file: neither changes a number
        prompt = ids(self.prompt(MHA))
        stored, same, narrowed = (self.run_json("--model", MHA, "--ids", prompt, "--weights", w)["logits_sha256"] for w in ("stored", "f32", "bf16"))
        self.assertEqual(same, stored)
        self.assertNotEqual(narrowed, stored)
        plain, split, other, same = (self.run_json("--model", MHA, "--ids", prompt, "--weights", "q8", *more)["logits_sha256"]
                                     for more in ((), ("--plan", "0-1@0,1:tensor.reduce;2-3@2"), ("--isa", "portable"), ("--device", "xtensor")))
        self.assertNotIn(plain, (stored, narrowed))
        self.assertEqual([split, other, same], [plain] * 3)

    def test_a_numeric_profile_is_asked_for_and_shown(self):
        prompt = ids(self.prompt(GQA))
        default, named, pairs, cut = (self.run_json("--model", GQA, "--ids", prompt, *more) for more in (
            (), ("--profile", "canonical_1"), ("--profile", "bf16_pair_1"), ("--profile", "bf16_pair_1", "--plan", "0-1@0,1;2-3@2", "--isa", "portable")))
        self.assertEqual(default["logits_sha256"], named["logits_sha256"])
        self.assertNotIn("profile", default)
        self.assertNotEqual(default["logits_sha256"], pairs["logits_sha256"])
        self.assertEqual((pairs["profile"], pairs["logits_sha256"]), ("bf16_pair_1", cut["logits_sha256"]))
        plain, split, other = (self.run_json("--model", MHA, "--ids", prompt, "--profile", "fixed15_1", *more)["logits_sha256"] for more in (
            (), ("--plan", "0-1@0,1:tensor.reduce;2-3@2", "--runtime", "processes"), ("--isa", "portable", "--threads", "2")))
        self.assertEqual([split, other], [plain] * 2)
        self.assertNotIn(plain, (default["logits_sha256"], pairs["logits_sha256"]))

    def test_the_embedded_model_is_the_default_and_its_vocabulary_is_bytes(self):
        made = self.run_json("--prompt", "It was a ", "--max-new-tokens", 20)
        self.assertEqual(made["ids"][0][:9], list(b"It was a "))
        self.assertEqual(made["text"], [bytes(made["ids"][0]).decode()])
        named = self.run_json("--model", EMBEDDED, "--ids", ids(b"It was a "), "--max-new-tokens", 20, "--plan", "all@0,1,2,3:tensor.reduce")
        self.assertEqual((named["ids"], named["text"], named["logits_sha256"]), (made["ids"], made["text"], made["logits_sha256"]))
        self.assertEqual(list(made), KEYS[:2] + ["text"] + KEYS[2:])
        other = call("tenon-run", "--ids", "1", "--max-new-tokens", "0", "--json", environment={"TENON_EMBEDDED_MODEL": MHA})
        self.assertNotIn("text", json.loads(other.stdout))

    def test_text_is_valid_utf8_whatever_the_bytes(self):
        broken = b"\xff\xc3\xa9 \xe2\x82\xac \xed\xa0\x80 \xf0\x9f\x98\x80 \xc0\x80 \x00\x1b\"\\ \xe2\x82"
        made = self.run_json("--ids", ids(broken), "--max-new-tokens", 0)
        self.assertEqual(made["text"], ["\\xff\u00e9 \u20ac \\xed\\xa0\\x80 \U0001f600 \\xc0\\x80 \0\x1b\"\\ \\xe2\\x82"])
        plain = call("tenon-run", "--ids", ids(broken), "--max-new-tokens", 0)
        self.assertEqual(plain.returncode, 0)
        self.assertIn("\\x00\\x1b\"\\ \\xe2\\x82\n", plain.stdout.decode("utf-8", errors="strict"))

    def test_a_nan_is_written_one_way_and_chooses_no_token(self):
        with tempfile.TemporaryDirectory() as scratch:
            folder = pathlib.Path(scratch, "model")
            shutil.copytree(MHA, folder)
            raw = bytearray((folder / "model.safetensors").read_bytes())
            (length,) = struct.unpack("<Q", raw[:8])
            begin, _ = json.loads(raw[8 : 8 + length])["model.layers.3.input_layernorm.weight"]["data_offsets"]
            raw[8 + length + begin : 12 + length + begin] = struct.pack("<I", 0xFFC01234)
            (folder / "model.safetensors").write_bytes(raw)
            for plan in ("all@0", "all@0,1:tensor.reduce"):
                made = self.run_json("--model", folder, "--ids", "1,2", "--max-new-tokens", 0, "--plan", plan, "--logits-out", f"{scratch}/l.npy")
                rows = npy(f"{scratch}/l.npy")[2]
                self.assertEqual(rows, struct.pack("<I", 0x7FC00000) * 256)
                self.assertEqual(made["logits_sha256"], hashlib.sha256(rows).hexdigest())
            self.refused("logits_are_numbers", "tenon-run", "--model", folder, "--ids", "1,2", "--json")

    def test_the_census_counts_what_a_plan_moves(self):
        prompt = ids(self.prompt(MHA))
        plain = self.run_json("--model", MHA, "--ids", prompt)["census"]
        self.assertEqual(plain, {"messages": 0, "bytes": 0, "collectives": {"gather": 0, "reduce": 0, "hand_over": 0}})
        pipeline = self.run_json("--model", MHA, "--ids", prompt, "--plan", "0-1@0;2-3@1", "--max-new-tokens", 5)["census"]
        self.assertEqual(pipeline, {"messages": 5, "bytes": (12 + 4) * 64 * 4, "collectives": {"gather": 0, "reduce": 0, "hand_over": 5}})
        reduced = self.run_json("--model", MHA, "--ids", prompt, "--plan", "all@0,1:tensor.reduce")["census"]
        self.assertGreater(reduced["collectives"]["reduce"], 0)
        gathered = self.run_json("--model", MHA, "--ids", prompt, "--plan", "all@0,1")["census"]
        self.assertEqual(gathered["collectives"]["reduce"], 0)
        self.assertGreater(gathered["collectives"]["gather"], 0)

    def test_speeds_and_memory_are_numbers(self):
        made = self.run_json("--prompt", "Emma ", "--max-new-tokens", 8)
        self.assertGreater(made["prefill_tokens_per_s"], 0)
        self.assertGreater(made["decode_tokens_per_s"], 0)
        self.assertGreater(made["peak_rss_bytes"], 1 << 20)

    def test_lists_come_after_one_option_or_several(self):
        several = self.run_json("--model", MHA, "--ids", "1,2", "--ids", "3", "--stop-ids", "5", "--stop-ids", "6,7", "--max-new-tokens", 2)
        one = self.run_json("--model", MHA, "--ids", "1,2", "3", "--stop-ids", "5", "6,7", "--max-new-tokens", 2)
        self.assertEqual((one["ids"], one["logits_sha256"]), (several["ids"], several["logits_sha256"]))

    def test_without_json_the_answer_is_for_people(self):
        done = call("tenon-run", "--model", MHA, "--ids", "1,2", "--ids", "3", "--max-new-tokens", 2)
        self.assertEqual((done.returncode, done.stderr), (0, b""))
        self.assertRegex(done.stdout.decode(), r"\Asequence 0: 1,2,\d+,\d+\nsequence 1: 3,\d+,\d+\n\nprefill  3 tokens")

    def test_help_is_no_error(self):
        for name in ("tenon-run", "tenon-plan", "tenon-config"):
            done = call(name, "--help")
            self.assertEqual((done.returncode, done.stderr), (0, b""))
            self.assertIn(b"--plan", done.stdout)


@unittest.skipIf(tool("tenon-static-run") is None, "the static runner is built only where the build machine runs what it builds")
class StaticRunner(ToolTest):
    def test_it_answers_as_tenon_run_does(self):
        prompt = reference(GQA)["prompts"][0]
        for rest in (["--max-new-tokens", 9], ["--runtime", "sequential", "--chunk", 2], ["--runtime", "processes"], ["--temperature", 1, "--seed", 3, "--ids", "5,6"]):
            ours = self.run_json("--model", GQA, "--ids", ids(prompt), *rest, name="tenon-static-run")
            theirs = self.run_json("--model", GQA, "--ids", ids(prompt), *rest, "--plan", "0-1@0,1;2-3@2")
            for key in ("ids", "row_offsets", "logits_sha256", "census"):
                self.assertEqual(ours[key], theirs[key])

    def test_it_runs_the_split_and_the_checkpoint_it_was_made_for(self):
        self.fails("tenon-static-run", "--model", GQA, "--ids", "1", "--plan", "all@0", says="--plan")
        self.refused("config_is_the_graphs", "tenon-static-run", "--model", MHA, "--ids", "1")
        self.fails("tenon-static-run", "--model", GQA, "--ids", "1", "--device", "eigen", says="--device")  # the graph names its devices


if __name__ == "__main__":
    unittest.main()
