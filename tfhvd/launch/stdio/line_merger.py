"""Many ranks' output on one terminal or file: whole lines, each with its rank's prefix.

A line is written when it is complete. What a rank leaves unfinished (a prompt, a progress bar) is
shown too, a moment later, and then holds the cursor: what comes next for it is written at once. If
another rank finishes a line meanwhile, the unfinished one gives way and is written anew after it:
on a terminal in its place, in a file as a line of its own once it is complete. So no line is ever
torn, and each complete line appears whole.

Pure: bytes and times in, bytes out.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Hashable
from dataclasses import dataclass

# Seconds until an unfinished line is shown (print writes a line in pieces). Nobody watches a file,
# where to give way costs a line.
SHOW_AFTER = 0.05
SHOW_AFTER_IN_FILE = 0.5
GIVE_WAY_AFTER = 1.0  # seconds of silence until another's unfinished line may take the cursor
LONGEST = 1 << 16  # bytes; a longer line is shown in part

_ERASE_LINE = b"\r\x1b[K"


@dataclass
class _Line:
    """The unfinished line of one source."""

    prefix: bytes
    text: bytearray
    shown: int = 0  # bytes of text that stand on the screen; not 0 only for the holder
    since: float = 0.0  # when the first byte that is not shown came
    heard: float = 0.0  # when the last byte came
    gave_way: bool = False  # was shown, and was interrupted

    def begin(self, prefix: bytes) -> None:
        """Takes the prefix, if nothing of the line has come yet."""
        if not self.text:
            self.prefix = prefix


class LineMerger:
    """Merges the outputs of many sources into one stream.

    Args:
        write: takes (source, bytes) in order; the caller's, may block.
        terminal: whether the stream is a terminal, on which a line can be erased.
    """

    def __init__(self, write: Callable[[Hashable, bytes], None], *, terminal: bool) -> None:
        self._write = write
        self._terminal = terminal
        self._show_after = SHOW_AFTER if terminal else SHOW_AFTER_IN_FILE
        self._lines: dict[Hashable, _Line] = {}
        self._holder: Hashable | None = None

    def feed(self, source: Hashable, prefix: bytes, data: bytes, now: float) -> None:
        """Takes what ``source`` wrote at ``now`` seconds of any steady clock.

        Lines that begin in ``data`` have the prefix that is given with it.
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
        """Shows unfinished lines whose time has come. Call it every few hundredths of a second."""
        for source, line in self._lines.items():
            if len(line.text) == line.shown or line.gave_way or now < line.since + self._show_after:
                continue
            holder = self._lines.get(self._holder)
            if holder is None or holder is line or now > holder.heard + GIVE_WAY_AFTER:
                self._show(source, line)

    def waiting(self) -> bool:
        """Whether ``tick`` may have something to do later."""
        return any(len(line.text) > line.shown for line in self._lines.values())

    def finish(self, source: Hashable) -> None:
        """The source has ended: its unfinished line, if any, becomes a line."""
        line = self._lines.pop(source, None)
        if line is None or not line.text:
            return
        line.text += b"\n"
        self._finish_line(source, line)
        if self._terminal:
            self._show_again()

    def _feed_lines(self, source: Hashable, line: _Line, prefix: bytes, data: bytes) -> None:
        """Writes lines that are whole, in one piece: output may come faster than Python counts."""
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
        """Writes what of the line is not on the screen, and makes it the holder."""
        if self._holder is not None and self._holder != source:
            self._interrupt()
        # From the last byte that stands there: a carriage return calls for the prefix.
        fresh = bytes(line.text[max(0, line.shown - 1) :])
        self._write(source, _prefixed(line.prefix, fresh, shown=line.shown > 0))
        self._holder = source
        line.gave_way = False
        # Only what stands after the last carriage return is needed to write the line anew.
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


# Between a carriage return and other text.
_ANEW = re.compile(rb"(?<=\r)(?=[^\r\n])")


def _prefixed(prefix: bytes, text: bytes, *, shown: bool) -> bytes:
    """What to write of a part of a line.

    The prefix goes to the start, and behind each carriage return that other text follows.

    Args:
        prefix: the line's.
        text: the part.
        shown: whether its first byte stands on the screen.
    """
    if b"\r" in text:
        text = _ANEW.sub(lambda found: prefix, text)
    return text[1:] if shown else prefix + text


def _each_prefixed(prefix: bytes, lines: bytes) -> bytes:
    """Whole lines, each as `_prefixed` has it."""
    text = _prefixed(prefix, lines, shown=False)
    return text[:-1].replace(b"\n", b"\n" + prefix) + b"\n"
