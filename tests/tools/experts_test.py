# What tenon-run and tenon-plan do with experts: maps, traces, the census, and what they refuse of them.
# SPDX-License-Identifier: Apache-2.0
import hashlib
import json
import pathlib
import tempfile
import unittest

from support import MHA, MIXTRAL, MOE, ToolTest, call, ids, reference

PLAN = "all@0,1:expert"
EVEN = [0, 0, 0, 0, 1, 1, 1, 1]


def map_text(assignment=EVEN, layers=range(4), **changes):
    whole = {"format": "tenon-expert-placement", "version": 1, "ranks": 2, "entry_rank": 0, "expert_count": 8,
             "layers": [{"layer": layer, "assignment": assignment} for layer in layers]}
    return json.dumps({key: value for key, value in (whole | changes).items() if value is not None})


class Experts(ToolTest):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.prompt = ids(reference(MOE)["prompts"][0])

    def write(self, text, name="map.json"):
        (self.folder / name).write_text(text)
        return self.folder / name

    def run_moe(self, *arguments, plan=PLAN):
        return self.run_json("--model", MOE, "--ids", self.prompt, "--max-new-tokens", 5, "--plan", plan, *arguments)

    def test_a_map_moves_rows_and_no_bit(self):
        plain, none = self.run_moe(plan="all@0"), self.run_moe()
        even = self.run_moe("--placement", self.write(map_text()))
        skewed = self.run_moe("--placement", self.write(map_text([1, 1, 1, 1, 1, 1, 1, 0])))
        for made in (none, even, skewed):
            self.assertEqual((made["ids"], made["logits_sha256"]), (plain["ids"], plain["logits_sha256"]))
        self.assertEqual(none["census"], even["census"])
        self.assertGreater(skewed["census"]["bytes"], even["census"]["bytes"])
        rows = [sum(sum(layer["dispatched_rows"]) for layer in made["census"]["experts"]) for made in (plain, even, skewed)]
        self.assertEqual(rows, [rows[0]] * 3)
        for layer in skewed["census"]["experts"]:
            self.assertGreater(layer["dispatched_rows"][1], layer["dispatched_rows"][0])

    def test_the_receipt_is_the_digest_of_the_exact_text(self):
        path = self.write(map_text() + "\n ")
        receipt = self.run_moe("--placement", path)["placement"]
        self.assertEqual(receipt, {"path": str(path), "sha256": hashlib.sha256(path.read_bytes()).hexdigest(), "layers": 4, "experts": 8, "ranks": 2, "entry_rank": 0})
        said = call("tenon-run", "--model", MOE, "--ids", "1", "--plan", PLAN, "--placement", path).stdout.decode()
        self.assertIn(f"placed   4 layers of 8 experts on 2 ranks, entry rank 0, sha256 {receipt['sha256']}", said)

    def test_both_names_of_the_option(self):
        path, other = self.write(map_text()), self.write(map_text(), "other.json")
        by_alias, by_both = self.run_moe("--expert-map", path), self.run_moe("--placement", path, "--expert-map", path)
        self.assertEqual(by_alias["placement"], by_both["placement"])
        run = ("tenon-run", "--model", MOE, "--ids", "1", "--plan", PLAN)
        self.refused("placement_is_named_once", *run, "--placement", path, "--expert-map", other)
        self.assertIn(str(other), call(*run, "--placement", path, "--expert-map", other).stderr.decode())
        for option in ("--placement", "--expert-map"):
            self.refused("placement_is_named", *run, option, "")
            self.refused("placement_opens", *run, option, self.folder / "none.json")
            self.assertRegex(call(*run, option, self.folder / "none.json").stderr.decode(), f"{option} .*none.json: No such file")
            self.refused("placement_opens", *run, option, self.folder)

    def test_a_map_of_another_format_is_read_by_its_name(self):
        path = self.write(map_text(format="memra-ep-map-v1", version=None))
        self.assertEqual(self.run_moe("--placement", path)["census"], self.run_moe()["census"])

    def test_a_map_that_does_not_fit_is_refused_by_both_tools(self):
        for law, text, plan in (
                ("placement_is_awaited", map_text(), "all@0"),
                ("placement_is_awaited", map_text(), "all@0,1:expert_width"),
                ("placement_ranks_are_the_stages", map_text(), "all@0,1,2:expert"),
                ("placement_entry_is_the_root", map_text(entry_rank=1), PLAN),
                ("placement_experts_are_the_models", map_text([0, 1], expert_count=2), PLAN),
                ("placement_covers_the_layers", map_text(layers=range(3)), PLAN),
                ("placement_covers_the_layers", map_text(layers=range(5)), PLAN),
                ("placement_rank_exists", map_text([0, 0, 0, 0, 1, 1, 1, 2]), PLAN),
                ("every_rank_has_work", map_text([0] * 8), PLAN),
                ("placement_version_is_known", map_text(version=2), PLAN),
                ("placement_key_is_known", map_text(more=1), PLAN),
                ("json_is_well_formed", map_text()[:-1], PLAN),
                ("json_keys_are_unique", map_text()[:-1] + ', "ranks": 2}', PLAN)):
            path = self.write(text)
            self.refused(law, "tenon-run", "--model", MOE, "--ids", "1", "--plan", plan, "--placement", path)
            self.refused(law, "tenon-plan", "--model", MOE, "--plan", plan, "--placement", path)

    def test_a_plan_is_priced_as_the_map_places(self):
        def weights(*arguments):
            done = call("tenon-plan", "--model", MOE, "--plan", PLAN, "--format", "json", *arguments)
            self.assertEqual((done.returncode, done.stderr), (0, b""))
            return [r["weight_bytes"] for r in json.loads(done.stdout)["stages"][0]["ranks"]]

        even, skewed = weights(), weights("--placement", self.write(map_text([0, 1, 1, 1, 1, 1, 1, 1])))
        expert = 3 * 64 * 8 * 4 * 4  # three matrices of 64 by 8 in float32, in four layers
        self.assertEqual([a - b for a, b in zip(skewed, even)], [-3 * expert, 3 * expert])
        self.assertEqual(weights("--placement", self.write(map_text())), even)

    def test_a_trace_says_what_every_token_chose_whatever_the_split(self):
        texts = []
        for plan in ("all@0", PLAN, "all@0,1:tensor+expert", "0-1@0;2-3@1,2:expert_width"):
            path = self.folder / "trace"
            made = self.run_json("--model", MOE, "--ids", "1,2,3", "--ids", "9", "--max-new-tokens", 4, "--plan", plan, "--trace-routing", path)
            texts.append(path.read_text())
        self.assertEqual(texts, [texts[0]] * 4)
        lines = texts[0].splitlines()
        self.assertEqual(lines[0], "tenon-routing-trace 1 experts=8 chosen=2")
        rows = [tuple(map(int, line.split(" "))) for line in lines[1:]]
        self.assertEqual(sorted(row[:3] for row in rows), sorted((layer, s, p) for layer in range(4) for s, n in ((0, 6), (1, 4)) for p in range(n)))
        for row in rows:
            self.assertTrue(0 <= row[3] < row[4] < 8, row)
        self.assertEqual(sum(len(s) for s in made["ids"]) - 2, 10)  # the last token of a sequence is not fed

    def test_what_cannot_be_traced_is_refused_and_no_file_is_left(self):
        path = self.folder / "trace"
        self.refused("model_routes_experts", "tenon-run", "--model", MHA, "--ids", "1", "--trace-routing", path)
        self.refused("token_is_in_vocabulary", "tenon-run", "--model", MOE, "--ids", "999", "--trace-routing", path)
        self.assertFalse(path.exists())
        self.fails("tenon-run", "--model", MOE, "--ids", "1", "--trace-routing", self.folder / "none" / "trace", says="--trace-routing: .*none/trace cannot be written")
        self.fails("tenon-run", "--model", MOE, "--ids", "1", "--trace-routing", "", says="--trace-routing")
        if pathlib.Path("/dev/full").exists():
            done = call("tenon-run", "--model", MOE, "--ids", "1", "--trace-routing", "/dev/full")
            self.assertNotEqual(done.returncode, 0)

    def test_a_rank_that_serves_nobody_is_noticed(self):
        done = call("tenon-run", "--model", MOE, "--ids", "1", "--max-new-tokens", 1, "--plan", "all@0,1,2,3,4,5,6,7:expert", "--json")
        found = json.loads(done.stdout)["census"]
        idle = [r for r in range(8) if all(layer["dispatched_rows"][r] == 0 for layer in found["experts"])]
        self.assertTrue(idle)  # eight choices of one token in four layers leave some of eight ranks alone
        self.assertEqual(found["idle_ranks"], idle)
        self.assertEqual(done.stderr.decode(), "".join(f"warning: rank {r} has experts, and no token was routed to them\n" for r in idle))

    def test_a_rank_without_experts_is_not_idle(self):
        done = call("tenon-run", "--model", MOE, "--ids", "1", "--max-new-tokens", 1, "--plan", "all@0,1:tensor", "--json")
        self.assertEqual((json.loads(done.stdout)["census"]["idle_ranks"], done.stderr), ([], b""))

    def test_the_census_counts_experts_where_there_are_some(self):
        self.assertNotIn("experts", self.run_json("--model", MHA, "--ids", "1")["census"])
        found = self.run_json("--model", MIXTRAL, "--ids", "1,2,3", "--max-new-tokens", 1, "--plan", "0-1@0,1:expert;2-3@2")["census"]["experts"]
        self.assertEqual([layer["layer"] for layer in found], [0, 1, 2, 3])
        for layer in found:
            self.assertEqual(sum(layer["dispatched_rows"]), 3 * 2)
            self.assertEqual([n == 0 for n in layer["dispatched_rows"][2:]], [layer["layer"] < 2])


if __name__ == "__main__":
    unittest.main()
