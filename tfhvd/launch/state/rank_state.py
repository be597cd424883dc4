"""The ends of ranks, the rank that failed first, and the lines that report them. Pure."""

from __future__ import annotations

import signal
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field

from tfhvd.launch.state.tensorflow_banner import without_startup_lines
from tfhvd.protocol.exit_codes import STOP_REQUESTED
from tfhvd.system.formatting import ranks_text

_TRACEBACK = "Traceback (most recent call last)"
_WORDS = 10  # lines
_RECENT = 30.0  # seconds; an older traceback belongs to an exception that was handled


@dataclass(frozen=True)
class Ending:
    """The end of a rank's command: exactly one of code, signal, error, or lost."""

    code: int | None = None
    signal: int | None = None
    error: str | None = None  # why the command could not be started
    lost: bool = False  # no report has arrived: its host or its agent has failed
    told: bool = False  # killed because mpirun (not we) ended the job
    stopped: bool = False  # SIGSTOP had stopped it when we killed it: it could not end by itself
    out_of_memory: bool = False  # the kernel has killed it, or another process of its control group
    silent: bool = False  # it took part, and ended with exit code 0 without a goodbye
    doing: str = ""  # one sentence on what the rank was doing

    @property
    def failed(self) -> bool:
        """Whether the end is a failure: not with exit code 0, or `silent`."""
        return self.code != 0 or self.silent

    @property
    def stops(self) -> bool:
        """Whether the program has ended because it was asked to stop."""
        return self.code == STOP_REQUESTED

    @property
    def by_mpirun(self) -> bool:
        """Whether mpirun, not the rank, seems to be the cause."""
        return self.told or self.lost

    @property
    def exit_code(self) -> int:
        """The exit code as in a shell: 128 + N for signal N, 127 if the command could not start."""
        if self.code is not None:
            return self.code or int(self.silent)
        if self.signal is not None:
            return 128 + self.signal
        return 127 if self.error else 1

    def __str__(self) -> str:
        if self.code is not None:
            return f"exit code {self.code}{' without hvd.shutdown()' if self.silent else ''}"
        if self.stopped:
            return "stopped (SIGSTOP), and killed because it did not continue"
        if self.signal is not None:
            whom = " because mpirun ended the job" if self.told else ""
            return f"killed by {signal_name(self.signal)}{whom}"
        return self.error or "lost without a message: its host, its network or its agent failed"


def signal_name(number: int) -> str:
    """Returns the name of a signal: ``signal_name(9) == "SIGKILL"``."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


@dataclass
class Rank:
    """The launcher's knowledge of a rank. Times are of one steady clock, in seconds."""

    rank: int
    host: str
    ending: Ending | None = None
    ended_at: float = 0.0
    raised_at: float | None = None  # when its last traceback that looks uncaught began
    left_at: float | None = None  # when it reported that it leaves the job
    follows: bool = False  # it reported that it leaves because another rank has failed
    last_lines: deque[str] = field(default_factory=lambda: deque(maxlen=200))
    heard_at: float = 0.0  # when it last wrote to stderr
    _partial: str = ""

    def hear(self, text: str, now: float) -> None:
        """Keeps the last lines that the rank writes to stderr."""
        self.heard_at = now
        *lines, self._partial = (self._partial + text)[-(1 << 16) :].split("\n")
        for line in lines:
            line = line.rstrip("\r").rsplit("\r", 1)[-1]
            if line.startswith(_TRACEBACK):
                self.raised_at = now
            if line.strip():
                self.last_lines.append(line)

    def leave(self, now: float, *, follows: bool) -> None:
        """Records that the rank leaves the job; ``follows``: because another rank has failed."""
        self.left_at, self.follows = now, follows

    def end(self, ending: Ending, now: float, stopped_at: float | None = None) -> None:
        """Records the end; the first one counts. ``stopped_at``: see first_failure."""
        if self.ending is not None:
            return
        if self._partial:
            self.hear("\n", self.heard_at)
        if self.raised_at is not None and self.raised_at < (stopped_at or now) - _RECENT:
            self.raised_at = None
        ended_by_us = ending.signal is not None and stopped_at is not None and not ending.stopped
        if ended_by_us and self.raised_at is not None:
            ending = Ending(code=1)  # the rank raised, and then hung before its exit
        self.ending, self.ended_at = ending, now

    def said_at_once(self) -> list[str]:
        """Returns the line about a killed rank, to print before the others end, seconds later."""
        if self.ending is None or self.ending.signal is None or self.ending.told:
            return []
        return [f"tfhvdrun: {_who(self)}: {_how(self.ending)}; the job ends"]

    def halted(self, pid: int, lasted: float | None) -> str:
        """Returns the line to print when SIGSTOP has stopped the rank, or when it continues.

        Args:
            pid: the id of the stopped process on its host.
            lasted: how many seconds the rank was stopped; None if it is stopped now.
        """
        if lasted is not None:
            return f"tfhvdrun: {_who(self)} continues; it was stopped for about {round(lasted)} s"
        return (
            f"tfhvdrun: {_who(self)} is stopped (SIGSTOP), and the other ranks wait for it; to let "
            f"it continue, type on that host: kill -CONT {pid}"
        )

    @property
    def failed_at(self) -> float:
        """The time of the failure; an exception counts, not the exit, which may take a while."""
        if self.ending is None or self.ending.code is None:
            return self.ended_at
        # The rank's own report comes first: a traceback may belong to a handled exception.
        known = (at for at in (self.left_at, self.raised_at) if at is not None)
        return next(known, self.ended_at)


def first_failure(ranks: Iterable[Rank], stopped_at: float | None = None) -> Rank | None:
    """Returns the rank that failed first, or None.

    Args:
        ranks: all known ranks.
        stopped_at: when the launcher began to end the other ranks because of a failure. A rank that
            a signal ended after this time has not failed.
    """
    failed = [rank for rank in ranks if rank.ending is not None and rank.ending.failed]
    if stopped_at is not None:
        own = [rank for rank in failed if rank.ended_at < stopped_at or _by_itself(rank.ending)]
        failed = own or failed
    return min(failed, key=_order, default=None)


def _order(rank: Rank) -> tuple[int, float]:
    """Returns a sort key: causes before their consequences, then the earliest first.

    A rank that hangs because SIGSTOP has stopped it makes the others fail long before it ends.
    Among ranks that mpirun ended, or that ended without a report, the rank that wrote to stderr
    last knows most.
    """
    assert rank.ending is not None
    if rank.ending.stopped:
        return 0, rank.ended_at
    if rank.ending.by_mpirun:
        return 2, -rank.heard_at
    return (3 if rank.follows else 1), rank.failed_at


def _by_itself(ending: Ending | None) -> bool:
    return ending is not None and (ending.code is not None or ending.stopped or ending.lost)


def last_lines_of(lines: Iterable[str]) -> list[str]:
    """Returns the last lines of a rank's stderr, or the end of its traceback and the lines after.

    The result contains neither the start-up lines of TensorFlow, nor the stack that TensorFlow's
    errors quote before they report what has happened.

    Example: ``last_lines_of(["a", "b"]) == ["a", "b"]``
    """
    kept = without_startup_lines(lines)
    start = max((at for at, line in enumerate(kept) if line.startswith(_TRACEBACK)), default=None)
    if start is None or len(kept) - start <= _WORDS:
        return kept[-_WORDS:]
    said = start + 1  # the first line behind the traceback that is not indented: the exception
    # Python 3.11 does not indent the carets below some lines.
    while said < len(kept) - 1 and (kept[said][0] in " \t" or not kept[said].strip("^~ ")):
        said += 1
    kept[said:] = [line for line in kept[said:] if not line.startswith('  File "')]
    first = max(start, min(said - _WORDS // 2, len(kept) - _WORDS))
    return kept[first : first + _WORDS]


def _ended_well_before(rank: Rank, at: float) -> bool:
    if rank.ending is None or rank.ending.failed:
        return False
    return (rank.ended_at if rank.left_at is None else rank.left_at) < at


def _how(ending: Ending) -> str:
    if ending.signal != signal.SIGKILL or ending.stopped:
        return str(ending)
    killer = "by a user, or by the kernel because memory ran out"
    if ending.out_of_memory:
        killer = "by the kernel, because its control group has run out of memory"
    return f"{ending} ({killer})"


def report(rank: Rank, ranks: Iterable[Rank] = ()) -> list[str]:
    """Returns the last lines that tfhvdrun prints about a failed job.

    Args:
        rank: the rank that failed first.
        ranks: all ranks. A rank that had ended its program before may be the cause of the failure.
    """
    assert rank.ending is not None
    lines = [f"tfhvdrun: {_who(rank)} failed first: {_how(rank.ending)}"]
    early = [other.rank for other in ranks if _ended_well_before(other, rank.failed_at)]
    if early and not rank.ending.silent:
        lines.append(f"tfhvdrun: {ranks_text(early)} had already ended with exit code 0")
    return [*lines, *_last_deeds(rank, rank.ending)]


def report_loss(rank: Rank, left: int, of: int, *, took_part: bool = True) -> list[str]:
    """Returns the lines that tfhvdrun prints about a failed rank without which the job continues.

    Args:
        rank: the failed rank.
        left: how many ranks continue.
        of: the largest number of ranks so far.
        took_part: whether the failed rank had been admitted.
    """
    assert rank.ending is not None
    goes_on = f"the job continues with {left} of {of} ranks"
    if not took_part:
        goes_on = "it had not joined yet; the job continues"
    line = f"tfhvdrun: {_who(rank)}: {_how(rank.ending)}; {goes_on}"
    return [line, *_last_deeds(rank, rank.ending)]


def _who(rank: Rank) -> str:
    return f"rank {rank.rank} on host {rank.host}"


def _last_deeds(rank: Rank, ending: Ending) -> list[str]:
    """Returns lines on what the rank was doing, and its last output."""
    lines = []
    if ending.silent:
        lines.append(
            "tfhvdrun: its process ended early, by os._exit or in a library, and the others would "
            "have waited for it: let the program reach its end, or call hvd.shutdown()"
        )
    words = last_lines_of(rank.last_lines)
    if ending.doing and not any(word.startswith(_TRACEBACK) for word in words):
        lines.append(f"tfhvdrun: {ending.doing[0].lower()}{ending.doing[1:]}")
    if words:
        lines += ["tfhvdrun: its last lines:", *(f"    {word}" for word in words)]
    elif ending.error is None:
        but = " except TensorFlow's startup lines" if rank.last_lines else ""
        lines.append(f"tfhvdrun: it wrote nothing to stderr{but}")
    return lines
