"""The text of a verdict: at most 20 lines for any number of ranks. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence

from tfhvd.hang.causes import ADVICE, Kind
from tfhvd.hang.flight_record import Collective
from tfhvd.hang.snapshot import Snapshot
from tfhvd.system.formatting import ranks_text

_MOST = 4  # groups of ranks in each part of the text
_HOSTS = 3  # names of hosts in a line
# The advice about a rank that is slower than the others.
SLOW = (
    "hvd.profile says which part of its steps takes longer; tfhvd doctor, whether something else "
    "runs on its host."
)
_THROTTLED = 0.2  # of the time between the two snapshots


def lines(
    kind: Kind,
    odd: Sequence[int],
    stuck: Mapping[int, Sequence[Collective]],
    ranks: Mapping[int, Snapshot],
    before: Mapping[int, Snapshot],
) -> tuple[str, ...]:
    """Returns the verdict for a terminal.

    Args:
        kind: the cause.
        odd: the ranks that the others wait for.
        stuck: for each rank the collectives for which it has waited all the time.
        ranks: the last snapshots.
        before: the snapshots before these.
    """
    text = [headline(kind)]
    text += places(kind, [ranks[rank] for rank in odd], stuck)
    text += _kept_back([(before[rank], ranks[rank]) for rank in odd if rank in before])
    text += _waits(sorted(rank for rank in stuck if stuck[rank] and rank not in odd), stuck, ranks)
    if kind in ADVICE:
        # The advice of a verdict without a rank does not use them.
        of = ranks[odd[0]].record if odd else next(iter(ranks.values())).record
        text.append(ADVICE[kind].format(pid=of.pid, host=of.host))
    return tuple(text)


def places(
    kind: Kind,
    seen: Collection[Snapshot],
    stuck: Mapping[int, Sequence[Collective]] | None = None,
) -> list[str]:
    """Returns lines with the places of ranks in their program, one line for all at one place.

    Args:
        kind: the cause, that is, what the ranks do.
        seen: the snapshots of the ranks.
        stuck: for each rank the collectives for which it waits.
    """
    groups: dict[tuple[str, str], list[Snapshot]] = {}
    for snapshot in seen:
        line = (snapshot.reading if kind in (Kind.INPUT, Kind.LEFT) else "") or snapshot.line
        waits_for = (stuck or {}).get(snapshot.rank, ())
        groups.setdefault((line, str(waits_for[0]) if waits_for else ""), []).append(snapshot)
    text = []
    for (line, _), group in list(groups.items())[:_MOST]:
        first = group[0]
        at = line or "no line of the program"
        if kind in (Kind.WAITS, Kind.HELD) and first.waits_in:
            at += f", in the kernel's {first.waits_in}"
        if kind is Kind.RAISED and first.uncaught:
            at += f", and leaves with {first.uncaught}"
        if len(group) == 1 and first.record.position:
            at += f", {first.record.position}"
        text.append(_at(group, at) if line or kind is not Kind.STOPPED else f"{_who(group)}.")
        waits_for = (stuck or {}).get(first.rank, ())
        if waits_for:
            they_wait = "It waits" if len(group) == 1 else "They wait"
            text.append(f"  {they_wait} for {_since(waits_for[0], first)}.")
    more = sum(map(len, list(groups.values())[_MOST:]))
    return [*text, f"{more} more ranks are elsewhere."] if more else text


def _at(group: Sequence[Snapshot], place: str) -> str:
    return f"{_who(group)} {'is' if len(group) == 1 else 'are'} at {place}."


def _who(group: Sequence[Snapshot]) -> str:
    hosts = list(dict.fromkeys(snapshot.record.host for snapshot in group))
    named = ", ".join(hosts[:_HOSTS]) + (", ..." if len(hosts) > _HOSTS else "")
    where = f"{'host' if len(hosts) == 1 else 'hosts'} {named}"
    if len(group) == 1:
        where += f", process {group[0].record.pid}"
    return f"{_capital(ranks_text(snapshot.rank for snapshot in group))} ({where})"


def _kept_back(looks: Iterable[tuple[Snapshot, Snapshot]]) -> list[str]:
    """Returns a line about the first named rank whose control group limits it; else no line."""
    for before, after in looks:
        seconds = after.taken - before.taken
        throttled = after.throttled - before.throttled
        if throttled > _THROTTLED * seconds:
            return [
                f"  The CPU quota of its control group has kept rank {after.rank} from running for "
                f"{throttled:.1f} of the last {seconds:.1f} s: it is too small."
            ]
        if after.memory_shortages > before.memory_shortages:
            return [
                f"  The control group of rank {after.rank} is at the limit of its memory, which "
                "makes it slow: raise it, or use less."
            ]
    return []


def _waits(
    waiting: Sequence[int],
    stuck: Mapping[int, Sequence[Collective]],
    ranks: Mapping[int, Snapshot],
) -> list[str]:
    """Returns lines with the collectives of the waiting ranks, one line for each collective."""
    groups: dict[str, list[int]] = {}
    for rank in waiting:
        groups.setdefault(str(stuck[rank][0]), []).append(rank)
    text = []
    for group in list(groups.values())[:_MOST]:
        first = min(group, key=lambda rank: stuck[rank][0].submitted - ranks[rank].taken)
        verb = "waits" if len(group) == 1 else "wait"
        who = _capital(ranks_text(group))
        text.append(f"{who} {verb} for {_since(stuck[first][0], ranks[first])}.")
    more = sum(map(len, list(groups.values())[_MOST:]))
    return [*text, f"{more} more ranks wait for other collectives."] if more else text


def _since(collective: Collective, snapshot: Snapshot) -> str:
    return f"{collective}, for {snapshot.taken - collective.submitted:.1f} s"


def headline(kind: Kind) -> str:
    """Returns the first line of a verdict with this cause."""
    return f"{_capital(kind.value)}."


def _capital(text: str) -> str:
    return text[0].upper() + text[1:]
