"""All that the probes have found out, as one value; and how ranks and hosts are named in a line."""

from __future__ import annotations

import collections
import dataclasses
from collections.abc import Iterable, Mapping, Sequence

from tfhvd.system.formatting import ranks_text
from tfhvd.tools.doctor.link import Measured
from tfhvd.tools.facts import Facts

_MOST_NAMED = 4  # hosts in a line


@dataclasses.dataclass(frozen=True)
class Link:
    """What was measured between two hosts, or within one.

    Attributes:
        first: the name of the host that measured.
        second: the name of the other host; the same name if two ranks of one host measured.
        measured: the result, while others measured, too; "up" is from the first to the second.
        again: that of a second measurement, alone; None if there was none.
        doubtful: whether there should have been one, and was no time for it.
    """

    first: str
    second: str
    measured: Measured
    again: Measured | None = None
    doubtful: bool = False

    @property
    def best(self) -> Measured:
        """The best of both measurements: what disturbs a link only makes it worse."""
        one, other = self.measured, self.again
        if other is None or other.error:
            return one
        if one.error:
            return other
        return dataclasses.replace(
            other,
            round_trip=min(one.round_trip, other.round_trip),
            up=max(one.up, other.up),
            down=max(one.down, other.down),
        )


@dataclasses.dataclass(frozen=True)
class Clock:
    """A host's clock compared with that of the doctor's machine.

    Attributes:
        host: its name.
        ahead: seconds.
        error: seconds by which that may be wrong, at most.
    """

    host: str
    ahead: float
    error: float


@dataclasses.dataclass(frozen=True)
class Survey:
    """What was found out.

    Attributes:
        facts: by rank.
        links: of the hosts.
        unmeasured: pairs of hosts for which there was no time.
        clocks: of the hosts.
        meeting: by rank, what went wrong when the ranks met as those of a job do; "" for nothing;
            None if it was not tried.
        warnings: what the engine said meanwhile.
        nics: the interfaces that the user has named.
    """

    facts: Mapping[int, Facts]
    links: Sequence[Link] = ()
    unmeasured: int = 0
    clocks: Sequence[Clock] = ()
    meeting: Mapping[int, str] | None = None
    warnings: Sequence[str] = ()
    nics: Sequence[str] = ()


def ranks_by_host(facts: Mapping[int, Facts]) -> dict[str, list[int]]:
    """Returns the ranks of each host, by its name; that of two hosts of one name has a number.

    Example:
        >>> facts = {rank: Facts(host="a", machine_id=f"a {rank}") for rank in range(2)}
        >>> ranks_by_host(facts)
        {'a': [0], 'a#2': [1]}
    """
    names: dict[str, str] = {}
    taken: collections.Counter[str] = collections.Counter()
    ranks: dict[str, list[int]] = {}
    for rank, each in sorted(facts.items()):
        if each.machine_id not in names:
            taken[each.host] += 1
            count = taken[each.host]
            names[each.machine_id] = each.host if count == 1 else f"{each.host}#{count}"
        ranks.setdefault(names[each.machine_id], []).append(rank)
    return ranks


def hosts_text(hosts: Sequence[str]) -> str:
    """Returns the names of hosts, in words; of many the first few.

    Example:
        >>> hosts_text(["a", "b"])
        'hosts a, b'
    """
    named = ", ".join(hosts[:_MOST_NAMED]) + (", ..." if len(hosts) > _MOST_NAMED else "")
    return f"{'host' if len(hosts) == 1 else 'hosts'} {named}"


def where(facts: Mapping[int, Facts], ranks: Iterable[int]) -> str:
    """Returns ranks with their hosts, in words.

    Example:
        >>> where({3: Facts(host="b", machine_id="b")}, [3])
        'rank 3 (host b)'
    """
    wanted = set(ranks)
    hosts = [host for host, theirs in ranks_by_host(facts).items() if wanted & set(theirs)]
    return f"{ranks_text(wanted)} ({hosts_text(hosts)})"
