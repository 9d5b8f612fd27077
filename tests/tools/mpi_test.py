# tenon-run under mpirun: the answer of one process, printed once; what is refused is refused by all, once.
# SPDX-License-Identifier: Apache-2.0
import json
import os
import pathlib
import shutil
import subprocess
import tempfile
import unittest

from support import MHA, MIXTRAL, MOE, ToolTest, call, tool

MPIRUN = shutil.which("mpirun")
# A tool that was built without MPI says so; one that was built with it runs alone as a group of one.
BUILT = tool("tenon-run") is not None and b"runtime_is_available" not in call("tenon-run", "--model", MHA, "--ids", "1", "--runtime", "mpi").stderr


@unittest.skipUnless(MPIRUN and BUILT, "there is no mpirun, or the tools were built without MPI")
class Mpi(ToolTest):
    def together(self, processes, *arguments):
        env = os.environ | {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1", "OMPI_MCA_rmaps_base_oversubscribe": "1"}
        command = [MPIRUN, "-n", str(processes), tool("tenon-run"), *map(str, arguments), "--runtime", "mpi"]
        return subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, timeout=120, env=env)

    def test_the_answer_is_that_of_one_process_and_comes_once(self):
        for folder, processes, plan in ((MHA, 2, "all@0,1:tensor.reduce"), (MHA, 3, "0@0;1-2@1,2;3@0"), (MOE, 2, "all@0,1:tensor+expert"), (MIXTRAL, 3, "all@0,1,2:expert")):
            with tempfile.TemporaryDirectory() as scratch:
                paths = [pathlib.Path(scratch, name) for name in ("a.npy", "b.npy", "a.trace", "b.trace")]
                rest = ["--model", folder, "--ids", "1,2,3", "--ids", "9", "--max-new-tokens", 5, "--plan", plan, "--json"]
                traces = [["--trace-routing", path] if folder != MHA else [] for path in paths[2:]]
                done = self.together(processes, *rest, "--logits-out", paths[0], *traces[0])
                self.assertEqual(done.returncode, 0, done.stderr)
                self.assertEqual(done.stdout.count(b"\n"), 1)
                ours, theirs = json.loads(done.stdout), self.run_json(*rest[:-1], "--logits-out", paths[1], *traces[1])
                for key in ("ids", "row_offsets", "logits_sha256", "census"):
                    self.assertEqual(ours[key], theirs[key], plan)
                self.assertEqual(paths[0].read_bytes(), paths[1].read_bytes())
                if folder != MHA:
                    self.assertEqual(paths[2].read_bytes(), paths[3].read_bytes())

    def test_refusals_come_once_and_end_all(self):
        for processes, arguments, law in ((3, ["--model", MHA, "--plan", "all@0,1"], "mpi_processes_are_the_devices"),
                                          (2, ["--model", MHA, "--plan", "0@0;1-3@1", "--stop-ids", "999"], "token_is_in_vocabulary"),
                                          (2, ["--model", "/nonexistent", "--plan", "all@0,1"], "file_opens"),
                                          (2, ["--model", MHA, "--plan", "all@0,1", "--trace-routing", "/dev/null"], "model_routes_experts")):
            done = self.together(processes, *arguments, "--ids", "1")
            self.assertNotEqual(done.returncode, 0)
            self.assertEqual(done.stdout, b"")
            self.assertEqual(done.stderr.decode().count(f"refused: {law}: "), 1, done.stderr)

    def test_what_the_first_process_alone_cannot_write_ends_all(self):
        done = self.together(2, "--model", MHA, "--ids", "1", "--plan", "all@0,1", "--logits-out", "/nonexistent/x.npy")
        self.assertNotEqual(done.returncode, 0)
        self.assertIn(b"/nonexistent/x.npy cannot be written", done.stderr)


if __name__ == "__main__":
    unittest.main()
