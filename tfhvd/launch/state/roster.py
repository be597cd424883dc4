"""The members of a job whose ranks connect over TCP. Pure: events in, messages out.

In an elastic job members may fail, and other ranks may join: a joining rank waits until all members
have reached a point of the program at which they admit joining ranks. The launcher identifies a
rank by its start number, which never changes. In the program the members are numbered from 0, in
the order of their start numbers; so a rank that joins is last.
"""

from __future__ import annotations

import secrets
from collections.abc import Collection, Mapping

from tfhvd.protocol import messages
from tfhvd.protocol.messages import FrameKind


class Roster:
    """The members of one job.

    Args:
        num_proc: the number of ranks that the job starts with.
        least: the smallest number of members to continue with; None: all.
        most_changes: the largest number of membership changes; None: no limit.

    Attributes:
        elastic: whether members may fail.
        lost: the numbers of the ranks that have failed.
        present: the numbers of the members, in the order of their ranks in the program.
        waiting: the numbers of the ranks that are ready to be admitted.
        most: the largest number of members so far.
        beginning: the REPLAY_LOG for joining ranks, with the calls of the members before they
            trained; b"" before training.
    """

    def __init__(
        self, num_proc: int, least: int | None = None, most_changes: int | None = None
    ) -> None:
        self.lost: set[int] = set()
        self.present = list(range(num_proc))
        self.waiting: list[int] = []
        self.most = num_proc
        self.beginning = b""
        self._trained = -1  # the number of trainings before the members' present one
        self._trained_by: dict[int, int] = {}  # the same before the training a rank waits for
        self._num_proc = num_proc
        self._least = num_proc if least is None else max(1, least)
        self._most_changes = most_changes
        self.elastic = least is not None
        self._listens_at: dict[int, str] = {}
        self._identity = ""
        self._met: set[int] = set()
        self._salt = secrets.token_hex(16)  # for the token of the ranks that start with the job
        self._generation = 0
        self._admitted = 0
        self._newest = ""  # the line that told the members of this generation
        self._over = False
        self._end = ""  # the line that told the members of the end

    @property
    def may_change(self) -> bool:
        """Whether the members may still change."""
        limit = self._most_changes
        return self.elastic and not self._over and (limit is None or self._generation < limit)

    @property
    def complete(self) -> bool:
        """Whether all ranks that the job started with are connected."""
        return len(self._met) == self._num_proc

    def listens(self, rank: int, addresses: str) -> bytes | None:
        """Note a rank's addresses; return the message for all agents when all ranks have some."""
        self._listens_at[rank] = addresses
        if len(self._listens_at) < self._num_proc:
            return None
        return messages.frame_json(
            FrameKind.ENDPOINTS,
            addresses=[self._listens_at[each] for each in range(self._num_proc)],
            salt=self._salt,
            elastic=self.elastic,
        )

    def comes(self, rank: int, addresses: str, hosts: Mapping[int, str]) -> bytes:
        """Note the addresses of a joining rank.

        Args:
            rank: its number.
            addresses: the addresses at which it listens.
            hosts: by number, the host of each running rank, including this one.

        Returns:
            The messages for its agent, with its rank if all ranks that join now are admitted.
        """
        self._listens_at[rank] = addresses
        order = [*self.present, *sorted(set(hosts) - set(self.present))]
        return (
            messages.frame_json(
                FrameKind.ENDPOINTS,
                addresses=[],
                salt="",
                elastic=True,
                hosts=[hosts.get(number, "") for number in order],
                place=order.index(rank),
            )
            + self.beginning
        )

    def ready(self, rank: int, identity: str, trained: int = 0) -> bytes | None:
        """Note that a rank is connected to the others, or is ready to be admitted.

        A rank that waits for a finished training is not admitted: a message about the end of this
        training is on its way to the rank.

        Args:
            rank: its number.
            identity: a text that must be equal on all ranks.
            trained: the number of trainings that the program has finished on this rank.

        Returns:
            The message for all agents, if any.

        Raises:
            ValueError: if a joining rank cannot be admitted; with the reason.
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
        """Note that a rank trains; return the messages for all agents if it is the first to do so.

        Ranks that wait for an earlier training stop waiting, and continue to this training.

        Args:
            results: see rank_channel.Sender.begun.
            trained: see rank_channel.Sender.begun.
        """
        if trained <= self._trained or not self.elastic:
            return None
        self._trained = trained
        self.beginning = messages.frame_json(FrameKind.REPLAY_LOG, results=results, trained=trained)
        still = [rank for rank in self.waiting if self._trained_by[rank] >= trained]
        if still == self.waiting:
            return self.beginning
        self.waiting = still
        return self.beginning + self._how_many_wait()

    def let_in(self, admitted: int) -> bytes | None:
        """Admit the waiting ranks: all members are at one point of the program.

        Args:
            admitted: the generation of the last admission.

        Returns:
            The messages for all agents; None if the ranks have been admitted already.
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
        """Note the end of a rank; if the job continues, the rank is added to `lost`.

        Args:
            rank: its number.
            left: the ranks that run and are not about to leave.
            failed: whether it did not reach the end of its program.

        Returns:
            The message for the agents of the others, if any.
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
            self._end = f"over rank {rank} has reached the end of its program\n"
            return self._told_of(self._end)
        survivors = [each for each in self.present if each in left and each != rank]
        all_listen = len(self._listens_at) >= self._num_proc
        if len(survivors) < self._least or not all_listen or not self.may_change:
            return None
        self.lost.add(rank)
        self.present = survivors
        return self._roster()

    def comes_again(self, rank: int, addresses: str, line: str) -> bytes:
        """Take over an agent's roster from the last launcher; it may be newer than this one.

        Args:
            rank: the number of the agent's rank.
            addresses: the addresses at which the rank listens.
            line: the last roster that the agent has received; "" for none.

        Returns:
            The messages for all agents, which may have received some of them before.
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
        return messages.frame_json(FrameKind.ROSTER, line=line)

    def _how_many_wait(self) -> bytes:
        return self._told_of(f"waiting {len(self.waiting)}\n")
