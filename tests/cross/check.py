# Builds the digest program with other compilers, flags and architectures, runs each over the checkpoints, and compares what they print.
# SPDX-License-Identifier: Apache-2.0
#
#   check.py DIGEST_MAIN.cpp INCLUDE_FOLDER CHECKPOINT...   a digest for every plan over every checkpoint
#   check.py DIGEST_MAIN.cpp INCLUDE_FOLDER                 a digest for every kernel
#
# An arm whose compiler, emulator or instruction set is not on this machine is skipped, with the reason in the output. Within a
# checkpoint every plan of one weight format has one digest, too. Fails when digests differ or fewer than one arm ran.
import os
import pathlib
import platform
import re
import shutil
import subprocess
import sys
import tempfile

NATIVE = {"x86_64": ["portable", "avx2", "avx512"], "aarch64": ["portable", "neon"]}
ARMS = [  # compiler, flags, emulators (any one; none: this machine's own), instruction sets
    ("g++", ["-O2"], [], None),
    ("g++", ["-O3", "-march=native", "-ffp-contract=fast"], [], None),
    ("clang++-19", ["-O2", "-ffp-contract=fast"], [], None),
    ("aarch64-linux-gnu-g++", ["-O2", "-static"], ["qemu-aarch64-static", "qemu-aarch64"], ["neon", "portable"]),
]


def build(compiler, flags, source, include, program):
    command = [compiler, "-std=c++20", *flags, "-I" + include, "-o", program, source, "-pthread"]
    run = subprocess.run(command, text=True, errors="replace", check=False, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    if run.returncode != 0:
        print(" ".join(command) + "\n" + run.stdout)
    return run.returncode == 0


def arm_outputs(arm, source, include, checkpoints, program):
    """Yields (what, text or None, reason)."""
    compiler, flags, emulators, sets = arm
    label = " ".join([compiler, *flags])
    if shutil.which(compiler) is None:
        yield label, None, f"{compiler} is not here"
        return
    emulator = next((found for name in emulators if (found := shutil.which(name))), None)
    if emulators and emulator is None:
        yield label, None, f"none of {', '.join(emulators)} is here"
        return
    if not build(compiler, flags, source, include, program):
        yield label, "does not build", None
        return
    for isa in sets or NATIVE.get(platform.machine(), ["portable"]):
        text, reason = "", None
        for checkpoint in checkpoints or [None]:
            command = ([emulator] if emulator else []) + [program] + ([checkpoint] if checkpoint else []) + [isa]
            run = subprocess.run(command, text=True, errors="replace", check=False, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                 env={k: v for k, v in os.environ.items() if k != "TENON_ISA"})
            if run.returncode == 77:
                reason = run.stderr.strip()
                break
            text += (f"{pathlib.Path(checkpoint).name}\n" if checkpoint else "") + (run.stdout if run.returncode == 0 else f"exit {run.returncode}: {run.stderr}")
        yield f"{label}, {isa}", None if reason else text, reason


def one_digest_a_format(text):
    seen = {}
    checkpoint = ""
    for line in text.splitlines():
        row = re.fullmatch(r"(\S+)\s+(\S+)\s+([0-9a-f]{16})", line)
        if row is None:
            checkpoint = line
        else:
            seen.setdefault((checkpoint, row[1]), set()).add(row[3])
    return bool(seen) and all(len(digests) == 1 for digests in seen.values())


def main(arguments):
    source, include, *checkpoints = arguments
    reference, failed, ran = None, False, 0
    with tempfile.TemporaryDirectory() as folder:
        for number, arm in enumerate(ARMS):
            for what, text, reason in arm_outputs(arm, source, include, checkpoints, str(pathlib.Path(folder) / f"digest{number}")):
                if text is None:
                    print(f"skipped: {what}: {reason}")
                    continue
                ran += 1
                if reference is None:
                    reference = text
                    print(text, end="")
                    failed |= bool(checkpoints) and not one_digest_a_format(text)
                same = text == reference
                failed |= not same
                print(f"{'same' if same else 'DIFFERS'}: {what}" + ("" if same else "\n" + text), flush=True)
    return 1 if failed or ran == 0 else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
