"""The program: sets the job up, measures each workload in turn, and reports on rank 0."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import ModuleType
from typing import TextIO

from tfhvd.bench import machine, mwms, options, plot, report, rivals, subjects, training
from tfhvd.bench.collectives import COLLECTIVES, Collective, offered_by
from tfhvd.bench.measure import PackageRanks, Subject, measure
from tfhvd.bench.metrics import Times
from tfhvd.bench.options import Options, UsageError
from tfhvd.bench.progress import Progress
from tfhvd.bench.report import COLLECTIVE, GRADIENTS, OURS, TRAINING, Row
from tfhvd.bench.workloads import TensorSet, format_bytes, model
from tfhvd.job import process


def main(words: Sequence[str] | None = None) -> int:
    """Runs ``python -m tfhvd.bench`` on this rank; returns the exit code.

    Example:
        >>> main(["--collectives", "allreduce", "--sizes", "4"])
    """
    import tfhvd as hvd

    try:
        wanted = options.parse(sys.argv[1:] if words is None else words)
    except UsageError as error:
        return _say(hvd, f"tfhvd.bench: {error}", sys.stderr, 2)
    if wanted.help:
        return _say(hvd, wanted.help, sys.stdout, 0)
    # The run also measures training alone, on every rank at once.
    process.set_default("TFHVD_CHECK_SYNC", "off")
    hvd.init()
    try:
        with_bench = Bench(hvd, wanted)
        with_bench.run()
    except UsageError as error:
        return _say(hvd, f"tfhvd.bench: {error}", sys.stderr, 2)
    hvd.shutdown()
    return 0


def _say(hvd: ModuleType, text: str, stream: TextIO, code: int) -> int:
    """Prints the text on rank 0; every rank leaves with the code."""
    hvd.init()
    if hvd.rank() == 0:
        print(text, file=stream, flush=True)
    hvd.shutdown()
    return code


class Bench:
    """One run on this rank. Every rank makes a Bench with equal options, and runs it."""

    def __init__(self, hvd: ModuleType, wanted: Options) -> None:
        """Finds collectives and rivals. Raises UsageError, on every rank, if one is missing."""
        self._hvd, self._options = hvd, wanted
        self._notes: list[str] = []
        self._rows: list[Row] = []
        self._setting, problem = machine.prepare(hvd, wanted)
        self._agree(problem or self._unwritable())
        self._ranks = PackageRanks(hvd)
        self._collectives = self._find_collectives()
        self._find_rivals()

    def run(self) -> None:
        """Measures everything, prints the tables and writes the files."""
        steps = len(self._collectives) * len(self._options.sizes) + len(self._runs_of_sets())
        steps += bool(self._mwms_sets()) + ("tiny" in self._options.models)
        speaks = self._ranks.rank == 0 and self._options.progress
        self._progress = Progress(steps, sys.stderr if speaks else None)
        self._print(machine.title(self._hvd, self._options, self._setting))
        self._of_mwms = self._run_mwms()
        carried = [*self._run_collectives(), *self._run_sets()]
        if carried:
            self._print(report.LEGEND)
        if "tiny" in self._options.models:
            self._run_training()
        self._print(*(f"note: {note}" for note in self._notes))
        self._close_rivals()
        if self._ranks.rank == 0:
            self._write()

    # Collectives and rivals.

    def _agree(self, problem: str) -> None:
        """Raises UsageError on every rank if one rank has a problem."""
        problems = self._hvd.allgather_object(problem)
        for rank, text in enumerate(problems):
            if text:
                raise UsageError(text if rank == 0 else f"Rank {rank}: {text}")

    def _unwritable(self) -> str:
        if self._hvd.rank() != 0:
            return ""
        for option, path in (("--json", self._options.json), ("--plot", self._options.plot)):
            if path is None:
                continue
            if not path.resolve().parent.is_dir() or path.is_dir():
                return f"{option} {path} cannot be written; name a file in a folder that exists."
        return ""

    def _find_collectives(self) -> list[Collective]:
        offered = offered_by(self._hvd)
        names = self._options.collectives
        missing = [name for name in names or () if name not in offered]
        if missing:
            raise UsageError(
                f"This tfhvd has no {', '.join(missing)}; it has {', '.join(offered)}."
            )
        return [COLLECTIVES[name] for name in (offered if names is None else names)]

    def _find_rivals(self) -> None:
        self._mpi: rivals.PlainMpi | None = None
        self._horovod: ModuleType | None = None
        self._with_mwms = False
        for name in self._options.rivals:
            problem = ""
            try:
                if name == rivals.MPI:
                    self._mpi = rivals.PlainMpi(self._ranks.size)
                elif name == rivals.HOROVOD:
                    self._horovod = rivals.horovod(self._ranks.size)
                else:
                    rivals.mwms_can_run(self._ranks.size)
                    self._with_mwms = True
            except rivals.UnavailableError as error:
                problem = f"{rivals.TITLES[name]} cannot be measured: {error}"
            problems = [text for text in self._hvd.allgather_object(problem) if text]
            if problems and self._options.rivals_wanted:
                raise UsageError(problems[0])
            if problems:
                self._notes.append(problems[0])
                self._mpi = None

    def _close_rivals(self) -> None:
        if self._mpi:
            self._mpi.close()
        if self._horovod:
            self._horovod.shutdown()

    # Measurements.

    def _sets(self) -> list[TensorSet]:
        return [*self._options.tensors, *(model(name) for name in self._options.models)]

    def _given(self, collective: Collective, size: int) -> int:
        return collective.given(machine.itemsize(self._options.dtype), size, self._ranks.size)

    def _run_collectives(self) -> Iterator[Row]:
        for collective in self._collectives:
            self._print("", report.header(COLLECTIVE))
            for size in self._options.sizes:
                yield from self._run_collective(collective, size)

    def _run_collective(self, collective: Collective, size: int) -> list[Row]:
        dtype = self._options.dtype
        given = self._given(collective, size)
        used = collective.size(machine.itemsize(dtype), size, self._ranks.size)
        self._progress.begin(f"{collective.name} {format_bytes(used)}")

        def of(name: str, package: ModuleType) -> Subject:
            return subjects.of_collective(name, package, collective, given, dtype, self._setting)

        tensor = TensorSet(collective.name, ((given,),))
        found = [subjects.alone(tensor, self._setting, dtype=dtype), of(OURS, self._hvd)]
        if self._horovod and collective.name in offered_by(self._horovod):
            found.append(of(rivals.TITLES[rivals.HOROVOD], self._horovod))
        if self._mpi and (plain := self._mpi.subject(collective, given, dtype)):
            found.append(plain)
        times = measure(found, self._options.effort, self._ranks)
        if collective.name == "allreduce":
            self._add_mwms(times, _mwms_name(used))
        return self._add(COLLECTIVE, collective.name, used, 1, times)

    def _runs_of_sets(self) -> list[tuple[TensorSet, str]]:
        return [(tensors, through) for tensors in self._sets() for through in self._options.through]

    def _run_sets(self) -> Iterator[Row]:
        for number, (tensors, through) in enumerate(self._runs_of_sets()):
            if number == 0:
                self._print("", report.header(GRADIENTS))
            name = subjects.workload(tensors, through)
            self._progress.begin(f"gradients of {name}")
            packages = {OURS: self._hvd}
            if self._horovod:
                packages[rivals.TITLES[rivals.HOROVOD]] = self._horovod
            how = (tensors, self._setting, through)
            found = [subjects.alone(*how)]
            found += [subjects.of_tensors(title, one, *how) for title, one in packages.items()]
            found.append(subjects.of_tensors(subjects.CONCAT, self._hvd, *how, concatenated=True))
            if self._mpi:
                one = self._mpi.subject(COLLECTIVES["allreduce"], tensors.elements, "float32")
                if one is not None:
                    found.append(one)
            found.append(subjects.memcpy(tensors.bytes))
            times = measure(found, self._options.effort, self._ranks)
            self._add_mwms(times, tensors.name)
            yield from self._add(GRADIENTS, name, tensors.bytes, len(tensors.shapes), times)

    def _run_training(self) -> None:
        from tfhvd.keras import DistributedOptimizer

        self._progress.begin("training of tiny")
        rounds = max(1, round(4 * self._options.effort.seconds))
        times = training.measure_training(OURS, DistributedOptimizer, rounds, self._ranks)
        gradients = model("tiny")
        rows = [
            Row(
                TRAINING,
                "fit of tiny",
                name,
                gradients.bytes,
                len(gradients.shapes),
                taken,
                images_per_second=self._ranks.size * training.BATCH / taken.median,
            )
            for name, taken in times.items()
        ]
        self._rows += rows
        self._print("", report.header(TRAINING), *report.lines(rows), report.TRAINING_LEGEND)

    def _mwms_sets(self) -> list[TensorSet]:
        if not self._with_mwms:
            return []
        sets = self._sets()
        if any(c.name == "allreduce" for c in self._collectives) and self._float32():
            allreduce = COLLECTIVES["allreduce"]
            given = [self._given(allreduce, size) for size in self._options.sizes]
            sets += [TensorSet(_mwms_name(4 * count), ((count,),)) for count in given]
        return sets

    def _float32(self) -> bool:
        return self._options.dtype == "float32"

    def _run_mwms(self) -> dict[str, Times]:
        """Returns the times by the set's name; empty, with a note, if the strategy did not run."""
        sets = self._mwms_sets()
        if not sets:
            return {}
        self._progress.begin("MultiWorkerMirroredStrategy, in separate processes")
        address = mwms.free_address(machine.address(self._hvd))
        workers = self._hvd.allgather_object(address)
        everywhere = mwms.run(
            workers,
            self._ranks.rank,
            sets,
            self._options.effort,
            self._options.threads,
            self._hvd.allgather_object,
        )
        failed = [text for text in everywhere if isinstance(text, str)]
        if failed:
            self._notes.append(f"MultiWorkerMirroredStrategy was not measured: {failed[0]}")
        times = everywhere[0]
        return {} if failed or isinstance(times, str) else times

    def _add_mwms(self, times: dict[str, Times], name: str) -> None:
        if name in self._of_mwms:
            times[rivals.TITLES[rivals.MWMS]] = self._of_mwms[name]

    def _add(
        self, kind: str, workload: str, size: int, tensors: int, times: dict[str, Times]
    ) -> list[Row]:
        rows = [
            Row(kind, workload, name, size, tensors, taken)
            if name in (*subjects.ALONE.values(), "memcpy")
            else report.carried(kind, workload, name, size, tensors, taken, self._ranks.size)
            for name, taken in times.items()
        ]
        self._rows += rows
        self._print(*report.lines(rows))
        return rows

    # Output.

    def _print(self, *lines: str) -> None:
        if self._ranks.rank != 0 or not lines:
            return
        self._progress.clear()
        print("\n".join(lines), flush=True)

    def _write(self) -> None:
        self._progress.clear()
        if self._options.json:
            facts = machine.facts(self._hvd, self._options, self._setting)
            rows = [row.to_json() for row in self._rows]
            document = {"format": report.FORMAT, **facts, "notes": self._notes, "rows": rows}
            self._options.json.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
            _written(self._options.json)
        if self._options.plot:
            plot.draw(self._rows, self._options.plot)
            _written(self._options.plot)


def _written(path: Path) -> None:
    print(f"wrote {path}", flush=True)


def _mwms_name(size: int) -> str:
    return f"allreduce of {size} bytes"
