# Runs a program of this folder under an mpirun, of Open MPI or MPICH, within a deadline; one that fails is shown with all it printed.
# SPDX-License-Identifier: Apache-2.0
import os
import signal
import subprocess

DEADLINE = 240  # seconds for one run
# More processes than cores, as root in a container; MPICH does not look at these.
OPEN_MPI = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1", "OMPI_MCA_rmaps_base_oversubscribe": "1",
            "OMPI_MCA_btl_vader_single_copy_mechanism": "none"}


def ended(command, judge, env=None):
    """Whether a command ends in time and as it should: `judge` is told its exit status and what it printed."""
    command = [str(word) for word in command]
    child = subprocess.Popen(command, env=os.environ | OPEN_MPI | (env or {}), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                             stderr=subprocess.PIPE, text=True, start_new_session=True)
    try:
        out, err = child.communicate(timeout=DEADLINE)
    except BaseException as late:
        # The launcher ends its processes when it is asked to, and would leave them behind if it were killed at once.
        os.killpg(child.pid, signal.SIGTERM)
        try:
            out, err = child.communicate(timeout=20)
        except subprocess.TimeoutExpired:
            os.killpg(child.pid, signal.SIGKILL)
            out, err = child.communicate()
        if not isinstance(late, subprocess.TimeoutExpired):
            raise
        print(f"{' '.join(command)} has not ended after {DEADLINE} s\n{out}\n{err}")
        return False
    good = judge(child.returncode, out, err)
    if not good:
        print(f"{' '.join(command)} gave {child.returncode}\n{out[-3000:]}{err[-3000:]}")
    return good


def passes(command, processes, env=None):
    """Whether a command ends in time and well, and says that so many processes found nothing wrong."""
    return ended(command, lambda code, out, err: code == 0 and f"{processes} processes: 0 failed checks" in out, env)


def together(mpirun, processes, *command):
    return passes([mpirun, "-n", processes, *command], processes)


def summary(results):
    """Prints how many runs passed; the exit status."""
    print(f"{sum(results)} of {len(results)} runs passed")
    return 0 if results and all(results) else 1
