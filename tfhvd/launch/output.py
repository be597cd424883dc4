"""Where the ranks' output goes: our stdout and stderr, line by line, and files if wanted."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Hashable
from pathlib import Path
from typing import BinaryIO

from tfhvd.launch.errors import UsageError
from tfhvd.launch.lines import LineMerger

_OUT, _ERR = 1, 2  # our own descriptors


class Output:
    """The launcher's one way to write.

    stdout stays stdout and stderr stays stderr. Where both are the same terminal or file, their
    lines are merged together.

    Args:
        num_proc: the number of ranks.
        prefix: whether each line begins with its rank, as in ``[1] ``.
        folder: also write ``folder/rank.R/stdout`` and ``stderr``; made if absent.
    """

    def __init__(self, num_proc: int, *, prefix: bool = True, folder: Path | None = None) -> None:
        self._prefix = prefix
        self._broken = False
        self._files: dict[tuple[int, int], BinaryIO] = {}
        out = LineMerger(self._write, terminal=os.isatty(_OUT))
        err = out if _same(_OUT, _ERR) else LineMerger(self._write, terminal=os.isatty(_ERR))
        self._mergers = {_OUT: out, _ERR: err}
        if folder is not None:
            self._open(folder, num_proc)

    @property
    def broken(self) -> bool:
        """Whether nobody reads our stdout any more (as in ``tfhvdrun ... | head``)."""
        return self._broken

    def feed(self, rank: int, data: bytes, now: float, *, errors: bool) -> None:
        """Takes what a rank wrote to its stdout, or (errors) stderr."""
        fd = _ERR if errors else _OUT
        prefix = b"[%d] " % rank if self._prefix else b""
        self._mergers[fd].feed((fd, rank), prefix, data, now)
        file = self._files.get((fd, rank))
        if file is not None:
            file.write(data)
            file.flush()

    def message(self, data: bytes) -> None:
        """Writes to stderr as it is: what mpirun or the launcher itself has to say."""
        merger = self._mergers[_ERR]
        merger.feed((_ERR, "tfhvdrun"), b"", data, 0.0)

    def tick(self, now: float) -> None:
        """Shows unfinished lines whose time has come."""
        for merger in set(self._mergers.values()):
            merger.tick(now)

    def waiting(self) -> bool:
        """Whether there are unfinished lines to be shown soon."""
        return any(merger.waiting() for merger in self._mergers.values())

    def finish(self, rank: int) -> None:
        """The rank has ended; its unfinished lines become lines."""
        for fd, merger in self._mergers.items():
            merger.finish((fd, rank))

    def close(self) -> None:
        """Closes the files; messages may still be written."""
        for merger in self._mergers.values():
            merger.finish((_ERR, "tfhvdrun"))
        for file in self._files.values():
            file.close()
        self._files.clear()

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

    def _open(self, folder: Path, num_proc: int) -> None:
        digits = len(str(num_proc - 1))
        try:
            for rank in range(num_proc):
                place = folder / f"rank.{rank:0{digits}d}"
                place.mkdir(parents=True, exist_ok=True)
                self._files[_OUT, rank] = (place / "stdout").open("wb")
                self._files[_ERR, rank] = (place / "stderr").open("wb")
        except OSError as error:
            with contextlib.suppress(OSError):
                self.close()
            raise UsageError(f"cannot write to --output-filename {folder}: {error}") from error


def _same(first: int, second: int) -> bool:
    try:
        return os.path.sameopenfile(first, second)
    except OSError:
        return False
