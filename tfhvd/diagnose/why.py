"""``tfhvd why``: why a running job does not go on."""

from __future__ import annotations

import argparse
import json
import time

from tfhvd.diagnose import find
from tfhvd.launch.errors import UsageError
from tfhvd.watch import snapshot, verdict

_SHORTEST, _LONGEST = 0.1, 600.0  # seconds between the two looks


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the words behind ``tfhvd why``."""
    parser.add_argument(
        "pid",
        type=int,
        nargs="?",
        metavar="PID",
        help="a rank, or what has started the job; without, all jobs of this host",
    )
    parser.add_argument(
        "--seconds",
        type=float,
        default=2.0,
        metavar="S",
        help="how long to watch the ranks (default: 2)",
    )
    parser.add_argument("--json", action="store_true", help="the answer as JSON, for programs")


def run(options: argparse.Namespace) -> int:
    """Prints it; returns the exit code: 0 where every job makes progress, else 1."""
    if not _SHORTEST <= options.seconds <= _LONGEST:
        raise UsageError(
            f"--seconds {options.seconds:g}: expected is a number from {_SHORTEST:g} to "
            f"{_LONGEST:g}."
        )
    first = _look(options.pid)
    if not first:
        raise UsageError("no job of tfhvd runs on this host, or none that you may look at.")
    time.sleep(options.seconds)
    then = {(rank.rank, rank.record.pid): rank for job in _look(None) for rank in job}
    verdicts = []
    for job in first:
        later = [then[key] for key in ((s.rank, s.record.pid) for s in job) if key in then]
        verdicts.append(verdict.judge(job, later))
    if options.json:
        answers = [
            {"kind": v.kind.name.lower(), "ranks": v.ranks, "lines": v.lines} for v in verdicts
        ]
        print(json.dumps(answers))
    else:
        print("\n\n".join("\n".join(v.lines) for v in verdicts))
    return 0 if all(v.kind is verdict.Kind.PROGRESS for v in verdicts) else 1


def _look(pid: int | None) -> list[list[snapshot.Snapshot]]:
    jobs = find.jobs() if pid is None else [find.job_of(pid)]
    return [[snapshot.take(rank.pid, rank.record) for rank in job] for job in jobs]
