"""All that was seen of a job that hangs, in a file: a terminal gets a few lines of it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from tfhvd.watch import snapshot
from tfhvd.watch.hang_watch import Views
from tfhvd.watch.verdict import Verdict


def write(folder: Path, job: int, found: Verdict, looks: Sequence[Views]) -> str:
    """Writes the file; returns the line that says where it is, or why it is not there.

    Args:
        folder: where it goes.
        job: the process by which the job is known.
        found: the verdict.
        looks: what it was made of.
    """
    path = folder / f"tfhvd-verdict-{job}.json"
    seen = [[snapshot.as_fields(look[number]) for number in sorted(look)] for look in looks]
    answer = {"kind": found.kind.name.lower(), "ranks": found.ranks, "lines": found.lines}
    try:
        path.write_text(json.dumps({**answer, "looks": seen}, indent=1), encoding="utf-8")
        return f"all that was seen: {path.absolute()}"
    except OSError as error:
        return f"what was seen cannot be written to {path}: {error.strerror}"
