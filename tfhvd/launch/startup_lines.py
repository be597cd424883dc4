"""Lines that TensorFlow writes to stderr whenever it starts: none of a rank's last lines. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable

# "2026-01-31 12:00:00.123456: I tensorflow/core/util/port.cc:153] text", and as absl writes it:
# "I0000 00:00:1767225600.123456   12345 port.cc:153] text".
_LOGGED = re.compile(
    r"(?:\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d+: ([IWE]) |([IWE])\d{4} \d\d:\d\d:[\d.]+ +\d+ )"
    r"(?:\S*/)?([\w.]+):\d+\] (.*)"
)
# Warnings and errors by which TensorFlow says at its start that there is no GPU, or what was linked
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
# Lines without a head: the second ones of some of those above.
_BARE = (
    "To enable the following instructions:",
    "Skipping registering GPU devices...",
    "WARNING: All log messages before absl::InitializeLog() is called are written to STDERR",
)


def is_startup_line(line: str) -> bool:
    """Whether TensorFlow writes a line like this at its start, or for information only."""
    if line.startswith(_BARE):
        return True
    match = _LOGGED.match(line)
    if match is None:
        return False
    level, file, text = match[1] or match[2], match[3], match[4]
    return level == "I" or (file in _HARMLESS and text.startswith(_HARMLESS[file]))


def without_startup_lines(lines: Iterable[str]) -> list[str]:
    """The lines that a program, or TensorFlow about it, has written."""
    return [line for line in lines if not is_startup_line(line)]
