"""What all ranks of an elastic job have done before they train; ranks that come are told of it.

A script may broadcast the epoch to begin with, or add up how much data each rank has found, before
its first `fit`. Whoever comes later calls the same collectives, in the same order, while the others
train: it gets the results that they got; but of large variables, which it gets where it begins to
train. A `fit` that is over is such a call as well, and what it gives is its history. Pure.
"""

from __future__ import annotations

import base64
import functools
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from tfhvd.errors import TfhvdError

# What is kept: a model's weights are larger, which a rank that comes gets anyway. All of it is said
# in one frame of the launcher's, each time that the ranks begin to train.
MOST_CALLS = 1000
MOST_BYTES = 64 << 10
MOST_TEXT = 256 << 10  # characters by which the calls are told from others
FIT, EVALUATE = "Model.fit", "Model.evaluate"
NO_RESULT: tuple[bytes, ...] = ()  # of a call that whoever comes makes by itself


@dataclass(frozen=True)
class Call:
    """One eager collective whose results are equal on all ranks, or a call of Keras.

    Attributes:
        kind: such as "Broadcast", or FIT or EVALUATE.
        name: by which ranks meet, "" where they go by the order of calls; or the model's.
        types: of its tensors, or what the call is told from others by.
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
        """How many it takes to tell it from others, as JSON."""
        return sum(len(json.dumps(text)) + 2 for text in (self.kind, self.name, *self.types))


@dataclass
class CallLog:
    """Calls and their results, in order: those of this process, or those that it was told of.

    Attributes:
        results: for each call the bytes of its tensors; None for what comes later.
    """

    results: list[tuple[Call, list[bytes] | None]] = field(default_factory=list)
    _taken: int = 0

    @property
    def trained(self) -> int:
        """How many trainings there are among the calls."""
        return sum(call.kind == FIT for call, _ in self.results)

    @property
    def taken(self) -> int:
        """How many of the trainings have been taken."""
        return sum(call.kind == FIT for call, _ in self.results[: self._taken])

    def keep(
        self, call: Call, size: int, values: Iterable[bytes], comes_later: bool = False
    ) -> bool:
        """Appends a call; returns whether there is room for it.

        Args:
            call: which one.
            size: of all its tensors, in bytes.
            values: each one's bytes; looked at only where there is room for them.
            comes_later: whether the values may be left out, for want of room.
        """
        before = sum(len(each) for _, kept in self.results for each in kept or ())
        has_room = before + size <= MOST_BYTES
        text = call.characters + sum(kept.characters for kept, _ in self.results)
        if len(self.results) == MOST_CALLS or text > MOST_TEXT or not (has_room or comes_later):
            return False
        self.results.append((call, list(values) if has_room else None))
        return True

    def take(self, call: Call) -> list[bytes] | None:
        """Returns the results of the next call, which must be this one; None: they come later.

        Raises:
            TfhvdError: if it is another one, or there is none.
        """
        expected, values = (*self.results[self._taken : self._taken + 1], (None, None))[0]
        if call != expected:
            called = f"called {expected}" if expected else "called nothing more"
            raise TfhvdError(
                f"This rank has come to a job that trains, and calls {call} here, where the others "
                f"have {called} before they trained. Every rank must call the same collectives in "
                "the same order, and fit: look for conditions that depend on the rank, on "
                "hvd.size(), or on files that are written while the job runs."
            )
        self._taken += 1
        return values

    def skip(self) -> None:
        """Takes the next call, without its results."""
        self._taken += 1

    def go_on(self, later: CallLog) -> None:
        """Goes on with what was told later: the same calls, and more."""
        self.results = later.results

    def as_fields(self) -> list[Any]:
        """Makes what JSON can hold of it."""
        return [
            [call.kind, call.name, call.types, values and [_encoded(each) for each in values]]
            for call, values in self.results
        ]

    @classmethod
    def of_fields(cls, fields: Sequence[Any]) -> CallLog:
        """Makes it of what `as_fields` has made."""
        return cls(
            [
                (Call(kind, name, tuple(types)), values and list(map(base64.b64decode, values)))
                for kind, name, types, values in fields
            ]
        )


def _encoded(value: bytes) -> str:
    return base64.b64encode(value).decode()
