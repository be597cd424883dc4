"""LineMerger: the output of many ranks on one terminal or file, in whole lines with prefixes.

A line is written when it is complete. An unfinished line of a rank (a prompt, a progress bar) is
shown a moment later. It then holds the cursor: more text of this line is written at once. If
another rank finishes a line meanwhile, the unfinished line gives way. On a terminal it is erased
and written again after the other line; in a file it is written again when it is complete. So no
line is ever torn, and each complete line appears whole.

Pure: bytes and times in, bytes out.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Hashable
from dataclasses import dataclass

# Seconds until an unfinished line is shown (print writes a line in pieces). A file can wait longer:
# each time that a line gives way there costs a line.
SHOW_AFTER = 0.05
SHOW_AFTER_IN_FILE = 0.5
GIVE_WAY_AFTER = 1.0  # seconds of silence until another unfinished line may take the cursor
LONGEST = 1 << 16  # bytes; a longer line is shown only in part when it is written again

_ERASE_LINE = b"\r\x1b[K"


@dataclass
class _Line:
    """The unfinished line of one source."""

    prefix: bytes
    text: bytearray
    shown: int = 0  # bytes of text on the screen; 0 except for the holder of the cursor
    since: float = 0.0  # when the first byte that is not shown arrived
    heard: float = 0.0  # when the last byte arrived
    gave_way: bool = False  # whether it was shown, and another line has interrupted it

    def begin(self, prefix: bytes) -> None:
        """Sets the prefix, if the line is still empty."""
        if not self.text:
            self.prefix = prefix


class LineMerger:
    """A merger of the outputs of many sources into one stream.

    Args:
        write: takes (source, bytes) in order; it may block.
        terminal: whether the stream is a terminal, on which a line can be erased.
    """

    def __init__(self, write: Callable[[Hashable, bytes], None], *, terminal: bool) -> None:
        self._write = write
        self._terminal = terminal
        self._show_after = SHOW_AFTER if terminal else SHOW_AFTER_IN_FILE
        self._lines: dict[Hashable, _Line] = {}
        self._holder: Hashable | None = None

    def feed(self, source: Hashable, prefix: bytes, data: bytes, now: float) -> None:
        """Takes the bytes that ``source`` wrote at ``now`` seconds of any steady clock.

        ``prefix`` is for the lines that begin in ``data``.
        """
        line = self._lines.setdefault(source, _Line(prefix, bytearray()))
        if len(line.text) == line.shown or line.gave_way:
            line.since = now
        line.heard = now
        end = data.rfind(b"\n") + 1
        if end:
            self._feed_lines(source, line, prefix, data[:end])
        rest = data[end:]
        line.begin(prefix)
        line.text += rest
        if rest:
            line.gave_way = False
        if rest and (self._holder == source or len(line.text) - line.shown > LONGEST):
            self._show(source, line)
        if end and self._terminal:
            self._show_again()

    def tick(self, now: float) -> None:
        """Shows unfinished lines that have waited long enough. Call it about 50 times a second."""
        for source, line in self._lines.items():
            if len(line.text) == line.shown or line.gave_way or now < line.since + self._show_after:
                continue
            holder = self._lines.get(self._holder)
            if holder is None or holder is line or now > holder.heard + GIVE_WAY_AFTER:
                self._show(source, line)

    def waiting(self) -> bool:
        """Returns whether ``tick`` may have something to do later."""
        return any(len(line.text) > line.shown for line in self._lines.values())

    def finish(self, source: Hashable) -> None:
        """Ends a source; its unfinished line, if any, becomes a complete line."""
        line = self._lines.pop(source, None)
        if line is None or not line.text:
            return
        line.text += b"\n"
        self._finish_line(source, line)
        if self._terminal:
            self._show_again()

    def _feed_lines(self, source: Hashable, line: _Line, prefix: bytes, data: bytes) -> None:
        """Writes complete lines in one piece: output may arrive faster than a loop over lines."""
        if line.text:
            end = data.index(b"\n") + 1
            line.text += data[:end]
            self._finish_line(source, line)
            data = data[end:]
        if not data:
            return
        if self._holder is not None and self._holder != source:
            self._interrupt()
        self._write(source, _each_prefixed(prefix, data))
        self._holder = None

    def _finish_line(self, source: Hashable, line: _Line) -> None:
        self._show(source, line)
        self._holder = None
        line.text.clear()
        line.shown = 0

    def _show(self, source: Hashable, line: _Line) -> None:
        """Writes the part of the line that is not on the screen; the line then holds the cursor."""
        if self._holder is not None and self._holder != source:
            self._interrupt()
        # From the last byte on the screen on: after a carriage return the prefix is needed.
        fresh = bytes(line.text[max(0, line.shown - 1) :])
        self._write(source, _prefixed(line.prefix, fresh, shown=line.shown > 0))
        self._holder = source
        line.gave_way = False
        # To write the line again, only the text after the last carriage return is needed.
        last = fresh.rstrip(b"\r").rfind(b"\r") + 1
        dropped = len(line.text) - len(fresh) + last if last else len(line.text) - LONGEST
        del line.text[: max(0, dropped)]
        line.shown = len(line.text)

    def _interrupt(self) -> None:
        holder = self._lines.get(self._holder)
        self._write(self._holder, _ERASE_LINE if self._terminal else b"\n")
        self._holder = None
        if holder is not None:
            holder.shown = 0
            holder.gave_way = True

    def _show_again(self) -> None:
        if self._holder is None:
            for source, line in self._lines.items():
                if line.gave_way:
                    self._show(source, line)
                    return


# The position between a carriage return and other text.
_ANEW = re.compile(rb"(?<=\r)(?=[^\r\n])")


def _prefixed(prefix: bytes, text: bytes, *, shown: bool) -> bytes:
    """Returns the bytes to write for a part of a line.

    The prefix goes to the start, and after each carriage return that other text follows.

    Args:
        prefix: the prefix of the line.
        text: the part.
        shown: whether its first byte is on the screen already.
    """
    if b"\r" in text:
        text = _ANEW.sub(lambda found: prefix, text)
    return text[1:] if shown else prefix + text


def _each_prefixed(prefix: bytes, lines: bytes) -> bytes:
    """Returns complete lines, each with its prefix as by `_prefixed`."""
    text = _prefixed(prefix, lines, shown=False)
    return text[:-1].replace(b"\n", b"\n" + prefix) + b"\n"
