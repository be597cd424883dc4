"""Writes a file with all snapshots of a job that hangs; a terminal gets only a few lines."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path

from tfhvd.hang import snapshot
from tfhvd.hang.classifier import Verdict
from tfhvd.hang.detector import Views


def write(folder: Path, found: Verdict, looks: Sequence[Views]) -> str:
    """Writes the file, with this process's number in its name.

    Args:
        folder: of the file.
        found: the verdict.
        looks: the snapshots from which the verdict was made.

    Returns:
        A line with the path of the file, or with the reason why it could not be written.
    """
    path = folder / f"tfhvd-verdict-{os.getpid()}.json"
    seen = [[snapshot.as_fields(look[number]) for number in sorted(look)] for look in looks]
    answer = {"kind": found.kind.name.lower(), "ranks": found.ranks, "lines": found.lines}
    try:
        path.write_text(json.dumps({**answer, "looks": seen}, indent=1), encoding="utf-8")
        return f"all that was seen: {path.absolute()}"
    except OSError as error:
        return f"what was seen cannot be written to {path}: {error.strerror}"
