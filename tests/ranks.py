"""Tests that run on every rank of a job.

A test marked `ranks(1, 2)` is run by a job of 1 rank and by a job of 2, and passes only if it
passes on every rank. One job runs all the tests of a folder: starting TensorFlow costs more than
they do.

    pytestmark = pytest.mark.ranks(1, 2)

    def test_sum():
        assert hvd.allreduce(1, op=hvd.Sum) == hvd.size()

It is `thorough` (see pyproject.toml) on more than two ranks, and on one where it also runs on two.

This is the side of the pytest that a person starts; `rank_worker` is the side within the ranks.
They share a folder: the worker writes N.RANK.begun before the N-th test, and N.RANK.json after it.
After a failure the job ends, and another one runs the tests that are left. The job must end well,
too: where all tests have passed and it does not, the last one of them is the one that fails.

How long a job may take goes by the signs of life in that folder, not by the number of tests: a job
that hangs is ended soon, and one on a slow machine is not.
"""

from __future__ import annotations

import dataclasses
import json
import os
import re
import tempfile
import time
from pathlib import Path
from typing import Any

import mpi
import pytest
from rank_worker import SECONDS_AT_THE_END, SECONDS_PER_TEST

WORKER = "TFHVD_TEST_WORKER"  # in the environment of a rank: the folder of its job
PARAMETER = "number_of_ranks"
SIZE = "np"  # before the number of ranks, in the name of a test

MOST_RANKS = 2  # of a test that is not thorough
SECONDS_TO_SPARE = 20  # a rank that hangs says where, and ends itself; this is for when it cannot


@dataclasses.dataclass(frozen=True)
class Result:
    """Of one test on all ranks.

    Attributes:
        outcome: "passed", "failed" or "skipped".
        text: why.
        seconds: how long the slowest rank took.
    """

    outcome: str
    text: str = ""
    seconds: float = 0.0


class Progress:
    """When a job must have given its next sign of life.

    Args:
        folder: of the job.
        ranks: how many.
        tests: how many.
    """

    def __init__(self, folder: Path, ranks: int, tests: int) -> None:
        self._folder = folder
        self._last = [folder / f"{tests - 1}.{rank}.json" for rank in range(ranks)]
        self._signs = 0
        self._since = time.monotonic()

    def deadline(self) -> float:
        """Returns the time, of time.monotonic, at which the job hangs if nothing happens before."""
        signs = sum(1 for _ in self._folder.glob("*.*.*"))
        if signs != self._signs:
            self._signs, self._since = signs, time.monotonic()
        if not signs:
            return self._since + mpi.SECONDS_TO_START
        over = all(file.exists() for file in self._last)
        return self._since + SECONDS_TO_SPARE + (SECONDS_AT_THE_END if over else SECONDS_PER_TEST)


class Jobs:
    """Runs jobs, and knows the results of the tests they ran."""

    def __init__(self) -> None:
        self._waiting: dict[tuple[Path, int], list[str]] = {}  # by folder and number of ranks
        self._results: dict[str, Result] = {}

    def add(self, path: Path, ranks: int, test: str) -> None:
        self._waiting.setdefault((path.parent, ranks), []).append(test)

    def result(self, path: Path, ranks: int, test: str) -> Result:
        """Runs the tests of that file's folder that were not run yet, unless this one was."""
        if test not in self._results:
            waiting = self._waiting[path.parent, ranks]
            tests = waiting[waiting.index(test) :]
            self._results.update(_run(ranks, tests))
        return self._results[test]


def _run(ranks: int, tests: list[str]) -> dict[str, Result]:
    """Runs tests until one fails; the results at least of the first."""
    files = dict.fromkeys(str(mpi.ROOT / test.partition("::")[0]) for test in tests)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "tests.json").write_text(json.dumps(tests))
        options = ["-q", "-s", "-p", "no:cacheprovider", f"--rootdir={mpi.ROOT}", "--tb=short"]
        options += ["-m", "", "--disable-warnings"]  # The tests are chosen already.
        job = mpi.run_ranks(
            ranks,
            ["-m", "pytest", *options, f"--confcutdir={mpi.ROOT}", *files],
            timeout=Progress(folder, ranks, len(tests)).deadline,
            env={WORKER: name, "TFHVD_TEST_RANKS": str(ranks)},
            mpirun=ranks > 1,
            fork=True,
        )
        results = {}
        for number, test in enumerate(tests):
            reports = [folder / f"{number}.{rank}.json" for rank in range(ranks)]
            begun = any((folder / f"{number}.{rank}.begun").exists() for rank in range(ranks))
            if number > 0 and not begun:
                break
            results[test] = _merged(reports, job)
    last = list(results)[-1]
    # The start and the end of the job count as its first test's.
    others = job.seconds - sum(result.seconds for result in results.values())
    results[tests[0]] = dataclasses.replace(
        results[tests[0]], seconds=results[tests[0]].seconds + max(others, 0.0)
    )
    if job.left:
        results[last] = Result("failed", f"processes outlived the job: {job.left}\n{job}")
    elif job.code != 0 and all(result.outcome != "failed" for result in results.values()):
        end = "hung" if job.code is None else "failed"
        text = f"the tests up to this one have passed, and then their job {end}:\n{job}"
        results[last] = Result("failed", text)
    return results


def _merged(files: list[Path], job: mpi.Job) -> Result:
    parts = [json.loads(f.read_text()) if f.exists() else None for f in files]
    failed: dict[str, list[str]] = {}
    for rank, part in enumerate(parts):
        if part is not None and part["outcome"] == "failed":
            failed.setdefault(part["text"], []).append(str(rank))
    texts = [f"---- rank {', '.join(at)} ----\n{text}" for text, at in failed.items()]
    if None in parts:
        ended = [str(rank) for rank, part in enumerate(parts) if part is None]
        texts.append(f"the test did not come to its end on rank {', '.join(ended)}\n{job}")
    seconds = max((part["seconds"] for part in parts if part is not None), default=0.0)
    if texts:
        return Result("failed", "\n".join(texts), seconds)
    skipped = [part for part in parts if part["outcome"] == "skipped"]
    if skipped:
        return Result("skipped", skipped[0]["text"], seconds)
    return Result("passed", seconds=seconds)


class FailedOnARankError(Exception):
    """A test failed on some rank."""


class RankItem(pytest.Item):
    """Stands for a test that jobs run."""

    def __init__(self, *, ranks: int, jobs: Jobs, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self._ranks, self._jobs = ranks, jobs
        self.seconds = 0.0  # what the test itself has taken, once it has run
        jobs.add(self.path, ranks, self.nodeid)

    def runtest(self) -> None:
        result = self._jobs.result(self.path, self._ranks, self.nodeid)
        self.seconds = result.seconds
        if result.outcome == "failed":
            raise FailedOnARankError(result.text)
        if result.outcome == "skipped":
            pytest.skip(result.text)

    def repr_failure(self, excinfo: Any, style: Any = None) -> Any:
        if isinstance(excinfo.value, FailedOnARankError):
            return str(excinfo.value)
        return super().repr_failure(excinfo, style)

    def reportinfo(self) -> tuple[Path, None, str]:
        return self.path, None, self.name


def is_worker() -> bool:
    return WORKER in os.environ


def parametrize(metafunc: pytest.Metafunc) -> None:
    """Gives a marked test one instance per number of ranks."""
    marker = metafunc.definition.get_closest_marker("ranks")
    if marker is None:
        return
    sizes = marker.args
    if is_worker():
        sizes = [size for size in sizes if size == int(os.environ["TFHVD_TEST_RANKS"])]
    metafunc.fixturenames.append(PARAMETER)
    usual = max((size for size in marker.args if size <= MOST_RANKS), default=0)
    instances = [
        pytest.param(
            size, marks=[] if size == usual else [pytest.mark.thorough], id=f"{SIZE}{size}"
        )
        for size in sizes
    ]
    metafunc.parametrize(PARAMETER, instances)


def hand_over(items: list[pytest.Item]) -> None:
    """Puts in the place of each marked test one that jobs run."""
    jobs = Jobs()
    for at, item in enumerate(items):
        if item.get_closest_marker("ranks") is None or not hasattr(item, "callspec"):
            continue
        ranks = item.callspec.params[PARAMETER]
        items[at] = RankItem.from_parent(item.parent, name=item.name, ranks=ranks, jobs=jobs)


def job_of(nodeid: str) -> str:
    """Names the job that runs a test, by the test's name alone; "" if no job does."""
    found = re.search(rf"\[(?:.*-)?{SIZE}(\d+)[-\]]", nodeid)
    return f"{Path(nodeid.partition('::')[0]).parent} on {found[1]}" if found else ""
