"""How a process leaves its job where its program does not say so."""

from __future__ import annotations

import atexit
import os
import sys
import traceback
from types import TracebackType
from typing import TYPE_CHECKING

from tfhvd.errors import TfhvdError
from tfhvd.runtime.ending import end_at_once
from tfhvd.runtime.library import load_native

if TYPE_CHECKING:
    from tfhvd.runtime.membership import Membership


class Departure:
    """At the end of the interpreter, by an exception that nobody catches, and in a child.

    Args:
        membership: what is left.
    """

    def __init__(self, membership: Membership) -> None:
        self._membership = membership
        self._failed_with = 0  # the exit code of an uncaught exception, 0 where there was none
        self._everyone_knows = True

    def prepare(self) -> None:
        """Sees to it from now on; to be called once."""
        atexit.register(self._at_exit)
        os.register_at_fork(after_in_child=self._in_child)
        previous = sys.excepthook

        def excepthook(
            kind: type[BaseException], error: BaseException, trace: TracebackType | None
        ) -> None:
            previous(kind, error, trace)
            if not _is_interactive():
                self._on_uncaught(kind, error)

        sys.excepthook = excepthook

    def _in_child(self) -> None:
        self._membership.forked = True
        self._membership.topology = None

    def _on_uncaught(self, kind: type[BaseException], error: BaseException) -> None:
        """Tells the others at once, for threads of this process may go on for long."""
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
        """Says, before the other ranks can hear of it, whether it is one of them that failed."""
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
        # A rank is lost or does not answer, so that to end MPI in order could hang.
        end_at_once(self._failed_with or 1)

    def end_if_failed(self) -> None:
        """Ends the process at once if an exception that nobody caught has ended its program."""
        if self._failed_with:
            end_at_once(self._failed_with)


def _mpi4py_ends_mpi() -> bool:
    """Whether mpi4py may end MPI when the interpreter has ended, and wait for lost ranks."""
    return "mpi4py.MPI" in sys.modules


def _is_interactive() -> bool:
    """Whether the interpreter goes on after an uncaught exception."""
    return hasattr(sys, "ps1") or bool(sys.flags.interactive)
