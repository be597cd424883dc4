"""Reports the progress of a long run on stderr: a bar on a terminal, else plain lines."""

from __future__ import annotations

from typing import TextIO

_WIDTH = 30


class Progress:
    """A counter of the steps of a run. For one thread; without a stream it prints nothing."""

    def __init__(self, steps: int, stream: TextIO | None) -> None:
        self._steps, self._stream = steps, stream
        self._done = 0
        self._bar = stream is not None and stream.isatty()

    def begin(self, what: str) -> None:
        """Begins the next step."""
        if self._stream is None:
            return
        if self._bar:
            full = _WIDTH * self._done // max(1, self._steps)
            bar = "#" * full + "." * (_WIDTH - full)
            self._stream.write(f"\r\033[K[{bar}] {self._done}/{self._steps} {what}")
        else:
            self._stream.write(f"tfhvd.bench: {self._done + 1}/{self._steps} {what}\n")
        self._stream.flush()
        self._done += 1

    def clear(self) -> None:
        """Removes the bar, so that other output can be printed."""
        if self._bar and self._stream is not None:
            self._stream.write("\r\033[K")
            self._stream.flush()
