"""start_timeline and stop_timeline: a record of what becomes of every collective."""

from __future__ import annotations

import os
import time

from tfhvd.job.process import rank
from tfhvd.runtime.membership import membership
from tfhvd.runtime.native import load_native
from tfhvd.telemetry.timeline_file import timeline_file


def start_timeline(file_path: str | os.PathLike[str], mark_cycles: bool = False) -> None:
    """Begins to record a timeline of this job's collectives.

    Rank 0 writes the file, and sees when each rank became ready. Call it on every rank or on rank 0
    alone: it waits for nobody, and records what is called from then on. `tfhvd timeline page`
    makes a page for a browser of it, and docs/timeline.md says what it has. Steps that
    `hvd.profile` or `ProfileCallback` records meanwhile are in it, too.
    The variable TFHVD_TIMELINE, or HOROVOD_TIMELINE, begins one in `init`.

    Args:
        file_path: the file, which is made or emptied. With "{rank}" in it every rank that calls
            this writes one, where that stands for its number.
        mark_cycles: whether to mark where collectives that were agreed on together begin.

    Raises:
        NotInitializedError: before `init`.
        ValueError: if a timeline is being recorded already, or the file cannot be made.
        TypeError: if `file_path` is no path.

    Example:
        >>> hvd.start_timeline("/tmp/timeline.json")
        >>> model.fit(x, y, steps_per_epoch=10)
        >>> hvd.stop_timeline()
    """
    membership.take_part()
    path, since = os.fsdecode(file_path), time.monotonic()
    load_native().start_timeline(path, bool(mark_cycles))
    timeline_file.begin(path, rank(), since, membership.generation())


def stop_timeline() -> None:
    """Ends the recording and closes its file; does nothing where nothing is recorded.

    `shutdown`, and the end of the program, do it as well.

    Raises:
        NotInitializedError: before `init`.
        TfhvdError: if the file could not be written to its end.

    Example:
        >>> hvd.stop_timeline()
    """
    membership.take_part()
    try:
        load_native().stop_timeline()
    finally:
        timeline_file.end()
