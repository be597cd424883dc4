"""All that was seen of a job that hangs, in a file: a terminal gets a few lines of it."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path

from tfhvd.hang import snapshot
from tfhvd.hang.classifier import Verdict
from tfhvd.hang.detector import Views


def write(folder: Path, found: Verdict, looks: Sequence[Views]) -> str:
    """Writes the file, named by this process; returns where it is, or why not, as a line.

    Args:
        folder: where it goes.
        found: the verdict.
        looks: what it was made of.
    """
    path = folder / f"tfhvd-verdict-{os.getpid()}.json"
    seen = [[snapshot.as_fields(look[number]) for number in sorted(look)] for look in looks]
    answer = {"kind": found.kind.name.lower(), "ranks": found.ranks, "lines": found.lines}
    try:
        path.write_text(json.dumps({**answer, "looks": seen}, indent=1), encoding="utf-8")
        return f"all that was seen: {path.absolute()}"
    except OSError as error:
        return f"what was seen cannot be written to {path}: {error.strerror}"
