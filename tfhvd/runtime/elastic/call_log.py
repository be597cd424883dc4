"""CallLog: the calls of an elastic job before its present training, for ranks that join. Pure.

Before its first `fit`, a script may broadcast the first epoch, or add up how much data each rank
has found. A rank that joins later makes the same calls in the same order while the others train. It
gets their results from the log. The log leaves out large variables, which the joining rank receives
when it begins to train. A finished `fit` is a call, too: its result is its history.
"""

from __future__ import annotations

import base64
import functools
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from tfhvd.errors import TfhvdError

# The limits of a log. The weights of a model are larger, and a joining rank receives them anyway.
# The ranks send the log in one frame to the launcher each time that they begin to train.
MOST_CALLS = 1000
MOST_BYTES = 64 << 10
MOST_TEXT = 256 << 10  # characters of all calls without their results
FIT, EVALUATE = "Model.fit", "Model.evaluate"
NO_RESULT: tuple[bytes, ...] = ()  # of a call that a joining rank makes by itself


@dataclass(frozen=True)
class Call:
    """One eager collective whose results are equal on all ranks, or a call of Keras.

    Attributes:
        kind: such as "Broadcast", or FIT or EVALUATE.
        name: of the collective, "" if the order of calls identifies it; or of the model.
        types: of its tensors; for a call of Keras, texts that distinguish it from other calls.
    """

    kind: str
    name: str
    types: tuple[str, ...]

    def __str__(self) -> str:
        name = f" '{self.name}'" if self.name else ""
        types = f" ({', '.join(self.types)})" if self.types else ""
        kind = self.kind if self.kind in (FIT, EVALUATE) else f"hvd.{self.kind.lower()}"
        return kind + name + types

    @functools.cached_property
    def characters(self) -> int:
        """The length of the call without its results, as JSON."""
        return sum(len(json.dumps(text)) + 2 for text in (self.kind, self.name, *self.types))


@dataclass
class CallLog:
    """Calls and their results, in order: of this process, or received from the other ranks.

    Attributes:
        results: for each call the bytes of its tensors; None if they were left out.
    """

    results: list[tuple[Call, list[bytes] | None]] = field(default_factory=list)
    _taken: int = 0

    @property
    def trained(self) -> int:
        """The number of trainings among the calls."""
        return sum(call.kind == FIT for call, _ in self.results)

    @property
    def taken(self) -> int:
        """The number of trainings that `take` and `skip` have passed."""
        return sum(call.kind == FIT for call, _ in self.results[: self._taken])

    def keep(
        self, call: Call, size: int, values: Iterable[bytes], comes_later: bool = False
    ) -> bool:
        """Appends a call; returns whether there is room for it.

        Args:
            call: the call.
            size: of all its tensors, in bytes.
            values: the bytes of each tensor; read only if there is room for them.
            comes_later: whether the log may leave out the values if there is no room.
        """
        before = sum(len(each) for _, kept in self.results for each in kept or ())
        has_room = before + size <= MOST_BYTES
        text = call.characters + sum(kept.characters for kept, _ in self.results)
        if len(self.results) == MOST_CALLS or text > MOST_TEXT or not (has_room or comes_later):
            return False
        self.results.append((call, list(values) if has_room else None))
        return True

    def take(self, call: Call) -> list[bytes] | None:
        """Returns the results of the next call; None if they were left out.

        Raises:
            TfhvdError: if `call` is not the next call of the log.
        """
        expected, values = (*self.results[self._taken : self._taken + 1], (None, None))[0]
        if call != expected:
            called = f"called {expected}" if expected else "called nothing more"
            raise TfhvdError(
                f"This rank joins a running job, and calls {call} here, but the others have "
                f"{called} before they trained. Every rank must call the same collectives in "
                "the same order, and fit: look for conditions that depend on the rank, on "
                "hvd.size(), or on files that are written while the job runs."
            )
        self._taken += 1
        return values

    def skip(self) -> None:
        """Passes the next call, without its results."""
        self._taken += 1

    def go_on(self, later: CallLog) -> None:
        """Continues with a later log, which has the same calls and more."""
        self.results = later.results

    def as_fields(self) -> list[Any]:
        """Returns the log as values for JSON."""
        return [
            [call.kind, call.name, call.types, values and [_encoded(each) for each in values]]
            for call, values in self.results
        ]

    @classmethod
    def of_fields(cls, fields: Sequence[Any]) -> CallLog:
        """Makes a log from the values of `as_fields`."""
        return cls(
            [
                (Call(kind, name, tuple(types)), values and list(map(base64.b64decode, values)))
                for kind, name, types, values in fields
            ]
        )


def _encoded(value: bytes) -> str:
    return base64.b64encode(value).decode()
