"""Who takes part in a job of ranks that meet over TCP. Pure: ranks in, what is said to them out.

In an elastic job ranks may be lost, and others may come: they wait until all members have come to
one point of the program, and let them in. A rank keeps the number that it was started with, by
which the launcher knows it. In the program the members are numbered anew, in the order of these
numbers: who comes is last.
"""

from __future__ import annotations

import secrets
from collections.abc import Collection, Mapping

from tfhvd.launch import wire


class Members:
    """The members of one job.

    Args:
        num_proc: how many ranks are started with it.
        least: how many must be left for the job to go on; None: all.
        most_changes: how often its members may change; None: as often as they do.

    Attributes:
        elastic: whether ranks may be lost.
        lost: the numbers of ranks without which it goes on.
        present: by rank in the program, the numbers of those that take part.
        waiting: the numbers of those that are ready to be let in.
        most: how many there were at most.
        beginning: what is said to those that come later of what the others have got alike before
            the training that they are in; b"" until these train.
    """

    def __init__(
        self, num_proc: int, least: int | None = None, most_changes: int | None = None
    ) -> None:
        self.lost: set[int] = set()
        self.present = list(range(num_proc))
        self.waiting: list[int] = []
        self.most = num_proc
        self.beginning = b""
        self._trained = -1  # trainings before the one that the members are in
        self._trained_by: dict[int, int] = {}  # and before the one for which a rank waits
        self._num_proc = num_proc
        self._least = num_proc if least is None else max(1, least)
        self._most_changes = most_changes
        self.elastic = least is not None
        self._listens_at: dict[int, str] = {}
        self._identity = ""
        self._met: set[int] = set()
        self._salt = secrets.token_hex(16)  # of the token of those that are started with the job
        self._generation = 0
        self._admitted = 0
        self._newest = ""  # the line by which members were told of this generation
        self._over = False
        self._end = ""  # the line by which they were told that it is

    @property
    def may_change(self) -> bool:
        """Whether ranks may still be lost, or come."""
        limit = self._most_changes
        return self.elastic and not self._over and (limit is None or self._generation < limit)

    @property
    def complete(self) -> bool:
        """Whether all ranks that the job was started with have met."""
        return len(self._met) == self._num_proc

    def listens(self, rank: int, addresses: str) -> bytes | None:
        """Takes note of where a rank listens; returns what all workers are told, once all do."""
        self._listens_at[rank] = addresses
        if len(self._listens_at) < self._num_proc:
            return None
        return wire.frame_json(
            wire.ENDPOINTS,
            addresses=[self._listens_at[each] for each in range(self._num_proc)],
            salt=self._salt,
            elastic=self.elastic,
        )

    def comes(self, rank: int, addresses: str, hosts: Mapping[int, str]) -> bytes:
        """Takes note of where a rank that comes later listens.

        Args:
            rank: its number.
            addresses: where it listens.
            hosts: those of all ranks that run, its own among them, by their numbers.

        Returns:
            What its worker is told: also its place, if all that come now are let in.
        """
        self._listens_at[rank] = addresses
        order = [*self.present, *sorted(set(hosts) - set(self.present))]
        return (
            wire.frame_json(
                wire.ENDPOINTS,
                addresses=[],
                salt="",
                elastic=True,
                hosts=[hosts.get(number, "") for number in order],
                place=order.index(rank),
            )
            + self.beginning
        )

    def ready(self, rank: int, identity: str, trained: int = 0) -> bytes | None:
        """Takes note that a rank has met the others, or is ready to be let in.

        One that waits for a training which is over knows that, or is about to.

        Args:
            rank: its number.
            identity: what must be the same on all ranks.
            trained: how many trainings of the program are behind it.

        Returns:
            What all workers are told, if anything.

        Raises:
            ValueError: if it comes later and cannot take part; why.
        """
        if rank in self.present:
            self._met.add(rank)
            self._identity = self._identity or identity
            return None
        if identity != self._identity:
            raise ValueError(f"it has {identity}, and the job {self._identity}")
        if not self.may_change or rank in self.waiting or trained < self._trained:
            return None
        self.waiting.append(rank)
        self._trained_by[rank] = trained
        return self._how_many_wait()

    def begun(self, results: object, trained: int) -> bytes | None:
        """Takes note that a rank trains; returns what all workers are told, if it is the first.

        Who waits for a training before that one does not any more: it goes on to this one.

        Args:
            results: see notice.Sender.begun.
            trained: likewise.
        """
        if trained <= self._trained or not self.elastic:
            return None
        self._trained = trained
        self.beginning = wire.frame_json(wire.BEGUN, results=results, trained=trained)
        still = [rank for rank in self.waiting if self._trained_by[rank] >= trained]
        if still == self.waiting:
            return self.beginning
        self.waiting = still
        return self.beginning + self._how_many_wait()

    def let_in(self, admitted: int) -> bytes | None:
        """All members are at one point of the program, and let in those that wait.

        Args:
            admitted: the generation for which they have last done so.

        Returns:
            What all workers are told; None where that has been done already.
        """
        if admitted != self._admitted or not self.elastic or self._over:
            return None
        if self.may_change:
            self.present = [*self.present, *sorted(self.waiting)]
            self.most = max(self.most, len(self.present))
            self.waiting = []
        self._admitted = self._generation + 1
        return self._roster() + self._how_many_wait()

    def end(self, rank: int, left: Collection[int], *, failed: bool) -> bytes | None:
        """Takes note of the end of a rank; it is one of the `lost` where the job goes on.

        Args:
            rank: which has ended.
            left: the ranks that have not, and do not leave.
            failed: whether it has not come to the end of its program.

        Returns:
            What the others' workers are told, if anything.
        """
        if not self.elastic or self._over:
            return None
        if rank not in self.present:
            self.lost.add(rank)
            if rank not in self.waiting:
                return None
            self.waiting.remove(rank)
            return self._how_many_wait()
        if not failed:
            self._over = True
            self._end = f"over rank {rank} has come to the end of its program\n"
            return self._told_of(self._end)
        survivors = [each for each in self.present if each in left and each != rank]
        all_listen = len(self._listens_at) >= self._num_proc
        if len(survivors) < self._least or not all_listen or not self.may_change:
            return None
        self.lost.add(rank)
        self.present = survivors
        return self._roster()

    def comes_again(self, rank: int, addresses: str, line: str) -> bytes:
        """A worker comes from a launcher that is gone, which may have told it more than we know.

        Args:
            rank: its rank's number.
            addresses: where that listens.
            line: the roster that it was told last; "" for none.

        Returns:
            What all workers are told: again, if need be.
        """
        self._listens_at[rank] = addresses
        told = 0
        if line:
            _, generation, admitted, _, *entries = line.split()
            told = int(generation)
            if told > self._generation:
                pairs = [entry.partition("=") for entry in entries]
                self._listens_at |= {int(number): at for number, _, at in pairs}
                present = [int(number) for number, _, _ in pairs]
                self.lost |= set(self.present) - set(present)
                self.waiting = [each for each in self.waiting if each not in present]
                self.present = present
                self.most = max(self.most, len(present))
                self._generation, self._admitted, self._newest = told, int(admitted), line
        newest = b"" if told == self._generation else self._told_of(self._newest)
        last = self._told_of(self._end) if self._over else self._how_many_wait()
        return newest + self.beginning + last

    def _roster(self) -> bytes:
        self._generation += 1
        entries = " ".join(f"{number}={self._listens_at[number]}" for number in self.present)
        head = f"roster {self._generation} {self._admitted} {secrets.token_hex(16)}"
        self._newest = f"{head} {entries}\n"
        return self._told_of(self._newest)

    def _told_of(self, line: str) -> bytes:
        return wire.frame_json(wire.MEMBERS, line=line)

    def _how_many_wait(self) -> bytes:
        return self._told_of(f"waiting {len(self.waiting)}\n")
