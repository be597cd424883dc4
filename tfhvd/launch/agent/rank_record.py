"""KeptRecord: the flight record of a rank in its agent, and whether the rank takes part.

The record is memory that outlives the rank, so that it tells what the rank was doing at its end.
"""

from __future__ import annotations

import os

from tfhvd.hang import flight_record, slow_ranks, snapshot


class KeptRecord:
    """The flight record of one rank.

    Attributes:
        process: the process that writes the record; 0 without a record.
        takes_part: whether a process of the rank has begun to take part, and not said goodbye.
    """

    def __init__(self) -> None:
        self.process = 0
        self.takes_part = False
        self._file: int | None = None
        self._delays = slow_ranks.Watch()

    def keep(self, file: int) -> None:
        """Replaces the record. `file` is its descriptor, which this object now owns."""
        if self._file is not None:
            os.close(self._file)
        self._file = file
        self.process = flight_record.process_of(file)

    def doing(self, at: float) -> str:
        """Returns what the rank was doing when it ended; "" if it has left no record."""
        if self._file is None:
            return ""
        try:
            return flight_record.read(self._file, at).doing()
        except (OSError, flight_record.RecordError) as error:
            return f"What it was doing is not known: {error}."

    def waits_in_vain(self, limit: float) -> bool:
        """Returns whether it has waited that long for others; see `flight_record.waits_in_vain`."""
        return self._file is not None and flight_record.waits_in_vain(self._file, limit)

    def delay(self, now: float) -> slow_ranks.Delay | None:
        """Returns which rank this one waits for in step after step; see `slow_ranks.Watch`."""
        return None if self._file is None else self._delays.look(self._file, now)

    def view(self) -> dict[str, object]:
        """Returns a view of the running rank, as fields; empty without a record."""
        if self._file is None:
            return {}
        try:
            record = flight_record.read(self._file)
        except (OSError, flight_record.RecordError):
            return {}
        return snapshot.as_fields(snapshot.take(record.pid, record))
