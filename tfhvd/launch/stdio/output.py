"""Output: writes the ranks' output to our stdout and stderr, line by line, and to files."""

from __future__ import annotations

import os
from collections.abc import Hashable
from datetime import datetime
from pathlib import Path

from tfhvd.launch.state.tensorflow_banner import StartupFilter
from tfhvd.launch.stdio.line_merger import LineMerger
from tfhvd.launch.stdio.log_files import Logs, timestamp

_OUT, _ERR = 1, 2  # the launcher's descriptors


class Output:
    """The launcher's only way to write.

    stdout stays stdout and stderr stays stderr. If both are the same terminal or file, their lines
    are merged.

    Args:
        num_proc: the number of ranks at the start; others may join.
        prefix: whether each line begins with its rank, as in ``[1] ``.
        folder: also write ``folder/rank.R/stdout`` and ``stderr``; made if absent.
        show: the only rank whose output is written to our streams, None for all; or a folder, in
            which ``rank.R.log`` gets the output of each rank instead of our streams.
        timestamps: whether each line begins with the time.
        startup_lines: whether to write TensorFlow's start-up lines also for ranks after the first.
        append: whether to keep the present contents of the files, as from an earlier start.
    """

    def __init__(
        self,
        num_proc: int,
        *,
        prefix: bool = True,
        folder: Path | None = None,
        show: int | Path | None = None,
        timestamps: bool = False,
        startup_lines: bool = False,
        append: bool = False,
    ) -> None:
        self._prefix = prefix
        self._show = show
        self._timestamps = timestamps
        self._broken = False
        out = LineMerger(self._write, terminal=os.isatty(_OUT))
        err = out if _same(_OUT, _ERR) else LineMerger(self._write, terminal=os.isatty(_ERR))
        self._mergers = {_OUT: out, _ERR: err}
        self._logs = Logs(
            num_proc,
            streams=folder,
            ranks=show if isinstance(show, Path) else None,
            timestamps=timestamps,
            append=append,
        )
        self._hides_startup = show is None and not startup_lines
        self._filters: dict[int, StartupFilter] = {}

    @property
    def broken(self) -> bool:
        """Whether the reader of our stdout has ended (as in ``tfhvdrun ... | head``)."""
        return self._broken

    def feed(self, rank: int, data: bytes, now: float, *, errors: bool) -> None:
        """Writes a rank's output to its stdout, or (errors) stderr."""
        stamp = self._stamp()
        self._logs.feed(rank, data, now, errors=errors, stamp=stamp)
        if errors and rank > 0 and self._hides_startup:
            data = self._filters.setdefault(rank, StartupFilter()).feed(data)
        self._feed(rank, data, now, errors=errors, stamp=stamp)

    def aside(self, rank: int, data: bytes, now: float) -> None:
        """Writes a part of a rank's stderr that is of interest only in files and with -v."""
        stamp = self._stamp()
        self._logs.feed(rank, data, now, errors=True, stamp=stamp)
        if not self._hides_startup:
            self._feed(rank, data, now, errors=True, stamp=stamp)

    def _feed(self, rank: int, data: bytes, now: float, *, errors: bool, stamp: bytes) -> None:
        if not data or self._show not in (None, rank):
            return
        fd = _ERR if errors else _OUT
        prefix = b"[%d] " % rank if self._prefix else b""
        self._mergers[fd].feed((fd, rank), stamp + prefix, data, now)

    def _stamp(self) -> bytes:
        return timestamp(datetime.now()) if self._timestamps else b""

    def message(self, data: bytes) -> None:
        """Writes a message of mpirun or of the launcher to stderr, without a prefix."""
        merger = self._mergers[_ERR]
        merger.feed((_ERR, "tfhvdrun"), self._stamp(), data, 0.0)

    def tick(self, now: float) -> None:
        """Shows unfinished lines that have waited long enough."""
        for merger in set(self._mergers.values()):
            merger.tick(now)
        self._logs.tick(now)

    def waiting(self) -> bool:
        """Returns whether there are unfinished lines to show soon."""
        return self._logs.waiting() or any(merger.waiting() for merger in self._mergers.values())

    def finish(self, rank: int) -> None:
        """Ends a rank; its unfinished lines become complete lines."""
        self._logs.finish(rank)
        if rank in self._filters:
            rest = self._filters[rank].finish()
            self._feed(rank, rest, 0.0, errors=True, stamp=self._stamp())
        for fd, merger in self._mergers.items():
            merger.finish((fd, rank))

    def close(self) -> None:
        """Closes the files; messages may still be written."""
        for merger in self._mergers.values():
            merger.finish((_ERR, "tfhvdrun"))
        self._logs.close()

    def _write(self, source: Hashable, data: bytes) -> None:
        assert isinstance(source, tuple)
        view = memoryview(data)
        try:
            while view:
                view = view[os.write(source[0], view) :]
        except BrokenPipeError:
            self._broken = self._broken or source[0] == _OUT
        except BlockingIOError:
            os.set_blocking(source[0], True)
            self._write(source, bytes(view))


def _same(first: int, second: int) -> bool:
    try:
        return os.path.sameopenfile(first, second)
    except OSError:
        return False
