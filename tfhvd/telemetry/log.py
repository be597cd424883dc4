"""Log lines of tfhvd's Python side, in the format of its engine: with rank, host and time.

    [tfhvd rank 1 on n1, 2026-01-31T12:00:00.123Z] warning: ...

A program that sets up `logging` gets the bare messages instead, from the logger "tfhvd".
"""

from __future__ import annotations

import logging
import sys
from datetime import datetime, timezone

from tfhvd.runtime.membership import membership

_logger = logging.getLogger("tfhvd")


class _Lines(logging.Handler):
    """Replaces Python's handler of last resort, which writes only the message."""

    def __init__(self, rank: int, host: str) -> None:
        super().__init__(logging.WARNING)
        self._who = f"tfhvd rank {rank} on {host}"

    def emit(self, record: logging.LogRecord) -> None:
        """Writes a line, unless the program has a handler."""
        if logging.getLogger().handlers or any(other is not self for other in _logger.handlers):
            return
        at = datetime.fromtimestamp(record.created, timezone.utc)
        time = at.isoformat(timespec="milliseconds").replace("+00:00", "Z")
        level = record.levelname.lower()
        try:
            print(f"[{self._who}, {time}] {level}: {self.format(record)}", file=sys.stderr)
        except Exception:  # the rule of the logging module: a log line never raises an error
            self.handleError(record)


class Lines:
    """The prefix of this process's log lines while it takes part in a job."""

    def __init__(self) -> None:
        self._handler: _Lines | None = None

    def start(self) -> None:
        """Begins to write the lines with rank and host."""
        topology = membership.require_topology()
        self.stop()
        self._handler = _Lines(topology.rank, topology.hosts[topology.rank])
        _logger.addHandler(self._handler)

    def stop(self) -> None:
        """Removes the handler."""
        if self._handler is not None:
            _logger.removeHandler(self._handler)
            self._handler = None


lines = Lines()  # this process's
membership.at_leaving(lines.stop)
