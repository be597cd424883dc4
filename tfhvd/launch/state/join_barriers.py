"""The barriers that joining ranks call before they are admitted. Pure.

A joining rank does not wait for members at a barrier: they have passed it. It waits for the other
joining ranks of its host, because one of them may do something first that all need, such as
downloading data.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping


class JoinBarriers:
    """The number of barriers that each joining rank has reached.

    Attributes:
        waiting: the ranks that are still at their last barrier.
    """

    def __init__(self) -> None:
        self.waiting: set[int] = set()
        self._at: dict[int, int] = {}

    def come(self, rank: int, number: int) -> None:
        """Note that a rank waits at its barrier of this number, from 1."""
        self._at[rank] = number
        self.waiting.add(rank)

    def due(self, hosts: Mapping[int, str], settled: Collection[int]) -> dict[int, int]:
        """Remove and return the ranks that may continue: their host has no rank before the barrier.

        Args:
            hosts: the host of each running rank that is not a member, by number.
            settled: the ranks among them that call no more barriers before they are admitted.

        Returns:
            The number of its barrier, for each rank that may continue.
        """
        due = {
            rank: self._at[rank]
            for rank in self.waiting
            if all(
                self._at.get(other, 0) >= self._at[rank]
                for other, host in hosts.items()
                if host == hosts.get(rank) and other not in settled
            )
        }
        self.waiting -= due.keys()
        return due
