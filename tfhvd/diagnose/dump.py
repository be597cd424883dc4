"""``tfhvd dump``: what the ranks of a running job wait for, and what they did last."""

from __future__ import annotations

import argparse
import dataclasses
import json
from collections.abc import Mapping, Sequence

from tfhvd.diagnose import find
from tfhvd.launch.errors import UsageError
from tfhvd.watch import stacks
from tfhvd.watch.flight import Collective, Record, State

_SHOWN = 5  # collectives that wait, of each list
_FRAMES = 15  # of each thread


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the words behind ``tfhvd dump``."""
    parser.add_argument(
        "pid",
        type=int,
        nargs="?",
        metavar="PID",
        help="a rank, or what has started the job; without, all jobs of this host",
    )
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
        help="where each rank is in its program: asks the processes, which go on afterwards",
    )
    parser.add_argument(
        "--json", action="store_true", help="all that is known, as JSON: for programs"
    )


def run(options: argparse.Namespace) -> int:
    """Prints it; returns the exit code."""
    jobs = find.jobs() if options.pid is None else [find.job_of(options.pid)]
    if not jobs:
        raise UsageError("no job of tfhvd runs on this host, or none that you may look at.")
    if options.json:
        print(json.dumps([[_as_json(rank, options.stacks) for rank in job] for job in jobs]))
        return 0
    texts = []
    for job in jobs:
        lines = describe([rank.record for rank in job], options.last)
        if options.stacks:
            lines += describe_stacks({rank.record.rank: stacks.of(rank.pid) for rank in job})
        texts.append("\n".join(lines))
    print("\n\n".join(texts))
    return 0


def _as_json(rank: find.Rank, with_stacks: bool) -> dict[str, object]:
    fields = dataclasses.asdict(rank.record)
    return {**fields, "stacks": stacks.of(rank.pid)} if with_stacks else fields


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
        )
        lines += _unfinished(record)
        done = record.of(State.DONE, State.FAILED)
        lines += [_line(collective, record) for collective in done[-last:]] if last > 0 else []
    return lines


def describe_stacks(by_rank: Mapping[int, list[list[str]]]) -> list[str]:
    """Says where the ranks are in their program: those that are at the same place together.

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
        lines += [f"{_ranks(ranks)}, the last call first:", text]
    return lines


def _shortened(thread: list[str]) -> list[str]:
    if len(thread) <= _FRAMES:
        return thread
    return [*thread[: _FRAMES - 1], f"... {len(thread) - _FRAMES + 1} more"]


def _missing_ranks(job: Sequence[Record]) -> list[str]:
    """Of each collective that waits: who has called it, and who has not."""
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
        called = _ranks(sorted(by_rank))
        lines.append(
            f"  {next(iter(by_rank.values()))}: {called} wait{'s' if len(by_rank) == 1 else ''}, "
            f"{_ranks(absent)} {'has' if len(absent) == 1 else 'have'} not called it"
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


def _ranks(ranks: Sequence[int]) -> str:
    some = ", ".join(map(str, ranks[:8])) + (", ..." if len(ranks) > 8 else "")
    return f"rank{'s' if len(ranks) > 1 else ''} {some}"
