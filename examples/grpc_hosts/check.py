# Starts both programs with certificates made for the occasion, and holds them to what they promise: the unsplit model's tokens; no word to who is
# not certified; refusals by the contract's names; and an end by the deadline where the tail has stopped.
# SPDX-License-Identifier: Apache-2.0
#
#   check.py OPENSSL FRONT TAIL MODEL_DIRECTORY
import os
import pathlib
import select
import signal
import subprocess
import sys
import tempfile
import time

PATIENCE = 120  # seconds for what takes a moment; more is a hang
DEADLINE_MS = 10_000  # of a call: ten thousand times what it takes, so that a busy machine does not pass for a stopped one
BATCHES = ["She was ", "The \tOnce upon a time\tHe", "A"]


class Program:
    """A child that is written and read by lines."""

    def __init__(self, *command):
        self.child = subprocess.Popen(list(map(str, command)), stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self.held = b""

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.child.poll() is None:
            self.child.kill()
            self.child.wait()

    def line(self):
        end = time.monotonic() + PATIENCE
        while b"\n" not in self.held:
            ready, _, _ = select.select([self.child.stdout], [], [], max(0, end - time.monotonic()))
            more = os.read(self.child.stdout.fileno(), 65536) if ready else b""
            if not more:
                raise SystemExit(f"{self.child.args}: no line {'came' if not ready else 'more'}")
            self.held += more
        line, _, self.held = self.held.partition(b"\n")
        return line.decode()

    def ask(self, batch):
        """A batch of prompts; one line for each, or the line that says how it failed."""
        self.child.stdin.write(batch.encode() + b"\n")
        self.child.stdin.flush()
        answers = [self.line()]
        while not answers[0].startswith("failed ") and len(answers) < batch.count("\t") + 1:
            answers.append(self.line())
        return answers

    def end(self):
        self.child.stdin.close()
        return self.child.wait(timeout=PATIENCE)


class Authority:
    """A certificate authority, in a folder of its own."""

    def __init__(self, openssl, folder):
        self.openssl, self.folder = openssl, folder
        folder.mkdir()
        self.call("req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "1", "-subj", f"/CN={folder.name}",
                  "-addext", "keyUsage=critical,keyCertSign", "-keyout", folder / "key.pem", "-out", folder / "authority.pem")

    def call(self, *words):
        done = subprocess.run([self.openssl, *map(str, words)], stdin=subprocess.DEVNULL, capture_output=True, text=True)
        if done.returncode != 0:
            raise SystemExit(f"openssl {words[0]}: {done.stderr}")

    def certify(self, folder, purpose, trusts=None):
        """A folder as the programs take it: who it is, and by whom the other side must be certified."""
        folder.mkdir()
        extensions = folder / "extensions"
        extensions.write_text(f"subjectAltName=IP:127.0.0.1\nextendedKeyUsage={purpose}\n")
        self.call("req", "-new", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-subj", f"/CN={folder.name}",
                  "-keyout", folder / "key.pem", "-out", folder / "request.pem")
        self.call("x509", "-req", "-days", "1", "-in", folder / "request.pem", "-CA", self.folder / "authority.pem", "-CAkey", self.folder / "key.pem",
                  "-CAcreateserial", "-extfile", extensions, "-out", folder / "certificate.pem")
        (folder / "authority.pem").write_text(((trusts or self).folder / "authority.pem").read_text())
        return folder


def nobody(folder, trusts):
    """Without a certificate."""
    folder.mkdir()
    for name in ("certificate.pem", "key.pem"):
        (folder / name).write_text("")
    (folder / "authority.pem").write_text((trusts.folder / "authority.pem").read_text())
    return folder


failures = []


def check(what, holds, seen):
    print(f"{'held' if holds else 'FAILED'}: {what}" + ("" if holds else f": {seen}"))
    if not holds:
        failures.append(what)


def main(arguments):
    openssl, front, tail, model = arguments
    with tempfile.TemporaryDirectory() as scratch:
        scratch = pathlib.Path(scratch)
        ours, strangers = Authority(openssl, scratch / "ours"), Authority(openssl, scratch / "strangers")
        server = ours.certify(scratch / "server", "serverAuth")
        client = ours.certify(scratch / "client", "clientAuth")
        uncertified = {"no certificate": nobody(scratch / "nobody", ours),
                       "a certificate of another authority": strangers.certify(scratch / "stranger", "clientAuth", trusts=ours),
                       "trust in another authority": ours.certify(scratch / "doubter", "clientAuth", trusts=strangers)}
        with Program(front, model) as whole:
            expected = {batch: whole.ask(batch) for batch in BATCHES}
            check("the unsplit model answers", whole.end() == 0, expected)

        with Program(tail, model, "127.0.0.1:0", server) as remote:
            address = f"127.0.0.1:{int(remote.line())}"

            def caller(certificates=client, deadline=DEADLINE_MS, *more):
                return Program(front, model, address, certificates, deadline, *more)

            def refused(what, program, batch, start):
                with program:
                    answer = program.ask(batch)
                    check(what, len(answer) == 1 and answer[0].startswith("failed " + start) and program.end() == 1, answer)

            with caller() as connected:
                for batch in BATCHES:
                    answer = connected.ask(batch)
                    check(f"the unsplit model's tokens: {batch!r}", answer == expected[batch], answer)
                for who, certificates in uncertified.items():
                    refused(f"nothing passes with {who}", caller(certificates), "A", "UNAVAILABLE: ")
                refused("a bundle for the layer before is refused by name", caller(client, DEADLINE_MS, "past-the-middle"), "A",
                        "FAILED_PRECONDITION: bundle_layer_is_the_stages: next_layer is 1; 2 would do")
                refused("more sequences than the tail keeps are refused", caller(), "\t".join("A" * 65),
                        "FAILED_PRECONDITION: sequences_fit: 65 more than the 0 that are open; 64 together would do")
                check("after those, the unsplit model's tokens", connected.ask(BATCHES[0]) == expected[BATCHES[0]], "others")

                os.kill(remote.child.pid, signal.SIGSTOP)
                answer = connected.ask(BATCHES[0])
                check("a call to a stopped tail ends by its deadline", answer[0].startswith("failed DEADLINE_EXCEEDED: "), answer)
                refused("so does one that has no connection yet", caller(client, 2000), "A", "DEADLINE_EXCEEDED: ")
                os.kill(remote.child.pid, signal.SIGCONT)
                check("when it goes on, the unsplit model's tokens", connected.ask(BATCHES[1]) == expected[BATCHES[1]], "others")
                check("the caller says that a batch has failed", connected.end() == 1, "it does not")
            check("the tail ends when its input does", remote.end() == 0, remote.child.returncode)
            with caller() as late:
                answer = late.ask("A")
                check("a tail that is gone is unavailable", answer[0].startswith("failed UNAVAILABLE: "), answer)
    print(f"{len(failures)} failed checks")
    return 1 if failures else 0


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # so that a test that is ended ends its programs
    sys.exit(main(sys.argv[1:]))
