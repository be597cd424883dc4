"""The last lines and the exit code of tfhvdrun at the end of a job."""

from __future__ import annotations

import signal
from collections.abc import Collection

from tfhvd.launch.state.rank_state import Rank, first_failure, report, signal_name
from tfhvd.launch.state.shutdown_plan import Stopping
from tfhvd.launch.supervisor.process_manager import ProcessManager
from tfhvd.protocol.exit_codes import STOP_REQUESTED


def conclude(
    manager: ProcessManager,
    stopping: Stopping,
    ranks: Collection[Rank],
    present: Collection[int],
    missing: int,
) -> tuple[int, list[str]]:
    """Concludes a job; shows the held-back output of `manager` first, if it may tell the cause.

    Args:
        manager: the program that has started the ranks; it has ended.
        stopping: why the job was stopped, if it was.
        ranks: all ranks of the job.
        present: the numbers of the members at the end.
        missing: how many ranks have never connected.

    Returns:
        The exit code, and the lines to print.
    """
    if stopping.trouble is not None:
        return 1, [f"tfhvdrun: error: {stopping.trouble}"]
    if stopping.signal == signal.SIGPIPE:
        return 128 + signal.SIGPIPE, []
    took_part = [rank for rank in ranks if rank.rank in present]
    if took_part and all(rank.ending is not None and rank.ending.stops for rank in took_part):
        return STOP_REQUESTED, [
            f"tfhvdrun: all ranks stopped, as they were asked to (exit code {STOP_REQUESTED})"
        ]
    if stopping.signal is not None:
        return 128 + stopping.signal, [f"tfhvdrun: stopped by {signal_name(stopping.signal)}"]
    failed = first_failure(took_part, stopping.at)
    # If no rank has said goodbye, no rank has waited for the goodbye of another.
    none_waited = all(rank.ending is not None and rank.ending.silent for rank in took_part)
    if failed is not None and failed.ending is not None and not none_waited:
        code, lines = failed.ending.exit_code, report(failed, ranks)
        if failed.ending.by_mpirun:
            lines = [*manager.end_in_words(), *lines]  # it may know what the ranks do not
            code = manager.code if manager.code > 0 else code
        return code, lines
    if missing > 0:
        all_ranks = missing + len(ranks)
        text = manager.end_before_ranks_in_words(missing, all_ranks)
        return manager.code if manager.code > 0 else 1, [text]
    return 0, []


def not_started(ranks: Collection[int], of: int, limit: float) -> str:
    """Returns the error about ranks that have not started in time.

    Args:
        ranks: the numbers of the ranks that have started.
        of: how many ranks should have started.
        limit: the time limit in seconds.
    """
    missing = sorted(set(range(of)) - set(ranks))
    some = ", ".join(map(str, missing[:8])) + (", ..." if len(missing) > 8 else "")
    return (
        f"{len(missing)} of {of} ranks have not started after {limit:g} s (rank {some}). "
        "To find out why, run tfhvd doctor with the -np and -H of this job. --start-timeout S "
        "gives them more time; -v shows what mpirun prints"
    )
