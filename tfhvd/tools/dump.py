"""``tfhvd dump``: what the ranks of a running job wait for, and what they did last."""

from __future__ import annotations

import argparse
import dataclasses
import json
from collections.abc import Mapping, Sequence

from tfhvd.hang.flight_record import Collective, Record, State
from tfhvd.system.formatting import ranks_text
from tfhvd.tools import job_names
from tfhvd.tools.jobs import running

_SHOWN = 5  # collectives that wait, of each list
_FRAMES = 15  # of each thread


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the words behind ``tfhvd dump``."""
    parser.add_argument("job", nargs="?", metavar="JOB", help=job_names.HELP)
    parser.add_argument(
        "--last",
        type=int,
        default=3,
        metavar="N",
        help="how many of the collectives that are done to show of each rank (default: 3)",
    )
    parser.add_argument(
        "--stacks",
        action="store_true",
        help="where each rank is in its program: asks the processes, which continue afterwards",
    )
    parser.add_argument(
        "--json", action="store_true", help="all that is known, as JSON: for programs"
    )


def run(options: argparse.Namespace) -> int:
    """Prints it; returns the exit code."""
    jobs = running(job_names.process_of(options.job))
    heads = job_names.headings([job.about for job in jobs])
    if options.stacks:
        looks = [job.look() for job in jobs]
        records = [[seen.record for seen in look] for look in looks]
        stacks = [{seen.rank: [list(t) for t in seen.threads] for seen in look} for look in looks]
    else:
        records, stacks = [job.records() for job in jobs], [{} for _ in jobs]
    if options.json:
        print(json.dumps([_as_json(*job) for job in zip(records, stacks)]))
        return 0
    texts = []
    for head, of_job, threads in zip(heads, records, stacks):
        lines = describe(of_job, options.last) if of_job else ["no rank of this job has begun yet"]
        texts.append("\n".join([*head, *lines, *describe_stacks(threads)]))
    print("\n\n".join(texts))
    return 0


def _as_json(
    records: Sequence[Record], stacks: Mapping[int, list[list[str]]]
) -> list[dict[str, object]]:
    return [
        {**dataclasses.asdict(record), **({"stacks": stacks[record.rank]} if stacks else {})}
        for record in records
    ]


def describe(job: Sequence[Record], last: int) -> list[str]:
    """Says what the ranks of one job do.

    Args:
        job: the records of those that are on this host, in order.
        last: how many of the collectives that are done to list of each.
    """
    size = job[0].size
    ranks = f"{size} rank{'s' if size > 1 else ''}"
    if len(job) < size:
        ranks += f", {len(job)} of them on this host: type `tfhvd dump` on the others, too"
    lines = [f"job of {ranks}", *_missing_ranks(job)]
    for record in job:
        lines.append(
            f"rank {record.rank} (host {record.host}, process {record.pid}): "
            f"{record.done:,} of {record.submitted:,} collectives done, "
            f"last progress {record.taken - record.progress:.3f} s ago"
            + (f", {record.position} of fit" if record.position else "")
        )
        lines += _unfinished(record)
        done = record.of(State.DONE, State.FAILED)
        lines += [_line(collective, record) for collective in done[-last:]] if last > 0 else []
    return lines


def describe_stacks(by_rank: Mapping[int, list[list[str]]]) -> list[str]:
    """Names each rank's line of the program: ranks at the same place together.

    Args:
        by_rank: the stacks of each rank's threads, as `stacks.of` gives them.
    """
    groups: dict[str, list[int]] = {}
    for rank, threads in by_rank.items():
        text = "\n".join(
            line
            for number, thread in enumerate(threads)
            for line in (
                *(["  another thread"] if number else []),
                *(f"    {at}" for at in _shortened(thread)),
            )
        )
        groups.setdefault(text, []).append(rank)
    # Who is alone is of most interest.
    lines = []
    for text, ranks in sorted(groups.items(), key=lambda group: len(group[1])):
        lines += [f"{ranks_text(ranks)}, the last call first:", text]
    return lines


def _shortened(thread: list[str]) -> list[str]:
    if len(thread) <= _FRAMES:
        return thread
    return [*thread[: _FRAMES - 1], f"... {len(thread) - _FRAMES + 1} more"]


def _missing_ranks(job: Sequence[Record]) -> list[str]:
    """For each waiting collective: which ranks have called it, and which have not."""
    waiting: dict[str, dict[int, Collective]] = {}
    for record in job:
        for collective in record.of(State.WAITING):
            if collective.name:
                waiting.setdefault(collective.name, {}).setdefault(record.rank, collective)
    lines = []
    everyone = {record.rank for record in job}
    for name, by_rank in list(waiting.items())[:_SHOWN]:
        absent = sorted(everyone - by_rank.keys())
        if not absent or "(process set " in name:  # whose ranks are not known here
            continue
        called = ranks_text(sorted(by_rank))
        lines.append(
            f"  {next(iter(by_rank.values()))}: {called} wait{'s' if len(by_rank) == 1 else ''}, "
            f"{ranks_text(absent)} {'has' if len(absent) == 1 else 'have'} not called it"
        )
    if len(waiting) > _SHOWN:
        lines.append(f"  and {len(waiting) - _SHOWN} more")
    return lines


def _unfinished(record: Record) -> list[str]:
    pending = record.of(State.WAITING, State.QUEUED, State.RUNNING)
    lines = [_line(collective, record) for collective in pending[:_SHOWN]]
    if len(pending) > _SHOWN:
        lines.append(f"  and {len(pending) - _SHOWN} more that wait")
    return lines


def _line(collective: Collective, record: Record) -> str:
    state = collective.state
    since = record.taken - (collective.ended or collective.submitted)
    text = f"  {state.value:7} {since:9.3f} s  {collective}"
    if state is State.RUNNING and collective.phase:
        text += f" in {collective.phase}"
    if state is State.DONE and collective.ended is not None:
        text += f", took {1e3 * (collective.ended - collective.submitted):.3f} ms"
    if collective.waited_for is not None:
        text += f", {'waits' if collective.ended is None else 'waited'} for "
        text += f"rank {collective.waited_for}"
    return text
