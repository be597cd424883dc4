"""``--pdb RANK``: one rank gets the launcher's stdin, and `breakpoint()` stops only this rank.

The launcher reads its stdin and sends it to the agent around the rank. mpirun's stdin is not used:
Open MPI 5 never reports the end of the input to a rank, and other ranks would wait for input.
"""

from __future__ import annotations

import contextlib
import os
import selectors
from collections.abc import Callable, Mapping
from typing import IO

from tfhvd.protocol import messages
from tfhvd.protocol.messages import FrameKind

PDB = "TFHVDRUN_PDB"  # in an agent's environment: the number of the rank that is debugged
STALL_CHECK = "TFHVD_STALL_CHECK_DISABLE"


def launcher_variables(rank: int | None, environ: Mapping[str, str]) -> dict[str, str]:
    """Returns the launcher's variables for a debugger: no stall check, as the user takes time."""
    if rank is None:
        return {}
    return {PDB: str(rank), **({} if STALL_CHECK in environ else {STALL_CHECK: "1"})}


def has_input(rank: int, environ: Mapping[str, str]) -> bool:
    """Returns whether the debugger is for this rank."""
    return environ.get(PDB) == str(rank)


def rank_variables(rank: int, environ: Mapping[str, str]) -> dict[str, str]:
    """Returns the rank's variables: `breakpoint()` does nothing if another rank is debugged."""
    return {} if PDB not in environ or has_input(rank, environ) else {"PYTHONBREAKPOINT": "0"}


class InputSender:
    """The launcher's side: sends its input to the rank, also input from before the rank's start.

    Args:
        select: the selector of the launcher's loop.
        fd: the launcher's stdin.
    """

    def __init__(self, select: selectors.BaseSelector, fd: int = 0) -> None:
        self._select = select
        self._fd = fd
        self._early: list[bytes] = []
        self._send: Callable[[bytes], None] = self._early.append
        try:
            select.register(fd, selectors.EVENT_READ, self._on_input)
        except (PermissionError, ValueError, OSError):  # a file, which is always readable
            with contextlib.suppress(OSError):
                while self._pass_on():
                    pass

    def to(self, send: Callable[[bytes], None]) -> None:
        """Connects the sender with the started rank; ``send`` takes frames for the rank."""
        self._send = send
        for frame in self._early:
            send(frame)
        self._early.clear()

    def stop(self) -> None:
        """Stops when the rank has ended, and reads no more."""
        with contextlib.suppress(KeyError, ValueError):
            self._select.unregister(self._fd)

    def _on_input(self) -> None:
        if not self._pass_on():
            self.stop()

    def _pass_on(self) -> bool:
        try:
            data = os.read(self._fd, 1 << 16)
        except OSError:  # a terminal that was closed
            data = b""
        self._send(messages.frame(FrameKind.INPUT, data))
        return bool(data)


class InputWriter:
    """The agent's side: writes to the rank's stdin, without waiting for the rank to read it.

    Args:
        select: the selector of the agent's loop.
        pipe: the rank's stdin, which is closed when all input is written.
    """

    def __init__(self, select: selectors.BaseSelector, pipe: IO[bytes]) -> None:
        self._select = select
        self._pipe = pipe
        self._waiting = bytearray()
        self._ends = False
        os.set_blocking(pipe.fileno(), False)

    def feed(self, data: bytes) -> None:
        """Takes the next input; empty data mean the end."""
        if self._pipe.closed:
            return
        self._waiting += data
        self._ends = self._ends or not data
        with contextlib.suppress(KeyError):
            self._select.register(self._pipe, selectors.EVENT_WRITE, self._write)

    def _write(self) -> None:
        try:
            del self._waiting[: os.write(self._pipe.fileno(), self._waiting)]
        except BlockingIOError:
            return
        except OSError:  # no process reads the pipe any more
            self._waiting.clear()
            self._ends = True
        if not self._waiting:
            self._select.unregister(self._pipe)
            if self._ends:
                self._pipe.close()
