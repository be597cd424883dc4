"""Runs every collective on more than 2^31 bytes, through each of what carries collectives on CPUs.

    python tests/long/huge.py [--only TEXT]

Prints a line for each, and ends with 1 where a result was wrong. Takes 10 to 60 s for each on two
quiet cores, and up to 20 GiB of memory.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import mpi

BEGIN = """
import os
rank = int(os.environ.get("OMPI_COMM_WORLD_RANK", os.environ.get("PMI_RANK")))
os.environ["TFHVD_TEST_HOST"] = "HOSTS"[rank]
import tensorflow as tf
import tfhvd as hvd

hvd.init()
n = hvd.size()
HUGE = 2**31 + 80  # bytes
# Where a number of 32 bits would go wrong, and both ends.
MARKS = [0, 12345, 2**30, 2**31 - 1, 2**31, HUGE - 1]

def marked(size, value, dtype=tf.int8):
    '''Ones, but for other numbers at MARKS, from `value` up.'''
    marks = [mark for mark in MARKS if mark < size]
    numbers = tf.cast(tf.range(len(marks)) + value, dtype)
    at = tf.constant([[mark] for mark in marks], tf.int64)
    return tf.tensor_scatter_nd_update(tf.ones([size], dtype), at, numbers)

def check(tensor, size, value, start=0):
    '''Whether these are the `size` values of marked(size, value) from `start` on.'''
    marks = [mark for mark in MARKS if mark < size]
    part = tensor.numpy()[start : start + size]
    expected = [value + i for i in range(len(marks))]
    assert part[marks].tolist() == expected, part[marks]
    # A piece at a time, for the memory's sake.
    pieces = range(0, size, 2**24)
    ones = sum(int((part[at : at + 2**24] == 1).sum()) for at in pieces)
    assert ones == size - len(marks) + expected.count(1), ones
"""

# By name: what every rank does. What is checked holds for any number of ranks.
CASES = {
    "allreduce": """
floats = 2**29 + 77
ours = hvd.allreduce(marked(floats, 3 + rank, tf.float32), op=hvd.Max)
check(ours, floats, 3 + n - 1)
""",
    "grouped_allreduce": """
floats = 2**29 + 77
both = hvd.grouped_allreduce([marked(floats, 3 + rank, tf.float32), tf.ones([3])], op=hvd.Max)
check(both[0], floats, 3 + n - 1)
assert both[1].numpy().tolist() == [1.0] * 3
""",
    "allgather": """
sizes = [HUGE] + [5] * (n - 1)
rows = hvd.allgather(marked(sizes[rank], 10 * (rank + 1)))
assert rows.shape == [sum(sizes)]
check(rows, HUGE, 10)
for other in range(1, n):
    check(rows, 5, 10 * (other + 1), start=HUGE + 5 * (other - 1))
""",
    "grouped_allgather": """
small, rows = hvd.grouped_allgather([marked(2, 1), marked(HUGE if rank == n - 1 else 3, 20)])
assert rows.shape == [HUGE + 3 * (n - 1)]
check(rows, 3, 20)
check(rows, HUGE, 20, start=3 * (n - 1))
""",
    "broadcast": """
check(hvd.broadcast(marked(HUGE, 10 * (rank + 1)), n - 1), HUGE, 10 * n)
""",
    "broadcast_object": """
mine = (b"x" * HUGE + b"end") if rank == 0 else None
mine = hvd.broadcast_object(mine, 0)
assert len(mine) == HUGE + 3 and mine[-4:] == b"xend"
""",
    "alltoall": """
# The first rank has much for the last one. Splits are numbers of 32 bits, of rows.
splits = [5] * (n - 1) + [HUGE // 16 if rank == 0 else 7]
sent = tf.concat([marked(16 * rows, 10 * (rank + 1)) for rows in splits], 0)
got, sizes = hvd.alltoall(tf.reshape(sent, [-1, 16]), splits=tf.constant(splits))
got = tf.reshape(got, [-1])
if rank == n - 1:
    assert sizes.numpy().tolist() == [HUGE // 16] + [7] * (n - 1), sizes
    check(got, HUGE, 10)
    check(got, 16 * 7, 20, start=HUGE)
else:
    assert sizes.numpy().tolist() == [5] * n
    check(got, 16 * 5, 10)
""",
    "reducescatter": """
rows = (2**29 + 154) // n * n
whole = marked(rows, 3 + rank, tf.float32)
part = hvd.reducescatter(whole, op=hvd.Max)
assert part.shape == [rows // n]
if rank == 0:
    check(part, rows // n, 3 + n - 1)
""",
    "grouped_reducescatter": """
rows = (2**29 + 154) // n * n
small, part = hvd.grouped_reducescatter(
    [tf.ones([n]), marked(rows, 3 + rank, tf.float32)], op=hvd.Max
)
assert small.numpy().tolist() == [1.0] and part.shape == [rows // n]
if rank == 0:
    check(part, rows // n, 3 + n - 1)
""",
}

# Letters: the host of each rank.
MEANS = {"shm": "aa", "mpi": "aa", "hierarchical": "aabb"}

# Four ranks with an object, its bytes and their tensor each would take over 24 GiB.
TOO_LARGE = {("broadcast_object", "hierarchical")}


def run(case: str, means: str) -> str:
    """Runs one collective; returns "ok", or how its job ended."""
    program = BEGIN.replace("HOSTS", MEANS[means]) + CASES[case] + "print('right')\n"
    ranks = len(MEANS[means])
    job = mpi.run_ranks(ranks, program, timeout=600, env={"TFHVD_CPU_OPERATIONS": means})
    right = job.code == 0 and all(rank.out.endswith("right\n") for rank in job.ranks)
    return "ok" if right and not job.left else str(job)


def main() -> int:
    """Runs them one after the other."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--only", default="", metavar="TEXT", help="those whose name has this text")
    options = parser.parse_args()
    chosen = [
        (case, means)
        for means in MEANS
        for case in CASES
        if options.only in f"{case}-{means}" and (case, means) not in TOO_LARGE
    ]
    failed = 0
    for number, (case, means) in enumerate(chosen, 1):
        said = run(case, means)
        failed += said != "ok"
        print(f"{number}/{len(chosen)} {case}-{means}: {said}", flush=True)
    print(f"{len(chosen) - failed} passed, {failed} failed", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
