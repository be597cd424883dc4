"""Does a job that finds its settings ever lose by it, and does it win where they are wrong?

    python tests/long/autotune.py [--only TEXT] [--seconds 600] [--pairs 12] [--list]

Each case is a job of a place (one host, or hosts with links of some speed and length), of tensors
that every step reduces with some computation beside them, and of settings that it begins with:
tfhvd's defaults, or one that is wrong on purpose. The job runs with TFHVD_AUTOTUNE=1 to the end of
the search. Then, in the same processes, engines are opened with what it began with and with what
was found, in turns (a b b a ...), and the times of their steps are compared: that part knows
nothing of the search. Printed are the change by that comparison, with its standard error, and what
the search said.

Fails (ends with 1) where a case that began with the defaults ends more than 1% slower, by more than
twice the error, and where one that began with a wrong setting does not end 15% faster.
Cases with hosts need root's right to make namespaces.
"""

from __future__ import annotations

import argparse
import json
import math
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "tests"), str(ROOT / "tests" / "perf")]

import jobs  # noqa: E402
import network  # noqa: E402  (after their folders are on the path)

PROGRAM = """
import csv, json, os, statistics, sys, time
import numpy as np
import tensorflow as tf
import tfhvd as hvd
from pathlib import Path

counts, compute, seconds, pairs, out = json.loads(sys.argv[1])
hvd.init()
tensors = [tf.fill([floats], 1.0) for count, floats in counts for _ in range(count)]
a = tf.random.stateless_uniform([256, 256], [hvd.rank(), 1])

@tf.function
def step():
    x, sums = a, []
    for i, tensor in enumerate(tensors):
        if i * compute // len(tensors) != (i + 1) * compute // len(tensors):
            x = tf.linalg.matmul(x, a) * 1e-3
        with tf.control_dependencies([x]):
            sums.append(hvd.allreduce(tf.identity(tensor), op=hvd.Sum, name=f"t{i}"))
    return tf.add_n([s[0] for s in sums]) + 0.0 * x[0, 0]

def times(n):
    taken = []
    for _ in range(n):
        begin = time.perf_counter()
        assert float(step()) == hvd.size() * len(tensors)
        taken.append(time.perf_counter() - begin)
    return taken

def middle(taken):
    ordered = sorted(taken)
    return statistics.fmean(ordered[len(ordered) // 4 : len(ordered) - len(ordered) // 4])

one = middle(times(20))
turn = hvd.broadcast_object(max(100, int(5 / one)), 0)
log, begin, rows = Path(os.environ["TFHVD_AUTOTUNE_LOG"]), time.monotonic(), []
while True:
    times(turn)
    if hvd.rank() == 0 and log.exists():
        with log.open() as file:
            rows = list(csv.DictReader(file))
    over = bool(rows) and rows[-1]["verdict"].startswith("result")
    if hvd.broadcast_object(over or time.monotonic() - begin > seconds, 0):
        break
took = time.monotonic() - begin
names = {"TFHVD_BUCKET_BYTES": "bucket_bytes", "TFHVD_FUSION_THRESHOLD": "fusion_threshold",
         "TFHVD_ALONE_BYTES": "alone_bytes"}
given = found = None
if rows:
    given = {name: rows[-1]["against_" + column] for name, column in names.items()}
    found = {name: rows[-1][column] for name, column in names.items()}
over, given, found = hvd.broadcast_object((over, given, found), 0)
ratios, n, medians = [], max(20, int(1 / one)), []
n = hvd.broadcast_object(n, 0)
if over and found != given:
    os.environ["TFHVD_AUTOTUNE"] = "0"
    for pair in range(pairs):
        middles = {}
        for settings in (given, found) if pair % 2 == 0 else (found, given):
            hvd.shutdown()
            os.environ.update(settings)
            hvd.init()
            times(12)
            middles[settings is found] = middle(times(n))
        ratios.append(float(np.log(middles[True] / middles[False])))
        medians.append(1e3 * middles[False])
if hvd.rank() == 0:
    said = rows[-1]["verdict"] + " " + rows[-1]["change_percent"] + "%" if rows else "no comparison"
    Path(out).write_text(json.dumps({
        "over": over, "took": took, "said": said, "rows": len(rows), "ratios": ratios,
        "found": {k: v for k, v in (found or {}).items() if over and v != given[k]},
        "ms": statistics.median(medians) if medians else 1e3 * one}))
"""

# (tensors, how many floats each) of a step, and how many matrix products it computes.
STEPS = {
    "500 x 1 KiB": ([(500, 256)], 0),
    "60 x 64 KiB": ([(60, 16 << 10)], 6),
    "20 x 1.5 MiB": ([(20, 384 << 10)], 20),
    "4 x 8 MiB and 100 small": ([(4, 2 << 20), (100, 256)], 10),
    "1 x 4 KiB": ([(1, 1 << 10)], 1),
}
PLACES: dict[str, tuple[int, network.Link | None]] = {
    "one host": (1, None),
    "2 hosts, 1 Gbit/s, 0.1 ms": (2, network.Link(1000, 0.1)),
    "2 hosts, 200 Mbit/s, 2 ms": (2, network.Link(200, 2.0)),
}
WRONG = {
    "": {},
    "threshold 0": {"TFHVD_FUSION_THRESHOLD": "0"},
    "buckets of 1 KiB": {"TFHVD_BUCKET_BYTES": "1024"},
    "all alone": {"TFHVD_ALONE_BYTES": "0"},
}


@dataclass(frozen=True)
class Case:
    """A job: where, what it reduces, and what it begins with."""

    place: str
    step: str
    wrong: str = ""

    def __str__(self) -> str:
        return f"{self.place} | {self.step} | {self.wrong or 'defaults'}"


CASES = [
    *(Case(place, step) for place in PLACES for step in STEPS),
    *(Case("one host", "500 x 1 KiB", wrong) for wrong in WRONG if wrong),
    Case("2 hosts, 1 Gbit/s, 0.1 ms", "500 x 1 KiB", "threshold 0"),
    Case("2 hosts, 200 Mbit/s, 2 ms", "60 x 64 KiB", "buckets of 1 KiB"),
]


def run(case: Case, seconds: float, pairs: int) -> dict[str, object]:
    """Runs one case, and gives what its rank 0 has written."""
    hosts, link = PLACES[case.place]
    counts, compute = STEPS[case.step]
    # Not below /tmp or /dev/shm: hosts have others.
    with tempfile.TemporaryDirectory(dir="/var/tmp") as folder:
        out = Path(folder) / "out.json"
        env = {
            "TFHVD_AUTOTUNE": "1",
            "TFHVD_AUTOTUNE_LOG": str(Path(folder) / "log.csv"),
            "TFHVD_AUTOTUNE_FILE": "none",
            **WRONG[case.wrong],
        }
        exported = [word for name in (*jobs.SETTINGS, *env) for word in ("-x", name)]
        program = Path(folder) / "program.py"
        program.write_text(PROGRAM)
        said = json.dumps([counts, compute, seconds, pairs, str(out)])
        words = [*exported, sys.executable, str(program), said]
        mpirun = shutil.which("mpirun") or "mpirun"
        start = ["--oversubscribe", "--bind-to", "none", "-np", "2"]
        if link is None:
            jobs.run([mpirun, *start, *words], env, timeout=seconds + 600)
        else:
            with network.hosts(hosts, link) as net:
                launcher = [*net.run_on(0), mpirun, *net.launcher(1), *start]
                jobs.run([*launcher, *words], env, timeout=seconds + 600)
        return dict(json.loads(out.read_text()))


def judge(case: Case, result: dict[str, object]) -> tuple[str, bool]:
    """A row of the table, and whether the case is as it should be."""
    ratios = [float(ratio) for ratio in result["ratios"]]  # type: ignore[attr-defined]
    mean = sum(ratios) / len(ratios) if ratios else 0.0
    squares = sum((ratio - mean) ** 2 for ratio in ratios)
    error = (squares / max(1, len(ratios) - 1) / max(1, len(ratios))) ** 0.5
    change = math.expm1(mean)
    good = change - 2 * error <= 0.01 if not case.wrong else change <= -0.15
    found = ", ".join(f"{k[6:]}={v}" for k, v in result["found"].items())  # type: ignore[attr-defined]
    measured = f"{100 * change:+.1f}% ± {100 * error:.1f}" if ratios else "the same settings"
    said = result["said"] if result["over"] else f"not over; the last comparison: {result['said']}"
    row = f"| {case} | {result['ms']:.3g} ms | {found or '-'} | {measured} | {said} | "
    row += f"{result['took']:.0f} s | {'ok' if good else 'NOT OK'} |"
    return row, good


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--only", default="", metavar="TEXT", help="cases whose name holds it")
    parser.add_argument("--seconds", type=float, default=600, help="at most, for one search")
    parser.add_argument("--pairs", type=int, default=12, help="of the comparison at the end")
    parser.add_argument("--list", action="store_true", help="say which cases there are")
    options = parser.parse_args()
    cases = [case for case in CASES if options.only in str(case)]
    if not network.available():
        print("cases with several hosts are left out: they need root", file=sys.stderr)
        cases = [case for case in cases if PLACES[case.place][1] is None]
    if options.list:
        return print("\n".join(map(str, cases)))
    print("| place | step | begins with | a step | found | measured | the search | took | |")
    print("|---" * 9 + "|", flush=True)
    bad = 0
    for case in cases:
        try:
            row, good = judge(case, run(case, options.seconds, options.pairs))
        except (jobs.JobError, subprocess.TimeoutExpired) as error:
            row, good = f"| {case} | FAILED: {error} |", False
        print(row, flush=True)
        bad += not good
    print(f"\n{len(cases) - bad} of {len(cases)} cases are as they should be.")
    sys.exit(1 if bad else 0)


if __name__ == "__main__":
    main()
