"""Why a job does not go on: from two looks at its ranks, some seconds apart. Pure.

It names a rank only for what was seen of it; what was not seen is "unknown".
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import Enum

from tfhvd.watch.flight import Collective, State
from tfhvd.watch.snapshot import Snapshot

_BUSY = 0.1  # of one processor: it computes, and on a busy machine it may get no more


class Kind(Enum):
    """What keeps a job from going on."""

    PROGRESS = "the job makes progress"
    STOPPED = "a rank is stopped"
    DEAD = "a rank has ended"
    FINISHED = "a rank has come to the end of its program"
    RAISED = "a rank has raised an exception"
    DIFFERENT = "ranks call different collectives, or in a different order"
    COMPILING = "a rank compiles"
    INPUT = "a rank waits for its input"
    EVALUATING = "a rank evaluates"
    COMPUTING = "a rank computes"
    HELD = "a rank waits for something else"
    NETWORK = "ranks wait for data of each other"
    ELSEWHERE = "a rank that cannot be seen from here has not come"
    UNKNOWN = "unknown"


# The first that is in the main thread's stack, from the last call outwards, says what a rank does.
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

_ADVICE = {
    Kind.STOPPED: "Type `kill -CONT {pid}` on host {host} to let it go on, or end it.",
    Kind.DEAD: "Its own output, or dmesg on its host, may say why.",
    Kind.FINISHED: "It had fewer batches or epochs, or left a loop early. Give every rank as many "
    "steps, or end loops with hvd.join().",
    Kind.RAISED: "Its traceback is in its output.",
    Kind.DIFFERENT: "Every rank must call the same collectives, and eager ones in the same order: "
    "look for conditions that depend on the rank, and for loops over sets.",
    Kind.COMPILING: "The others wait until it has finished: the first step may take minutes. A "
    "function that is compiled again and again gets inputs of other shapes or Python values.",
    Kind.INPUT: "Look at what its dataset reads: another file, a slow disk, a shard without "
    "elements, or a generator that waits.",
    Kind.EVALUATING: "If only this rank evaluates, the others wait until it has finished. Have all "
    "ranks evaluate their part: hvd.shard, and a callback that averages metrics.",
    Kind.COMPUTING: "It has more to compute, or does it more slowly: compare batch sizes, and what "
    "else runs on its host.",
    Kind.HELD: "It neither computes nor calls a collective: see the line above, and `tfhvd dump "
    "--stacks`.",
    Kind.NETWORK: "The network between the hosts is cut, or slow for what is sent.",
    Kind.ELSEWHERE: "Type `tfhvd why` on the other hosts.",
}


@dataclass(frozen=True)
class Verdict:
    """The answer.

    Attributes:
        kind: the class.
        ranks: those because of which the others wait; empty where nobody is to be named.
        hangs: whether these ranks were seen to do nothing that would end it.
        lines: the answer in words, for a terminal.
    """

    kind: Kind
    ranks: tuple[int, ...]
    hangs: bool
    lines: tuple[str, ...]


def judge(before: Sequence[Snapshot], after: Sequence[Snapshot]) -> Verdict:
    """Says why the ranks wait.

    Args:
        before: all ranks of one job that can be seen.
        after: the same ones, some seconds later.
    """
    first = {snapshot.rank: snapshot for snapshot in before}
    ranks = {snapshot.rank: snapshot for snapshot in after if snapshot.rank in first}
    gone = {rank: snapshot for rank, snapshot in first.items() if rank not in ranks}
    if gone:
        return _verdict(Kind.DEAD, tuple(sorted(gone)), dict.fromkeys(gone, ()), gone)
    stuck = {rank: _stuck(first[rank], ranks[rank]) for rank in ranks}
    if not any(stuck.values()):
        return _no_wait(first, ranks)
    stopped = _in_state(ranks, "T", "t")
    if stopped:
        return _verdict(Kind.STOPPED, stopped, stuck, ranks)
    ended = _in_state(ranks, "Z", "X", "")
    if ended:
        return _verdict(Kind.DEAD, ended, stuck, ranks)
    missing = _missing(stuck)
    if not missing:
        return _nobody_is_missing(stuck, ranks)
    idle = tuple(rank for rank in missing if not stuck[rank])
    if not idle:
        return _verdict(Kind.DIFFERENT, _minority(missing, stuck), stuck, ranks)
    kinds = {_doing(first[rank], ranks[rank]) for rank in idle}
    busy = any(_is_busy(first[rank], ranks[rank]) for rank in idle)
    # Where they do different things, none of these is the reason for all of them.
    kind = kinds.pop() if len(kinds) == 1 else Kind.UNKNOWN
    return _verdict(kind, idle, stuck, ranks, hangs=not busy)


def _nobody_is_missing(
    stuck: dict[int, tuple[Collective, ...]], ranks: dict[int, Snapshot]
) -> Verdict:
    if len(ranks) < next(iter(ranks.values())).record.size:
        return _verdict(Kind.ELSEWHERE, (), stuck, ranks, hangs=False)
    running = any(c.state is State.RUNNING for collectives in stuck.values() for c in collectives)
    hosts = {snapshot.record.host for snapshot in ranks.values()}
    if running and len(hosts) > 1:
        return _verdict(Kind.NETWORK, (), stuck, ranks)
    return _verdict(Kind.UNKNOWN, (), stuck, ranks, hangs=False)


def _stuck(before: Snapshot, after: Snapshot) -> tuple[Collective, ...]:
    """What a rank has waited for both times."""
    then = {collective.number for collective in before.record.waiting()}
    return tuple(c for c in after.record.waiting() if c.number in then)


def _no_wait(first: dict[int, Snapshot], ranks: dict[int, Snapshot]) -> Verdict:
    done = {rank: ranks[rank].record.done - first[rank].record.done for rank in ranks}
    seconds = max((ranks[rank].taken - first[rank].taken for rank in ranks), default=0.0)
    if any(done.values()):
        text = f"The ranks have done {min(done.values())} collectives in {seconds:.1f} s, and none "
        return Verdict(Kind.PROGRESS, (), False, (f"{text}of them waits.",))
    where = [f"Rank {rank} is at {ranks[rank].line or 'no line of the program'}." for rank in ranks]
    text = f"No rank waits for another one, and none has called a collective in {seconds:.1f} s."
    return Verdict(Kind.UNKNOWN, (), False, (text, *where[:8]))


def _missing(stuck: dict[int, tuple[Collective, ...]]) -> tuple[int, ...]:
    """The ranks that have not called what others wait for."""
    missing: set[int] = set()
    for collectives in stuck.values():
        for collective in collectives:
            if collective.state is State.WAITING and _is_everyones(collective):
                missing |= {rank for rank in stuck if not _has(stuck[rank], collective)}
    return tuple(sorted(missing))


def _minority(
    missing: tuple[int, ...], stuck: dict[int, tuple[Collective, ...]]
) -> tuple[int, ...]:
    """Of ranks that wait for different collectives those that most do not agree with.

    All of them where no group is larger than every other.
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


def _is_everyones(collective: Collective) -> bool:
    return bool(collective.name) and "(process set " not in collective.name


def _has(collectives: Iterable[Collective], wanted: Collective) -> bool:
    return any(c.name == wanted.name and c.kind == wanted.kind for c in collectives)


def _in_state(ranks: dict[int, Snapshot], *states: str) -> tuple[int, ...]:
    return tuple(sorted(rank for rank, snapshot in ranks.items() if snapshot.state in states))


def _doing(before: Snapshot, after: Snapshot) -> Kind:
    """What a rank does that does not wait for others."""
    for frame in after.main:
        for text, kind in _PLACES:
            if text in frame:
                return kind
    if _is_busy(before, after):
        return Kind.COMPUTING
    if after.reading:  # in a thread of its own, as where a function of TensorFlow's asks for it
        return Kind.INPUT
    return Kind.HELD if after.main else Kind.UNKNOWN


def _is_busy(before: Snapshot, after: Snapshot) -> bool:
    """Whether a rank was seen to take processor time, to want it, or to have moved on."""
    took = after.cpu - before.cpu >= _BUSY * (after.taken - before.taken)
    return took or after.state == "R" or before.main != after.main


def _verdict(
    kind: Kind,
    odd: tuple[int, ...],
    stuck: dict[int, tuple[Collective, ...]],
    ranks: dict[int, Snapshot],
    *,
    hangs: bool = True,
) -> Verdict:
    lines = [f"{kind.value[0].upper()}{kind.value[1:]}."]
    for rank in odd[:4]:
        snapshot = ranks[rank]
        record = snapshot.record
        lines.append(
            f"Rank {rank} (host {record.host}, process {record.pid}) is at "
            f"{_line_of(kind, snapshot) or 'no line of the program'}."
        )
        if stuck[rank]:
            lines.append(f"  It waits for {_for_how_long(stuck[rank][0], snapshot)}.")
    waiting = [rank for rank, collectives in stuck.items() if collectives and rank not in odd]
    for rank in waiting[:4]:
        lines.append(f"Rank {rank} waits for {_for_how_long(stuck[rank][0], ranks[rank])}.")
    if len(waiting) > 4:
        lines.append(f"So do {len(waiting) - 4} more ranks.")
    if kind in _ADVICE:
        # Without an odd rank the advice names none.
        of = ranks[odd[0]].record if odd else next(iter(ranks.values())).record
        lines.append(_ADVICE[kind].format(pid=of.pid, host=of.host))
    return Verdict(kind, odd, hangs, tuple(lines))


def _line_of(kind: Kind, snapshot: Snapshot) -> str:
    return (snapshot.reading if kind is Kind.INPUT else "") or snapshot.line


def _for_how_long(collective: Collective, snapshot: Snapshot) -> str:
    return f"{collective}, for {snapshot.taken - collective.submitted:.1f} s"
