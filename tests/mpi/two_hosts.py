# Runs a program's two MPI processes on two hosts that share no memory and have one wire between them: network namespaces, joined by a veth pair,
# and TCP for every message. Skipped, with the reason, where the machine does not let namespaces be made.
# SPDX-License-Identifier: Apache-2.0
#
#   two_hosts.py MPIRUN PROGRAM
import contextlib
import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile
import time

from launch import passes, summary

SKIPPED = 77  # as Meson understands it
WIRE = "tenon0"  # the interface's name on both hosts
ADDRESSES = ("10.213.77.1", "10.213.77.2")
LEAST_BYTES = 1 << 20  # that the run moves; what only starts two processes moves less than a tenth

# Stands for ssh: its words are a host and a command for the shell there. A host name of its own makes the second host another one.
AGENT = """#!/bin/sh
while [ "${{1#-}}" != "$1" ]; do shift; done
case $1 in
*{address}*) ;;
*) echo "no such host: $1" >&2; exit 1 ;;
esac
shift
exec ip netns exec {namespace} unshare --uts sh -c 'hostname {namespace}; eval "$1"' sh "$*"
"""


class Impossible(Exception):
    """What this machine does not allow."""


def ip(*words):
    done = subprocess.run(["ip", *words], capture_output=True, text=True)
    if done.returncode != 0:
        raise Impossible(f"ip {' '.join(words)}: {done.stderr.strip()}")
    return done.stdout


class Hosts:
    """Two namespaces with an address each on one wire. Whatever runs in them when they end is ended too."""

    def __init__(self):
        self.names = [f"tenon-{os.getpid()}-{number}" for number in (1, 2)]
        self.made = []

    def __enter__(self):
        try:
            for name in self.names:
                self.made.append(name)
                ip("netns", "add", name)
            ip("link", "add", WIRE, "netns", self.names[0], "type", "veth", "peer", "name", WIRE, "netns", self.names[1])
            for name, address in zip(self.names, ADDRESSES):
                ip("-n", name, "address", "add", address + "/24", "dev", WIRE)
                ip("-n", name, "link", "set", WIRE, "up")
                ip("-n", name, "link", "set", "lo", "up")
            end = time.monotonic() + 10
            while any(self.wire(name)["operstate"] != "UP" for name in self.names):  # it takes a moment to be, once both ends are set up
                if time.monotonic() > end:
                    raise Impossible(f"{WIRE} does not come up")
                time.sleep(0.05)
            done = subprocess.run(["ip", "netns", "exec", self.names[1], "unshare", "--uts", "hostname", self.names[1]], capture_output=True, text=True)
            if done.returncode != 0:
                raise Impossible(f"a host name of its own: {done.stderr.strip()}")
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        for name in self.made:
            for sign, patience in ((signal.SIGTERM, 2), (signal.SIGKILL, 10)):
                end = time.monotonic() + patience
                while (inside := subprocess.run(["ip", "netns", "pids", name], capture_output=True, text=True).stdout.split()) and time.monotonic() < end:
                    for process in inside:
                        try:
                            os.kill(int(process), sign)
                        except ProcessLookupError:
                            pass
                    time.sleep(0.1)
            subprocess.run(["ip", "netns", "del", name], capture_output=True)
        self.made = []

    def wire(self, name):
        return json.loads(ip("-n", name, "-s", "-json", "link", "show", "dev", WIRE))[0]

    def bytes_moved(self):
        moved = self.wire(self.names[0])["stats64"]
        return moved["rx"]["bytes"] + moved["tx"]["bytes"]


def options_of(mpirun, agent):
    """One process a host, every message by TCP, the second host reached through the agent; and the environment that says so."""
    version = subprocess.run([mpirun, "--version"], capture_output=True, text=True).stdout
    if "Open MPI" in version:
        return ["--host", ",".join(address + ":1" for address in ADDRESSES), "--bind-to", "none", "--mca", "plm", "rsh", "--mca", "plm_rsh_agent", agent, "--mca", "pml", "ob1",
                "--mca", "btl", "tcp,self", "--mca", "btl_tcp_if_include", WIRE, "--mca", "oob_tcp_if_include", WIRE], {}
    return ["-hosts", ",".join(ADDRESSES), "-ppn", "1", "-launcher", "ssh", "-launcher-exec", agent, "-iface", WIRE], \
        {"UCX_TLS": "tcp,self", "UCX_NET_DEVICES": WIRE}


def main(arguments):
    mpirun, program = arguments
    if shutil.which("ip") is None or shutil.which("unshare") is None:
        print("skipped: there is no ip, of iproute2, or no unshare")
        return SKIPPED
    with contextlib.ExitStack() as at_the_end:
        try:
            hosts = at_the_end.enter_context(Hosts())
        except Impossible as why:
            print(f"skipped: this machine makes no network namespaces, for which root and CAP_SYS_ADMIN are needed; {why}")
            return SKIPPED
        agent = pathlib.Path(at_the_end.enter_context(tempfile.TemporaryDirectory()), "agent")
        agent.write_text(AGENT.format(address=ADDRESSES[1], namespace=hosts.names[1]))
        agent.chmod(0o700)
        options, env = options_of(mpirun, str(agent))
        here = ["ip", "netns", "exec", hosts.names[0]]
        results = [passes([*here, mpirun, *options, "-n", 2, program], 2, env)]
        moved = hosts.bytes_moved()
        print(f"{moved} bytes over the wire")
        results.append(moved >= LEAST_BYTES)
    return summary(results)


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # so that a test that is ended cleans up too
    sys.exit(main(sys.argv[1:]))
