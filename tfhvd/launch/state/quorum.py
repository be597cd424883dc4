"""Quorum: decides which part of a partitioned elastic job continues; at most one does. Pure.

The present supervisor continues only with at least half of the members of each roster that another
supervisor may use for its decision: the last roster which all of its members are known to have, and
every later roster. A supervisor that takes over needs more than half of the members of the newest
roster that its ranks have. So two parts that both continue would share a rank, which is impossible,
because a rank follows one supervisor.
"""

from __future__ import annotations

from collections.abc import Collection

# Seconds until a supervisor continues without the missing ranks, or ends without a quorum.
_COME_BY, _GIVE_UP = 2.0, 10.0


class Quorum:
    """Which rosters the members of a job have, as far as the supervisor knows.

    Args:
        present: the numbers of the members; all of them have this roster.

    Attributes:
        version: the version of the last roster that was sent.
    """

    def __init__(self, present: Collection[int]) -> None:
        self.version = 0
        self._agreed = frozenset(present)
        self._told: dict[int, frozenset[int]] = {}  # by version, rosters that some members may lack
        self._knows: dict[int, int] = {}  # by rank, the latest version that its agent has
        self._ended: set[int] = set()

    def tell(self, present: Collection[int]) -> int:
        """Note that a roster is sent to its members; return its version."""
        self.version += 1
        self._told[self.version] = frozenset(present)
        return self.version

    def knows(self, rank: int, version: int) -> None:
        """Note that a rank's agent has this version."""
        self._knows[rank] = max(version, self._knows.get(rank, 0))
        for each in sorted(self._told):
            running = self._told[each] - self._ended
            if all(self._knows.get(member, 0) >= each for member in running):
                self._agreed = self._told[each]
                self._told = {later: told for later, told in self._told.items() if later > each}

    def ended(self, rank: int) -> None:
        """Note that a rank has certainly ended: it cannot be in another part."""
        self._ended.add(rank)

    def holds(self, left: Collection[int], present: Collection[int]) -> bool:
        """Return whether the job may continue with the ranks that are left.

        Args:
            left: their numbers.
            present: the numbers of the members until now.
        """
        rosters = (self._agreed, *self._told.values(), frozenset(present))
        return all(_has_half(left, roster - self._ended) for roster in rosters)


class TakeoverClaim:
    """The claim of a supervisor that takes over from another host to continue the job.

    Args:
        awaited: the numbers of the ranks whose agents may connect.
        now: seconds of a steady clock.
    """

    def __init__(self, awaited: Collection[int], now: float) -> None:
        self._awaited = frozenset(awaited)
        self._began = now

    def stands(self, came: Collection[int], present: Collection[int], now: float) -> bool | None:
        """Return whether the job continues here; None: undecided.

        Args:
            came: the numbers of the ranks whose agents have connected.
            present: the members of the newest roster that any of them has.
            now: seconds of a steady clock.
        """
        all_came = self._awaited.issubset(came)
        if has_most(came, present) and (all_came or now >= self._began + _COME_BY):
            return True
        return False if now >= self._began + _GIVE_UP else None


def has_most(some: Collection[int], present: Collection[int]) -> bool:
    """Return whether these are more than half of the members."""
    return 2 * len(set(present).intersection(some)) > len(present)


def _has_half(some: Collection[int], of: Collection[int]) -> bool:
    return 2 * len(set(of).intersection(some)) >= len(of)
