"""Which part of an elastic job goes on where it falls in two: one of them at most. Pure.

A supervisor goes on with half of the ranks or more: of every roster by which somebody else may
judge, the last one that all of its members are known to have, and those that were told since.
Whoever takes the place of a supervisor that is lost needs more than half, of the newest roster that
any rank has which comes to it. So two parts that went on would have a rank in common, and a rank
follows one supervisor.
"""

from __future__ import annotations

from collections.abc import Collection


class Majority:
    """What the members of one job are known to know of each other.

    Args:
        present: the members, by number, where all of them know that they are.

    Attributes:
        version: of what they were told last.
    """

    def __init__(self, present: Collection[int]) -> None:
        self.version = 0
        self._agreed = frozenset(present)
        self._told: dict[int, frozenset[int]] = {}  # by version, what not all are known to know
        self._knows: dict[int, int] = {}  # by rank, the latest version
        self._ended: set[int] = set()

    def tell(self, present: Collection[int]) -> int:
        """The members are told of each other again; returns the version that this is."""
        self.version += 1
        self._told[self.version] = frozenset(present)
        return self.version

    def knows(self, rank: int, version: int) -> None:
        """Takes note of what a rank's worker has."""
        self._knows[rank] = max(version, self._knows.get(rank, 0))
        for each in sorted(self._told):
            running = self._told[each] - self._ended
            if all(self._knows.get(member, 0) >= each for member in running):
                self._agreed = self._told[each]
                self._told = {later: told for later, told in self._told.items() if later > each}

    def ended(self, rank: int) -> None:
        """A rank is known to have ended, not only to have been lost: it is of no part."""
        self._ended.add(rank)

    def holds(self, left: Collection[int], present: Collection[int]) -> bool:
        """Whether the job may go on with those that are left.

        Args:
            left: the ranks, by number.
            present: the members until now.
        """
        rosters = (self._agreed, *self._told.values(), frozenset(present))
        return all(_has_half(left, roster - self._ended) for roster in rosters)


def has_most(some: Collection[int], present: Collection[int]) -> bool:
    """Whether these are more than half of the members."""
    return 2 * len(set(present).intersection(some)) > len(present)


def _has_half(some: Collection[int], of: Collection[int]) -> bool:
    return 2 * len(set(of).intersection(some)) >= len(of)
