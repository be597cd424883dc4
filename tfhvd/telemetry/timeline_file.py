"""TimelineFile: adds Python's events to the timeline file that this rank's engine writes.

Only the engine writes the file while it records. Python adds its events after the engine has closed
the file.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

Event = dict[str, Any]  # of Chrome's trace format

_RANK = "{rank}"  # the place of the rank's number in a path: then every rank writes a file
_CLOSING = b"\n]\n"  # how `cc/observe/trace_file.cc` ends a file

_logger = logging.getLogger("tfhvd")


class TimelineFile:
    """The file of the present recording, if this rank writes one. One thread uses it."""

    def __init__(self) -> None:
        self._path: Path | None = None
        self._since = 0.0
        self._generation = 0
        self._made: list[Callable[[int], list[Event]]] = []

    def begin(self, path: str, rank: int, since: float, generation: int = 0) -> None:
        """Records that the engine has begun to record.

        Args:
            path: the path that the engine has received; "" for no file.
            rank: of this process.
            since: the time of the beginning, or a little before, by time.monotonic().
            generation: of the job's members; the engine writes another file for each generation.
        """
        own = path.replace(_RANK, str(rank), 1)
        writes = bool(path) and (own != path or rank == 0)
        self._path = Path(own).absolute() if writes else None
        self._since, self._generation, self._made = since, generation, []

    def add(self, make: Callable[[int], list[Event]], generation: int = 0) -> None:
        """Registers events to be added after the file is closed; does nothing without a file.

        Args:
            make: returns the events; its argument is the number of the rank's row.
            generation: the present generation of the job's members.
        """
        if self._path is not None and generation == self._generation:
            self._made.append(make)

    def end(self) -> None:
        """Adds the registered events, after the engine has closed the file."""
        path, self._path = self._path, None
        if path is None or not self._made:
            return
        try:
            self._append(path)
        except (OSError, ValueError) as error:
            _logger.warning("The steps that were profiled are not in %s: %s", path, error)

    def _append(self, path: Path) -> None:
        with path.open("r+b") as file:
            file.readline()
            first = json.loads(file.readline().rstrip(b",\n"))
            if first["ts"] < 1e6 * self._since:
                raise ValueError("it is the file of an earlier recording")
            end = file.seek(-len(_CLOSING), 2)
            if file.read() != _CLOSING:
                raise ValueError("it is not complete")
            file.seek(end)
            events = [event for make in self._made for event in make(first["pid"])]
            text = "".join(f",\n{json.dumps(event)}" for event in events)
            file.write(text.encode() + _CLOSING)


timeline_file = TimelineFile()  # this process's
