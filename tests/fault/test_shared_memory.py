"""Memory that ranks of a host share lies in no folder: none must be large, and nothing stays."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess

import mpi
import pytest

pytestmark = pytest.mark.thorough

BEGIN = """
import os
import tensorflow as tf
import tfhvd as hvd

hvd.init()
with open(os.path.join(os.environ["TFHVD_TEST_OUTPUT"], f"pid.{hvd.rank()}"), "w") as file:
    file.write(f"{os.getpid()}\\n")
assert "/memfd:tfhvd (deleted)" in open("/proc/self/maps").read()
"""

# What follows these words sees a /dev/shm of one page, which is taken.
FULL = 'mount -t tmpfs -o size=4k none /dev/shm && head -c 4096 /dev/zero >/dev/shm/x && exec "$@"'
UNSHARE = (["unshare", "--mount"], ["unshare", "--map-root-user", "--mount"])


def with_a_full_dev_shm() -> list[str]:
    """Returns words to put before a command; skips where this user may mount nothing."""
    for words in UNSHARE:
        command = [*words, "sh", "-c", FULL, "sh"]
        with contextlib.suppress(FileNotFoundError):
            if subprocess.run([*command, "true"], capture_output=True, check=False).returncode == 0:
                return command
    pytest.skip("this user may not mount anything, not even in a namespace of its own")


def test_a_full_dev_shm_hinders_nothing():
    text = """
assert os.statvfs("/dev/shm").f_bavail == 0
n, rank = hvd.size(), hvd.rank()
for length in (1, 300_000, 3_000_000):
    reduced = hvd.allreduce(tf.fill([length], float(rank)), op=hvd.Sum)
    tf.debugging.assert_equal(reduced, tf.fill([length], n * (n - 1) / 2))
    gathered = hvd.allgather(tf.fill([length], rank))
    tf.debugging.assert_equal(gathered, tf.repeat(tf.range(n), length))
print("reduced", flush=True)
"""
    job = mpi.run_ranks(3, BEGIN + text, within=with_a_full_dev_shm())
    assert (job.code, job.left) == (0, []), job
    assert [rank.out for rank in job.ranks] == ["reduced\n"] * 3, job


def test_ranks_that_are_all_killed_leave_nothing():
    text = """
hvd.allreduce(tf.ones([1]), name="first")
print("up", flush=True)
while True:
    hvd.allreduce(tf.ones([1 << 20]), name="wanted")
"""

    def kill(processes: mpi.Processes) -> None:
        ids = [processes.of_rank(rank) for rank in range(2)]
        for rank in range(2):
            processes.wait_for_text(rank, "up")
        for pid in ids:
            # Once one is dead mpirun ends the other, perhaps before we do.
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    job = mpi.run_ranks(2, BEGIN + text, while_running=kill)
    assert job.code not in (0, None), job
    assert not job.left, job
