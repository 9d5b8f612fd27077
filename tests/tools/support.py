# What the tool tests share: running a tool, reading a .npy file by hand, the golden references, and checks that count themselves.
# SPDX-License-Identifier: Apache-2.0
import array
import json
import os
import pathlib
import re
import struct
import subprocess
import unittest

DATA = pathlib.Path(os.environ["TENON_TEST_DATA"])
EMBEDDED = os.environ["TENON_EMBEDDED_MODEL"]
MHA = str(DATA / "golden/llama_mha_f32")
GQA = str(DATA / "golden/llama_gqa_bf16_sharded")
MOE = str(DATA / "golden/qwen3_moe_f32")
MIXTRAL = str(DATA / "golden/mixtral_bf16_sharded")
GOLDEN = [MHA, GQA, MOE, MIXTRAL]


def tool(name):
    """The path of tenon-run, tenon-plan, tenon-config or the static runner; None where it was not built."""
    return os.environ.get(name.upper().replace("-", "_"))


def call(name, *arguments, environment=None):
    env = {k: v for k, v in os.environ.items() if k != "TENON_ISA"} | (environment or {})
    return subprocess.run([tool(name), *map(str, arguments)], stdin=subprocess.DEVNULL, capture_output=True, timeout=600, env=env)


def ids(tokens):
    return ",".join(map(str, tokens))


def npy(path):
    """Shape and rows of a float32 or float64 file of two axes, version 1.0, C order."""
    raw = pathlib.Path(path).read_bytes()
    assert raw[:8] == b"\x93NUMPY\x01\x00", raw[:8]
    (length,) = struct.unpack("<H", raw[8:10])
    header = raw[10 : 10 + length].decode("ascii")
    assert header.endswith("\n") and (10 + length) % 64 == 0, header
    found = re.fullmatch(r"\{'descr': '<f([48])', 'fortran_order': False, 'shape': \((\d+), (\d+)\), \} *\n", header)
    assert found, header
    size, rows, columns = map(int, found.groups())
    values = array.array("f" if size == 4 else "d", raw[10 + length :])
    assert len(values) == rows * columns
    return (rows, columns), values, raw[10 + length :]


def reference(folder):
    return json.loads((pathlib.Path(folder) / "reference.json").read_text())


class ToolTest(unittest.TestCase):
    def run_json(self, *arguments, name="tenon-run"):
        done = call(name, *arguments, "--json")
        self.assertEqual((done.returncode, done.stderr), (0, b""), arguments)
        self.assertEqual(done.stdout.count(b"\n"), 1)
        return json.loads(done.stdout.decode("utf-8", errors="strict"))

    def refused(self, law, name, *arguments):
        """Exit 2, nothing on standard output, one line on standard error that names the law and says more."""
        done = call(name, *arguments)
        said = done.stderr.decode()
        self.assertEqual((done.returncode, done.stdout), (2, b""), (arguments, said))
        self.assertRegex(said, rf"\Arefused: {law}: [^\n]+\n\Z", arguments)

    def fails(self, name, *arguments, says="."):
        """Exit 1 with a message, and no abort."""
        done = call(name, *arguments)
        self.assertEqual((done.returncode, done.stdout), (1, b""), (arguments, done.stderr))
        self.assertRegex(done.stderr.decode(), says, arguments)
