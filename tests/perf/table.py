"""One table of tfhvd beside what else a user could pick, with what it must reach.

    python tests/perf/table.py [--with-horovod PYTHON] [--rounds 2] [--seconds 0.5] [--json FILE]
                               [--only WORKLOAD ...]

Starts one job after the other itself, each of 2 ranks with one thread each for computation: tfhvd
(with plain MPI, memcpy and tf.identity in the same job, in turn), MultiWorkerMirroredStrategy, and
Horovod (over MPI, also with a cycle of 0.1 ms, and over Gloo) where PYTHON is the interpreter of an
environment that build_horovod.sh made. The rounds alternate all of them; each figure is the median
of the rounds' medians. Nothing else should run meanwhile: what other programs use between the jobs
is printed below the table.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Collection, Iterator
from pathlib import Path

import jobs
import targets

HERE = Path(__file__).resolve().parent
RANKS = "2"
TIMEOUT = 900  # seconds of a job

TENSORS = {"1 x 4 B": "1x4", "500 x 1 KiB": "500x1K", "1 x 64 MiB": "1x64M"}
TAPE = ", tape"  # behind the name of such a workload: DistributedGradientTape reduces the tensors
MODELS = ("resnet50", "bert", "tiny")
WORKLOADS = (*TENSORS, "500 x 1 KiB" + TAPE, *MODELS)
FIT = "fit of tiny"
# The columns beside tfhvd's own, in their order.
COLUMNS = ("Horovod", "Horovod, 0.1 ms", "Horovod, Gloo", "MultiWorkerMirrored", "MPI", "memcpy")


@dataclasses.dataclass(frozen=True)
class Contender:
    """Something to start as a job.

    Attributes:
        name: of its column.
        words: what to start on each rank; the workloads follow.
        mpirun: the launcher, with its options.
        env: added to the environment.
        workloads: which it takes part in.
    """

    name: str
    words: tuple[str, ...]
    mpirun: tuple[str, ...]
    env: dict[str, str]
    workloads: frozenset[str]

    def run(self, only: frozenset[str], seconds: float) -> list[dict]:
        """Returns the rows of one run of the job."""
        mine = self.workloads & only
        through_tape = {name.removesuffix(TAPE) for name in mine if name.endswith(TAPE)}
        return self._rows(mine, "ops", seconds) + self._rows(through_tape, "tape", seconds)

    def _rows(self, mine: Collection[str], through: str, seconds: float) -> list[dict]:
        tensors = [short for name, short in TENSORS.items() if name in mine]
        models = [name for name in MODELS if name in mine]
        if not tensors and not models:
            return []
        with tempfile.TemporaryDirectory() as folder:
            out = Path(folder) / "rows.json"
            words = [*self.words, "--seconds", str(seconds), "--json", str(out)]
            words += ["--through", through]
            words += ["--tensors", *tensors] if tensors else []
            words += ["--model", *models] if models else []
            jobs.run([*self.mpirun, *words], self.env, TIMEOUT)
            return json.loads(out.read_text())["rows"]


def _mpirun(python: Path) -> tuple[str, ...]:
    """The launcher of the MPI that stands beside an interpreter, which is Open MPI's wheel."""
    mpirun = str(python.parent / "mpirun")
    return (mpirun, "--oversubscribe", "--bind-to", "none", "-np", RANKS, str(python))


def contenders(horovod: Path | None) -> list[Contender]:
    """Returns all that take part, in the order in which they run."""
    ours = _tfhvdrun()
    everything = frozenset(WORKLOADS)
    bench = ("-m", "tfhvd.bench", "--no-progress")
    found = [
        Contender("tfhvd", (*bench, "--rivals", "mpi"), ours, {}, everything),
        Contender(
            "MultiWorkerMirrored",
            (*bench, "--rivals", "mwms"),
            ours,
            {},
            everything - {"bert", "tiny", "500 x 1 KiB" + TAPE},
        ),
    ]
    if horovod is None:
        return found
    job = (str(HERE / "horovod_job.py"),)
    few = frozenset(["1 x 4 B", "500 x 1 KiB", "500 x 1 KiB" + TAPE])
    gloo = {"HOROVOD_CPU_OPERATIONS": "gloo"}
    return [
        *found,
        Contender("Horovod", job, _mpirun(horovod), {}, everything),
        Contender("Horovod, 0.1 ms", job, _mpirun(horovod), {"HOROVOD_CYCLE_TIME": "0.1"}, few),
        Contender(
            "Horovod, Gloo",
            job,
            # Without MPI its own launcher must bring the ranks together.
            (str(horovod.parent / "horovodrun"), "--gloo", "-np", RANKS, str(horovod)),
            gloo,
            frozenset(["1 x 4 B", "1 x 64 MiB", "resnet50"]),
        ),
    ]


def _tfhvdrun() -> tuple[str, ...]:
    return (sys.executable, "-m", "tfhvd.launch", "-np", RANKS, "--no-prefix", sys.executable)


def idle() -> float:
    """Returns the share of a core that the busier rank of an idle job uses."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "idle.json"
        jobs.run([*_tfhvdrun(), str(HERE / "idle.py"), "--json", str(out)], {}, TIMEOUT)
        return max(json.loads(out.read_text()))


def busy_elsewhere(seconds: float = 0.5) -> float:
    """Returns the share of all cores that is used while this program does nothing."""

    def read() -> tuple[int, int]:
        fields = Path("/proc/stat").read_text().splitlines()[0].split()[1:]
        ticks = [int(field) for field in fields[:8]]
        return sum(ticks), ticks[3] + ticks[4]  # idle, and waiting for disks

    total, idle_ticks = read()
    time.sleep(seconds)
    total_after, idle_after = read()
    return 1 - (idle_after - idle_ticks) / max(1, total_after - total)


def columns_of(contender: str, row: dict) -> Iterator[str]:
    """Yields the column that a row belongs to, if any: of rivals' jobs their own rows alone."""
    subject = row["subject"]
    if contender == "tfhvd":
        yield subject
    elif contender == "Horovod" and subject in targets.ALONE:
        yield targets.RIVAL_ALONE
    elif contender.startswith("Horovod") and subject == "alone":
        yield f"alone beside {contender}"
    elif subject == contender.partition(",")[0]:
        yield contender


def measure(options: argparse.Namespace, busy: list[float]) -> dict[str, dict[str, list[float]]]:
    """Returns the medians of all rounds, in seconds: workload -> column -> one a round.

    `busy` gets what other programs used before each job.
    """
    only = frozenset(options.only)
    figures: dict[str, dict[str, list[float]]] = {}
    for number in range(options.rounds):
        for contender in contenders(options.with_horovod):
            busy.append(busy_elsewhere())
            print(f"round {number + 1}: {contender.name}", file=sys.stderr, flush=True)
            try:
                rows = contender.run(only, options.seconds)
            except jobs.JobError as error:
                if contender.name == targets.OURS:
                    raise
                print(f"{contender.name} is left out: {error}", file=sys.stderr, flush=True)
                continue
            for row in rows:
                for column in columns_of(contender.name, row):
                    columns = figures.setdefault(row["workload"], {})
                    columns.setdefault(column, []).append(row["p50_us"] / 1e6)
                    columns.setdefault(f"{column} p99", []).append(row["p99_us"] / 1e6)
    return figures


def rows_of(figures: targets.Figures, idle_share: float | None) -> list[dict[str, str]]:
    """Returns the rows of the table."""
    rows = []
    for target in targets.TARGETS:
        times = figures.get(target.workload, {})
        if targets.OURS not in times:
            continue
        raw = {f"{name}, ms": _ms(times.get(name)) for name in (targets.OURS, "tfhvd p99")}
        raw["alone, ms"] = _ms(times.get(targets.alone_of(times)))
        raw |= {f"{name}, ms": _ms(times.get(name)) for name in COLUMNS}
        verdict = targets.judge(target, times)
        rows.append({"case": target.workload, **raw, **_prefixed(verdict)})
    if targets.OURS in (fit := figures.get(FIT, {})):
        raw = {f"{name}, ms": _ms(fit.get(name)) for name in (targets.OURS, "tfhvd p99")}
        if "Horovod" in fit:
            share = fit["alone beside Horovod"] / fit["Horovod"]
            raw["Horovod, ms"] = f"{_ms(fit['Horovod'])} ({share:.0%} of alone)"
        verdict = targets.judge_fit(fit["alone"], fit[targets.OURS])
        rows.append({"case": "step of model.fit", **raw, **_prefixed(verdict)})
    if idle_share is not None:
        rows.append({"case": "idle job", **_prefixed(targets.judge_idle(idle_share))})
    return rows


def _prefixed(verdict: targets.Verdict) -> dict[str, str]:
    return {("judged" if name == "tfhvd" else name): text for name, text in verdict.cells.items()}


def _ms(seconds: float | None) -> str:
    return "-" if seconds is None else f"{1e3 * seconds:.3g}"


def markdown(rows: list[dict[str, str]]) -> str:
    """Returns the rows as a table of Markdown, aligned; columns without a figure are left out."""
    names = list(dict.fromkeys(name for row in rows for name in row))
    names = [name for name in names if any(row.get(name, "-") != "-" for row in rows)]
    table = [names, *[[row.get(name, "-") for name in names] for row in rows]]
    widths = [max(len(line[i]) for line in table) for i in range(len(names))]
    lines = ["| " + " | ".join(f"{c:{w}}" for c, w in zip(line, widths)) + " |" for line in table]
    lines.insert(1, "|" + "|".join("-" * (w + 2) for w in widths) + "|")
    return "\n".join(lines)


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--with-horovod", type=Path, metavar="PYTHON")
    parser.add_argument("--rounds", type=int, default=2, help="default: 2")
    parser.add_argument("--seconds", type=float, default=0.5, help="about, for each figure")
    parser.add_argument("--json", type=Path, help="write all medians to this file as well")
    everything = [*WORKLOADS, "idle"]
    parser.add_argument("--only", nargs="+", choices=everything, default=everything)
    options = parser.parse_args()
    if options.with_horovod and not options.with_horovod.is_file():
        parser.error(
            f"Received: --with-horovod {options.with_horovod}. Expected: the interpreter of an "
            "environment that tests/perf/build_horovod.sh made."
        )
    if options.rounds < 1:
        parser.error(f"Received: --rounds {options.rounds}. Expected: 1 or more.")
    return options


def main() -> None:
    options = parse_arguments()
    try:
        busy: list[float] = []
        every = measure(options, busy)
        idle_share = idle() if "idle" in options.only else None
    except jobs.JobError as error:
        sys.exit(str(error))
    figures = {
        workload: {column: statistics.median(times) for column, times in columns.items()}
        for workload, columns in every.items()
    }
    print(markdown(rows_of(figures, idle_share)))
    print(f"\nother programs used {min(busy):.0%} to {max(busy):.0%} of the cores between the jobs")
    if options.json:
        document = {"seconds": every, "idle": idle_share, "busy_elsewhere": busy}
        options.json.write_text(json.dumps(document, indent=1) + "\n")


if __name__ == "__main__":
    main()
