"""Rows of results, as a table for people and as JSON. Pure functions."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

from tfhvd.bench.metrics import Times, algorithm_bandwidth, bus_bandwidth
from tfhvd.bench.subjects import ALONE
from tfhvd.bench.workloads import format_bytes

OURS = "tfhvd"
COLLECTIVE, GRADIENTS, TRAINING = "collective", "gradients", "training"
# The version of the JSON's layout, which changes when a key changes its meaning or is removed.
FORMAT = 1


@dataclasses.dataclass(frozen=True)
class Row:
    """The result of one subject on one workload.

    Attributes:
        kind: COLLECTIVE, GRADIENTS (an allreduce for each of several tensors) or TRAINING.
        workload: the name of the collective, the set or the model.
        subject: the name of the subject.
        bytes: the bytes of the workload.
        tensors: the number of its tensors.
        times: the times of the repetitions.
        algbw: GB/s; None if no bytes travel.
        busbw: GB/s; None if no bytes travel.
        images_per_second: the sum over all ranks, for TRAINING.
    """

    kind: str
    workload: str
    subject: str
    bytes: int
    tensors: int
    times: Times
    algbw: float | None = None
    busbw: float | None = None
    images_per_second: float | None = None

    def to_json(self) -> dict[str, Any]:
        """Returns the row in plain types, with times in microseconds."""
        return {
            "kind": self.kind,
            "workload": self.workload,
            "subject": self.subject,
            "bytes": self.bytes,
            "tensors": self.tensors,
            "repetitions": self.times.count,
            "min_us": 1e6 * self.times.least,
            "p50_us": 1e6 * self.times.median,
            "p99_us": 1e6 * self.times.p99,
            "processor_us": _scaled(self.times.processor, 1e6),
            "switches": self.times.switches,
            "algbw_GBps": self.algbw,
            "busbw_GBps": self.busbw,
            "images_per_second": self.images_per_second,
        }


def carried(
    kind: str,
    workload: str,
    subject: str,
    size: int,
    tensors: int,
    times: Times,
    ranks: int,
) -> Row:
    """Returns the row of a workload whose bytes travel between ranks, with its bandwidths."""
    collective = workload if kind == COLLECTIVE else "allreduce"
    return Row(
        kind,
        workload,
        subject,
        size,
        tensors,
        times,
        algorithm_bandwidth(size, times.median),
        bus_bandwidth(collective, size, times.median, ranks),
    )


_COLUMNS = (
    ("workload", 19, "<"),
    ("bytes", 9, ">"),
    ("tensors", 7, ">"),
    ("subject", 19, "<"),
    ("runs", 5, ">"),
    ("min", 9, ">"),
    ("p50", 9, ">"),
    ("p99", 9, ">"),
    ("above TF", 9, ">"),
    ("CPU", 9, ">"),
    ("switches", 8, ">"),
    ("algbw", 7, ">"),
    ("busbw", 7, ">"),
    ("p50/ours", 8, ">"),
)
_TRAINING_COLUMNS = (
    ("workload", 13, "<"),
    ("subject", 19, "<"),
    ("steps", 6, ">"),
    ("min", 9, ">"),
    ("p50", 9, ">"),
    ("p99", 9, ">"),
    ("images/s", 9, ">"),
    ("of alone", 8, ">"),
    ("exposed", 9, ">"),
)
LEGEND = """\
p50, p99: half, 99 of 100 repetitions took less, on the slowest rank. above TF: p50 less that of
the first line, which is the same without collectives. CPU, switches: processor time and context
switches of one repetition, the mean, on the rank with the most. algbw, busbw: GB/s, as in
nccl-tests."""
TRAINING_LEGEND = """\
Steps of 64 images. alone: every rank trains its own model at the same time. of alone: throughput
as a part of that. exposed: what a step takes longer, that is, communication that nothing hides."""


def header(kind: str) -> str:
    """Returns the head of the table for rows of this kind."""
    columns = _TRAINING_COLUMNS if kind == TRAINING else _COLUMNS
    return "  ".join(f"{name:{align}{width}}" for name, width, align in columns)


def lines(rows: Sequence[Row]) -> list[str]:
    """Returns the lines of all rows of one workload; the last columns compare the rows."""
    return [_training_line(row, rows) if row.kind == TRAINING else _line(row, rows) for row in rows]


def median_of(rows: Sequence[Row], subject: str) -> float | None:
    """Returns the median of a subject in the rows of one workload; None if it has no row."""
    return next((row.times.median for row in rows if row.subject == subject), None)


def _line(row: Row, rows: Sequence[Row]) -> str:
    alone = next((row.times.median for row in rows if row.subject in ALONE.values()), None)
    ours = median_of(rows, OURS)
    in_tensorflow = row.busbw is not None and row.subject != "MPI"
    cells = (
        row.workload,
        format_bytes(row.bytes),
        str(row.tensors),
        row.subject,
        str(row.times.count),
        *_times(row.times),
        "-" if alone is None or not in_tensorflow else format_seconds(row.times.median - alone),
        "-" if row.times.processor is None else format_seconds(row.times.processor),
        "-" if row.times.switches is None else f"{row.times.switches:.1f}",
        "-" if row.algbw is None else _digits(row.algbw),
        "-" if row.busbw is None else _digits(row.busbw),
        _digits(row.times.median / ours) if ours else "-",
    )
    return _join(cells, _COLUMNS)


def _training_line(row: Row, rows: Sequence[Row]) -> str:
    alone = None if row.subject == "alone" else median_of(rows, "alone")
    cells = (
        row.workload,
        row.subject,
        str(row.times.count),
        *_times(row.times),
        "-" if row.images_per_second is None else f"{row.images_per_second:.0f}",
        "-" if alone is None else f"{alone / row.times.median:.0%}",
        "-" if alone is None else format_seconds(row.times.median - alone),
    )
    return _join(cells, _TRAINING_COLUMNS)


def _digits(value: float) -> str:
    """Returns a number with three significant digits, never with an exponent."""
    text = f"{value:.3g}"
    return f"{value:.0f}" if "e+" in text else f"{value:.2g}" if "e" in text else text


def _scaled(value: float | None, factor: float) -> float | None:
    return None if value is None else factor * value


def _times(times: Times) -> tuple[str, str, str]:
    return format_seconds(times.least), format_seconds(times.median), format_seconds(times.p99)


def _join(cells: Sequence[str], columns: Sequence[tuple[str, int, str]]) -> str:
    parts = [f"{cell:{align}{width}}" for cell, (_, width, align) in zip(cells, columns)]
    return "  ".join(parts).rstrip()


def format_seconds(seconds: float) -> str:
    """Returns a time for people, with three significant digits.

    Example:
        >>> format_seconds(0.0000123), format_seconds(0.0456), format_seconds(2)
        ('12.3 us', '45.6 ms', '2.00 s')
    """
    for unit, factor in (("s", 1.0), ("ms", 1e-3), ("us", 1e-6)):
        value = seconds / factor
        if abs(value) >= 0.9995 or unit == "us":
            break
    digits = 0 if abs(value) >= 99.95 else 1 if abs(value) >= 9.995 else 2
    return f"{value:.{digits}f} {unit}"
