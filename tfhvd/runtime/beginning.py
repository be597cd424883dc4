"""What all ranks of an elastic job have got alike before they train; ranks that come are told it.

A script may broadcast the epoch to begin with, or add up how much data each rank has found, before
its first `fit`. Whoever comes later calls the same collectives, in the same order, while the others
train: it gets the results that they got; but of large variables, which it gets where it begins to
train. Pure.
"""

from __future__ import annotations

import base64
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from tfhvd.errors import TfhvdError

# What is kept: a model's weights are larger, which a rank that comes gets anyway.
MOST_CALLS = 100
MOST_BYTES = 64 << 10


@dataclass(frozen=True)
class Call:
    """One eager collective whose results are equal on all ranks.

    Attributes:
        kind: such as "Broadcast".
        name: by which ranks meet; "" where they go by the order of calls.
        types: of its tensors.
    """

    kind: str
    name: str
    types: tuple[str, ...]

    def __str__(self) -> str:
        name = f" '{self.name}'" if self.name else ""
        return f"{self.kind.lower()}{name} ({', '.join(self.types)})"


@dataclass
class Beginning:
    """Calls and their results, in order: those of this process, or those that it was told of.

    Attributes:
        results: for each call the bytes of its tensors; None for what comes later.
    """

    results: list[tuple[Call, list[bytes] | None]] = field(default_factory=list)

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
        if len(self.results) == MOST_CALLS or not (has_room or comes_later):
            return False
        self.results.append((call, list(values) if has_room else None))
        return True

    def take(self, call: Call) -> list[bytes] | None:
        """Takes the results of the next call out, which must be this one; None: they come later.

        Raises:
            TfhvdError: if it is another one, or there is none.
        """
        expected = self.results[0][0] if self.results else None
        if call != expected:
            called = f"called {expected}" if expected else "called nothing more"
            raise TfhvdError(
                f"This rank has come to a job that trains, and begins with hvd.{call} here, where "
                f"the others have {called} before they trained. Every rank must call the same "
                "collectives in the same order: look for conditions that depend on the rank, on "
                "hvd.size(), or on files that are written while the job runs."
            )
        return self.results.pop(0)[1]

    def as_fields(self) -> list[Any]:
        """Makes what JSON can hold of it."""
        return [
            [call.kind, call.name, call.types, values and [_encoded(each) for each in values]]
            for call, values in self.results
        ]

    @classmethod
    def of_fields(cls, fields: Sequence[Any]) -> Beginning:
        """Makes it of what `as_fields` has made."""
        return cls(
            [
                (Call(kind, name, tuple(types)), values and list(map(base64.b64decode, values)))
                for kind, name, types, values in fields
            ]
        )


def _encoded(value: bytes) -> str:
    return base64.b64encode(value).decode()
