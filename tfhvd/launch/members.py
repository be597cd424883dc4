"""Who takes part in a job of ranks that meet over TCP. Pure: ranks in, what is said to them out.

In an elastic job ranks may be lost, and the others go on. A rank keeps the number that it was
started with, by which the launcher knows it. In the program the survivors are numbered anew, in
the same order.
"""

from __future__ import annotations

import secrets
from collections.abc import Collection

from tfhvd.launch import wire


class Members:
    """The members of one job.

    Args:
        num_proc: how many ranks are started.
        least: how many must be left for the job to go on; None: all.

    Attributes:
        elastic: whether ranks may be lost.
        lost: the numbers of ranks without which it goes on.
        present: by rank in the program, the numbers of those that take part.
    """

    def __init__(self, num_proc: int, least: int | None = None) -> None:
        self.lost: set[int] = set()
        self.present = list(range(num_proc))
        self._num_proc = num_proc
        self._least = num_proc if least is None else max(1, least)
        self.elastic = least is not None
        self._listens_at: dict[int, str] = {}
        self._generation = 0
        self._over = False

    def listens(self, rank: int, addresses: str) -> bytes | None:
        """Takes note of where a rank listens; returns what all workers are told, once all do."""
        self._listens_at[rank] = addresses
        if len(self._listens_at) < self._num_proc:
            return None
        return wire.frame_json(
            wire.ENDPOINTS,
            addresses=[self._listens_at[each] for each in range(self._num_proc)],
            token=secrets.token_hex(16),
            elastic=self.elastic,
        )

    def end(self, rank: int, present: Collection[int], *, failed: bool) -> bytes | None:
        """Takes note of the end of a rank; it is one of the `lost` where the job goes on.

        Args:
            rank: which has ended.
            present: the ranks that still take part.
            failed: whether it has not come to the end of its program.

        Returns:
            What the others' workers are told, if anything.
        """
        if not self.elastic or self._over:
            return None
        if not failed:
            self._over = True
            line = f"over rank {rank} has come to the end of its program\n"
            return wire.frame_json(wire.MEMBERS, line=line)
        left = sorted(set(present) - {rank})
        if len(left) < self._least or len(self._listens_at) < self._num_proc:
            return None
        self.lost.add(rank)
        self.present = left
        self._generation += 1
        entries = " ".join(f"{number}={self._listens_at[number]}" for number in left)
        line = f"roster {self._generation} {secrets.token_hex(16)} {entries}\n"
        return wire.frame_json(wire.MEMBERS, line=line)
