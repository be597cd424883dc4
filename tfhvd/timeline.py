"""start_timeline and stop_timeline: a record of the phases of every collective."""

from __future__ import annotations

import os
import time

from tfhvd.job.process import rank
from tfhvd.runtime.membership import membership
from tfhvd.runtime.native import load_native
from tfhvd.telemetry.timeline_file import timeline_file


def start_timeline(file_path: str | os.PathLike[str], mark_cycles: bool = False) -> None:
    """Begins to record a timeline of this job's collectives.

    Rank 0 writes the file, and knows when each rank became ready. Call this function on every rank
    or only on rank 0: it waits for no other rank, and records the collectives that are called
    later. `tfhvd timeline page` makes a page for a browser from the file; docs/timeline.md
    describes the contents. The file also has the steps that `hvd.profile` or `ProfileCallback`
    records meanwhile. The variable TFHVD_TIMELINE, or HOROVOD_TIMELINE, begins a timeline in
    `init`.

    Args:
        file_path: the file, which is created or emptied. If the path contains "{rank}", every rank
            that calls this function writes a file, with its number in the place of "{rank}".
        mark_cycles: whether to mark the beginning of each batch of agreed collectives.

    Raises:
        NotInitializedError: before `init`.
        ValueError: if a timeline is being recorded already, or the file cannot be made.
        TypeError: if `file_path` is not a path.

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
    """Ends the recording and closes its file; does nothing without a recording.

    `shutdown`, and the end of the program, also end the recording.

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
