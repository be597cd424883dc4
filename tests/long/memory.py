"""Whether jobs that run for long need more and more memory: each collective alone, and all mixed.

    python tests/long/memory.py [--steps 100000] [--only TEXT] [--allow 16]

Two ranks of a fixed and of an elastic job make so many steps of each case. A rank notes its
resident memory 50 times: a case has grown where the least of the last fifth is more than --allow
MiB above the least of the second one. Prints a line for each case, with both in MiB, and ends with
1 where one has grown or has failed. `names` are those that a program makes for each step, and
`sets` are process sets that come and go (one for 20 steps of the others).
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

PROGRAM = """
import json, sys
from pathlib import Path
import tensorflow as tf
import tfhvd as hvd

hvd.init()
case, steps, out = sys.argv[1], int(sys.argv[2]), sys.argv[3]
x = tf.ones([1024])

def add_and_remove():
    one = hvd.add_process_set([0])
    if one.included():
        hvd.allreduce(x, process_set=one)
    hvd.remove_process_set(one)

CASES = {
    "allreduce": lambda step: hvd.allreduce(x),
    "allgather": lambda step: hvd.allgather(x),
    "broadcast": lambda step: hvd.broadcast(x, step % 2),
    "reducescatter": lambda step: hvd.reducescatter(x),
    "alltoall": lambda step: hvd.alltoall(x),
    "barrier": lambda step: hvd.barrier(),
    "names": lambda step: hvd.allgather(x, name=f"loss_{step}"),
    "sets": lambda step: add_and_remove() if step % 20 == 0 else None,
}
alone = list(CASES.values())
CASES["mixed"] = lambda step: alone[step % len(alone)](step)

def resident():
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * 4096 / 2**20

samples = []
for step in range(steps):
    CASES[case](step)
    if step % (steps // 50) == steps // 50 - 1:
        samples.append(resident())
Path(out, f"{hvd.rank()}.json").write_text(json.dumps(samples))
"""

KINDS = ["allreduce", "allgather", "broadcast", "reducescatter", "alltoall", "barrier"]
KINDS += ["names", "sets", "mixed"]
JOBS = {"fixed": [], "elastic": ["--elastic"]}
SECONDS_PER_STEP = 0.1  # before it is taken to hang


def least(samples: list[float]) -> tuple[float, float]:
    """The least of the second fifth, and of the last."""
    fifth = len(samples) // 5
    return min(samples[fifth : 2 * fifth]), min(samples[-fifth:])


def run(kind: str, job: str, steps: int) -> list[tuple[float, float]]:
    """Runs one case; returns for each rank what it had and has; nothing where the job failed."""
    with tempfile.TemporaryDirectory(prefix="tfhvd-memory-") as folder:
        program = Path(folder) / "steps.py"
        program.write_text(PROGRAM, encoding="utf-8")
        words = ["-np", "2", *JOBS[job], "--no-prefix", sys.executable, str(program)]
        done = subprocess.run(
            [sys.executable, "-m", "tfhvd.launch", *words, kind, str(steps), folder],
            timeout=60 + steps * SECONDS_PER_STEP,
            check=False,
        )
        if done.returncode:
            return []
        files = [Path(folder) / f"{rank}.json" for rank in range(2)]
        return [least(json.loads(file.read_text(encoding="utf-8"))) for file in files]


def main() -> int:
    """Runs the cases one after the other."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--steps", type=int, default=100_000, help="of each case; at least 50")
    parser.add_argument("--only", default="", metavar="TEXT", help="cases whose name has this text")
    parser.add_argument("--allow", type=float, default=16.0, metavar="MIB", help="not growth yet")
    options = parser.parse_args()
    failed = 0
    for job in JOBS:
        for kind in KINDS:
            if options.only not in f"{job}-{kind}":
                continue
            began = time.monotonic()
            ranks = run(kind, job, options.steps)
            grew = any(last - first > options.allow for first, last in ranks)
            failed += grew or not ranks
            verdict = "failed" if not ranks else "GREW" if grew else "flat"
            figures = ", ".join(f"{first:.1f} to {last:.1f} MiB" for first, last in ranks)
            seconds = time.monotonic() - began
            print(f"{job}-{kind}: {verdict}, {figures}, {seconds:.0f} s", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
