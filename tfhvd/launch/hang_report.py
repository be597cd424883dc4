"""What tfhvdrun says of a job that hangs, and of whom."""

from __future__ import annotations

from pathlib import Path

from tfhvd.watch import verdict_file
from tfhvd.watch.hang_watch import Views
from tfhvd.watch.verdict import Verdict


def lines(found: Verdict, looks: list[Views], folder: Path | None = None) -> list[str]:
    """Writes all that was seen into a file; returns the lines for the terminal.

    Args:
        found: the verdict.
        looks: what it was made of.
        folder: where the file goes; None for the current one.
    """
    last = verdict_file.write(folder or Path.cwd(), found, looks)
    return [f"tfhvdrun: {line}" for line in ("the job hangs", *found.lines, last)]


def named(found: Verdict, looks: list[Views]) -> set[int]:
    """The numbers that the ranks of a verdict were started with."""
    return {number for number, seen in looks[-1].items() if seen.rank in found.ranks}
