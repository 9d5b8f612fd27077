# Runs a target of libFuzzer over its committed corpus for some seconds; from one seed, so that a run that fails fails again.
# SPDX-License-Identifier: Apache-2.0
#
#   libfuzzer.py MAIN TARGET CORPUS                 MAIN is the same target with its own main, which knows the words of its format
#   libfuzzer.py MAIN TARGET CORPUS --grow SECONDS  from another seed; what reaches code that the corpus does not is added to it
import base64
import os
import pathlib
import subprocess
import sys
import tempfile

SECONDS, RUNS, LONGEST = 10, 200_000, 4096


def run(target, scratch, *arguments):
    # A target ends without cleaning up: what it writes goes where this script does.
    environment = os.environ | {"TMPDIR": str(scratch), "UBSAN_OPTIONS": "print_stacktrace=1"}
    return subprocess.run([target, *map(str, arguments)], env=environment, stdin=subprocess.DEVNULL).returncode


def main(arguments):
    main_program, target, corpus, *grow = arguments
    with tempfile.TemporaryDirectory() as scratch:
        scratch = pathlib.Path(scratch)
        words, found, seeds = scratch / "words", scratch / "found", scratch / "seeds"
        found.mkdir()
        seconds = int(grow[1]) if grow else SECONDS
        folder = corpus if grow else seeds
        subprocess.run([main_program, "--write-words", words], check=True)
        subprocess.run([main_program, "--write-corpus", folder], check=True)
        limits = ["-max_len=" + str(LONGEST)] if grow else ["-seed=1", f"-runs={RUNS}"]
        status = run(target, scratch, *limits, f"-max_total_time={seconds}", f"-dict={words}", f"-artifact_prefix={scratch}/", "-timeout=60",
                     "-print_final_stats=1", found, folder, corpus)
        for kind in ("crash", "leak", "timeout", "oom"):
            for path in scratch.glob(kind + "-*"):
                print(f"{path.name}, base64: {base64.b64encode(path.read_bytes()).decode()}")
        if grow and status == 0:
            # By the lines reached alone: counted by how often each is, the files would be ten times as many.
            status = run(target, scratch, "-merge=1", "-use_counters=0", corpus, found)
    return 0 if status == 0 else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
