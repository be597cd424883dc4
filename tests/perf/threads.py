"""Where the processor time of a step of many small tensors goes, thread by thread.

    tfhvdrun -np 2 python tests/perf/threads.py [--tensors 500] [--elements 256] [--identity]

Prints rank 0's: the fastest and the median step, and for each thread that took part how often it
gave its core up and had it taken, how long it ran, and how long it waited for a core, a step.
tf_Compute is TensorFlow's one thread; of the two of Python's name the first is the program's, the
other the engine's. The times of the threads disturb each other less than wall time is disturbed by
what else the machine does, so a change shows here first.
"""

from __future__ import annotations

import argparse
import dataclasses
import re
import time
from pathlib import Path

import tensorflow as tf

import tfhvd as hvd

TASKS = Path("/proc/self/task")


@dataclasses.dataclass(frozen=True)
class Used:
    """What a thread has used so far: switches of both kinds, microseconds."""

    given_up: int
    taken: int
    ran: float
    waited: float


def used() -> dict[tuple[int, str], Used]:
    """Returns it of every thread, by number and name."""
    found = {}
    for task in TASKS.iterdir():
        status = (task / "status").read_text()
        numbers = dict(re.findall(r"^(\w*voluntary_ctxt_switches):\s*(\d+)", status, re.MULTILINE))
        ran, waited = (int(ns) / 1e3 for ns in (task / "schedstat").read_text().split()[:2])
        found[int(task.name), (task / "comm").read_text().strip()] = Used(
            int(numbers["voluntary_ctxt_switches"]),
            int(numbers["nonvoluntary_ctxt_switches"]),
            ran,
            waited,
        )
    return found


def main() -> None:
    """Times the steps and prints what their threads used."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tensors", type=int, default=500)
    parser.add_argument("--elements", type=int, default=256)
    parser.add_argument("--steps", type=int, default=1000)
    parser.add_argument("--identity", action="store_true", help="TensorFlow's own share")
    options = parser.parse_args()
    tf.config.threading.set_intra_op_parallelism_threads(1)
    tf.config.threading.set_inter_op_parallelism_threads(1)
    hvd.init()
    tensors = [tf.fill([options.elements], 1.0) for _ in range(options.tensors)]

    def run() -> list[tf.Tensor]:
        if options.identity:
            return [tf.identity(x) for x in tensors]
        return [hvd.allreduce(x, op=hvd.Sum, name=f"threads.{i}") for i, x in enumerate(tensors)]

    step = tf.function(run, autograph=False)
    for _ in range(20):
        step()
    before = used()
    taken = []
    for _ in range(options.steps):
        begin = time.perf_counter()
        step()
        taken.append((time.perf_counter() - begin) * 1e6)
    after = used()
    if hvd.rank() != 0:
        return
    taken.sort()
    print(f"step: fastest {taken[0]:.0f} us, median {taken[len(taken) // 2]:.0f} us")
    for thread in sorted(after.keys() & before.keys()):
        one, two = before[thread], after[thread]
        ran = (two.ran - one.ran) / options.steps
        if ran < 1:
            continue
        print(
            f"{thread[1]:16} gave up {(two.given_up - one.given_up) / options.steps:5.1f}, "
            f"taken {(two.taken - one.taken) / options.steps:5.1f}, ran {ran:6.0f} us, "
            f"waited {(two.waited - one.waited) / options.steps:6.0f} us"
        )


if __name__ == "__main__":
    main()
