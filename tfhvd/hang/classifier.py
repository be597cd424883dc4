"""judge: finds the cause of a hang from two snapshots of the ranks, some seconds apart. Pure.

It names a rank only if the snapshots of this rank show the cause; otherwise the cause is "unknown".
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from tfhvd.hang import report_text, slow_ranks
from tfhvd.hang.causes import Kind
from tfhvd.hang.flight_record import Collective, State
from tfhvd.hang.snapshot import Snapshot
from tfhvd.system.activity import BUSY, WAKES
from tfhvd.system.procfs import ENDED, STOPPED

# The first match in the main thread's stack, from the last call outwards, is what a rank does.
_PLACES = (
    ("in _on_uncaught", Kind.RAISED),
    ("tfhvd/runtime/membership.py", Kind.FINISHED),
    ("in trace_function", Kind.COMPILING),
    ("in _maybe_define_function", Kind.COMPILING),
    ("in iterator_get_next", Kind.INPUT),
    ("tensorflow/python/data/ops/iterator_ops.py", Kind.INPUT),
    ("src/trainers/data_adapters/", Kind.INPUT),
    ("in evaluate", Kind.EVALUATING),
)

# In the main thread's stack of a rank that has left the job at the end of its program.
_LEFT = re.compile(r"tfhvd/compat/iterators\.py:\S+ in stop")


@dataclass(frozen=True)
class Verdict:
    """The cause of a hang, and the ranks that the others wait for.

    Attributes:
        kind: the cause.
        ranks: the ranks that the others wait for; empty if the verdict names none.
        hangs: whether these ranks were seen to do nothing that would end the wait.
        lines: the text of the verdict, for a terminal.
    """

    kind: Kind
    ranks: tuple[int, ...]
    hangs: bool
    lines: tuple[str, ...]


@dataclass(frozen=True)
class _Job:
    """The snapshots of a job by rank, and the collectives that a rank waits for in both."""

    before: dict[int, Snapshot]
    after: dict[int, Snapshot]
    stuck: dict[int, tuple[Collective, ...]]

    def verdict(self, kind: Kind, odd: tuple[int, ...], *, hangs: bool = True) -> Verdict:
        lines = report_text.lines(kind, odd, self.stuck, self.after, self.before)
        return Verdict(kind, odd, hangs, lines)

    def moves(self, rank: int, doing: Kind) -> bool:
        """Whether a rank that computes little wakes up again and again.

        A rank does so if it waits for many small things, such as elements of its data or packets of
        a file. If other threads make its input, all its threads count. They are compared with the
        threads of the waiting ranks, whose engines wake up, too.
        """
        if self._rate(rank, "wakeups") > WAKES:
            return True
        idle = max((self._rate(r, "all_wakeups") for r in self.stuck if self.stuck[r]), default=0.0)
        return doing is Kind.INPUT and self._rate(rank, "all_wakeups") > 2 * idle + WAKES

    def _rate(self, rank: int, count: str) -> float:
        before, after = self.before[rank], self.after[rank]
        counted = getattr(after, count) - getattr(before, count)
        return float(counted / max(1e-3, after.taken - before.taken))

    def in_state(self, *states: str) -> tuple[int, ...]:
        return tuple(sorted(rank for rank, seen in self.after.items() if seen.state in states))


def judge(before: Sequence[Snapshot], after: Sequence[Snapshot]) -> Verdict:
    """Returns the reason why the ranks wait.

    Args:
        before: the snapshots of all visible ranks of one job.
        after: the snapshots of these ranks some seconds later.
    """
    first = {snapshot.rank: snapshot for snapshot in before}
    ranks = {snapshot.rank: snapshot for snapshot in after if snapshot.rank in first}
    gone = {rank: snapshot for rank, snapshot in first.items() if rank not in ranks}
    if gone:
        return _Job(first, gone, dict.fromkeys(gone, ())).verdict(Kind.DEAD, tuple(sorted(gone)))
    job = _Job(first, ranks, {rank: _stuck(first[rank], ranks[rank]) for rank in ranks})
    if not any(job.stuck.values()):
        return _no_wait(job)
    stopped = job.in_state(*STOPPED)
    if stopped:
        return job.verdict(Kind.STOPPED, stopped)
    ended = job.in_state(*ENDED)
    if ended:
        # A whole job may end between the two snapshots, or during the second one. Then a wait in
        # the first snapshot does not show that a rank still waits.
        ended_before = all(first[rank].state in ENDED for rank in ended)
        return job.verdict(Kind.DEAD, ended, hangs=ended_before)
    missing = _missing(job.stuck)
    if not missing:
        return _nobody_is_missing(job)
    idle = tuple(rank for rank in missing if not job.stuck[rank])
    if not idle:
        kind = Kind.ORDER if _are_known_to_all(job) else Kind.DIFFERENT
        return job.verdict(kind, _minority(missing, job.stuck))
    doing = {rank: _doing(first[rank], ranks[rank]) for rank in idle}
    works = any(_is_busy(first[rank], ranks[rank]) or job.moves(rank, doing[rank]) for rank in idle)
    kinds = set(doing.values())
    # If the ranks do different things, none of these is the cause for all of them.
    kind = kinds.pop() if len(kinds) == 1 else Kind.UNKNOWN
    return job.verdict(kind, idle, hangs=not works)


def _nobody_is_missing(job: _Job) -> Verdict:
    if len(job.after) < next(iter(job.after.values())).record.size:
        return job.verdict(Kind.ELSEWHERE, (), hangs=False)
    running = any(c.state is State.RUNNING for stuck in job.stuck.values() for c in stuck)
    hosts = {snapshot.record.host for snapshot in job.after.values()}
    if running and len(hosts) > 1:
        return job.verdict(Kind.NETWORK, ())
    return job.verdict(Kind.UNKNOWN, (), hangs=False)


def _stuck(before: Snapshot, after: Snapshot) -> tuple[Collective, ...]:
    """Returns the collectives for which a rank waits in both snapshots."""
    then = {collective.number for collective in before.record.waiting()}
    return tuple(c for c in after.record.waiting() if c.number in then)


def _no_wait(job: _Job) -> Verdict:
    done = [seen.record.done - job.before[rank].record.done for rank, seen in job.after.items()]
    seconds = max(
        (seen.taken - job.before[rank].taken for rank, seen in job.after.items()), default=0.0
    )
    if any(done):
        return _progress(job, f"The ranks have done {min(done)} collectives in {seconds:.1f} s")
    left = tuple(sorted(r for r, seen in job.after.items() if any(map(_LEFT.search, seen.main))))
    if left:
        return job.verdict(Kind.LEFT, left, hangs=False)
    text = f"No rank waits for another one, and none has called a collective in {seconds:.1f} s."
    return Verdict(
        Kind.UNKNOWN, (), False, (text, *report_text.places(Kind.UNKNOWN, job.after.values()))
    )


def _progress(job: _Job, text: str) -> Verdict:
    """Returns the verdict for a job that makes progress, in which one rank may be slow."""
    delay = slow_ranks.worst(seen.record for seen in job.after.values())
    if delay is None:
        return Verdict(Kind.PROGRESS, (), False, (f"{text}, and none of them waits.",))
    slow = [seen for rank, seen in job.after.items() if rank == delay.rank]
    lines = (f"{text}, but {delay}.", *report_text.places(Kind.PROGRESS, slow), report_text.SLOW)
    return Verdict(Kind.PROGRESS, (delay.rank,), False, lines)


def _missing(stuck: dict[int, tuple[Collective, ...]]) -> tuple[int, ...]:
    """Returns the ranks that have not called a collective for which others wait."""
    missing: set[int] = set()
    for collectives in stuck.values():
        for collective in collectives:
            if collective.state is State.WAITING and _is_everyones(collective):
                missing |= {rank for rank in stuck if not _has(stuck[rank], collective)}
    return tuple(sorted(missing))


def _minority(
    missing: tuple[int, ...], stuck: dict[int, tuple[Collective, ...]]
) -> tuple[int, ...]:
    """Returns the ranks that wait for other collectives than the largest group of ranks does.

    Returns all ranks if no group is the largest.
    """
    groups: dict[frozenset[tuple[str, str]], list[int]] = {}
    for rank in missing:
        waits_for = frozenset((c.kind, c.name) for c in stuck[rank] if c.state is State.WAITING)
        groups.setdefault(waits_for, []).append(rank)
    sizes = sorted(map(len, groups.values()))
    if len(sizes) < 2 or sizes[-1] == sizes[-2]:
        return missing
    return tuple(
        rank for group in groups.values() if len(group) < sizes[-1] for rank in sorted(group)
    )


def _are_known_to_all(job: _Job) -> bool:
    """Whether every rank has done all collectives that ranks wait for, all equally often.

    This is so if a step calls the same collectives in another order. A collective that only some
    ranks call was not done before, or less often than the collective that the others wait for, as
    with the metrics of an epoch.
    """
    waited_for = {(c.kind, c.name) for stuck in job.stuck.values() for c in stuck}
    counts: set[int] = set()
    for seen in job.after.values():
        done = Counter((c.kind, c.name) for c in seen.record.collectives if c.state is State.DONE)
        counts |= {done[each] for each in waited_for}
    return len(counts) == 1 and 0 not in counts


def _is_everyones(collective: Collective) -> bool:
    return bool(collective.name) and "(process set " not in collective.name


def _has(collectives: Iterable[Collective], wanted: Collective) -> bool:
    return any(c.name == wanted.name and c.kind == wanted.kind for c in collectives)


def _doing(before: Snapshot, after: Snapshot) -> Kind:
    """Returns what a rank does while it does not wait for others."""
    # C code may hold an exception for a moment that Python never sees: both snapshots must have it.
    if after.uncaught and after.uncaught == before.uncaught:
        return Kind.RAISED
    for frame in after.main:
        for text, kind in _PLACES:
            if text in frame:
                return kind
    if _is_busy(before, after):
        return Kind.COMPUTING
    if after.reading:  # in another thread, as when a TensorFlow function asks for the input
        return Kind.INPUT
    if not after.main:
        return Kind.UNKNOWN
    return Kind.WAITS if after.waits_in_python else Kind.HELD


def _is_busy(before: Snapshot, after: Snapshot) -> bool:
    """Whether a rank has used processor time, is ready to run, or has moved in its program."""
    took = after.cpu - before.cpu >= BUSY * (after.taken - before.taken)
    return took or after.state == "R" or before.main != after.main
