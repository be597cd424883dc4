"""Jobs whose ranks take themselves to be on several hosts: results, endings, jobs side by side."""

from __future__ import annotations

import signal
import threading

import mpi
import pytest
import troubleshooting

pytestmark = pytest.mark.thorough

# How long the others may take to end, once a rank is gone.
SECONDS = 10

BEGIN = """
import os, random, signal, sys, time
rank = int(os.environ.get("OMPI_COMM_WORLD_RANK", os.environ.get("PMI_RANK")))
host = "HOSTS"[rank]
os.environ["TFHVD_TEST_HOST"] = host
import tensorflow as tf
import tfhvd as hvd

hvd.init()
assert hvd.rank() == rank and hvd.size() == len("HOSTS")
assert hvd.local_size() == "HOSTS".count(host)
"""

CHECKS = """
n = hvd.size()
total = n * (n - 1) // 2

@tf.function
def step():
    names = list(range(12))
    random.Random(rank).shuffle(names)
    sums = {}
    for i in names:
        length = 300_000 if i % 4 == 0 else 3
        sums[i] = hvd.allreduce(tf.fill([length], float(rank + i)), op=hvd.Sum, name=f"sum{i}")
    return sums

for _ in range(12):  # it is agreed first, and then locked
    for i, value in step().items():
        tf.debugging.assert_equal(value, tf.fill(value.shape, float(total + n * i)))
mixed = hvd.allreduce(tf.random.stateless_normal([100_003], [rank, 1]), op=hvd.Sum, name="mixed")
bits = hvd.allgather(tf.bitcast(mixed, tf.int32)[tf.newaxis], name="bits")
tf.debugging.assert_equal(bits, tf.repeat(bits[:1], n, 0))
rows = hvd.allgather(tf.fill([rank + 1, 2], rank))
tf.debugging.assert_equal(rows[:, 0], tf.repeat(tf.range(n), tf.range(n) + 1))
for root in range(n):
    tf.debugging.assert_equal(hvd.broadcast(tf.fill([50_000], rank), root), tf.fill([50_000], root))
half = hvd.allreduce(tf.constant([1.0 + rank], tf.bfloat16), op=hvd.Average)
tf.debugging.assert_equal(half, tf.constant([1.0 + (n - 1) / 2], tf.bfloat16))
part = hvd.reducescatter(tf.ones([2 * n]), op=hvd.Sum)
tf.debugging.assert_equal(part, tf.fill([2], float(n)))
sent = hvd.alltoall(tf.range(n) + 10 * rank)
sent = sent[0] if isinstance(sent, tuple) else sent
tf.debugging.assert_equal(sent, 10 * tf.range(n) + rank)
hvd.barrier()
print("checked", hvd.local_rank(), hvd.cross_size(), flush=True)
"""

# Every rank sees the votes of all of them, those of other hosts included.
TIMELINE = """
import json
hvd.start_timeline("{rank}.json")
for _ in range(40):
    step()
hvd.stop_timeline()
ticks, turns = {}, 0
with open(f"{rank}.json") as file:
    for event in json.load(file):
        row = event["pid"]
        if event["ph"] == "B" and event["name"].startswith("NEGOTIATE"):
            ticks[row] = set()
        elif event.get("name", "").isdigit():
            ticks[row].add(int(event["name"]))
        elif event.get("args", {}).get("locked"):
            assert ticks[row] == set(range(n)), ticks[row]
            turns += 1
assert turns > 0
"""


def run(hosts: str, rest: str, **more: object) -> mpi.Job:
    """Runs a program on one rank for each letter of `hosts`, which names the rank's host."""
    return mpi.run_ranks(len(hosts), BEGIN.replace("HOSTS", hosts) + rest, **more)


def test_two_hosts_of_two(tmp_path):
    move = f"os.chdir({str(tmp_path)!r})\n"
    job = run("aabb", CHECKS + move + TIMELINE, env={"TFHVD_LOG_LEVEL": "info"})
    assert job.code == 0, job
    assert [rank.out for rank in job.ranks] == [f"checked {r % 2} 2\n" for r in range(4)], job
    assert "shared memory within each of 2 hosts" in job.ranks[0].err, job
    assert not job.left, job


def test_a_host_that_cannot_share_memory_alone_does_without():
    limited = """
import resource
limits = resource.getrlimit(resource.RLIMIT_FSIZE)
if host == "b":
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, limits[1]))
hvd.init()
"""
    text = BEGIN.replace("HOSTS", "aabb").replace("\nhvd.init()\n", limited)
    job = mpi.run_ranks(4, text + CHECKS, env={"TFHVD_LOG_LEVEL": "info"})
    assert (job.code, job.left) == (0, []), job
    assert [rank.out for rank in job.ranks] == [f"checked {r % 2} 2\n" for r in range(4)], job
    assert "shared memory within 1 of 2 hosts" in job.ranks[0].err, job
    slower = [number for number, rank in enumerate(job.ranks) if "are slower" in rank.err]
    assert slower == [2], job
    troubleshooting.check("`Until then collectives are slower`", job.ranks[2].err)


def test_hosts_of_three_and_one_hear_why_a_rank_left():
    rest = """
if rank == 2:
    raise ValueError("bad luck")
hvd.allreduce(1.0, name="wanted")
"""
    job = run("aaba", CHECKS + rest)
    assert job.code not in (0, None), job
    for number, rank in enumerate(job.ranks):
        assert rank.out.startswith("checked"), job
        if number != 2:
            assert "rank 2 (host b)" in rank.err and "ValueError: bad luck" in rank.err, job
    assert not job.left, job


def test_a_killed_leader_ends_the_job():
    left = []

    def watch(processes: mpi.Processes) -> None:
        processes.wait_for_text(2, "now")
        left.extend(processes.wait_until_gone(SECONDS))

    rest = """
for _ in range(40):  # more than enough that the step is locked
    hvd.allreduce(1.0, name="wanted")
if rank == 2:
    print("now", flush=True)
    os.kill(os.getpid(), signal.SIGKILL)
while True:
    hvd.allreduce(1.0, name="wanted")
"""
    job = run("aabb", rest, while_running=watch)
    assert not left, f"still there after {SECONDS} s: {left}\n{job}"
    assert job.code not in (0, None), job
    assert job.ranks[2].code == 128 + signal.SIGKILL, job
    assert "signal 9" in job.launcher + job.ranks[0].err, job


def test_two_jobs_share_a_host():
    """Shared memory has no name: one job's end leaves the other alone."""
    rest = """
for i in range(200):
    assert hvd.allreduce(float(i + JOB), op=hvd.Sum, name="same") == 2 * (i + JOB)
print("done JOB", flush=True)
hvd.barrier()  # with one rank's end mpirun ends the others, and they have said it by then
if JOB == 7:
    os._exit(0) if rank else os.kill(os.getpid(), signal.SIGKILL)
for i in range(200):
    assert hvd.allreduce(float(i), op=hvd.Sum, name="more") == 2 * i
"""
    jobs: dict[int, mpi.Job] = {}

    def start(number: int) -> None:
        jobs[number] = run("aa", rest.replace("JOB", str(number)))

    threads = [threading.Thread(target=start, args=(number,)) for number in (1, 7)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert jobs[1].code == 0, jobs[1]
    assert jobs[7].code not in (0, None), jobs[7]
    for number, job in jobs.items():
        assert all(f"done {number}" in rank.out for rank in job.ranks), job
        assert not job.left, job
