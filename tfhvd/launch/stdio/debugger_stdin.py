"""``--pdb RANK``: our stdin is that rank's, and `breakpoint()` stops no other rank.

The launcher reads its stdin and sends it to the agent around the rank, whatever mpirun does with
stdin: Open MPI 5 never tells a rank of its end, and other ranks would wait for input in vain.
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
    """What the job needs in order to debug a rank: nobody complains that it takes its time."""
    if rank is None:
        return {}
    return {PDB: str(rank), **({} if STALL_CHECK in environ else {STALL_CHECK: "1"})}


def has_input(rank: int, environ: Mapping[str, str]) -> bool:
    """Whether this rank is the one that is debugged."""
    return environ.get(PDB) == str(rank)


def rank_variables(rank: int, environ: Mapping[str, str]) -> dict[str, str]:
    """What a rank needs: where another one is debugged, `breakpoint()` does nothing here."""
    return {} if PDB not in environ or has_input(rank, environ) else {"PYTHONBREAKPOINT": "0"}


class InputSender:
    """The launcher's side: sends what comes on a descriptor, also what came before the rank.

    Args:
        select: of the launcher's loop.
        fd: our stdin.
    """

    def __init__(self, select: selectors.BaseSelector, fd: int = 0) -> None:
        self._select = select
        self._fd = fd
        self._early: list[bytes] = []
        self._send: Callable[[bytes], None] = self._early.append
        try:
            select.register(fd, selectors.EVENT_READ, self._on_input)
        except (PermissionError, ValueError, OSError):  # a file, for which nobody has to wait
            with contextlib.suppress(OSError):
                while self._pass_on():
                    pass

    def to(self, send: Callable[[bytes], None]) -> None:
        """The rank is there; ``send`` takes frames for it."""
        self._send = send
        for frame in self._early:
            send(frame)
        self._early.clear()

    def stop(self) -> None:
        """The rank has ended, and reads no more."""
        with contextlib.suppress(KeyError, ValueError):
            self._select.unregister(self._fd)

    def _on_input(self) -> None:
        if not self._pass_on():
            self.stop()

    def _pass_on(self) -> bool:
        try:
            data = os.read(self._fd, 1 << 16)
        except OSError:  # a terminal that is gone
            data = b""
        self._send(messages.frame(FrameKind.INPUT, data))
        return bool(data)


class InputWriter:
    """The agent's side: writes to the rank's stdin, without waiting for the rank to read it.

    Args:
        select: of the agent's loop.
        pipe: what the rank reads; closed once all is written.
    """

    def __init__(self, select: selectors.BaseSelector, pipe: IO[bytes]) -> None:
        self._select = select
        self._pipe = pipe
        self._waiting = bytearray()
        self._ends = False
        os.set_blocking(pipe.fileno(), False)

    def feed(self, data: bytes) -> None:
        """Takes what comes next; nothing means the end."""
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
        except OSError:  # nobody reads it any more
            self._waiting.clear()
            self._ends = True
        if not self._waiting:
            self._select.unregister(self._pipe)
            if self._ends:
                self._pipe.close()
