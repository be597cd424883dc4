"""What tfhvdrun says of a job that hangs, of whom, and where it writes what was seen."""

from __future__ import annotations

import json
import os
from pathlib import Path

from tfhvd.watch import snapshot
from tfhvd.watch.hang_watch import Views
from tfhvd.watch.verdict import Verdict


def lines(found: Verdict, looks: list[Views], folder: Path | None = None) -> list[str]:
    """Writes the file; returns the lines for the terminal.

    Args:
        found: the verdict.
        looks: what it was made of.
        folder: where the file goes; None for the current one.
    """
    path = (folder or Path.cwd()) / f"tfhvd-verdict-{os.getpid()}.json"
    seen = [[snapshot.as_fields(look[number]) for number in sorted(look)] for look in looks]
    answer = {"kind": found.kind.name.lower(), "ranks": found.ranks, "lines": found.lines}
    try:
        path.write_text(json.dumps({**answer, "looks": seen}, indent=1), encoding="utf-8")
        last = f"all that was seen: {path}"
    except OSError as error:
        last = f"what was seen cannot be written to {path}: {error.strerror}"
    return [f"tfhvdrun: {line}" for line in ("the job hangs", *found.lines, last)]


def named(found: Verdict, looks: list[Views]) -> set[int]:
    """The numbers that the ranks of a verdict were started with."""
    return {number for number, seen in looks[-1].items() if seen.rank in found.ranks}
