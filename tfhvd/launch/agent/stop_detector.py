"""Halts: notices in a rank's agent that the rank's process is stopped, as by SIGSTOP."""

from __future__ import annotations

from collections.abc import Collection

from tfhvd.protocol import messages
from tfhvd.protocol.messages import FrameKind
from tfhvd.system import subreaper

EVERY = 0.5  # seconds between two checks


class Halts:
    """A detector for a rank's process that is stopped, or continues again. The agent owns it."""

    def __init__(self) -> None:
        self._look_at = 0.0
        self._since: float | None = None
        self._runs = False  # at the last check; a killed process may seem to run for a moment

    def look(self, group: int, pids: Collection[int], now: float) -> list[bytes]:
        """Checks, if it is time; returns the frames that tell the launcher of a change.

        Args:
            group: the rank's process group.
            pids: the processes to check; those of another group are ignored.
            now: by the steady clock, in seconds.
        """
        if now < self._look_at:
            return []
        self._look_at = now + EVERY
        stopped = subreaper.stopped(group, pids)
        if stopped and self._since is None:
            self._since, self._runs = now, False
            return [messages.frame_json(FrameKind.STOPPED, pid=stopped[0], lasted=None)]
        ran, self._runs = self._runs, not stopped
        if ran and self._runs and self._since is not None:
            lasted, self._since = now - EVERY - self._since, None
            return [messages.frame_json(FrameKind.STOPPED, pid=0, lasted=lasted)]
        return []
