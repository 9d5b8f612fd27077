# tenon-placement: small placements by hand, every promise against brute force, the same bytes every time, and a name for every refusal.
# SPDX-License-Identifier: Apache-2.0
import hashlib
import itertools
import json
import os
import pathlib
import random
import subprocess
import tempfile
import unittest

from support import ToolTest, call, tool

# Experts 0 and 2 twice, 1 and 3, 0 and 1: loads 3, 2, 2, 1.
SMALL = "tenon-routing-trace 1 experts=4 chosen=2\n0 0 0 0 2\n0 0 1 0 2\n0 0 2 1 3\n0 0 3 0 1\n"


def trace_of(experts, chosen, rows):
    """The text of a trace; a row is a layer and its ids, and positions count."""
    return f"tenon-routing-trace 1 experts={experts} chosen={chosen}\n" + "".join(
        f"{layer} 0 {position} {' '.join(map(str, sorted(ids)))}\n" for position, (layer, ids) in enumerate(rows))


class Traffic:
    """What the tokens of one layer chose, counted a second time."""

    def __init__(self, experts, choices):
        self.experts = experts
        self.load = [sum(e in ids for ids in choices) for e in range(experts)]
        self.pairs = [pair for ids in choices for pair in itertools.combinations(sorted(ids), 2)]
        self.rows = sum(self.load)

    def fullest(self, owners):
        return max(sum(self.load[e] for e in range(self.experts) if owners[e] == r) for r in set(owners))

    def together(self, owners):
        return sum(owners[a] == owners[b] for a, b in self.pairs)

    def even(self, ranks):
        return [e * ranks // self.experts for e in range(self.experts)]

    def lawful(self, ranks):
        """Every placement whose ranks hold as many experts as those of the even split, in any order."""
        sizes = sorted(self.even(ranks).count(r) for r in range(ranks))
        for owners in itertools.product(range(ranks), repeat=self.experts):
            if sorted(owners.count(r) for r in range(ranks)) == sizes:
                yield owners

    def longest_first(self, ranks):
        owners, load, count, larger = [None] * self.experts, [0] * ranks, [0] * ranks, self.experts % ranks
        for e in sorted(range(self.experts), key=lambda e: (-self.load[e], e)):
            least = self.experts // ranks
            free = [r for r in range(ranks) if count[r] < least or (count[r] == least and larger > 0)]
            r = min(free, key=lambda r: (load[r], count[r], r))
            larger -= count[r] == least
            owners[e], load[r], count[r] = r, load[r] + self.load[e], count[r] + 1
        return owners if self.fullest(owners) <= self.fullest(self.even(ranks)) else self.even(ranks)


def random_choices(generator, experts, chosen):
    """Tokens that prefer some experts, and some company."""
    weights = [generator.random() ** 3 + 0.01 for _ in range(experts)]
    groups = [generator.sample(range(experts), chosen) for _ in range(3)]
    choices = []
    for _ in range(generator.randint(1, 40)):
        ids = set(generator.choice(groups)) if generator.random() < 0.4 else set()
        while len(ids) < chosen:
            ids.add(generator.choices(range(experts), weights)[0])
        choices.append(tuple(sorted(ids)))
    return choices


class Placement(ToolTest):
    def setUp(self):
        scratch = tempfile.TemporaryDirectory()
        self.addCleanup(scratch.cleanup)
        self.folder = pathlib.Path(scratch.name)

    def trace(self, text, name="a.trace"):
        path = self.folder / name
        path.write_bytes(text.encode() if isinstance(text, str) else text)
        return path

    def report(self, *arguments):
        return self.run_json(*arguments, name="tenon-placement")

    def map_of(self, *arguments):
        """The map that is written, and the report; the receipt of the one stands in the other."""
        path = self.folder / "map.json"
        report = self.report("--out", path, *arguments)
        text = path.read_bytes()
        self.assertEqual(report["sha256"], hashlib.sha256(text).hexdigest())
        return json.loads(text), report

    def owners(self, *arguments):
        made, _ = self.map_of(*arguments)
        return [layer["assignment"] for layer in made["layers"]]

    def says(self, sentence, *arguments):
        """Refused with exactly this sentence; nothing is written."""
        out = self.folder / "refused.json"
        done = call("tenon-placement", *arguments, "--out", out)
        self.assertEqual((done.returncode, done.stdout, done.stderr.decode()), (2, b"", f"refused: {sentence}\n"))
        self.assertFalse(out.exists())

    def test_small_placements_by_hand(self):
        run = ("--traces", self.trace(SMALL), "--ranks", 2, "--strategy")
        self.assertEqual(self.owners(*run, "even"), [[0, 0, 1, 1]])  # 5 and 3 rows; one pair of four together
        self.assertEqual(self.owners(*run, "frequency"), [[0, 1, 1, 0]])  # 3+1 and 2+2 rows
        self.assertEqual(self.owners(*run, "coactivation"), [[0, 1, 1, 0]])  # 1.1 * 8 / 2 leaves 4 rows
        self.assertEqual(self.owners(*run, "coactivation", "--balance", "1.24"), [[0, 1, 1, 0]])
        self.assertEqual(self.owners(*run, "coactivation", "--balance", "1.25"), [[1, 0, 1, 0]])  # 5 rows: 0 with 2, 1 with 3
        _, report = self.map_of(*run, "coactivation", "--balance", "2")
        self.assertEqual(report, {
            "strategy": "coactivation", "experts": 4, "ranks": 2, "sha256": report["sha256"],
            "layers": [{"layer": 0, "rows": 8, "pairs": 4, "largest_load": {"map": 0.625, "even": 0.625}, "same_rank": {"map": 0.75, "even": 0.25}, "within_bound": True}],
            "total": {"rows": 8, "pairs": 4, "largest_load": {"map": 0.625, "even": 0.625}, "same_rank": {"map": 0.75, "even": 0.25}, "within_bound": True}})

    def test_frequency_leaves_no_rank_fuller_than_the_even_split(self):
        # Loads 2, 2, 2, 3, 3: the longest first gives 3+2+2 and 3+2, the even split 2+2+2 and 3+3.
        trace = self.trace(trace_of(5, 1, [(0, (e,)) for e in (0, 0, 1, 1, 2, 2, 3, 3, 3, 4, 4, 4)]))
        self.assertEqual(self.owners("--traces", trace, "--ranks", 2, "--strategy", "frequency"), [[0, 0, 0, 1, 1]])

    def test_the_text_of_a_map(self):
        trace = self.trace(SMALL)
        self.map_of("--traces", trace, "--ranks", 2, "--strategy", "coactivation", "--balance", "1.250")
        worth = '"largest_load":{"even":0.625,"map":0.625},%s"pairs":4,"rows":8,"same_rank":{"even":0.25,"map":0.75},"within_bound":true'
        self.assertEqual((self.folder / "map.json").read_text(), "\n".join([
            "{", '  "entry_rank": 0,', '  "expert_count": 4,', '  "format": "tenon-expert-placement",', '  "layers": [',
            '    {"assignment": [1, 0, 1, 0], "layer": 0}', "  ],", '  "params": {"balance":1.25},', '  "ranks": 2,',
            '  "stats": {"layers":[{' + worth % '"layer":0,' + '}],"total":{' + worth % "" + "}},", '  "strategy": "coactivation",',
            '  "traces": [{"file":"a.trace","rows":4,"sha256":"' + hashlib.sha256(SMALL.encode()).hexdigest() + '"}],', '  "version": 1', "}", ""]))

    def test_the_table(self):
        done = call("tenon-placement", "--traces", self.trace(SMALL), "--ranks", 2, "--strategy", "frequency", "--out", self.folder / "map.json")
        digest = hashlib.sha256((self.folder / "map.json").read_bytes()).hexdigest()
        self.assertEqual((done.returncode, done.stderr, done.stdout.decode()), (0, b"", (
            "                    largest rank load                     same-rank pairs\n"
            "layer        rows       map      even       pairs       map      even\n"
            "    0           8    0.5000    0.6250           4    0.0000    0.2500\n"
            "  all           8    0.5000    0.6250           4    0.0000    0.2500\n"
            f"\nstrategy = frequency, layers = 1, experts = 4, ranks = 2, entry rank = 0\nsha256 = {digest}\n")))

    def test_layers_are_placed_one_by_one_and_ascend(self):
        rows = [(7, (0, 1)), (3, (2, 3)), (7, (0, 1)), (255, (0, 3)), (3, (2, 3)), (7, (2, 3))]
        made, report = self.map_of("--traces", self.trace(trace_of(4, 2, rows)), "--ranks", 2, "--strategy", "coactivation", "--balance", 2)
        self.assertEqual([layer["layer"] for layer in made["layers"]], [3, 7, 255])
        self.assertEqual([(layer["layer"], layer["rows"], layer["same_rank"]["map"]) for layer in report["layers"]], [(3, 4, 1.0), (7, 6, 1.0), (255, 2, 1.0)])
        # Layer 3: all 4 rows on one rank. Layer 7: 4 of 6. Layer 255: 2 of 2.
        self.assertEqual((report["total"]["rows"], report["total"]["largest_load"]["map"]), (12, 0.833333))

    def test_an_even_map_needs_no_trace(self):
        made, report = self.map_of("--experts", 7, "--layers", "0-2,5,250-255", "--ranks", 3, "--strategy", "even")
        self.assertEqual([layer["layer"] for layer in made["layers"]], [0, 1, 2, 5, *range(250, 256)])
        self.assertTrue(all(layer["assignment"] == [0, 0, 0, 1, 1, 2, 2] for layer in made["layers"]))
        self.assertEqual({"params", "stats", "traces"} & set(made), set())
        self.assertEqual(report["total"], {"rows": 0, "pairs": 0, "largest_load": {"map": None, "even": None}, "same_rank": {"map": None, "even": None}})
        self.assertNotIn(b"layer ", call("tenon-placement", "--experts", 7, "--layers", "4", "--ranks", 3, "--strategy", "even").stdout)
        for experts, ranks in ((2, 2), (64, 64), (1024, 64), (1024, 7)):
            self.assertEqual(self.owners("--experts", experts, "--layers", 0, "--ranks", ranks, "--strategy", "even"), [[e * ranks // experts for e in range(experts)]])

    def test_every_promise_against_brute_force(self):
        generator = random.Random(20250318)
        cases = best = 0
        for _ in range(120):
            ranks = generator.choice((2, 3))
            experts = generator.randint(ranks, 7)
            chosen = generator.randint(1, min(3, experts))
            choices = random_choices(generator, experts, chosen)
            balance = generator.choice((1000, 1100, 1250, 1500, 1000 * ranks))
            traffic = Traffic(experts, choices)
            trace = self.trace(trace_of(experts, chosen, [(0, ids) for ids in choices]))
            run = ("--traces", trace, "--ranks", ranks, "--strategy")
            even, frequency = traffic.even(ranks), traffic.longest_first(ranks)
            self.assertEqual(self.owners(*run, "even"), [even])
            self.assertEqual(self.owners(*run, "frequency"), [frequency], (traffic.load, ranks))
            self.assertLessEqual(traffic.fullest(frequency), traffic.fullest(even))

            made, report = self.map_of(*run, "coactivation", "--balance", f"{balance // 1000}.{balance % 1000:03}")
            owners, asked = made["layers"][0]["assignment"], balance * traffic.rows // (1000 * ranks)
            bound = max(asked, traffic.fullest(frequency))
            self.assertEqual(sorted(map(owners.count, range(ranks))), sorted(map(even.count, range(ranks))))
            self.assertLessEqual(traffic.fullest(owners), bound)
            self.assertGreaterEqual(traffic.together(owners), traffic.together(frequency))
            if traffic.fullest(even) <= bound:
                self.assertGreaterEqual(traffic.together(owners), traffic.together(even))
            most = max(traffic.together(o) for o in traffic.lawful(ranks) if traffic.fullest(o) <= bound)
            self.assertLessEqual(traffic.together(owners), most)
            cases, best = cases + 1, best + (traffic.together(owners) == most)

            found = report["layers"][0]
            self.assertEqual((found["rows"], found["pairs"]), (traffic.rows, len(traffic.pairs)))
            self.assertEqual(found["within_bound"], traffic.fullest(owners) <= asked)
            for name, placed in (("map", owners), ("even", even)):
                self.assertAlmostEqual(found["largest_load"][name], traffic.fullest(placed) / traffic.rows, delta=5.1e-7)
                if traffic.pairs:
                    self.assertAlmostEqual(found["same_rank"][name], traffic.together(placed) / len(traffic.pairs), delta=5.1e-7)
                else:
                    self.assertIsNone(found["same_rank"][name])
        self.assertGreaterEqual(best, 0.95 * cases)  # a local search: it need not find the best of all

    def test_where_the_search_starts_matters(self):
        def same_rank(experts, ranks, balance, choices):
            trace = self.trace(trace_of(experts, len(choices[0]), [(0, ids) for ids in choices]))
            return self.report("--traces", trace, "--ranks", ranks, "--strategy", "coactivation", "--balance", balance)["total"]["same_rank"]

        # From the even split: its 15 rows of 24 keep the bound of 15, and no exchange leads there from the balanced 3 | 0, 5.
        choices = [(0, 2, 3), (3, 5, 6), (3, 5, 7), *[(0, 3, 5)] * 5]
        self.assertEqual(same_rank(8, 2, "1.25", choices), {"map": 0.416667, "even": 0.416667})
        # From pairs: 2 and 4 together are over the bound of 5; 0 with 2 and 1 with 4 are not, and the balanced placement leads to neither.
        self.assertEqual(same_rank(6, 3, "1.5", [(0, 2), (1, 4), (2, 4), (0, 1), (2, 4)]), {"map": 0.4, "even": 0.2})

    def test_groups_are_found(self):
        # Four groups of eight of 32 experts, their ids scattered: all pairs come together, and no rank is fuller than another.
        generator = random.Random(7)
        ids = generator.sample(range(32), 32)
        groups = [ids[i : i + 8] for i in range(0, 32, 8)]
        rows = [(0, generator.sample(groups[t % 4], 4)) for t in range(400)]
        made, report = self.map_of("--traces", self.trace(trace_of(32, 4, rows)), "--ranks", 4, "--strategy", "coactivation")
        self.assertEqual(report["layers"][0]["same_rank"]["map"], 1.0)
        self.assertEqual(report["layers"][0]["largest_load"]["map"], 0.25)
        for group in groups:
            self.assertEqual(len({made["layers"][0]["assignment"][e] for e in group}), 1)

    def test_a_bound_that_nothing_keeps_is_said(self):
        # Half of all rows go to one expert of four ranks: no placement is below 2 times the mean.
        trace = self.trace(trace_of(8, 2, [(0, (0, 1 + t % 7)) for t in range(70)]))
        for balance, kept in (("1.1", False), ("1.99", False), ("4", True)):
            report = self.report("--traces", trace, "--ranks", 4, "--strategy", "coactivation", "--balance", balance)
            self.assertEqual((report["layers"][0]["within_bound"], report["total"]["within_bound"]), (kept, kept))
            table = call("tenon-placement", "--traces", trace, "--ranks", 4, "--strategy", "coactivation", "--balance", balance).stdout.decode()
            self.assertEqual(table.count("  over the bound\n"), 0 if kept else 1)
        self.assertNotIn("within_bound", self.report("--traces", trace, "--ranks", 4, "--strategy", "frequency")["layers"][0])

    def test_the_same_traces_give_the_same_bytes(self):
        generator = random.Random(11)
        texts = [trace_of(16, 3, [(layer, generator.sample(range(16), 3)) for _ in range(50) for layer in (1, 0)]) for _ in range(2)]
        a, b = (self.trace(text, name) for text, name in zip(texts, ("a.trace", "b.trace")))
        (self.folder / "elsewhere").mkdir()
        c, d = (self.trace(text, name) for text, name in zip(texts, ("elsewhere/a.trace", "elsewhere/b.trace")))

        def text(*arguments, environment=None):
            out = self.folder / "map.json"
            done = call("tenon-placement", "--ranks", 4, "--strategy", "coactivation", *arguments, "--out", out, environment=environment)
            self.assertEqual((done.returncode, done.stderr), (0, b""))
            return out.read_bytes(), done.stdout

        first = text("--traces", a, b)
        self.assertEqual(text("--traces", a, b), first)
        self.assertEqual(text("--traces", a, "--traces", b), first)
        self.assertEqual(text("--traces", c, d), first)
        self.assertEqual(text("--balance", "1.100", "--traces", a, b, environment={"LC_ALL": "de_DE.UTF-8", "LANG": "de_DE.UTF-8"}), first)
        other, _ = text("--traces", b, a)
        self.assertNotEqual(other, first[0])
        made = [json.loads(t) for t in (first[0], other)]
        self.assertEqual(made[0]["layers"], made[1]["layers"])  # the order of the traces is in the notes alone
        self.assertEqual(made[0]["traces"], made[1]["traces"][::-1])
        self.assertEqual([t["rows"] for t in made[0]["traces"]], [100, 100])
        whole = self.trace(texts[0] + texts[1].split("\n", 1)[1], "whole.trace")
        self.assertEqual(json.loads(text("--traces", whole)[0])["stats"], made[0]["stats"])

    def test_what_is_refused_and_what_would_do(self):
        a = self.trace(SMALL)
        run = ("--traces", a, "--ranks", 2, "--strategy", "coactivation")
        self.says("balance_is_a_bound: --balance is 0.99; 1 to 2, the ranks, would do", *run, "--balance", "0.99")
        self.says("balance_is_a_bound: --balance is 2.000001; 1 to 2, the ranks, would do", *run, "--balance", "2.000001")
        self.says("balance_bounds_coactivation: --strategy frequency takes no --balance; --strategy coactivation would do",
                  "--traces", a, "--ranks", 2, "--strategy", "frequency", "--balance", "1.1")
        for strategy in ("frequency", "coactivation"):
            self.says(f"traces_are_given: --strategy {strategy} measures; --traces FILE would do", "--ranks", 2, "--strategy", strategy, "--experts", 4, "--layers", 0)
        shape = "placement_shape_is_given: without --traces nothing says what is placed; --traces FILE, or --experts E and --layers FIRST-LAST, would do"
        for given in ((), ("--experts", 4), ("--layers", 0)):
            self.says(shape, "--ranks", 2, "--strategy", "even", *given)
        for given in (("--experts", 4), ("--layers", 0), ("--experts", 4, "--layers", 0)):
            self.says("placement_shape_is_given_once: the traces say the experts and the layers; --traces without --experts and --layers would do",
                      "--traces", a, "--ranks", 2, "--strategy", "even", *given)
        for experts in (-1, 0, 1025):
            self.says(f"placement_experts_fit: --experts is {experts}; 2 to 1024 would do", "--ranks", 2, "--strategy", "even", "--experts", experts, "--layers", 0)
        self.says("placement_layers_fit: --layers names layer 256; 0 to 255 would do", "--ranks", 2, "--strategy", "even", "--experts", 4, "--layers", "0,7-256")
        for ranks, sentence in {1: "placement_has_several_ranks: the map to be written: ranks = 1; 2 to 64 would do",
                                0: "placement_has_several_ranks: the map to be written: ranks = 0; 2 to 64 would do",
                                65: "placement_ranks_fit: the map to be written: ranks = 65; 2 to 64 would do",
                                5: "every_rank_has_work: the map to be written: expert_count = 4, ranks = 5; expert_count = 5 to 1024 would do",
                                -1: "placement_number_is_whole: the map to be written: ranks = -1; a whole number in digits alone, 2 to 64, would do"}.items():
            for strategy in ("even", "frequency", "coactivation"):
                self.says(sentence, "--traces", a, "--ranks", ranks, "--strategy", strategy)

    def test_traces_that_do_not_fit(self):
        a, run = self.trace(SMALL), ("--ranks", 2, "--strategy", "frequency", "--traces")
        for text in ("tenon-routing-trace 1 experts=8 chosen=2\n", "tenon-routing-trace 1 experts=4 chosen=1\n0 0 0 1\n"):
            b = self.trace(text, "b.trace")
            said = text.split("\n")[0].removeprefix("tenon-routing-trace 1 ")
            self.says(f"traces_agree: {b} says {said}, {a} says experts=4 chosen=2; traces of one model would do", *run, a, b)
        empty = self.trace("tenon-routing-trace 1 experts=4 chosen=2\n", "empty.trace")
        self.says(f"traces_have_rows: {empty} has no row, nor has any other; the trace of a run that reads tokens would do", *run, empty, empty)
        self.assertEqual(self.owners(*run, empty, a), [[0, 1, 1, 0]])
        for law, text in {"routing_trace_header_is_known": "", "routing_trace_line_ends": SMALL[:-1], "routing_trace_shape_fits": "tenon-routing-trace 1 experts=4 chosen=5\n",
                          "routing_trace_row_is_whole": SMALL + "0 0 4 1\n", "routing_trace_number_is_plain": SMALL + "0 0 4 1.0 2\n",
                          "routing_trace_expert_exists": SMALL + "0 0 4 1 4\n", "routing_trace_experts_ascend": SMALL + "0 0 4 2 1\n",
                          "routing_trace_experts_are_distinct": SMALL + "0 0 4 2 2\n", "routing_trace_layer_fits": SMALL + "256 0 4 1 2\n"}.items():
            self.refused(law, "tenon-placement", *run, self.trace(text, "bad.trace"))
            self.refused(law, "tenon-placement", *run, a, self.trace(text, "bad.trace"))
        bad = self.trace(SMALL + "0 0 4 1 4\n", "bad.trace")
        self.says(f"routing_trace_expert_exists: {bad}: line 6: expert 4; 0 to 3 would do", *run, a, bad)
        for nothing in ("absent.trace", "", self.folder):
            self.refused("file_opens", "tenon-placement", *run, nothing)
        self.refused("routing_trace_header_is_known", "tenon-placement", *run, self.trace(bytes(range(256)) * 40, "bytes.trace"))

    def test_the_file_is_whole_or_not_there(self):
        run = ("tenon-placement", "--traces", self.trace(SMALL), "--strategy", "frequency")
        out = self.folder / "map.json"
        out.write_text("kept")
        self.refused("placement_ranks_fit", *run, "--ranks", 65, "--out", out)
        self.assertEqual(out.read_text(), "kept")
        self.assertEqual(call(*run, "--ranks", 2, "--out", out).returncode, 0)
        self.assertEqual(json.loads(out.read_text())["ranks"], 2)
        for bad in ("", self.folder, self.folder / "absent/map.json", "/nonexistent/map.json", self.folder / ("x" * 300)):
            self.fails(*run, "--ranks", 2, "--out", bad, says="--out")
        special = self.folder / "link.json"
        special.symlink_to(out)
        self.fails(*run, "--ranks", 2, "--out", special, says="is not a regular file")
        self.assertTrue(special.is_symlink())
        if pathlib.Path("/dev/full").exists():
            self.fails(*run, "--ranks", 2, "--out", "/dev/full", says="is not a regular file")
            self.assertTrue(pathlib.Path("/dev/full").is_char_device())
        full = subprocess.run(["sh", "-c", 'ulimit -f 0 && exec "$0" "$@"', tool("tenon-placement"), *map(str, run[1:]), "--ranks", "2", "--out", out],
                              stdin=subprocess.DEVNULL, capture_output=True)
        self.assertEqual((full.returncode, full.stdout), (1, b""), full.stderr)
        self.assertRegex(full.stderr, rb"--out: .*map\.json cannot be written: ")
        self.assertEqual(json.loads(out.read_text())["ranks"], 2)
        self.assertEqual(sorted(os.listdir(self.folder)), ["a.trace", "link.json", "map.json"])  # and no draft

    def test_other_errors(self):
        run = ("tenon-placement", "--traces", self.trace(SMALL), "--ranks", 2, "--strategy")
        self.fails(*run, "best", says="--strategy")
        self.fails("tenon-placement", "--traces", self.folder / "a.trace", "--ranks", 2, says="--strategy")
        self.fails("tenon-placement", "--traces", self.folder / "a.trace", "--strategy", "even", says="--ranks")
        self.fails("tenon-placement", "--ranks", 2, "--strategy", "even", "--traces", says="--traces")
        for bad in ("", "x", ".", "1.", ".5", "1,1", "-1", "+1", "1e0", "nan", "inf", "1.1234567", "1234567", "1.1 ", "1.1.1"):
            self.fails(*run, "coactivation", "--balance", bad, says="--balance")
        for bad in ("", "x", "0-", "-1", "1-0", "0,0", "1,0", "0,", ",", "0--1", "0-1-2", "0 1", "0-3,3-4", "99999999999"):
            self.fails("tenon-placement", "--experts", 4, "--ranks", 2, "--strategy", "even", "--layers", bad, says="--layers")
        for bad in ("", "x", "2.0", "1e0", "99999999999"):
            self.fails("tenon-placement", "--experts", 4, "--layers", 0, "--strategy", "even", "--ranks", bad, says="--ranks")

    def test_garbage_never_aborts(self):
        generator = random.Random(1906)
        pieces = ["--traces", self.trace(SMALL), "--ranks", "2", "3", "--strategy", "even", "frequency", "coactivation", "--balance", "1.5", "--experts", "4",
                  "--layers", "0-3", f"--out={self.folder}/map.json", "--json", "", "-", "--", "=", "%n%s", "\x01", "[a,b]", "x" * 5000]
        for _ in range(150):
            arguments = [generator.choice(pieces) for _ in range(generator.randint(0, 9))]
            done = call("tenon-placement", *arguments)
            self.assertIn(done.returncode, (0, 1, 2), (arguments, done.stderr))
            self.assertEqual(done.returncode == 2, done.stderr.startswith(b"refused: "), (arguments, done.stderr))
            self.assertEqual(done.returncode == 0, done.stderr == b"", (arguments, done.stderr))


if __name__ == "__main__":
    unittest.main()
