"""When and where an elastic job starts more ranks: pure but for the hosts that it is told of.

It does where hosts have room, up to the most that the job may have: also in the place of ranks that
are lost. A host on which a rank has failed is tried again after a pause, which doubles each time.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from tfhvd.launch.state.hosts import Host

_FORGIVEN = 10  # times its longest pause: a host that was well for so long has a clean record
PAUSES = (1.0, 600.0)  # seconds: the first, and the longest


# By rank the host that it is on, the next rank's number, and by host how many ranks have failed
# there in a row, and when the last one did.
State = tuple[dict[int, str], int, dict[str, tuple[int, float]]]


class Hosts(Protocol):
    """The hosts that there are now."""

    hosts: tuple[Host, ...]

    def tick(self, now: float) -> None:
        """Looks again, if it is time."""

    def close(self) -> None:
        """Ends what runs."""


class Autoscaler:
    """Which ranks to start.

    Args:
        found: the hosts, whose owner is who has made them.
        placed: where the job's first ranks are.
        most: the most ranks that it may have at a time; None: as many as the hosts have slots.
        pauses: seconds until a host on which a rank has failed is tried again: the first time, and
            at most.
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
        self._failures: dict[str, tuple[int, float]] = {}  # how many in a row, and the last one

    @property
    def state(self) -> State:
        """What it has done until now."""
        return dict(self._at), self._next, dict(self._failures)

    def take_up(self, state: State) -> None:
        """Goes on from what another one has done."""
        self._at, self._next, self._failures = state

    def tick(self, now: float) -> None:
        """Has the hosts looked at again."""
        self._found.tick(now)

    def due(self, now: float) -> list[tuple[Host, list[int]]]:
        """Takes the ranks that are to be started now: where, and their numbers."""
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
        """Takes note of the end of a rank."""
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
