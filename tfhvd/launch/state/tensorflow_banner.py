"""Lines that TensorFlow writes to stderr whenever it starts. Pure.

tfhvdrun shows these lines for one rank only, and never among a rank's last lines.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

# TensorFlow: "2026-01-31 12:00:00.123456: I tensorflow/core/util/port.cc:153] text", and absl:
# "I0000 00:00:1767225600.123456   12345 port.cc:153] text". The lines that a Python program writes
# through absl name Python files.
_LOGGED = re.compile(
    r"(?:\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d+: ([IWE]) |([IWE])\d{4} \d\d:\d\d:[\d.]+ +\d+ )"
    r"(?:\S*/)?(\w+\.(?:cc|h)):\d+\] (.*)"
)
# Warnings and errors at TensorFlow's start about a missing GPU, or about a library that is linked
# twice: file -> the beginning of the text.
_HARMLESS = {
    "computation_placer.cc": "computation placer already registered",
    "cuda_blas.cc": "Unable to register cuBLAS factory",
    "cuda_blas.h": "Unable to register cuBLAS factory",
    "cuda_diagnostics.cc": "",
    "cuda_dnn.cc": "Unable to register cuDNN factory",
    "cuda_driver.cc": "failed call to cuInit",
    "cuda_fft.cc": "Unable to register cuFFT factory",
    "cuda_platform.cc": "failed call to cuInit",
    "cudart_stub.cc": "Could not find cuda drivers",
    "gpu_device.cc": "Cannot dlopen some GPU libraries",
    "py_utils.cc": "TF-TRT Warning",
}
# Lines without a head, which follow some of the lines above.
_BARE = (
    "To enable the following instructions:",
    "Skipping registering GPU devices...",
    "WARNING: All log messages before absl::InitializeLog() is called are written to STDERR",
)


def is_startup_line(line: str) -> bool:
    """Returns whether TensorFlow writes this line at its start, or for information only."""
    if line.startswith(_BARE):
        return True
    match = _LOGGED.match(line)
    if match is None:
        return False
    level, file, text = match[1] or match[2], match[3], match[4]
    return level == "I" or (file in _HARMLESS and text.startswith(_HARMLESS[file]))


def without_startup_lines(lines: Iterable[str]) -> list[str]:
    """Returns the other lines: of the program, and of TensorFlow about the program."""
    return [line for line in lines if not is_startup_line(line)]


# The beginnings of the lines with a head: 0 is any digit, X one of the levels.
_HEADS = ("0000-00-00 00:00:00.", "X0000 00:00:")
_LONGEST = 1 << 16  # bytes; a longer line is no start-up line


# Every text with a start-up line matches this pattern.
_MAY_HAVE = re.compile(
    rb"^(?:\d{4}-\d\d-\d\d |[IWE]\d{4} |%s)" % b"|".join(re.escape(b.encode()) for b in _BARE), re.M
)


class StartupFilter:
    """A filter that removes the start-up lines from a stream that arrives in pieces.

    It holds back only the beginning of a line that may become a start-up line.
    """

    def __init__(self) -> None:
        self._held = b""
        self._inside = False  # inside a line whose beginning was shown

    def feed(self, data: bytes) -> bytes:
        """Adds the next piece of the stream; returns the bytes to show."""
        data = self._held + data
        shown = bytearray()
        end = data.rfind(b"\n") + 1
        if end and not _MAY_HAVE.search(data, 0, end):  # the usual case, and much faster
            shown += data[:end]
            data, self._held, self._inside = data[end:], b"", False
        for piece in re.findall(rb"[^\n]*\n|[^\n]+", data):
            self._held = b""
            whole = piece.endswith(b"\n")
            if self._inside:
                shown += piece
            elif not whole and _may_become_startup_line(piece):
                self._held = piece
                break
            elif not (whole and is_startup_line(piece.decode(errors="replace").rstrip("\r\n"))):
                shown += piece
            self._inside = not whole
        return bytes(shown)

    def finish(self) -> bytes:
        """Ends the stream; returns the held-back bytes, unless they are a start-up line."""
        held, self._held = self._held, b""
        return b"" if is_startup_line(held.decode(errors="replace")) else held


def _may_become_startup_line(piece: bytes) -> bool:
    text = piece.decode(errors="replace")
    if len(piece) > _LONGEST:
        return False
    if any(bare.startswith(text) or text.startswith(bare) for bare in _BARE):
        return True
    return any(all(map(_fits, text, head)) for head in _HEADS)


def _fits(character: str, pattern: str) -> bool:
    if pattern == "0":
        return character.isdigit()
    return character in "IWE" if pattern == "X" else character == pattern
