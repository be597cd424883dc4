"""The barriers of ranks that are not let in yet. Pure: who has come where in, who may go on out.

No rank that trains is waited for at a barrier which one that comes later calls: they have been
there. But what another one does first that comes to the same host, such as to download data, it may
need.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping


class Barriers:
    """How many barriers each rank that is outside has come to.

    Attributes:
        waiting: the ranks that have not gone on from their last one.
    """

    def __init__(self) -> None:
        self.waiting: set[int] = set()
        self._at: dict[int, int] = {}

    def come(self, rank: int, number: int) -> None:
        """Takes note that a rank waits at its barrier of this number, from 1."""
        self._at[rank] = number
        self.waiting.add(rank)

    def due(self, hosts: Mapping[int, str], settled: Collection[int]) -> dict[int, int]:
        """Takes those who may go on: no other rank of their host is on its way to that barrier.

        Args:
            hosts: of the ranks that run and are outside, by their numbers.
            settled: those of them that come to no barrier before they are let in.

        Returns:
            The number of the barrier, for each rank.
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
