"""How ranks end, which of them failed first, and what to say of it. Pure."""

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
_RECENT = 30.0  # seconds; a traceback older than that was of an exception that was handled


@dataclass(frozen=True)
class Ending:
    """The end of a rank's command: exactly one of code, signal, error, or lost."""

    code: int | None = None
    signal: int | None = None
    error: str | None = None  # why the command could not be started
    lost: bool = False  # gone without a word: its host, or the process around it
    told: bool = False  # killed because mpirun (not we) ended the job
    stopped: bool = False  # SIGSTOP had stopped it when we killed it: it could not end by itself
    out_of_memory: bool = False  # the kernel has killed it, or another process of its control group
    silent: bool = False  # it took part, and ended with exit code 0 without a goodbye
    doing: str = ""  # what it was doing, in one sentence

    @property
    def failed(self) -> bool:
        """Whether it is anything but the end of a program that has said goodbye to the others."""
        return self.code != 0 or self.silent

    @property
    def stops(self) -> bool:
        """Whether it is that of a program which stops because it was asked to."""
        return self.code == STOP_REQUESTED

    @property
    def by_mpirun(self) -> bool:
        """Whether mpirun, not the rank, seems to be the cause."""
        return self.told or self.lost

    @property
    def exit_code(self) -> int:
        """As a shell has it: 128 + N for signal N, 127 where the command could not start."""
        if self.code is not None:
            return self.code or int(self.silent)
        if self.signal is not None:
            return 128 + self.signal
        return 127 if self.error else 1

    def __str__(self) -> str:
        if self.code is not None:
            return f"exit code {self.code}{' without hvd.shutdown()' if self.silent else ''}"
        if self.stopped:
            return "stopped (SIGSTOP), and killed because it did not go on"
        if self.signal is not None:
            whom = " because mpirun ended the job" if self.told else ""
            return f"killed by {signal_name(self.signal)}{whom}"
        return self.error or "lost without a message: its host, its network or its agent failed"


def signal_name(number: int) -> str:
    """``signal_name(9) == "SIGKILL"``."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


@dataclass
class Rank:
    """What the launcher knows of a rank. Times are of one steady clock, in seconds."""

    rank: int
    host: str
    ending: Ending | None = None
    ended_at: float = 0.0
    raised_at: float | None = None  # when its last uncaught-looking traceback began
    left_at: float | None = None  # when it said that it leaves the job
    follows: bool = False  # it said that it leaves because another rank has failed
    last_lines: deque[str] = field(default_factory=lambda: deque(maxlen=200))
    heard_at: float = 0.0  # when it last wrote to stderr
    _partial: str = ""

    def hear(self, text: str, now: float) -> None:
        """Keeps the end of what the rank writes to stderr."""
        self.heard_at = now
        *lines, self._partial = (self._partial + text)[-(1 << 16) :].split("\n")
        for line in lines:
            line = line.rstrip("\r").rsplit("\r", 1)[-1]
            if line.startswith(_TRACEBACK):
                self.raised_at = now
            if line.strip():
                self.last_lines.append(line)

    def leave(self, now: float, *, follows: bool) -> None:
        """Records that it leaves the job; ``follows``: because another rank has failed."""
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
            ending = Ending(code=1)  # It raised, and hung on its way out.
        self.ending, self.ended_at = ending, now

    def said_at_once(self) -> list[str]:
        """What is said as soon as it has been killed: the others take seconds to end."""
        if self.ending is None or self.ending.signal is None or self.ending.told:
            return []
        return [f"tfhvdrun: {_who(self)}: {_how(self.ending)}; the job ends"]

    def halted(self, pid: int, lasted: float | None) -> str:
        """What is said where a signal has stopped it, or where it goes on.

        Args:
            pid: the process that is stopped, by its number on its host.
            lasted: for how many seconds it was stopped; None: it is.
        """
        if lasted is not None:
            return f"tfhvdrun: {_who(self)} continues; it was stopped for about {round(lasted)} s"
        return (
            f"tfhvdrun: {_who(self)} is stopped (SIGSTOP), and the other ranks wait for it; to let "
            f"it continue, type on that host: kill -CONT {pid}"
        )

    @property
    def failed_at(self) -> float:
        """When things went wrong: an exception comes before the exit, which may take a while."""
        if self.ending is None or self.ending.code is None:
            return self.ended_at
        # Of the two the rank's own word is better: a traceback may be of a handled exception.
        known = (at for at in (self.left_at, self.raised_at) if at is not None)
        return next(known, self.ended_at)


def first_failure(ranks: Iterable[Rank], stopped_at: float | None = None) -> Rank | None:
    """The rank that failed first, or None.

    Args:
        ranks: all that are known.
        stopped_at: when the others were ended because of a failure; who ended by a signal after
            that did not fail but was ended.
    """
    failed = [rank for rank in ranks if rank.ending is not None and rank.ending.failed]
    if stopped_at is not None:
        own = [rank for rank in failed if rank.ended_at < stopped_at or _by_itself(rank.ending)]
        failed = own or failed
    return min(failed, key=_order, default=None)


def _order(rank: Rank) -> tuple[int, float]:
    """Causes before what follows from them, and the earliest first.

    A rank that hangs because SIGSTOP has stopped it makes the others fail long before it ends. Of
    ranks that mpirun took down, or that are gone without a word, whoever complained last knows
    most.
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
    """The last lines of a rank's stderr; with a traceback among them, its end and what follows.

    Left out is what TensorFlow writes whenever it starts, and the stack that its errors quote
    before they say what has happened.

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
    """The last lines that tfhvdrun prints of a failed job.

    Args:
        rank: the one that failed first.
        ranks: all ranks. Who had come to the end of its program before may be why others failed.
    """
    assert rank.ending is not None
    lines = [f"tfhvdrun: {_who(rank)} failed first: {_how(rank.ending)}"]
    early = [other.rank for other in ranks if _ended_well_before(other, rank.failed_at)]
    if early and not rank.ending.silent:
        lines.append(f"tfhvdrun: {ranks_text(early)} had already ended with exit code 0")
    return [*lines, *_last_deeds(rank, rank.ending)]


def report_loss(rank: Rank, left: int, of: int, *, took_part: bool = True) -> list[str]:
    """What tfhvdrun prints of a rank without which the job continues.

    Args:
        rank: the lost one.
        left: how many ranks go on.
        of: how many there were at most.
        took_part: whether it had been let in.
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
    """What it was doing, and what it wrote last."""
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
