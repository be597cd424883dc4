"""How much shared memory process sets take: made, used for little, used for much, and removed.

    python tests/perf/set_memory.py [--ranks 8] [--sets 150]

A job on this host makes so many sets of half of its ranks up to all but one. Prints the host's
shared memory (MiB, of /proc/meminfo, beyond what there was before), after each of these steps.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import mpi

SECONDS = 1200  # that a job may take

PROGRAM = """
import itertools, sys
import tensorflow as tf
import tfhvd as hvd

def shared():
    hvd.barrier()
    with open("/proc/meminfo") as file:
        fields = dict(line.split(":") for line in file)
    hvd.barrier()
    return int(fields["Shmem"].split()[0]) / 1024

def say(what):
    now = shared()
    if hvd.rank() == 0:
        print(f"{what}: {now - before:.1f} MiB", flush=True)

hvd.init()
n = hvd.size()
before = shared()
sizes = range(n // 2, n)
groups = [g for size in sizes for g in itertools.combinations(range(n), size)]
step = max(len(groups) // SETS, 1)
sets = [hvd.add_process_set(list(group)) for group in groups[::step][:SETS]]
say(f"{len(sets)} sets of {n // 2} to {n - 1} of {n} ranks, made")
for floats, what in ((16, "each used for 64 bytes"), (1 << 18, "each used for 1 MiB")):
    for one in sets:
        if one.included():
            hvd.allreduce(tf.ones([floats]), process_set=one)
    say(what)
for one in sets:
    hvd.remove_process_set(one)
say("removed")
"""


def main() -> int:
    """Runs the job."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--ranks", type=int, default=8)
    parser.add_argument("--sets", type=int, default=150)
    options = parser.parse_args()
    program = PROGRAM.replace("SETS", str(options.sets))
    job = mpi.run_ranks(options.ranks, program, timeout=SECONDS)
    print(job.ranks[0].out if job.code == 0 else job)
    return job.code


if __name__ == "__main__":
    sys.exit(main())
