"""``tfhvd why``: why a running job does not continue."""

from __future__ import annotations

import argparse
import dataclasses
import json
import time

from tfhvd.hang import classifier, init_waiters, report_text
from tfhvd.hang.classifier import Verdict
from tfhvd.hang.init_waiters import Arrival
from tfhvd.launch.errors import UsageError
from tfhvd.tools import job_names
from tfhvd.tools.job_names import About
from tfhvd.tools.jobs import Job, launcher_of, running

_SHORTEST, _LONGEST = 0.1, 600.0  # seconds between the two looks


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the words behind ``tfhvd why``."""
    parser.add_argument("job", nargs="?", metavar="JOB", help=job_names.HELP)
    parser.add_argument(
        "--seconds",
        type=float,
        default=2.0,
        metavar="S",
        help="how long to watch the ranks (default: 2)",
    )
    parser.add_argument("--json", action="store_true", help="the answer as JSON, for programs")


def run(options: argparse.Namespace) -> int:
    """Prints it; returns the exit code: 0 if every job makes progress, else 1."""
    if not _SHORTEST <= options.seconds <= _LONGEST:
        raise UsageError(
            f"--seconds {options.seconds:g}: expected is a number from {_SHORTEST:g} to "
            f"{_LONGEST:g}."
        )
    pid = job_names.process_of(options.job)
    meetings = init_waiters.meetings(pid)
    try:
        jobs = running(pid)
    except UsageError:
        if not meetings:
            raise
        jobs = []
    looks = [(job, seen) for job in jobs if (seen := job.look())]
    time.sleep(options.seconds if looks else 0.0)
    begun = [job for job, _ in looks]
    abouts = [job.about for job in begun]  # before a job ends
    verdicts = [classifier.judge(before, job.look()) for job, before in looks]
    for ranks in meetings:
        if not _has_ended(ranks, begun):
            verdicts.append(_of_meeting(ranks))
            abouts.append(About.of(next(iter(ranks.values())).pid))
    if not verdicts:
        raise UsageError("no rank of this job has begun yet, or the launcher does not answer.")
    if options.json:
        answers = [
            {
                "kind": v.kind.name.lower(),
                "ranks": v.ranks,
                "lines": v.lines,
                "job": about and dataclasses.asdict(about),
            }
            for v, about in zip(verdicts, abouts)
        ]
        print(json.dumps(answers))
    else:
        heads = job_names.headings(abouts)
        print("\n\n".join("\n".join((*head, *v.lines)) for head, v in zip(heads, verdicts)))
    return 0 if all(v.kind is classifier.Kind.PROGRESS for v in verdicts) else 1


def _has_ended(ranks: dict[int, Arrival], begun: list[Job]) -> bool:
    """Whether a meeting was that of a job that has begun since."""
    if not begun:
        return False
    pids = {found.pid for found in ranks.values()}
    if any(rank.pid in pids for job in begun for rank in job.here):
        return True
    # Its ranks may have begun since they were looked for, so that only the launcher speaks of them.
    launchers = {job.launcher for job in begun} - {None}
    return not launchers.isdisjoint(map(launcher_of, pids))


def _of_meeting(ranks: dict[int, Arrival]) -> Verdict:
    kind = classifier.Kind.MEETING
    lines = (report_text.headline(kind), init_waiters.text(ranks))
    return Verdict(kind, init_waiters.missing(ranks), False, lines)
