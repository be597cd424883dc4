"""What an agent says to a launcher first. All of it is read before any of it counts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypeVar

from tfhvd.protocol import messages
from tfhvd.protocol.messages import FrameKind

_T = TypeVar("_T")


@dataclass(frozen=True)
class Again:
    """What an agent adds that another launcher has known.

    Attributes:
        started: whether its rank has been started.
        line: the roster that the rank was told last.
    """

    started: bool
    line: str


@dataclass(frozen=True)
class Hello:
    """The fields of wire.HELLO.

    Attributes:
        rank: the agent's.
        host: where it runs.
        share: how many cores its rank takes; 0: all.
        listens_at: where its rank meets the others; "" where it does not over TCP.
        inherits_at: where one would listen that takes the launcher's place; "": none.
        again: None where no other launcher has known it.
    """

    rank: int
    host: str
    share: int
    listens_at: str
    inherits_at: str
    again: Again | None


def read(kind: FrameKind, payload: bytes) -> Hello:
    """Reads an agent's first frame.

    Raises:
        wire.WireError: it is no hello.
    """
    if kind != FrameKind.HELLO:
        raise messages.WireError("no hello")
    fields = messages.read_json(payload)
    again = fields.get("again")
    found = Hello(
        rank=_field(fields, "rank", int),
        host=_field(fields, "host", str),
        share=_field(fields, "share", int, 0),
        listens_at=_field(fields, "listens_at", str, ""),
        inherits_at=_field(fields, "inherits_at", str, ""),
        again=None if again is None else _again(again),
    )
    if found.rank < 0:
        raise messages.WireError(f"no rank: {found.rank}")
    return found


def _again(fields: Any) -> Again:
    if not isinstance(fields, dict):
        raise messages.WireError(f"not a JSON object: {fields!r:.80}")
    return Again(_field(fields, "started", bool), _field(fields, "line", str))


def _field(fields: dict[str, Any], name: str, kind: type[_T], default: _T | None = None) -> _T:
    value = fields.get(name)
    if value is None and default is not None:
        return default
    if type(value) is not kind:  # True is no number
        raise messages.WireError(f"{name} is no {kind.__name__}: {value!r:.80}")
    return value
