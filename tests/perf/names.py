"""What memory the names of eager collectives, and process sets, take on each rank.

    python -m tfhvd.launch -np 2 python tests/perf/names.py [2000 20000]

Prints how much the process has grown for each name of so many, and for each of 100 process sets
that are made, used and removed.
"""

from __future__ import annotations

import resource
import sys
from pathlib import Path

import tensorflow as tf

import tfhvd as hvd

SETS = 100


def resident() -> int:
    """Returns how many bytes of memory this process has."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()


def main() -> None:
    """Measures and prints."""
    hvd.init()
    x = tf.ones([4])
    for i in range(500):  # until what is made once is there
        hvd.allreduce(x, name=f"first_{i}")
    for names in [int(word) for word in sys.argv[1:]] or [2000, 20000]:
        before = resident()
        for i in range(names):
            hvd.allreduce(x, name=f"{names}_{i}")
        print(f"{names} names: {(resident() - before) / names / 1024:.2f} KiB each", flush=True)
    before = resident()
    for _ in range(SETS):
        first = hvd.add_process_set([0])
        if first.included():
            hvd.allreduce(x, process_set=first)
        hvd.remove_process_set(first)
    print(f"{SETS} process sets: {(resident() - before) / SETS / 1024:.2f} KiB each", flush=True)


if __name__ == "__main__":
    main()
