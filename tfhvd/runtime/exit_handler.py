"""Departure: how a process leaves its job if its program does not call `hvd.shutdown()`."""

from __future__ import annotations

import atexit
import contextlib
import io
import os
import re
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING

from tfhvd.errors import NotInitializedError, PeerLostError, TfhvdError
from tfhvd.runtime.native import load_native
from tfhvd.system.process_exit import end_at_once

if TYPE_CHECKING:
    from tfhvd.runtime.membership import Membership


_PACKAGE = str(Path(__file__).parents[1]) + "/"


class Departure:
    """Handles the end of the interpreter, an uncaught exception, and a fork.

    Args:
        membership: the membership that the process leaves.
    """

    def __init__(self, membership: Membership) -> None:
        self._membership = membership
        self._failed_with = 0  # the exit code of an uncaught exception, 0 without one
        self._everyone_knows = True

    def prepare(self) -> None:
        """Installs the handlers for the end and for a fork; call it once."""
        atexit.register(self._at_exit)
        os.register_at_fork(after_in_child=self._in_child)

    def hear_what_is_raised(self) -> None:
        """Installs the handler of uncaught exceptions; call it once."""
        previous = sys.excepthook

        def excepthook(
            kind: type[BaseException], error: BaseException, trace: TracebackType | None
        ) -> None:
            line = self._in_a_line(kind, error, trace)
            if line:
                self._say(line, lambda: previous(kind, error, trace))
            else:
                previous(kind, error, trace)
            if not _is_interactive():
                self._on_uncaught(kind, error)

        sys.excepthook = excepthook

    def _in_child(self) -> None:
        self._membership.forked = True
        self._membership.topology = None

    def _in_a_line(
        self, kind: type[BaseException], error: BaseException, trace: TracebackType | None
    ) -> str:
        """Returns one line that describes an exception completely; "" if its traceback matters.

        tfhvdrun shows this line together with the lines of the other ranks.
        """
        if not self._membership.is_watched:
            return ""
        if issubclass(kind, NotInitializedError):  # all ranks raise the same error
            return f"{_where(trace)}{gist(error)}"
        if self._membership.topology is None or self._membership.is_outside:
            return ""
        # Compared by name, because TensorFlow may not have been imported.
        follows = kind.__name__ == "AbortedError" or issubclass(kind, PeerLostError)
        if not follows or not load_native().is_cut_short():
            return ""
        return f"this rank ends because of another one: {gist(error)}"

    def _say(self, line: str, show: Callable[[], None]) -> None:
        """Prints one line. The rest goes to the files of the ranks, and to the output with -v."""
        rest = io.StringIO()
        with contextlib.redirect_stderr(rest):
            show()
        assert self._membership.launcher is not None
        self._membership.launcher.aside(rest.getvalue())
        print(f"tfhvd: {line}", file=sys.stderr)

    def _on_uncaught(self, kind: type[BaseException], error: BaseException) -> None:
        """Tells the other ranks at once, because threads of this process may run for long."""
        if self._membership.topology is None or self._membership.is_outside:
            return
        self._failed_with = 130 if issubclass(kind, KeyboardInterrupt) else 1
        reason = traceback.format_exception_only(kind, error)[-1].strip()
        self._tell_launcher()
        try:
            self._membership.leave(reason)
        except TfhvdError:
            self._everyone_knows = False

    def _tell_launcher(self) -> None:
        """Tells the launcher, before the other ranks, whether another rank has failed first."""
        assert self._membership.launcher is not None
        self._membership.launcher.leave(follows=load_native().is_cut_short())

    def _at_exit(self) -> None:
        if self._membership.forked:
            return
        native = load_native()
        try:
            if self._membership.is_outside:
                self._membership.leave("")
            elif self._membership.topology is not None:
                self._tell_launcher()
                native.check_health()
                self._membership.leave("")
            if self._everyone_knows and (native.finalize() or not _mpi4py_ends_mpi()):
                return
        except TfhvdError as error:
            if not self._failed_with:
                print(f"tfhvd: the job ended badly: {error}", file=sys.stderr)
        # A rank has failed or does not answer: MPI_Finalize could hang.
        end_at_once(self._failed_with or 1)

    def end_if_failed(self) -> None:
        """Ends the process at once if an uncaught exception has ended its program."""
        if self._failed_with:
            end_at_once(self._failed_with)


def gist(error: BaseException) -> str:
    """Returns the line of an error that names a rank, without TensorFlow's additions."""
    lines = [line for line in str(error).splitlines() if line.strip()] or [type(error).__name__]
    line = next((each for each in reversed(lines) if re.search(r"\brank \d", each)), lines[-1])
    return re.sub(r"\{\{.*?\}\}\s*|\s*\[Op:.*$|\s*\[\[.*$", "", line).strip()


def _where(trace: TracebackType | None) -> str:
    """Returns the line of the user's program in a traceback, such as "train.py, line 3: "."""
    own = [
        frame
        for frame in traceback.extract_tb(trace)
        if not frame.filename.startswith((_PACKAGE, "<frozen"))
        and "/site-packages/" not in frame.filename
    ]
    return f"{own[-1].filename}, line {own[-1].lineno}: " if own else ""


def _mpi4py_ends_mpi() -> bool:
    """Whether mpi4py may call MPI_Finalize at the end, which would wait for failed ranks."""
    return "mpi4py.MPI" in sys.modules


def _is_interactive() -> bool:
    """Whether the interpreter continues after an uncaught exception."""
    return hasattr(sys, "ps1") or bool(sys.flags.interactive)
