"""Autoscaler: decides when and on which hosts an elastic job starts more ranks.

The job starts ranks on hosts with free slots, up to its largest number of ranks; some of them
replace failed ranks. A host on which a rank has failed is tried again after a pause, which doubles
each time. The module is pure, except for the list of hosts that it receives.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from tfhvd.launch.state.hosts import Host

_FORGIVEN = 10  # times the longest pause without a failure: the host then has a clean record
PAUSES = (1.0, 600.0)  # seconds: the first pause, and the longest


# By rank, its host; the number of the next rank; by host, how many ranks have failed there in a row
# and the time of the last failure.
State = tuple[dict[int, str], int, dict[str, tuple[int, float]]]


class Hosts(Protocol):
    """The present hosts."""

    hosts: tuple[Host, ...]

    def tick(self, now: float) -> None:
        """Updates the hosts, if it is time."""

    def close(self) -> None:
        """Ends a running search."""


class Autoscaler:
    """The rule that decides which ranks to start.

    Args:
        found: the present hosts; not owned.
        placed: the hosts of the job's first ranks.
        most: the largest number of ranks at a time; None: as many as the hosts have slots.
        pauses: the first and the longest pause, in seconds, until a host on which a rank has failed
            is tried again.
    """

    def __init__(
        self,
        found: Hosts,
        placed: Iterable[tuple[Host, Iterable[int]]],
        most: int | None,
        pauses: tuple[float, float] = PAUSES,
    ) -> None:
        self._found = found
        self._most = most
        self._pauses = pauses
        self._at = {rank: host.target for host, ranks in placed for rank in ranks}
        self._next = 1 + max(self._at)
        self._failures: dict[str, tuple[int, float]] = {}  # how many in a row; when the last one

    @property
    def state(self) -> State:
        """The state from which another Autoscaler can continue."""
        return dict(self._at), self._next, dict(self._failures)

    def take_up(self, state: State) -> None:
        """Continues from the state of another Autoscaler."""
        self._at, self._next, self._failures = state

    def tick(self, now: float) -> None:
        """Updates the hosts, if it is time."""
        self._found.tick(now)

    def due(self, now: float) -> list[tuple[Host, list[int]]]:
        """Reserves the ranks to start now; returns their hosts and numbers."""
        placed = []
        for host in self._found.hosts:
            used = sum(at == host.target for at in self._at.values())
            room = host.slots - used
            if self._most is not None:
                room = min(room, self._most - len(self._at))
            if room <= 0 or self._pauses_until(host.target) > now:
                continue
            ranks = list(range(self._next, self._next + room))
            self._next += room
            self._at |= dict.fromkeys(ranks, host.target)
            placed.append((host, ranks))
        return placed

    def ended(self, rank: int, now: float, *, failed: bool) -> None:
        """Notes the end of a rank; `failed` begins a pause for its host."""
        host = self._at.pop(rank, None)
        if host is None or not failed:
            return
        count, last = self._failures.get(host, (0, now))
        if now > last + _FORGIVEN * self._pauses[1]:
            count = 0
        self._failures[host] = (count + 1, now)

    def _pauses_until(self, host: str) -> float:
        count, last = self._failures.get(host, (0, 0.0))
        first, longest = self._pauses
        return last + min(longest, first * 2.0 ** min(count - 1, 60)) if count else 0.0
