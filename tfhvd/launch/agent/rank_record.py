"""What the agent around a rank holds of it: its flight record, and whether it takes part.

The record is memory that outlives the rank, so that it says what the rank was doing when it ended.
"""

from __future__ import annotations

import os

from tfhvd.hang import flight_record, slow_ranks, snapshot


class KeptRecord:
    """One rank's.

    Attributes:
        process: the process that the record is of; 0: there is none.
        takes_part: whether a process of the rank has begun to take part, and not said goodbye.
    """

    def __init__(self) -> None:
        self.process = 0
        self.takes_part = False
        self._file: int | None = None
        self._delays = slow_ranks.Watch()

    def keep(self, file: int) -> None:
        """Takes a record, a descriptor, which is this object's from now on, for the one before."""
        if self._file is not None:
            os.close(self._file)
        self._file = file
        self.process = flight_record.process_of(file)

    def doing(self, at: float) -> str:
        """What the rank was doing when it ended; "" where it has left no record."""
        if self._file is None:
            return ""
        try:
            return flight_record.read(self._file, at).doing()
        except (OSError, flight_record.RecordError) as error:
            return f"What it was doing is not known: {error}."

    def waits_in_vain(self, limit: float) -> bool:
        """Whether it waits for so many seconds for others; see `flight.waits_in_vain`."""
        return self._file is not None and flight_record.waits_in_vain(self._file, limit)

    def delay(self, now: float) -> slow_ranks.Delay | None:
        """For whom this rank waits in step after step; see `delays.Watch`."""
        return None if self._file is None else self._delays.look(self._file, now)

    def view(self) -> dict[str, object]:
        """What is seen of the rank, which runs; nothing without a record."""
        if self._file is None:
            return {}
        try:
            record = flight_record.read(self._file)
        except (OSError, flight_record.RecordError):
            return {}
        return snapshot.as_fields(snapshot.take(record.pid, record))
