# bench/compare.py: which number it finds in what a command prints, that commands alternate, and what it says of those that fail.
# SPDX-License-Identifier: Apache-2.0
import json
import pathlib
import subprocess
import sys
import tempfile
import unittest

SCRIPT = pathlib.Path(__file__).resolve().parents[2] / "bench" / "compare.py"


def compare(*arguments):
    return subprocess.run([sys.executable, SCRIPT, *arguments], capture_output=True, text=True, timeout=120)


class Compare(unittest.TestCase):
    def figures(self, *arguments):
        done = compare(*arguments, "--json")
        self.assertEqual((done.returncode, done.stderr), (0, ""), done.stdout)
        return json.loads(done.stdout)

    def test_the_ratio_is_that_of_the_medians(self):
        found = self.figures("--runs", "3", "--value", "rate", "--other-value", r"tg\d+ = ([0-9.]+)", "echo '{\"rate\": 6}'",
                             "echo tg16 = 1; echo tg32 = 4.0")
        self.assertEqual((found["first"], found["second"], found["ratio_of_medians"]), ([6.0] * 3, [4.0] * 3, 1.5))

    def test_commands_alternate_and_the_first_run_does_not_count(self):
        with tempfile.TemporaryDirectory() as folder:
            log = pathlib.Path(folder) / "log"
            found = self.figures("--runs", "2", "--value", "n", f"echo a >> {log}; echo '{{\"n\": '$(grep -c . {log})'}}'", f"echo b >> {log}; echo '{{\"n\": 1}}'")
            self.assertEqual(log.read_text().split(), ["a", "b", "b", "a", "a", "b"])
            self.assertEqual(found["first"], [4.0, 5.0])

    def test_seconds_are_compared_where_no_value_is_named(self):
        self.assertGreater(self.figures("--runs", "1", "sleep 0.2", "true")["ratio_of_medians"], 1)

    def test_a_command_that_fails_or_prints_no_such_value_is_named(self):
        for arguments, text in [(("true", "exit 3"), "exit status 3"), (("--value", "rate", "echo 1", "echo 1"), "no 'rate'"),
                                (("--value", "(", "echo 1", "echo 1"), "neither a key"), (("--value", "(x)", "echo x", "echo x"), "no number")]:
            done = compare("--runs", "1", *arguments)
            self.assertEqual(done.returncode, 1)
            self.assertIn(text, done.stderr)

    def test_no_runs_are_refused(self):
        self.assertEqual(compare("--runs", "0", "true", "true").returncode, 2)


if __name__ == "__main__":
    unittest.main()
