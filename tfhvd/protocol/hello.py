"""Hello: an agent's first frame to a launcher, which is validated completely before its use."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypeVar

from tfhvd.protocol import messages
from tfhvd.protocol.messages import FrameKind

_T = TypeVar("_T")


@dataclass(frozen=True)
class Again:
    """The state of an agent that reconnects to a launcher after a takeover.

    Attributes:
        started: whether its rank has been started.
        line: the last roster that the rank has received.
    """

    started: bool
    line: str


@dataclass(frozen=True)
class Hello:
    """The fields of a HELLO frame.

    Attributes:
        rank: the agent's rank.
        host: the agent's host.
        share: the number of cores for its rank; 0 for all.
        listens_at: the addresses at which its rank accepts other ranks; "" without TCP.
        inherits_at: the addresses at which this host would listen after a takeover; "" if it
            cannot take over.
        again: None for the agent's first launcher.
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
        messages.WireError: if the frame is not a HELLO.
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
    if type(value) is not kind:  # isinstance would accept True as an int
        raise messages.WireError(f"{name} is no {kind.__name__}: {value!r:.80}")
    return value
