"""The hang monitor in each rank of a job without tfhvdrun, as under mpirun: reports why it hangs.

A thread of each rank checks from time to time whether the rank waits without progress. The first
rank that does takes snapshots of all ranks of its host, also of ranks whose Python is deadlocked,
and asks the other hosts for snapshots of theirs. If the Python of this rank is deadlocked itself,
the next rank does so instead. If the settings say so, the rank also ends the job: it leaves with a
reason for the waiting ranks, and its exit code makes the launcher end the others.
"""

from __future__ import annotations

import contextlib
import logging
import os
import threading
import time
from collections.abc import Callable
from pathlib import Path

from tfhvd.errors import NotInitializedError
from tfhvd.hang import flight_record, report_file, slow_ranks
from tfhvd.hang.classifier import Verdict
from tfhvd.hang.detector import HangWatch, Views, patient
from tfhvd.hang.own_job import ThisHost
from tfhvd.runtime.host_monitor import Answers, OtherHosts
from tfhvd.runtime.membership import membership
from tfhvd.runtime.native import load_native
from tfhvd.system.formatting import ranks_text
from tfhvd.system.process_exit import end_at_once

_logger = logging.getLogger("tfhvd")
_SHORTEST, _LONGEST = 0.5, 5.0  # seconds from one tick to the next
_TO_LEAVE = 2.0  # seconds to send the reason to the others
_LOOK = 10.0  # seconds that a snapshot may take
_PATIENCE = 0.2  # seconds to wait for the thread's end; during a snapshot it needs longer


class OwnWatch:
    """The hang monitor of this process while it takes part in a job."""

    def __init__(self) -> None:
        self._rank = 0
        self._record = -1
        self._limit = 0.0
        self._ends = False
        self._delays = slow_ranks.Watch()
        self._others = OtherHosts((), (0,), 0)
        self._here = ThisHost(os.getpid())
        self._answers = Answers()
        self._watch: HangWatch | None = None
        self._thread: threading.Thread | None = None
        self._over = threading.Event()

    def listen(self) -> str:
        """Prepares answers for ranks on other hosts; returns the token and address for them."""
        return self._answers.listen()

    def start(self) -> None:
        """Begins, unless a launcher watches the job, or the settings switch the monitor off."""
        native, topology = load_native(), membership.require_topology()
        config = native.config()
        self._rank, self._record = topology.rank, native.flight_record()
        self._limit = config.stall_check_time if config.stall_check else 0.0
        self._ends = config.on_hang.name == "ABORT"
        if membership.is_watched or topology.size == 1 or not self._limit or self._record < 0:
            self._answers.close()
            return
        self._delays = slow_ranks.Watch()
        self._here = ThisHost(os.getpid())  # the number has changed if the process was forked
        self._others = OtherHosts(topology.watch_addresses, topology.host_of, self._rank)
        if max(topology.host_of) > 0 and self._others.is_first:
            self._answers.start()
        else:
            self._answers.close()
        self._watch = HangWatch(patient(self._limit), self._probe, self._take, self._tell)
        self._over = threading.Event()
        self._thread = threading.Thread(
            target=self._run, args=(self._watch, self._over), name="tfhvd-watch", daemon=True
        )
        self._thread.start()

    def stop(self) -> None:
        """Ends the monitor at once, so that the others learn soon why this rank leaves."""
        self._watch = None
        if self._thread is not None:
            self._over.set()
            self._thread.join(_PATIENCE)
            self._thread = None
        self._answers.close()

    def _run(self, watch: HangWatch, over: threading.Event) -> None:
        period = max(_SHORTEST, min(self._limit / 8, _LONGEST))
        note = load_native().note_watch
        with contextlib.suppress(NotInitializedError):  # the engine may be gone before this ends
            while not over.is_set():
                note(_LOOK + 2 * period)  # if this thread cannot run, the next rank reports
                watch.tick(time.monotonic())
                self._look_for_delay(time.monotonic())
                over.wait(period)

    def _look_for_delay(self, now: float) -> None:
        """Warns once of a slow rank, on the first of the other ranks."""
        delay = self._delays.look(self._record, now)
        if delay is not None and self._rank == int(delay.rank == 0):
            _logger.warning("%s", delay.notice)

    @property
    def _early(self) -> float:
        return patient(self._limit).early

    def _probe(self) -> None:
        watch = self._watch
        if watch is None or not flight_record.waits_in_vain(self._record, self._early):
            return
        if self._is_to_tell():
            watch.stuck(time.monotonic())

    def _is_to_tell(self) -> bool:
        """Whether this rank reports: no lower rank that waits without progress can report."""
        if self._rank != self._here.first_that_waits():
            return False
        # Half of the time, so that a host that notices a moment later does not report again.
        return not self._others.wait_before(self._early / 2)

    def _take(self, now: float, then: Callable[[Views], None]) -> None:
        del now
        # Checked for each snapshot: on a busy machine the monitor of a lower rank may begin later.
        then({**self._others.look(), **self._here.look()} if self._is_to_tell() else {})

    def _tell(self, found: Verdict, looks: list[Views]) -> None:
        if self._watch is None:
            return
        last = report_file.write(Path(), found, looks)
        lines = "\n  ".join(("the job hangs:", *found.lines))
        if not self._ends:
            _logger.warning("%s\n  Rank %d has seen it; %s", lines, self._rank, last)
            return
        end = "TFHVD_ON_HANG=abort ends the job"
        _logger.error("%s\n  Rank %d has seen it; %s\n  %s", lines, self._rank, last, end)
        because = f" because of {ranks_text(found.ranks)}" if found.ranks else ""
        _end_job(f"the job hangs{because}: {found.kind.value}")


def _end_job(reason: str) -> None:
    """Leaves the job and ends this process, even if its other threads wait."""
    leave = threading.Thread(target=load_native().shutdown, args=(reason,), daemon=True)
    leave.start()
    leave.join(_TO_LEAVE)
    end_at_once(1)


own_watch = OwnWatch()  # this process's
membership.at_leaving(own_watch.stop)
