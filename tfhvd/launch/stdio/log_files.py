"""Logs: files of the ranks' output, one for each stream of a rank or one for each rank."""

from __future__ import annotations

import contextlib
from collections.abc import Hashable
from datetime import datetime
from pathlib import Path
from typing import BinaryIO

from tfhvd.launch.errors import UsageError
from tfhvd.launch.stdio.line_merger import LineMerger


def timestamp(at: datetime) -> bytes:
    """Returns the time as a prefix of a line: ``b"2026-01-31 12:00:00.123 "``."""
    return f"{at:%Y-%m-%d %H:%M:%S}.{at.microsecond // 1000:03d} ".encode()


class _Log:
    """One file, written byte by byte (raw), or in whole lines, so that two streams tear no line."""

    def __init__(self, path: Path, *, raw: bool, append: bool) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self._raw = raw
        self._file: BinaryIO = path.open("ab" if append else "wb")
        self.merger = LineMerger(self._write, terminal=False)

    def feed(self, source: Hashable, stamp: bytes, data: bytes, now: float) -> None:
        if self._raw:
            self._write(source, data)
        else:
            self.merger.feed(source, stamp, data, now)

    def close(self) -> None:
        self._file.close()

    def _write(self, source: Hashable, data: bytes) -> None:
        self._file.write(data)
        self._file.flush()


class Logs:
    """The files of a job.

    Args:
        num_proc: the number of ranks at the start; others may join.
        streams: the folder of ``--output-filename``: ``rank.R/stdout`` and ``rank.R/stderr``.
        ranks: the folder of ``--output``: ``rank.R.log``, with both.
        timestamps: whether `feed` will get a time to write before each line.
        append: whether to keep the present contents of the files.
    """

    def __init__(
        self,
        num_proc: int,
        *,
        streams: Path | None,
        ranks: Path | None,
        timestamps: bool,
        append: bool = False,
    ) -> None:
        self._logs: dict[tuple[int, bool], list[_Log]] = {}
        self._digits = len(str(num_proc - 1))
        self._streams = streams
        self._ranks = ranks
        self._raw = not timestamps
        self._append = append
        try:
            for rank in range(num_proc):
                self._open(rank)
        except OSError as error:
            with contextlib.suppress(OSError):
                self.close()
            option = f"--output {ranks}" if ranks else f"--output-filename {streams}"
            raise UsageError(f"cannot write to {option}: {error}") from error

    def _open(self, rank: int) -> None:
        for errors in (False, True):
            self._logs[rank, errors] = []
        name = f"rank.{rank:0{self._digits}d}"
        if self._streams is not None:
            for errors, stream in ((False, "stdout"), (True, "stderr")):
                log = _Log(self._streams / name / stream, raw=self._raw, append=self._append)
                self._logs[rank, errors].append(log)
        if self._ranks is not None:
            log = _Log(self._ranks / f"{name}.log", raw=False, append=self._append)
            for errors in (False, True):
                self._logs[rank, errors].append(log)

    def feed(self, rank: int, data: bytes, now: float, *, errors: bool, stamp: bytes) -> None:
        """Writes a rank's output to its stdout, or (errors) stderr."""
        if (rank, errors) not in self._logs:
            # A full disk must not end the job: this rank then has no file.
            with contextlib.suppress(OSError):
                self._open(rank)
        for log in self._logs.get((rank, errors), ()):
            log.feed(errors, stamp, data, now)

    def tick(self, now: float) -> None:
        """Writes unfinished lines that have waited long enough."""
        for log in self._all():
            log.merger.tick(now)

    def waiting(self) -> bool:
        """Returns whether there are unfinished lines to write soon."""
        return any(log.merger.waiting() for log in self._all())

    def finish(self, rank: int) -> None:
        """Ends a rank; its unfinished lines become complete lines."""
        for errors in (False, True):
            for log in self._logs.get((rank, errors), ()):
                log.merger.finish(errors)

    def close(self) -> None:
        """Closes the files."""
        for log in self._all():
            log.close()
        self._logs.clear()

    def _all(self) -> set[_Log]:
        return {log for logs in self._logs.values() for log in logs}
