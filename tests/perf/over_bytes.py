"""Times collectives over bytes, by what carries them: is a byte of much as cheap as one of little?

    python tests/perf/over_bytes.py [--ranks 2] [--sizes 1M 16M 256M] [--only TEXT] [--times 3]

Every rank brings a tensor of the size. Each row is of one collective, over one of shared memory,
MPI (TFHVD_CPU_OPERATIONS=mpi) and TCP (tfhvdrun, each rank as if on a host of its own):
milliseconds per MiB at each size, the least of --times, and the last one by the least of the
others. That ratio is near 1 where the time is linear in the bytes.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))

import jobs  # noqa: E402
import mpi  # noqa: E402  (after its folder is on the path)

SECONDS = 1200  # that a job may take
UNITS = {"K": 2**10, "M": 2**20, "G": 2**30}

PROGRAM = """
import json, os, sys, time
if os.environ.get("OWN_HOSTS"):
    os.environ["TFHVD_TEST_HOST"] = f"host{os.getpid()}"
import tensorflow as tf
import tfhvd as hvd

hvd.init()
sizes, times, out = json.loads(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
CALLS = {
    "allreduce": lambda x: hvd.allreduce(x, op=hvd.Sum),
    "allgather": lambda x: hvd.allgather(x),
    "broadcast": lambda x: hvd.broadcast(x, 0),
    "reducescatter": lambda x: hvd.reducescatter(x, op=hvd.Sum),
    "alltoall": lambda x: hvd.alltoall(x)[0],
}
taken = {}
for kind, call in CALLS.items():
    taken[kind] = []
    for size in sizes:
        x = tf.zeros([size // 4 // hvd.size() * hvd.size()])
        least = float("inf")
        for i in range(times + 1):  # the first one finds no memory yet
            hvd.barrier()
            begin = time.perf_counter()
            call(x)
            seconds = time.perf_counter() - begin
            slowest = hvd.allreduce(tf.constant(seconds, tf.float64), op=hvd.Max)
            least = min(least, float(slowest)) if i else least
        taken[kind].append(least)
if hvd.rank() == 0:
    with open(out, "w") as file:
        json.dump(taken, file)
"""

WAYS = {
    "shared memory": {"TFHVD_CPU_OPERATIONS": "shm"},
    "MPI": {"TFHVD_CPU_OPERATIONS": "mpi"},
    "TCP": {"OWN_HOSTS": "1"},
}


def bytes_of(text: str) -> int:
    """Reads "16M"."""
    return int(text[:-1]) * UNITS[text[-1]] if text[-1] in UNITS else int(text)


def measure(way: str, ranks: int, sizes: list[int], times: int) -> dict[str, list[float]]:
    """Runs one job; returns seconds by collective, for each size."""
    env = WAYS[way]
    with tempfile.TemporaryDirectory(prefix="tfhvd-over-bytes-") as name:
        program, out = Path(name) / "measure.py", Path(name) / "taken.json"
        program.write_text(PROGRAM, encoding="utf-8")
        words = [str(program), json.dumps(sizes), str(times), str(out)]
        if way == "TCP":
            launch = [sys.executable, "-m", "tfhvd.launch", "--transport", "tcp", "-np", str(ranks)]
            jobs.run([*launch, sys.executable, *words], env, timeout=SECONDS)
        else:
            job = mpi.run_ranks(ranks, words, timeout=SECONDS, env=env)
            if job.code != 0:
                raise jobs.JobError(str(job))
        taken: dict[str, list[float]] = json.loads(out.read_text(encoding="utf-8"))
        return taken


def row(way: str, kind: str, sizes: list[int], seconds: list[float]) -> str:
    """Writes a row of the table, in Markdown."""
    each = [1e3 * s / (size / 2**20) for s, size in zip(seconds, sizes)]
    ratio = each[-1] / min(each[:-1]) if len(each) > 1 else 1.0
    cells = [way, kind, *(f"{value:.2f}" for value in each), f"{ratio:.1f}"]
    return f"| {' | '.join(cells)} |"


def main() -> None:
    """Measures and prints."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--sizes", nargs="+", default=["1M", "16M", "256M"], metavar="BYTES")
    parser.add_argument("--only", default="", metavar="TEXT", help="the ways that have this text")
    parser.add_argument("--times", type=int, default=3)
    options = parser.parse_args()
    sizes = [bytes_of(text) for text in options.sizes]
    print(f"| carried by | collective | {' | '.join(options.sizes)} | ratio |")
    print(f"|---|---|{'---|' * len(sizes)}---|", flush=True)
    for way in WAYS:
        if options.only not in way:
            continue
        for kind, seconds in measure(way, options.ranks, sizes, options.times).items():
            print(row(way, kind, sizes, seconds), flush=True)


if __name__ == "__main__":
    main()
