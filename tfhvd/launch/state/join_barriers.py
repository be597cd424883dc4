"""The barriers that joining ranks call before they are admitted. Pure.

At a barrier a joining rank does not wait for members, which have passed the barrier before. It
waits for the other joining ranks on its host, because one of them may first do something that all
need, such as downloading data.
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
        """Remove and return the ranks that may continue: no rank on their host is behind them.

        Args:
            hosts: by number, the host of each running rank that is not a member.
            settled: the ranks among them that call no more barriers before they are admitted.

        Returns:
            By rank that may continue, the number of its barrier.
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
